"""The files of a home in the database: the tables `file`, `file_journal`, `file_left` and `file_reverted`.

A row of `file` is a file as last synchronised: its state when it and its memory last agreed, the base of a three-way
comparison. A row of `file_journal` is an entry of a write-ahead journal: a memory whose file is to be written or
removed. The newest version wins; all contents and paths since the entry was last done stay in it, so that any process
recognises our own writing. A row of `file_left` is a former path that still leads to the memory whose file was there.
A row of `file_reverted` is a revision that a save made, and that brought back what had been changed here since.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.ports.files import FileStat
from commonbook.runtime import in_batches
from commonbook.values.ids import format_time

MISSING: Final = "missing"
ABSENT: Final = "absent"
"""The trouble of a file that is not in its place and decides nothing.

It is a space file that went away together with the notes of its space, as after `git checkout`, or the file of a memory
that was moved and waits to be applied at its new place.
"""

SPACE_FILE_VERSION: Final = 1
"""The version of every space file: its row is the id of the space in place of that of a memory."""

_IDS_PER_QUERY: Final = 500
_FINE_TICK_NS: Final = 20_000_000
_COARSE_TICK_NS: Final = 2_000_000_000


class SyncedFile(NamedTuple):
    """A file as last synchronised (a tuple: there are many of them).

    `young` is 1 if the file must be read again, since its modification time is too recent to trust (`is_young`), or a
    full read was requested (`force_read`). `trouble` says what is wrong with the file, or `missing`.
    """

    path: str
    memory: str | None
    size: int
    mtime_ns: int
    young: int
    hash: str
    version: int
    trouble: str | None

    def matches(self, stat: FileStat) -> bool:
        """Tell by size and time, without reading the file, that it has not changed since."""
        return self.size == stat.size and self.mtime_ns == stat.mtime_ns and not self.young


class JournalEntry(NamedTuple):
    """The pending write of a memory's file: this content at this path, or no file (no path)."""

    memory: str
    version: int
    path: str | None
    hash: str | None
    issued: tuple[tuple[str, str], ...]
    is_write_back: bool = False
    """Whether this entry only completes the file of a person's save, which was applied just before."""

    @property
    def hashes(self) -> frozenset[str]:
        """The hashes of all contents issued since the entry was last done."""
        return frozenset(hash_ for _, hash_ in self.issued)

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that were written to, or were to be."""
        return tuple(dict.fromkeys(path for path, _ in self.issued))


class WrittenFile(NamedTuple):
    """A journal entry that was written out: the file that is at its path now, or no file."""

    memory: str
    version: int
    path: str | None
    hash: str | None
    stat: FileStat | None
    is_first: bool = False
    """Whether the memory has had no other file."""


def content_hash(data: bytes) -> str:
    """Return the SHA-256 by which contents of files are compared."""
    return sha256(data).hexdigest()


def is_young(stat: FileStat, now_ns: int) -> bool:
    """Tell whether a file must be read again: it changed so recently that a second change could leave the same time."""
    tick = _COARSE_TICK_NS if stat.mtime_ns % 1_000_000_000 == 0 else _FINE_TICK_NS
    return now_ns - stat.mtime_ns < tick


# --- synchronised files

_FILE_COLUMNS: Final = ", ".join(SyncedFile._fields)


def synced_files(tx: Reading) -> dict[str, SyncedFile]:
    """Return all files as last synchronised, by path."""
    rows = tx.rows(f"SELECT {_FILE_COLUMNS} FROM file")
    return {file.path: file for file in map(SyncedFile._make, rows)}


def expected_stats(tx: Reading) -> dict[str, tuple[int, int]]:
    """Return the expected (size, mtime_ns) of each file; a file that must be read anyway has an impossible time."""
    rows = tx.rows(
        "SELECT path, size, CASE WHEN young = 0 AND coalesce(trouble, '') <> :missing THEN mtime_ns ELSE -1 END"
        " FROM file WHERE coalesce(trouble, '') <> :absent",
        missing=MISSING,
        absent=ABSENT,
    )
    return {path: (size, mtime_ns) for path, size, mtime_ns in rows}


def synced_file(tx: Reading, path: str) -> SyncedFile | None:
    """Return a file as last synchronised, or None."""
    row = tx.row(f"SELECT {_FILE_COLUMNS} FROM file WHERE path = :path", path=path)
    return SyncedFile._make(row) if row else None


def known_hashes(tx: Reading, memory: str) -> frozenset[str]:
    """Return the hashes of a memory's file that are no save of a person: synchronised or written by us."""
    entry = journal_entries(tx, [memory]).get(memory)
    return agreed_hashes(synced_files_of(tx, [memory]).get(memory, [])) | (entry.hashes if entry else frozenset())


def agreed_hashes(synced: Iterable[SyncedFile]) -> frozenset[str]:
    """Return the hashes on which files and memories agreed, without those of files that could not be parsed."""
    return frozenset(file.hash for file in synced if file.trouble in {None, MISSING})


