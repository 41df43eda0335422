"""Writes the files of the journal by atomic exchange, so that no save of a person is overwritten.

A new content is exchanged with the file at its path in one step. The displaced content is then compared with the
contents that this program wrote: any other content is a concurrent save of a person, and is reported to be applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from commonbook.core.markdown import memory_conversion, space_file
from commonbook.core.tables import file_journal, memories, spaces
from commonbook.core.tables.file_journal import JournalEntry, SyncedFile, WrittenFile
from commonbook.errors import FileInTheWay, HomeError
from commonbook.ports.database import Reading, Transaction
from commonbook.ports.engines import Engines
from commonbook.ports.files import FilesToWrite, NewFile

_LOCK_WAIT_SECONDS: Final = 10.0


class ConcurrentSave(NamedTuple):
    """A displaced content that is neither the synchronised state nor ours: a person saved it while we wrote.

    `name` identifies the displaced content in the folder. `journal` is the entry that was being written; after a crash
    it is not known. `is_later` tells that another process had written that entry before, so that the person saved over
    our content.
    """

    memory: str
    path: str
    name: str
    journal: JournalEntry | None = None
    is_later: bool = False


class WriteOutReport(NamedTuple):
    """Written files, displaced saves of persons, and memories that are rendered differently than when enqueued."""

    done: tuple[WrittenFile, ...] = ()
    saves: tuple[ConcurrentSave, ...] = ()
    stale: tuple[str, ...] = ()


def write_out(
    engines: Engines,
    wanted: Mapping[str, bytes | None],
    *,
    recovering: bool = False,
    committed: tuple[Transaction, FilesToWrite] | None = None,
) -> WriteOutReport:
    """Write the files of these memories as their journal entries ask.

    `wanted` has the contents as committed; if another process changed an entry since, its memory is rendered again.
    With `recovering`, for a journal that another process left, a file that is right already is not touched, and neither
    is one that a person has saved meanwhile: the following scan applies it. If `files.lock` cannot be had in time, the
    journal stays as it is for the next run.

    `committed` has the same files and their transaction, if this process has just committed them. The new ones among
    them are written and synced before the lock is taken, and only moved to their places under it; folders are synced
    after it.
    """
    new = committed[1].new if committed is not None else {}
    written: list[WrittenFile] = []
    saves: list[ConcurrentSave] = []
    stale: list[str] = []
    with engines.folder.prepared(_new_files(new, wanted)), engines.folder.lock(wait=_LOCK_WAIT_SECONDS) as locked:
        if not locked:
            return WriteOutReport()
        writes = _known_writes(engines, committed) or _read_writes(engines, wanted, recovering=recovering)
        engines.folder.prepare([prepared for write in writes for prepared in write.to_prepare(new)])
        for write in writes:
            if write.entry.path is not None and write.data is None:
                stale.append(write.entry.memory)
            else:
                # The change is committed: a file that cannot be written now stays in the journal, and status says so.
                with suppress(OSError, HomeError, FileInTheWay):
                    written.extend(_write_file(engines, write, saves))
        flush = engines.folder.flush_later()
    flush()
    return WriteOutReport(tuple(written), tuple(saves), tuple(stale))


def _new_files(new: Mapping[str, NewFile], wanted: Mapping[str, bytes | None]) -> list[tuple[str, bytes, str]]:
    """Return the files of memories that were added just now, as (path, data, memory)."""
    return [(file.path, data, id_) for id_, file in new.items() if (data := wanted[id_]) is not None]


def _known_writes(engines: Engines, committed: tuple[Transaction, FilesToWrite] | None) -> list[_FileWrite]:
    """Return what is to be written as the transaction knows it; nothing if it may have changed since."""
    if committed is None:
        return []
    tx, files = committed
    if files.new.keys() != files.keys() or not engines.db.is_last_commit(tx):
        return []
    return [
        _FileWrite(_entry_of_new(id_, new), files[id_], (), recovering=False, is_first=True)
        for id_, new in files.new.items()
    ]


def _entry_of_new(memory: str, new: NewFile) -> JournalEntry:
    return JournalEntry(memory, new.version, new.path, new.hash, issued=((new.path, new.hash),))


def _read_writes(engines: Engines, wanted: Mapping[str, bytes | None], *, recovering: bool) -> list[_FileWrite]:
    """Return what is to be written as the journal has it now."""
    with engines.db.reading() as tx:
        entries = _without_deferred(engines, file_journal.journal_entries(tx, tuple(wanted)))
        synced = file_journal.synced_files_of(tx, tuple(entries))
        contents = _contents(tx, engines, entries, wanted)
    return [
        _FileWrite(entry, contents.get(id_), tuple(synced.get(id_, ())), recovering=recovering)
        for id_, entry in entries.items()
    ]


def _without_deferred(engines: Engines, entries: Mapping[str, JournalEntry]) -> Mapping[str, JournalEntry]:
    """Leave out the entries that only complete files of persons, while git has a commit checked out without a branch.

    Such a file stays as git has it, so that the way back to the branch is free. The entries wait for it.
    """
    if not any(entry.is_write_back for entry in entries.values()) or not engines.folder.is_between_branches():
        return entries
    return {
        id_: entry
        for id_, entry in entries.items()
        if not (entry.is_write_back and entry.path is not None and engines.folder.exists(entry.path))
    }


def drop(engines: Engines, saves: Iterable[ConcurrentSave]) -> None:
    """Delete displaced contents that have been applied."""
    for save in saves:
        engines.folder.drop_displaced(save.name)


def saves_left_by_crash(engines: Engines) -> list[ConcurrentSave]:
    """Return displaced contents of a crashed process; the lock makes sure that no process is still at work on them."""
    if engines.folder.has_no_leftovers():
        return []
    with engines.folder.lock(wait=_LOCK_WAIT_SECONDS) as locked:
        if not locked:
            return []
        engines.folder.remove_unfinished()
        return [ConcurrentSave(owner, "", name) for name, owner in engines.folder.displaced_files()]


def _contents(
    tx: Reading, engines: Engines, entries: Mapping[str, JournalEntry], wanted: Mapping[str, bytes | None]
) -> dict[str, bytes]:
    """Return the content of each file to write: as committed, or rendered from the rows if the entry is newer."""
    contents: dict[str, bytes] = {}
    outdated: list[str] = []
    for memory_id, entry in entries.items():
        data = wanted[memory_id]
        if entry.path is None:
            continue
        if data is not None and file_journal.content_hash(data) == entry.hash:
            contents[memory_id] = data
        else:
            outdated.append(memory_id)
    # A content that was never enqueued would not be recognised as ours: it waits until it is enqueued.
    rendered = _rendered(tx, engines, outdated)
    contents.update((id_, data) for id_, data in rendered if file_journal.content_hash(data) == entries[id_].hash)
    return contents


def _rendered(tx: Reading, engines: Engines, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of the files of memories and spaces as they are now, each with its id."""
    if not ids:
        return
    all_spaces = spaces.get_all(tx)
    yield from ((id_, space_file.render(all_spaces[id_])) for id_ in ids if id_ in all_spaces)
    for memory_id, memory in memories.get_many(tx, all_spaces, ids).items():
        yield memory_id, memory_conversion.render_memory(memory, engines)


