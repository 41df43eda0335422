"""A book without files: its rows are the truth, and there is nothing to write out, to look at or to watch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Event

from commonbook.ports.files import FileStat


class NoFiles:
    """The Folder and the Watcher of a book that has no home.

    Paths are still kept, for the day of an export; every one of them is free.
    """

    keeps_files = False

    def __init__(self, bytes_used: Callable[[], int]) -> None:
        """Ask this for the size of the database."""
        self._bytes_used = bytes_used

    def walk(self) -> dict[str, tuple[int, int]]:
        """Find nothing."""
        return {}

    def stat(self, path: str) -> FileStat | None:  # noqa: ARG002 - there is none at any path
        """Find nothing."""
        return None

    def read(self, path: str) -> bytes | None:  # noqa: ARG002 - there is none at any path
        """Find nothing."""
        return None

    def exists(self, path: str) -> bool:  # noqa: ARG002 - there is none at any path
        """Nothing is there."""
        return False

    def known_as(self, path: str) -> str:
        """Spell a path as it is."""
        return path

    def odd(self) -> dict[str, str]:
        """Nothing could not be looked at."""
        return {}

    def is_ours(self, path: str) -> bool:
        """Tell whether an export could have a file there that is seen."""
        return path.endswith(".md") and all(part and part[0] != "." for part in path.split("/"))

    @contextmanager
    def lock(self, *, wait: float) -> Iterator[bool]:  # noqa: ARG002 - nobody can hold it
        """There is nothing to do under the lock."""
        yield False

    def require_place(self, path: str) -> None:
        """Every path can be kept."""

    def prepare(self, wanted: Collection[tuple[str, bytes, str]]) -> None:
        """There is nothing to put."""

    def put(self, path: str, data: bytes, *, owner: str) -> tuple[FileStat, str | None]:
        """Nobody asks for it."""
        raise NotImplementedError

    def take(self, path: str, *, owner: str) -> str | None:
        """Nobody asks for it."""
        raise NotImplementedError

    def shift(self, old: str, new: str) -> bool:
        """Nobody asks for it."""
        raise NotImplementedError

    def secure(self, path: str) -> None:
        """There is nothing to make durable."""

    def flush(self) -> None:
        """There is nothing to make durable."""

    def came_out(self) -> list[tuple[str, str]]:
        """Nothing did."""
        return []

    def is_tidy(self) -> bool:
        """Nothing is on its way."""
        return True

    def sweep(self) -> None:
        """Nothing was left."""

    def read_out(self, name: str) -> bytes | None:  # noqa: ARG002 - there is none of any name
        """Nothing came out."""
        return None

    def drop_out(self, name: str) -> None:
        """Nothing came out."""

    def put_back(self, name: str, path: str) -> None:
        """Nothing came out."""

    def prune(self, path: str) -> None:
        """There are no folders."""

    def free_bytes(self) -> int:
        """Nobody asks: the server says itself when it is full."""
        return 2**63

    def bytes_used(self) -> int:
        """Return the size of the database."""
        return self._bytes_used()

    def present(self) -> bool:
        """Nothing is there to be looked at."""
        return False

    def close(self) -> None:
        """There is nothing to let go of."""

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Wait for the end: nothing changes."""
        stop.wait()
        yield from ()