def synced_files_of(tx: Reading, memories: Sequence[str]) -> dict[str, list[SyncedFile]]:
    """Return the files of these memories as last synchronised, by memory."""
    by_memory: dict[str, list[SyncedFile]] = {}
    for batch in in_batches(memories, _IDS_PER_QUERY):
        rows = tx.rows(f"SELECT {_FILE_COLUMNS} FROM file WHERE memory IN :memories", memories=batch)
        for file in map(SyncedFile._make, rows):
            if file.memory is not None:
                by_memory.setdefault(file.memory, []).append(file)
    return by_memory


def without_file(tx: Reading, ids: Sequence[str]) -> set[str]:
    """Return those of these spaces or memories that have no file, and none that is to be written."""
    absent = set(ids)
    for batch in in_batches(ids, _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT memory FROM file WHERE memory IN :ids AND coalesce(trouble, '') <> :absent",
            ids=batch,
            absent=ABSENT,
        )
        absent.difference_update([memory for (memory,) in rows])
    # Mostly all have a file, and the journal is not asked.
    for batch in in_batches(tuple(absent), _IDS_PER_QUERY):
        rows = tx.rows("SELECT memory FROM file_journal WHERE memory IN :ids", ids=batch)
        absent.difference_update([memory for (memory,) in rows])
    return absent


