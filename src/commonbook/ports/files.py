"""The file ports: the home folder, its watcher, YAML, and folders and archives outside the home.

`Folder` writes by atomic exchange: `put` and `take` swap or move a file in one step, and keep the content that was
there before as a displaced content with a name. `displaced_files`, `read_displaced`, `drop_displaced` and
`restore_displaced` handle displaced contents, so that a save of a person is never lost, not even in a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from threading import Event
from typing import Literal, NamedTuple, Protocol, TypeAlias

from commonbook.values.reports import Finding


class QuotedText(str):
    """A scalar that stands in quotes in a file: a text, whatever it looks like."""

    __slots__ = ()


class YamlField(NamedTuple):
    """A top-level field of a YAML mapping, and its lines (the first, and one past the last)."""

    name: str
    value: object
    first_line: int
    end_line: int


class Yaml(Protocol):
    """Parses front matter that is not in the plain form that this program writes."""

    def fields(self, text: str) -> list[YamlField]:
        """Return the top-level fields, in order.

        Every scalar is the string as written (null and empty are None); lists and maps nest.
        Raises BadFile for text that does not parse, for aliases and tags, and for nesting that is too deep.
        """
        ...


class FileStat(NamedTuple):
    """Size and modification time of a file, which are known without reading it (a tuple: there are many of them)."""

    size: int
    mtime_ns: int


class NewFile(NamedTuple):
    """The journal entry of a file that a transaction has added for a memory of its own."""

    version: int
    path: str
    hash: str


class FilesToWrite(dict[str, bytes | None]):
    """Contents of files by the ids of their memories, None for a file to remove; and what is known of their entries.

    That is right as long as nobody else has committed since (`Database.is_last_commit`).
    """

    def __init__(self) -> None:
        """Start a transaction with no file to write."""
        super().__init__()
        self.new: dict[str, NewFile] = {}
        """The entries of new memories, which have no other file and no earlier entry."""

    def note_new(self, memory: str, *, version: int, path: str, hash_: str) -> None:
        """Note the entry of a new memory."""
        self.new[memory] = NewFile(version, path, hash_)


class Folder(Protocol):
    """The Markdown side of a home. Paths are relative to the home, with `/`."""

    @property
    def keeps_files(self) -> bool:
        """Whether memories have files; otherwise their rows are the truth, and no other method is used."""
        ...

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return size and modification time (in nanoseconds) of every Markdown and space file of the book."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """Return size and modification time of a file, or None if there is none."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if there is none."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether anything is at the path, including a placeholder of a cloud drive."""
        ...

    def canonical_path(self, path: str) -> str:
        """Return the path as a walk would spell it."""
        ...

    def spelling(self, folder: str) -> str:
        """Return the path of a folder, spelled as one that is there already and differs from it by case alone."""
        ...

    def unreadable_paths(self) -> dict[str, str]:
        """Return the paths that the last walk could not read, each with the reason."""
        ...

    def committed_secrets(self) -> list[str]:
        """Return the paths of keys and databases that were committed to a git repository."""
        ...

    def is_between_branches(self) -> bool:
        """Tell whether git is on no branch in this folder, or is changing files just now.

        A commit that was checked out is looked at, and left again: only verbs write to its files.
        """
        ...

    def is_ours(self, path: str) -> bool:
        """Tell whether a walk would return this path if it were a file."""
        ...

    def our_paths(self) -> Callable[[str], bool]:
        """Return a function that answers `is_ours` for many paths, by the ignore file as it is now."""
        ...

    def lock(self, *, wait: float) -> AbstractContextManager[bool]:
        """Take the lock of the files of the home (`files.lock`); yield False if it cannot be had in time."""
        ...

    def require_place(self, path: str, *, checked_folders: set[str] | None = None) -> None:
        """Raise FileInTheWay unless the path can be written without leaving the home.

        `checked_folders` has the folders that were found to be right just before; this call adds its own.
        """
        ...

    def prepare(self, wanted: Collection[tuple[str, bytes, str]]) -> None:
        """Write temporary files for coming calls of `put`, each (path, data, owner): many together are faster."""
        ...

    def prepared(self, wanted: Collection[tuple[str, bytes, str]]) -> AbstractContextManager[None]:
        """Write temporary files for calls of `put`, before the lock is taken: their sync then holds nobody up."""
        ...

    def put(self, path: str, data: bytes, *, owner: str) -> tuple[FileStat, str | None]:
        """Put data at the path in one step; return its stat, and the name of a displaced content, if any."""
        ...

    def take(self, path: str, *, owner: str) -> str | None:
        """Remove the file in one step; return the name of the displaced content, if there was a file."""
        ...

    def rename_if_free(self, old: str, new: str) -> bool:
        """Rename a file unless something is at the new path; tell whether it was renamed."""
        ...

    def add_file(
        self, path: str, data: bytes, *, mtime_ns: int, dry_run: bool = False
    ) -> Literal["new", "same", "taken"]:
        """Add a file that is no memory, unless something is at the path; tell how it compares with what is there.

        Only under the lock. Raises FileInTheWay if the path cannot be written without leaving the home.
        """
        ...

    def sync_later(self, path: str) -> None:
        """Make the present state of a path durable at the next flush, even if another process changed it."""
        ...

    def flush(self) -> None:
        """Make durable every `put`, `take` and `rename_if_free` since the last flush."""
        ...

    def flush_later(self) -> Callable[[], None]:
        """Return a function that makes the same durable; it may be called when the lock is released."""
        ...

    def displaced_files(self) -> list[tuple[str, str]]:
        """Return (name, owner) of every displaced content that was not dropped."""
        ...

    def has_no_leftovers(self) -> bool:
        """Tell whether there is no temporary file and no displaced content."""
        ...

    def remove_unfinished(self) -> None:
        """Remove temporary files that a crash left; only under the lock, when no process writes."""
        ...

    def read_displaced(self, name: str) -> bytes | None:
        """Return a displaced content, or None if it is gone."""
        ...

    def drop_displaced(self, name: str) -> None:
        """Delete a displaced content."""
        ...

    def restore_displaced(self, name: str, path: str) -> None:
        """Put a displaced content at the path, or beside it if the path is taken."""
        ...

    def prune(self, path: str) -> None:
        """Remove the folders above a former path that became empty."""
        ...

    def free_bytes(self) -> int:
        """Return the free space of the disk."""
        ...

    def bytes_used(self) -> int:
        """Return the size of the database and its log."""
        ...

    def is_present(self) -> bool:
        """Tell whether the home is still the same folder as when it was opened."""
        ...

    def close(self) -> None:
        """Close all files."""
        ...


class Watcher(Protocol):
    """Reports changed files while the process runs."""

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Yield sets of changed paths, and an empty set from time to time, until stop is set.

        From the first set on, even if it is empty, changes are reported.
        """
        ...


