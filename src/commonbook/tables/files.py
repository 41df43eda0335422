"""The files of a home as the database knows them: their base, the journal of what is to be written, paths left.

The base of a file is how it was when it and its memory last agreed. The journal has one row for each memory
whose file is to be changed: the newest state wins, and every content and path that we issued since the row
was last struck off stays in it, so that we know our own writing again whoever finds it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from enum import Enum
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.model.ids import format_time
from commonbook.ports.database import Reading, Transaction
from commonbook.ports.files import FileStat
from commonbook.runtime.batches import in_batches

MISSING: Final = "missing"
_IDS_PER_QUERY: Final = 500
_FINE_TICKS_NS: Final = 20_000_000
_COARSE_TICKS_NS: Final = 2_000_000_000


class SyncedFile(NamedTuple):
    """A file as last synchronised (a tuple: there are many of them)."""

    path: str
    memory: str | None
    size: int
    mtime_ns: int
    young: int
    hash: str
    version: int
    trouble: str | None

    def matches(self, stat: FileStat) -> bool:
        """Tell whether the file cannot have changed since, judged without reading it."""
        return self.size == stat.size and self.mtime_ns == stat.mtime_ns and not self.young


class JournalEntry(NamedTuple):
    """What is to become of a memory's file: this content at this path, or nothing at all (no path)."""

    memory: str
    version: int
    path: str | None
    hash: str | None
    issued: tuple[tuple[str, str], ...]
    seen: int | None = None
    """The version that the file named when a person's save was taken in from it, if this is such a save."""

    @property
    def hashes(self) -> frozenset[str]:
        """Every content that we issued."""
        return frozenset(hash_ for _, hash_ in self.issued)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that we wrote to, or were about to."""
        return tuple(dict.fromkeys(path for path, _ in self.issued))


class WrittenFile(NamedTuple):
    """One row of the journal that was carried out: what now lies where, or that nothing does."""

    memory: str
    version: int
    path: str | None
    hash: str | None
    stat: FileStat | None


class SaveOrder(Enum):
    """Where a text that a person typed belongs in the history of its memory."""

    NEWER = "newer"
    EARLIER = "earlier"


def place_in_history(*, version: int | None, row_version: int, journal: JournalEntry | None) -> SaveOrder:
    """Decide where a text that a person typed belongs in the history of its memory.

    It stands on top of what the row says if we were writing nothing; or if its front matter has the row's own
    version, so that the person had seen what we wrote; or if we were only writing out the same person's save
    before it. Otherwise it belongs before what we wrote meanwhile.
    """
    if journal is None or version == row_version:
        return SaveOrder.NEWER
    if journal.seen is not None and version == journal.seen and journal.version == row_version:
        return SaveOrder.NEWER
    return SaveOrder.EARLIER


def content_hash(data: bytes) -> str:
    """Return the hash by which contents of files are compared."""
    return sha256(data).hexdigest()


def is_recent(stat: FileStat, now_ns: int) -> bool:
    """Tell whether a file was changed so recently that a second change could leave the same time on it."""
    ticks = _COARSE_TICKS_NS if stat.mtime_ns % 1_000_000_000 == 0 else _FINE_TICKS_NS
    return now_ns - stat.mtime_ns < ticks


# --- bases

_BASE: Final = ", ".join(SyncedFile._fields)


def synced_files(tx: Reading) -> dict[str, SyncedFile]:
    """Return the base of every file, by path."""
    rows = tx.rows(f"SELECT {_BASE} FROM file")
    return {base.path: base for base in map(SyncedFile._make, rows)}


def expected_stats(tx: Reading) -> dict[str, tuple[int, int]]:
    """Return how every file should look, as a walk would tell it; one that is to be read anyway looks like none."""
    rows = tx.rows(
        "SELECT path, size, CASE WHEN young = 0 AND coalesce(trouble, '') <> :missing THEN mtime_ns ELSE -1 END"
        " FROM file",
        missing=MISSING,
    )
    return {path: (size, mtime_ns) for path, size, mtime_ns in rows}


def synced_file(tx: Reading, path: str) -> SyncedFile | None:
    """Return the base of one file."""
    row = tx.row(f"SELECT {_BASE} FROM file WHERE path = :path", path=path)
    return SyncedFile._make(row) if row else None


def known_hashes(tx: Reading, memory: str) -> frozenset[str]:
    """Return every content of a memory's file that is not a person's: its bases and what we issued."""
    row = journal_entries(tx, [memory]).get(memory)
    return readable_hashes(synced_files_of(tx, [memory]).get(memory, [])) | (row.hashes if row else frozenset())


def readable_hashes(bases: Iterable[SyncedFile]) -> frozenset[str]:
    """Return the contents on which files and memories agreed: not those that could not be read or understood."""
    return frozenset(base.hash for base in bases if base.trouble in {None, MISSING})


def synced_files_of(tx: Reading, memories: Sequence[str]) -> dict[str, list[SyncedFile]]:
    """Return the bases of the files of some memories."""
    found: dict[str, list[SyncedFile]] = {}
    for some in in_batches(memories, _IDS_PER_QUERY):
        rows = tx.rows(f"SELECT {_BASE} FROM file WHERE memory IN :memories", memories=some)
        for base in map(SyncedFile._make, rows):
            if base.memory is not None:
                found.setdefault(base.memory, []).append(base)
    return found


def troubles_of(tx: Reading, memories: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return what is wrong with the files of some memories, by memory and path; mostly nothing is."""
    found: dict[tuple[str, str], str] = {}
    for some in in_batches(memories, _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT memory, path, trouble FROM file WHERE memory IN :memories AND trouble IS NOT NULL", memories=some
        )
        found.update({(memory, path): trouble for memory, path, trouble in rows if trouble})
    return found


