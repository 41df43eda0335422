"""The Folder port over a folder that must not change: files are read, and all writes stay in the journal."""

from __future__ import annotations

from collections.abc import Callable

from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.engines.disk.no_files import NoFiles
from commonbook.ports.files import FileStat


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