class SourceFile(NamedTuple):
    """A file outside the home: its path in its folder or archive, its modification time, and its content.

    `exported` are the hashes of the contents that an export has written to this path.
    """

    path: str
    mtime_ns: int
    data: bytes
    exported: frozenset[str] = frozenset()


class HomeEntry(NamedTuple):
    """A file or folder in the home, and the reason why a scan skips it; None for a file that a scan looks at."""

    path: str
    skipped: str | None


Outcome: TypeAlias = Literal["new", "changed", "same", "foreign"]
"""How a file of an export compares with the one that was at its path before."""


class ExportTarget(Protocol):
    """A folder or archive that an export is written to."""

    def put(self, path: str, data: bytes, *, changed: datetime) -> Outcome:
        """Write one file, unless a foreign file is there; return how the file compares with the one before."""
        ...


class ExternalFiles(Protocol):
    """Folders and archives outside the home."""

    def source(self, place: str) -> str:
        """Return the real path of a folder or archive to read, or refuse it."""
        ...

    def files(self, place: str, *, only: Container[str] | None = None) -> Iterator[SourceFile | Finding]:
        """Yield the Markdown files, and a finding for each that cannot be read."""
        ...

    def space_files(self, place: str) -> Iterator[SourceFile]:
        """Yield the files that make their folders spaces."""
        ...

    def attachments(
        self, place: str | None, *, wanted: Callable[[str], bool], with_data: bool
    ) -> Iterator[SourceFile | Finding]:
        """Yield the wanted files that are not Markdown; None stands for the home, if there is one.

        Without data they are only named.
        """
        ...

    def home_entries(self) -> Iterator[HomeEntry]:
        """Yield every file of the home, if there is one, and every entry that a scan skips; a folder ends with `/`."""
        ...

    def template_folders(self, place: str) -> list[str]:
        """Return the folders that the settings of an Obsidian vault name as those of its templates."""
        ...

    def target(self, place: str) -> AbstractContextManager[ExportTarget]:
        """Open a folder or archive for writing; on leaving, an archive is complete, or unchanged after an error."""
        ...


class ArchiveFiles(Protocol):
    """Folders and archives of this machine, as zip archives that are sent to a server or come from one."""

    def pack(self, place: str, archive: str, *, wanted: Callable[[str], bool]) -> tuple[str, list[Finding]]:
        """Write all that an import would read to a new archive; return its path, and findings about other files."""
        ...

    def unpack(self, archive: str, place: str) -> list[tuple[str, Outcome]]:
        """Write the files of an exported archive to a folder or another archive; return how each compares."""
        ...