def set_synced(
    tx: Transaction,
    path: str,
    stat: FileStat,
    hash_: str,
    *,
    memory: str | None,
    version: int = 0,
    trouble: str | None = None,
    now_ns: int | None = None,
) -> None:
    """Note how a file and its memory agree now, unless a newer version of the same memory is noted already."""
    young = is_recent(stat, time.time_ns() if now_ns is None else now_ns)
    tx.run(
        "INSERT INTO file (path, memory, size, mtime_ns, young, hash, version, trouble)"
        " VALUES (:path, :memory, :size, :mtime_ns, :young, :hash, :version, :trouble)"
        " ON CONFLICT (path) DO UPDATE SET memory = :memory, size = :size, mtime_ns = :mtime_ns, young = :young,"
        " hash = :hash, version = :version, trouble = :trouble"
        " WHERE file.memory IS NOT :memory OR file.version <= :version",
        path=path,
        memory=memory,
        size=stat.size,
        mtime_ns=stat.mtime_ns,
        young=int(young),
        hash=hash_,
        version=version,
        trouble=trouble,
    )


def set_trouble(tx: Transaction, path: str, trouble: str | None) -> None:
    """Note what is wrong with a file, or that nothing is any more."""
    tx.run("UPDATE file SET trouble = :trouble WHERE path = :path", path=path, trouble=trouble)


def force_read(tx: Transaction) -> None:
    """Let the next look read every file, whatever its size and time say."""
    tx.run("UPDATE file SET young = 1")


def drop_synced(tx: Transaction, path: str, memory: str | None) -> None:
    """Forget the file that a memory no longer has there; another memory's file at the path stays known."""
    tx.run("DELETE FROM file WHERE path = :path AND memory IS :memory", path=path, memory=memory)


def any_missing(tx: Reading) -> bool:
    """Tell whether files are missing whose memories are kept until a person agrees."""
    return tx.row("SELECT 1 FROM file WHERE trouble = :missing LIMIT 1", missing=MISSING) is not None


def troubles(tx: Reading) -> list[SyncedFile]:
    """Return the files with which something is wrong."""
    rows = tx.rows(f"SELECT {_BASE} FROM file WHERE trouble IS NOT NULL ORDER BY path")
    return [SyncedFile._make(row) for row in rows]


