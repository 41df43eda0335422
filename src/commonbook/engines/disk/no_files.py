"""The Folder and Watcher ports without files: for a book whose memories are only rows of a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event
from typing import Literal

from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.ports.files import FileStat
from commonbook.values.memory import MARKDOWN_ENDINGS


class NoFiles:
    """The Folder and Watcher ports of a book that has no home folder.

    Memories still have paths, which an export uses; every path is free.
    """

    keeps_files = False

    def __init__(self, bytes_used: Callable[[], int]) -> None:
        """Use this function for the size of the database."""
        self._bytes_used = bytes_used

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return nothing: there are no files."""
        return {}

    def stat(self, path: str) -> FileStat | None:  # noqa: ARG002 - there is none at any path
        """Return nothing: there are no files."""
        return None

    def read(self, path: str) -> bytes | None:  # noqa: ARG002 - there is none at any path
        """Return nothing: there are no files."""
        return None

    def exists(self, path: str) -> bool:  # noqa: ARG002 - there is none at any path
        """Return False: there are no files."""
        return False

    def canonical_path(self, path: str) -> str:
        """Return the path unchanged."""
        return path

    def spelling(self, folder: str) -> str:
        """Return the path unchanged."""
        return folder

    def unreadable_paths(self) -> dict[str, str]:
        """Return nothing: every path is readable."""
        return {}

    def committed_secrets(self) -> list[str]:
        """Return nothing: there is no folder that could be in a repository."""
        return []

    def is_between_branches(self) -> bool:
        """Return False: there is no folder that could be in a repository."""
        return False

    def is_ours(self, path: str) -> bool:
        """Return whether a scan would include an exported file at this path."""
        return path.endswith(MARKDOWN_ENDINGS) and all(part and part[0] != "." for part in path.split("/"))

    @contextmanager
    def lock(self, *, wait: float) -> Iterator[bool]:  # noqa: ARG002 - nobody can hold it
        """Yield False: there is no lock."""
        yield False

    def our_paths(self) -> Callable[[str], bool]:
        """Return a function that answers `is_ours` for many paths."""
        return self.is_ours

    def require_place(self, path: str, *, checked_folders: set[str] | None = None) -> None:
        """Do nothing: every path can be used."""

    def prepare(self, wanted: Collection[tuple[str, bytes, str]]) -> None:
        """Do nothing: there is nothing to put."""

    def prepared(self, wanted: Collection[tuple[str, bytes, str]]) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: there is nothing to put."""
        return nullcontext()

    def put(self, path: str, data: bytes, *, owner: str) -> tuple[FileStat, str | None]:
        """Never called: a book without files writes none."""
        raise NotImplementedError

    def take(self, path: str, *, owner: str) -> str | None:
        """Never called: a book without files writes none."""
        raise NotImplementedError

    def rename_if_free(self, old: str, new: str) -> bool:
        """Never called: a book without files writes none."""
        raise NotImplementedError

    def add_file(
        self, path: str, data: bytes, *, mtime_ns: int, dry_run: bool = False
    ) -> Literal["new", "same", "taken"]:
        """Never called: a book without files writes none."""
        raise NotImplementedError

    def sync_later(self, path: str) -> None:
        """Do nothing: there are no files to sync."""

    def flush(self) -> None:
        """Do nothing: there are no files to sync."""

    def flush_later(self) -> Callable[[], None]:
        """Return a function that does nothing."""
        return self.flush

    def displaced_files(self) -> list[tuple[str, str]]:
        """Return nothing: no file was displaced."""
        return []

    def has_no_leftovers(self) -> bool:
        """Return True: no write is in progress."""
        return True

    def remove_unfinished(self) -> None:
        """Do nothing: there are no unfinished files."""

    def read_displaced(self, name: str) -> bytes | None:  # noqa: ARG002 - there is none of any name
        """There are no displaced files."""
        return None

    def drop_displaced(self, name: str) -> None:
        """There are no displaced files."""

    def restore_displaced(self, name: str, path: str) -> None:
        """There are no displaced files."""

    def prune(self, path: str) -> None:
        """Do nothing: there are no folders."""

    def free_bytes(self) -> int:
        """Return a number without limit: the server reports by itself that its disk is full."""
        return 2**63

    def bytes_used(self) -> int:
        """Return the size of the database."""
        return self._bytes_used()

    def is_present(self) -> bool:
        """Return False: there is no home folder."""
        return False

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Wait for the stop event; yield no changes."""
        stop.wait()
        yield from ()


class ReadOnlyFolder(NoFiles):
    """The Folder port of a preview.

    The lock of the files can never be had, so that a write is committed to the journal of the preview's own database,
    and no further.
    """

    keeps_files = True

    def __init__(self, home: str) -> None:
        """Read this folder, which exists."""
        super().__init__(lambda: 0)
        self._files = HomeFolder(home)

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return size and time of every Markdown and space file, except other hidden and ignored files and links."""
        return self._files.walk()

    def stat(self, path: str) -> FileStat | None:
        """Return size and time of a regular file, or None if there is none."""
        return self._files.stat(path)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if there is none; links are not followed."""
        return self._files.read(path)

    def exists(self, path: str) -> bool:
        """Return whether anything is at the path."""
        return self._files.exists(path)

    def canonical_path(self, path: str) -> str:
        """Return the path as a walk would spell it."""
        return self._files.canonical_path(path)

    def spelling(self, folder: str) -> str:
        """Return the path of a folder as it is spelled on the disk, if one is there that differs by case alone."""
        return self._files.spelling(folder)

    def unreadable_paths(self) -> dict[str, str]:
        """Return the paths that the last walk could not read, with the reason."""
        return self._files.unreadable_paths()

    def is_ours(self, path: str) -> bool:
        """Return whether a walk would include a file at this path."""
        return self._files.is_ours(path)

    def our_paths(self) -> Callable[[str], bool]:
        """Return a function that answers `is_ours` for many paths."""
        return self._files.our_paths()

    def require_place(self, path: str, *, checked_folders: set[str] | None = None) -> None:
        """Raise FileInTheWay unless the path can be written without leaving the folder."""
        self._files.require_place(path, checked_folders=checked_folders)

    def is_present(self) -> bool:
        """Return True: the folder of a preview is always there."""
        return True