def troubles_of(tx: Reading, memories: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the troubles of the files of these memories, by memory and path; files without trouble are left out."""
    troubles: dict[tuple[str, str], str] = {}
    for batch in in_batches(memories, _IDS_PER_QUERY):
        # Of the index that is named, nearly all memories have no row; in the other one each has a page of its own.
        rows = tx.rows(
            "SELECT memory, path, trouble FROM file INDEXED BY file_by_trouble"
            " WHERE memory IN :memories AND trouble IS NOT NULL",
            memories=batch,
        )
        troubles.update({(memory, path): trouble for memory, path, trouble in rows if trouble})
    return troubles


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
    """Record that a file and its memory agree, unless a newer version of the memory is recorded already."""
    young = is_young(stat, time.time_ns() if now_ns is None else now_ns)
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
    """Record what is wrong with a file, or None if nothing is."""
    tx.run("UPDATE file SET trouble = :trouble WHERE path = :path", path=path, trouble=trouble)


def force_read(tx: Transaction) -> None:
    """Make the next scan read every file, whatever its size and time are."""
    tx.run("UPDATE file SET young = 1")


def drop_synced(tx: Transaction, path: str, memory: str | None) -> None:
    """Delete the row of a file that a memory no longer has; another memory's file at the path stays."""
    tx.run("DELETE FROM file WHERE path = :path AND memory IS :memory", path=path, memory=memory)


def drop_absent(tx: Transaction, path: str, memory: str) -> None:
    """Delete the row of a file that waited to be applied at another place, and is applied there now."""
    tx.run(
        "DELETE FROM file WHERE path = :path AND memory = :memory AND trouble = :absent",
        path=path,
        memory=memory,
        absent=ABSENT,
    )


def any_missing(tx: Reading) -> bool:
    """Tell whether files are missing whose memories stay until a person agrees to their deletion."""
    return tx.row("SELECT 1 FROM file WHERE trouble = :missing LIMIT 1", missing=MISSING) is not None


def troubles(tx: Reading) -> list[SyncedFile]:
    """Return the files that have a trouble that a person should know, by path."""
    rows = tx.rows(
        f"SELECT {_FILE_COLUMNS} FROM file WHERE trouble IS NOT NULL AND trouble <> :absent ORDER BY path",
        absent=ABSENT,
    )
    return [SyncedFile._make(row) for row in rows]


def counts(tx: Reading) -> tuple[int, int]:
    """Return the number of Markdown files and their size in bytes."""
    count, size = tx.row("SELECT count(*), coalesce(sum(size), 0) FROM file WHERE path LIKE '%.md'") or (0, 0)
    return int(count), int(size)


# --- the journal


class _JournalRow(NamedTuple):
    """A row of the table `file_journal`: the fields are the columns, in the order of every SELECT."""

    memory: str
    version: int
    path: str | None
    hash: str | None
    issued: str
    is_write_back: int


_JOURNAL_COLUMNS: Final = ", ".join(_JournalRow._fields)


def enqueue(
    tx: Transaction,
    wanted: Sequence[tuple[str, int, str | None, str | None]],
    *,
    is_write_back: bool = False,
    are_new: bool = False,
) -> None:
    """Add journal entries (memory, version, path, hash; no path for no file); earlier contents stay known as ours.

    Memories that `are_new` have no earlier entry.
    """
    if not wanted:
        return
    pending_entries = {} if are_new else journal_entries(tx, [memory for memory, *_ in wanted])
    rows: list[dict[str, object]] = []
    for memory, version, path, hash_ in wanted:
        earlier = pending_entries[memory].issued if memory in pending_entries else ()
        issued = (*earlier, (path, hash_)) if path is not None else earlier
        row = {"memory": memory, "version": version, "path": path, "hash": hash_, "issued": json.dumps(issued)}
        rows.append({**row, "is_write_back": int(is_write_back)})
    tx.run_many(
        "INSERT INTO file_journal (memory, version, path, hash, issued, is_write_back)"
        " VALUES (:memory, :version, :path, :hash, :issued, :is_write_back) ON CONFLICT (memory)"
        " DO UPDATE SET version = :version, path = :path, hash = :hash, issued = :issued,"
        " is_write_back = :is_write_back",
        rows,
    )


def journal_entries(tx: Reading, memories: Sequence[str]) -> dict[str, JournalEntry]:
    """Return the journal entries of these memories."""
    entries: dict[str, JournalEntry] = {}
    for batch in in_batches(memories, _IDS_PER_QUERY):
        rows = tx.rows(
            f"SELECT {_JOURNAL_COLUMNS} FROM file_journal WHERE memory IN :memories",
            memories=batch,
        )
        entries.update({row.memory: _journal_entry(row) for row in map(_JournalRow._make, rows)})
    return entries


def pending(tx: Reading) -> list[str]:
    """Return the memories that have a journal entry."""
    return [memory for (memory,) in tx.rows("SELECT memory FROM file_journal ORDER BY memory")]


def mark_done(tx: Transaction, written: Iterable[WrittenFile]) -> frozenset[str]:
    """Remove the entries that were written out from the journal, and record their files as synchronised.

    An entry that has another version or path by now stays. Return the memories whose entries were removed; of the
    others, the entry was replaced, or another process has written it out too and marked it as done before.
    """
    removed_entries: set[str] = set()
    for file in written:
        removed = tx.run(
            "DELETE FROM file_journal WHERE memory = :memory AND version = :version"
            " AND coalesce(path, '') = coalesce(:path, '')",
            memory=file.memory,
            version=file.version,
            path=file.path,
        )
        if not removed:
            continue
        removed_entries.add(file.memory)
        if not file.is_first:
            tx.run(
                "DELETE FROM file WHERE memory = :memory AND path <> :path", memory=file.memory, path=file.path or ""
            )
        if file.path is not None and file.stat is not None and file.hash is not None:
            set_synced(tx, file.path, file.stat, file.hash, memory=file.memory, version=file.version)
    return frozenset(removed_entries)


def drop_entry(tx: Transaction, memory: str) -> None:
    """Delete the entry of a memory whose file is gone, so that nothing is left to complete."""
    tx.run("DELETE FROM file_journal WHERE memory = :memory", memory=memory)


def _journal_entry(row: _JournalRow) -> JournalEntry:
    issued = tuple((path, hash_) for path, hash_ in json.loads(row.issued))
    return JournalEntry(row.memory, row.version, row.path, row.hash, issued, is_write_back=bool(row.is_write_back))


# --- former paths


def record_move(tx: Transaction, path: str, memory: str, *, space: str) -> None:
    """Record that a memory's file was moved away from a path: a save at that path still means the memory.

    `space` is the id of the space that the memory was in until then.
    """
    tx.run(
        "INSERT INTO file_left (path, memory, at, space) VALUES (:path, :memory, :at, :space)"
        " ON CONFLICT (path) DO UPDATE SET memory = :memory, at = :at, space = :space",
        path=path,
        memory=memory,
        at=format_time(tx.now),
        space=space,
    )


def space_left(tx: Reading, path: str) -> str | None:
    """Return the id of the space that a memory was in when its file left a path, or None."""
    (space,) = tx.row("SELECT space FROM file_left WHERE path = :path", path=path) or (None,)
    return str(space) if space else None


def moved_from(tx: Reading, path: str) -> str | None:
    """Return the memory whose file was moved away from a path, or None."""
    (memory,) = tx.row("SELECT memory FROM file_left WHERE path = :path", path=path) or (None,)
    return str(memory) if memory else None


def clear_former_path(tx: Transaction, path: str) -> None:
    """Delete a former path, since a file is there again."""
    clear_former_paths(tx, (path,))


def clear_former_paths(tx: Transaction, paths: Iterable[str]) -> None:
    """Delete former paths, since files are there again."""
    tx.run_many("DELETE FROM file_left WHERE path = :path", [{"path": path} for path in paths])


# --- saves that brought older words back


def set_reverted(tx: Transaction, memory: str, revision: int) -> None:
    """Record that a save made this revision of a memory, and brought older words back."""
    tx.run(
        "INSERT INTO file_reverted (memory, revision) VALUES (:memory, :revision)"
        " ON CONFLICT (memory) DO UPDATE SET revision = :revision",
        memory=memory,
        revision=revision,
    )


def clear_reverted(tx: Transaction, memory: str) -> None:
    """Record that somebody has looked at such a save."""
    tx.run("DELETE FROM file_reverted WHERE memory = :memory", memory=memory)


def reverted(tx: Reading) -> dict[str, int]:
    """Return the revisions that brought older words back, by memory; one that is not the present one says nothing."""
    return dict(tx.rows("SELECT memory, revision FROM file_reverted"))
