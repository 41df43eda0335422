"""The file seams: the home folder, its watcher, YAML, and folders outside the home."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from commonbook.model.reports import Finding

if TYPE_CHECKING:
    pass


class YamlField(NamedTuple):
    """One top-level field of a YAML mapping, and the lines it stands on (first, one past the last)."""

    name: str
    value: object
    first_line: int
    end_line: int


class Yaml(Protocol):
    """Reads front matter that is not in our own plain form."""

    def fields(self, text: str) -> list[YamlField]:
        """Return the top-level fields, in order.

        Every scalar is the string as written (null and empty are None); lists and maps nest.
        Raises BadFile for what does not parse, aliases, tags, and anything nested too deep.
        """
        ...


class FileStat(NamedTuple):
    """What a directory listing tells about a file without reading it (a tuple: there are many of them)."""

    size: int
    mtime_ns: int


class Folder(Protocol):
    """The Markdown side of a home. Paths are relative to the home, with `/`."""

    @property
    def keeps_files(self) -> bool:
        """Whether memories are files here; otherwise their rows are the truth, and nothing else below is used."""
        ...

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return size and time (in nanoseconds) of every Markdown file that is ours to look at."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """Look at one file, or None if there is none."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return what a file holds, or None if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether anything is at the path, a placeholder of a cloud drive included."""
        ...

    def known_as(self, path: str) -> str:
        """Return how a walk would spell this path."""
        ...

    def odd(self) -> dict[str, str]:
        """Return what the last walk could not look at, and why."""
        ...

    def is_ours(self, path: str) -> bool:
        """Tell whether a walk would return this path if it were a file."""
        ...

    def lock(self, *, wait: float) -> AbstractContextManager[bool]:
        """Take `files.lock`; yields False when it could not be had in time."""
        ...

    def require_place(self, path: str) -> None:
        """Raise FileInTheWay unless the path can be written without leaving the home."""
        ...

    def prepare(self, wanted: Collection[tuple[str, bytes, str]]) -> None:
        """Make ready what is about to be put, each a path, its data and its owner: many together are quicker."""
        ...

    def put(self, path: str, data: bytes, *, owner: str) -> tuple[FileStat, str | None]:
        """Put data at the path in one step; return its stat and the name of what came out, if anything did."""
        ...

    def take(self, path: str, *, owner: str) -> str | None:
        """Take the file away in one step; return the name of what came out, if there was a file."""
        ...

    def shift(self, old: str, new: str) -> bool:
        """Rename a file unless something is at the new path; tell whether it is done."""
        ...

    def secure(self, path: str) -> None:
        """Make durable, at the next flush, what is or is no longer at a path, whoever did it."""
        ...

    def flush(self) -> None:
        """Make durable every put, take and shift since the last flush."""
        ...

    def came_out(self) -> list[tuple[str, str]]:
        """Return (name, owner) of everything that came out and was not dropped."""
        ...

    def is_tidy(self) -> bool:
        """Tell whether nothing is on its way in or out."""
        ...

    def sweep(self) -> None:
        """Remove what a crash left half written; only under the lock, where nobody is writing."""
        ...

    def read_out(self, name: str) -> bytes | None:
        """Return what came out."""
        ...

    def drop_out(self, name: str) -> None:
        """Throw away what came out."""
        ...

    def put_back(self, name: str, path: str) -> None:
        """Put what came out at the path again, or beside it if that is taken."""
        ...

    def prune(self, path: str) -> None:
        """Remove the folders that became empty above a path that was left."""
        ...

    def free_bytes(self) -> int:
        """Return the room left on the disk."""
        ...

    def bytes_used(self) -> int:
        """Return the size of the database and its log."""
        ...

    def present(self) -> bool:
        """Tell whether the home is still there, as the folder it was when it was opened."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Watcher(Protocol):
    """Tells which files change while a process lives."""

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Yield sets of paths that changed, and an empty set now and then, until stop is set.

        From the first set on, whatever it holds, no change goes unnoticed.
        """
        ...


class SourceFile(NamedTuple):
    """A Markdown file outside the home: its path in its folder or archive, when it was changed, what it holds."""

    path: str
    mtime_ns: int
    data: bytes


class ExportTarget(Protocol):
    """A folder or archive that an export is written to."""

    def put(self, path: str, data: bytes, *, changed: datetime) -> Literal["new", "changed", "same", "foreign"]:
        """Write one file, unless somebody else's is there; tell what it was."""
        ...


class ExternalFiles(Protocol):
    """Folders and archives outside the home."""

    def source(self, place: str) -> str:
        """Return the real path of what is to be read, or refuse it."""
        ...

    def files(self, place: str, *, only: Collection[str] | None = None) -> Iterator[SourceFile | Finding]:
        """Yield the Markdown files, and a finding for each that cannot be read."""
        ...

    def target(self, place: str) -> AbstractContextManager[ExportTarget]:
        """Open a folder or archive for writing; what is there becomes whole on leaving, or stays as it was."""
        ...