class _FileWrite(NamedTuple):
    """The journal entry of a memory, the content that it asks for, and its files as last synchronised."""

    entry: JournalEntry
    data: bytes | None
    synced: tuple[SyncedFile, ...]
    recovering: bool
    is_first: bool = False
    """Whether the memory is new, and has no other file."""

    @property
    def known_hashes(self) -> frozenset[str]:
        """Hashes of every content that is not a save of a person still to be applied."""
        return self.entry.hashes | file_journal.agreed_hashes(self.synced)

    def to_prepare(self, new: Collection[str]) -> tuple[tuple[str, bytes, str], ...]:
        """Return the file that will certainly be written: none if it may be right already, or is only to be renamed.

        Nor is the content of a new memory, which was written before the lock was taken.
        """
        entry, renamed = self.entry, any(synced.hash == self.entry.hash for synced in self.synced)
        if self.recovering or renamed or not entry.path or not self.data or entry.memory in new:
            return ()
        return ((entry.path, self.data, entry.memory),)

    @property
    def paths(self) -> frozenset[str]:
        """Every path where the file of the memory is, was, or will be."""
        return frozenset({*self.entry.paths, *(synced.path for synced in self.synced)})


def _write_file(engines: Engines, write: _FileWrite, saves: list[ConcurrentSave]) -> Iterator[WrittenFile]:
    """Write one file and remove it from former paths; yield it if that is done, and note a displaced save."""
    entry, stat = write.entry, None
    if write.recovering:
        # The process that began this may have died before its work was durable.
        for path in write.paths:
            engines.folder.sync_later(path)
    if entry.is_write_back and entry.path is not None and not engines.folder.exists(entry.path):
        # Only a person's save was to be written back, and the person has removed the file since: the next scan finds
        # it missing.
        yield WrittenFile(memory=entry.memory, version=entry.version, path=entry.path, stat=None, hash=None)
        return
    if entry.path is not None and write.data is not None:
        if _rename(engines, entry, write.synced) or write.recovering:
            present = engines.folder.read(entry.path)
            present_hash = None if present is None else file_journal.content_hash(present)
            if present_hash is not None and present_hash not in write.known_hashes:
                return
            stat = engines.folder.stat(entry.path) if present_hash == entry.hash else None
        if stat is None:
            stat, name = engines.folder.put(entry.path, write.data, owner=entry.memory)
            if name is not None:
                displaced = ConcurrentSave(entry.memory, entry.path, name, entry)
                _check_displaced(engines, displaced, write.known_hashes, saves)
    for path in write.paths - {entry.path}:
        _remove_former(engines, entry.memory, path, write.known_hashes)
    yield WrittenFile(entry.memory, entry.version, entry.path, entry.hash, stat, write.is_first)


