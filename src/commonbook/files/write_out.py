"""Carrying out the file journal: files become what their memories say, and nobody's typing is lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from commonbook.errors import FileInTheWay, HomeError
from commonbook.markdown.memory_file import render_memory
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.tables import files, memories, spaces
from commonbook.tables.files import JournalEntry, SyncedFile, WrittenFile

_WAIT: Final = 10.0


class ConcurrentSave(NamedTuple):
    """Something that came out of an exchange and is neither the base nor ours: a person typed it."""

    memory: str
    path: str
    name: str
    journal: JournalEntry | None = None


class WriteOutReport(NamedTuple):
    """How carrying out went: what is done, what came out that a person typed, what reads otherwise than issued."""

    done: tuple[WrittenFile, ...] = ()
    typed: tuple[ConcurrentSave, ...] = ()
    stale: tuple[str, ...] = ()


def write_out(engines: Engines, wanted: Mapping[str, bytes | None], *, again: bool = False) -> WriteOutReport:
    """Bring the files of these memories up to the journal.

    `wanted` holds the contents as committed; a row that another process has changed since is rendered anew.
    With `again`, when the journal of others is carried out, a file that is already right is left as it is, and
    so is one that a person has saved meanwhile: the look that follows takes it in. When `files.lock` is not to
    be had, the journal stays, and whoever looks next carries it out.
    """
    carried: list[WrittenFile] = []
    typed: list[ConcurrentSave] = []
    stale: list[str] = []
    with engines.folder.lock(wait=_WAIT) as held:
        if not held:
            return WriteOutReport()
        with engines.db.reading() as tx:
            rows = files.journal_entries(tx, tuple(wanted))
            bases = files.synced_files_of(tx, tuple(rows))
            contents = _contents(tx, engines, rows, wanted)
        jobs = [_Job(row, contents.get(id_), tuple(bases.get(id_, ())), again=again) for id_, row in rows.items()]
        engines.folder.prepare([wanted for job in jobs for wanted in job.to_prepare])
        for job in jobs:
            if job.row.path is not None and job.data is None:
                stale.append(job.row.memory)
            else:
                # The change is committed: a file that cannot be written now stays in the journal, and status says so.
                with suppress(OSError, HomeError, FileInTheWay):
                    carried.extend(_carry_one(engines, job, typed))
        engines.folder.flush()
    return WriteOutReport(tuple(carried), tuple(typed), tuple(stale))


def drop(engines: Engines, typed: Iterable[ConcurrentSave]) -> None:
    """Throw away what came out, now that it is taken in."""
    for one in typed:
        engines.folder.drop_out(one.name)


def leftovers(engines: Engines) -> list[ConcurrentSave]:
    """Return what a crash left between an exchange and its end; only the lock tells it from work under way."""
    if engines.folder.is_tidy():
        return []
    with engines.folder.lock(wait=_WAIT) as held:
        if not held:
            return []
        engines.folder.sweep()
        return [ConcurrentSave(owner, "", name) for name, owner in engines.folder.came_out()]


def _contents(
    tx: Reading, engines: Engines, rows: Mapping[str, JournalEntry], wanted: Mapping[str, bytes | None]
) -> dict[str, bytes]:
    """Return the content of each file that is to be written: as committed, or from the row where that is newer."""
    contents: dict[str, bytes] = {}
    anew: list[str] = []
    for memory, row in rows.items():
        data = wanted[memory]
        if row.path is None:
            continue
        if data is not None and files.content_hash(data) == row.hash:
            contents[memory] = data
        else:
            anew.append(memory)
    if anew:
        found = memories.get_many(tx, spaces.get_all(tx), anew)
        for memory, said in found.items():
            data = render_memory(said, engines)
            # A content that was never issued would not be known as ours: it waits until it is issued anew.
            if files.content_hash(data) == rows[memory].hash:
                contents[memory] = data
    return contents


class _Job(NamedTuple):
    """One memory's row of the journal, the content that it asks for, and how its files were."""

    row: JournalEntry
    data: bytes | None
    bases: tuple[SyncedFile, ...]
    again: bool

    @property
    def ours(self) -> frozenset[str]:
        """Every content that no person wrote."""
        return self.row.hashes | files.readable_hashes(self.bases)

    @property
    def to_prepare(self) -> tuple[tuple[str, bytes, str], ...]:
        """What will surely be written: not what may be right already, or only goes elsewhere."""
        row, shifted = self.row, any(base.hash == self.row.hash for base in self.bases)
        return () if self.again or shifted or not row.path or not self.data else ((row.path, self.data, row.memory),)

    @property
    def paths(self) -> frozenset[str]:
        """Every path where the memory's file is, was, or is to be."""
        return frozenset({*self.row.paths, *(base.path for base in self.bases)})


def _carry_one(engines: Engines, job: _Job, typed: list[ConcurrentSave]) -> Iterator[WrittenFile]:
    row, stat = job.row, None
    if job.again:
        # Whoever began this may have died before it was durable.
        for path in job.paths:
            engines.folder.secure(path)
    if row.seen is not None and row.path is not None and not engines.folder.exists(row.path):
        # Only a person's save was to be written back, and the person has removed the file since: the look that
        # follows finds it gone.
        yield WrittenFile(memory=row.memory, version=row.version, path=row.path, stat=None, hash=None)
        return
    if row.path is not None and job.data is not None:
        if _shift(engines, row, job.bases) or job.again:
            present = engines.folder.read(row.path)
            found = None if present is None else files.content_hash(present)
            if found is not None and found not in job.ours:
                return
            stat = engines.folder.stat(row.path) if found == row.hash else None
        if stat is None:
            stat, name = engines.folder.put(row.path, job.data, owner=row.memory)
            if name is not None:
                _look_at(engines, ConcurrentSave(row.memory, row.path, name, row), job.ours, typed)
    for path in job.paths - {row.path}:
        _take_away(engines, row.memory, path, job.ours)
    yield WrittenFile(memory=row.memory, version=row.version, path=row.path, stat=stat, hash=row.hash)


def _shift(engines: Engines, row: JournalEntry, bases: Collection[SyncedFile]) -> bool:
    """Rename a file that only goes elsewhere, rather than write it again."""
    for base in bases:
        if row.path is not None and base.path != row.path and base.hash == row.hash:
            shifted = engines.folder.shift(base.path, row.path)
            engines.folder.prune(base.path)
            return shifted
    return False


def _look_at(engines: Engines, out: ConcurrentSave, ours: Collection[str], typed: list[ConcurrentSave]) -> None:
    data = engines.folder.read_out(out.name)
    if data is None or files.content_hash(data) in ours:
        engines.folder.drop_out(out.name)
    else:
        typed.append(out)


def _take_away(engines: Engines, memory: str, path: str, ours: Collection[str]) -> None:
    """Remove a file of ours from a path that we left; what a person saved there stays for the next look."""
    present = engines.folder.read(path)
    if present is None or files.content_hash(present) not in ours:
        return
    name = engines.folder.take(path, owner=memory)
    if name is None:
        return
    data = engines.folder.read_out(name)
    if data is not None and files.content_hash(data) not in ours:
        engines.folder.put_back(name, path)
    else:
        engines.folder.drop_out(name)
        engines.folder.prune(path)