def counts(tx: Reading) -> tuple[int, int]:
    """Return how many files there are and how many bytes they hold."""
    count, size = tx.row("SELECT count(*), coalesce(sum(size), 0) FROM file") or (0, 0)
    return int(count), int(size)


# --- the journal


class _JournalRow(NamedTuple):
    """A row of the table `file_journal`: the fields are the columns, in the order of every SELECT."""

    memory: str
    version: int
    path: str | None
    hash: str | None
    issued: str
    seen: int | None


_JOURNAL: Final = ", ".join(_JournalRow._fields)


def enqueue(
    tx: Transaction, wanted: Sequence[tuple[str, int, str | None, str | None]], *, seen: int | None = None
) -> None:
    """Ask for contents (memory, version, path, hash), or for no file; what was asked before stays known as ours."""
    before = journal_entries(tx, [memory for memory, *_ in wanted])
    rows: list[dict[str, object]] = []
    for memory, version, path, hash_ in wanted:
        earlier = before[memory].issued if memory in before else ()
        issued = (*earlier, (path, hash_)) if path is not None else earlier
        said = {"memory": memory, "version": version, "path": path, "hash": hash_, "seen": seen}
        rows.append({**said, "issued": json.dumps(issued)})
    tx.run_many(
        "INSERT INTO file_journal (memory, version, path, hash, issued, seen)"
        " VALUES (:memory, :version, :path, :hash, :issued, :seen) ON CONFLICT (memory)"
        " DO UPDATE SET version = :version, path = :path, hash = :hash, issued = :issued, seen = :seen",
        rows,
    )


def journal_entries(tx: Reading, memories: Sequence[str]) -> dict[str, JournalEntry]:
    """Return the journal's rows for some memories."""
    found: dict[str, JournalEntry] = {}
    for some in in_batches(memories, _IDS_PER_QUERY):
        rows = tx.rows(
            f"SELECT {_JOURNAL} FROM file_journal WHERE memory IN :memories",
            memories=some,
        )
        found.update({row.memory: _journal(row) for row in map(_JournalRow._make, rows)})
    return found


def pending(tx: Reading) -> list[str]:
    """Return the memories whose files are to be written."""
    return [memory for (memory,) in tx.rows("SELECT memory FROM file_journal ORDER BY memory")]


def mark_done(tx: Transaction, carried: Iterable[WrittenFile]) -> None:
    """Take what was carried out off the journal and let it be the base of its file.

    Only what the journal still asks for in just this form: anything else was issued or struck off since.
    """
    for one in carried:
        struck = tx.run(
            "DELETE FROM file_journal WHERE memory = :memory AND version = :version"
            " AND coalesce(path, '') = coalesce(:path, '')",
            memory=one.memory,
            version=one.version,
            path=one.path,
        )
        if not struck:
            continue
        tx.run("DELETE FROM file WHERE memory = :memory AND path <> :path", memory=one.memory, path=one.path or "")
        if one.path is not None and one.stat is not None and one.hash is not None:
            set_synced(tx, one.path, one.stat, one.hash, memory=one.memory, version=one.version)


def _journal(row: _JournalRow) -> JournalEntry:
    issued = tuple((path, hash_) for path, hash_ in json.loads(row.issued))
    return JournalEntry(row.memory, row.version, row.path, row.hash, issued, row.seen)


# --- paths that we left


def record_move(tx: Transaction, path: str, memory: str) -> None:
    """Note that we moved a memory's file away from a path: a save there still means that memory."""
    tx.run(
        "INSERT INTO file_left (path, memory, at) VALUES (:path, :memory, :at)"
        " ON CONFLICT (path) DO UPDATE SET memory = :memory, at = :at",
        path=path,
        memory=memory,
        at=format_time(tx.now),
    )


def moved_from(tx: Reading, path: str) -> str | None:
    """Return the memory whose file we moved away from a path, or None."""
    (memory,) = tx.row("SELECT memory FROM file_left WHERE path = :path", path=path) or (None,)
    return str(memory) if memory else None


def clear_former_path(tx: Transaction, path: str) -> None:
    """Note that a path is in use again."""
    tx.run("DELETE FROM file_left WHERE path = :path", path=path)