def _rename(engines: Engines, entry: JournalEntry, synced_files: Collection[SyncedFile]) -> bool:
    """Rename a file whose content stays the same, rather than write it again; return whether that was done."""
    for synced in synced_files:
        if entry.path is not None and synced.path != entry.path and synced.hash == entry.hash:
            renamed = engines.folder.rename_if_free(synced.path, entry.path)
            engines.folder.prune(synced.path)
            return renamed
    return False


def _check_displaced(
    engines: Engines, displaced: ConcurrentSave, known_hashes: Collection[str], saves: list[ConcurrentSave]
) -> None:
    """Delete a displaced content of ours; add any other to the saves, or put it back if our content is outdated."""
    data = engines.folder.read_displaced(displaced.name)
    if data is None or file_journal.content_hash(data) in known_hashes:
        engines.folder.drop_displaced(displaced.name)
    elif _is_outdated(engines, displaced):
        _put_back(engines, displaced, data, known_hashes, saves)
    else:
        saves.append(displaced)


def _is_outdated(engines: Engines, displaced: ConcurrentSave) -> bool:
    """Return whether another process has written the same entry before, and marked it as done since we read it.

    The displaced save was then made over that content, and may have been applied already. Our content in its place
    would look like another save.
    """
    with engines.db.reading() as tx:
        entry = file_journal.journal_entries(tx, [displaced.memory]).get(displaced.memory)
    return entry is None


def _put_back(
    engines: Engines, displaced: ConcurrentSave, data: bytes, known_hashes: Collection[str], saves: list[ConcurrentSave]
) -> None:
    """Exchange a displaced save with our content again; a save that was made in between is reported."""
    _, name = engines.folder.put(displaced.path, data, owner=displaced.memory)
    engines.folder.drop_displaced(displaced.name)
    if name is None:
        return
    between = engines.folder.read_displaced(name)
    if between is None or file_journal.content_hash(between) in known_hashes:
        engines.folder.drop_displaced(name)
    else:
        saves.append(displaced._replace(name=name))


def _remove_former(engines: Engines, memory: str, path: str, known_hashes: Collection[str]) -> None:
    """Remove a file of ours from a former path; a save of a person there stays for the next scan."""
    present = engines.folder.read(path)
    if present is None or file_journal.content_hash(present) not in known_hashes:
        return
    name = engines.folder.take(path, owner=memory)
    if name is None:
        return
    data = engines.folder.read_displaced(name)
    if data is not None and file_journal.content_hash(data) not in known_hashes:
        engines.folder.restore_displaced(name, path)
    else:
        engines.folder.drop_displaced(name)
        engines.folder.prune(path)
