"""The import of a folder or an archive of Markdown: each file becomes a memory, and a repeated import changes nothing.

Every imported file has an idempotency key. The transaction that stores its memory stores an answer under the key: the
memory and its version. From these records the next run knows which files are done, which were changed in the folder
since, and which memories were changed here. Files are imported in batches, one transaction each. Links and tags in
texts stay there alone: the book derives them from the texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from commonbook.core.access import permissions
from commonbook.core.files import scan
from commonbook.core.files.scan import Result_co
from commonbook.core.markdown.obsidian import VaultNotes
from commonbook.core.tables import file_journal, memories
from commonbook.core.write import idempotency
from commonbook.core.write.context import WriteContext
from commonbook.core.write.transaction import write
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.files import SourceFile
from commonbook.runtime import in_batches
from commonbook.subjects.transfer import attachments, import_file, import_okf, import_sessions, import_spaces
from commonbook.subjects.transfer.attachments import TemplateFolders
from commonbook.subjects.transfer.import_file import HomePlaces, ImportedFile, ImportPlan, ImportRecord, Note
from commonbook.subjects.transfer.import_reading import (
    ReadFile,
    imported_file,
    not_imported,
    read_file,
    without_conflict_copies,
)
from commonbook.subjects.transfer.import_sessions import ImportedSession, SessionImport, SessionOutcome
from commonbook.subjects.transfer.import_spaces import Place, SourceSpaces
from commonbook.values.path_filter import PathFilter
from commonbook.values.reports import Finding, Progress, TransferReport
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor

_BATCH: Final = 200
_BATCH_BYTES: Final = 32 * 1024 * 1024
_KEPT_BYTES: Final = 32 * 1024 * 1024
"""The bytes of files that are kept from the first pass to the second; the other files are read twice."""

_WHY_SKIPPED: Final = {
    "both": (
        "the file was changed since it was imported or exported, and so was its memory",
        "merge the two by hand: `commonbook show` has the memory, and an edit here or in the home stays",
    ),
    "deleted": (
        "its memory was deleted here after it was imported",
        "copy the file into the home's folder if the memory should come back",
    ),
    "rewound": (
        "all messages of this episode were rewound",
        "`commonbook session show` still has them; append again what should stay",
    ),
    "mistyped": (
        "a field of the memory has a value in it that it cannot have",
        "correct the field: docs/FRONT-MATTER.md shows how each one is written",
    ),
    "moved": (
        "its memory was moved out of the space that this import goes into",
        "edit that memory itself, or move it back: `commonbook move`",
    ),
    "in the way": (
        "the file of its memory in the home does not parse",
        "correct that file first: `commonbook doctor` says what is wrong with it",
    ),
}


@dataclass(slots=True, kw_only=True)
class _Import:
    """The state of one run: the files, the records of earlier imports, and the results."""

    engines: Engines
    actor: Actor
    folder: str
    spaces: SourceSpaces
    dry_run: bool
    mask: bool
    prefix: str
    files: PathFilter
    templates: TemplateFolders
    home_places: HomePlaces
    bundle: import_okf.Bundle | None = None
    left_out_keys: set[str] = field(default_factory=set)
    notes: dict[str, Note] = field(default_factory=dict)
    ids: frozenset[str] = frozenset()
    kept: dict[str, ReadFile] = field(default_factory=dict)
    records: dict[str, ImportRecord] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    names: VaultNotes = field(default_factory=lambda: VaultNotes(()))
    claimed: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[Finding] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    new_ids: list[str] = field(default_factory=list)
    sessions: SessionImport = field(default_factory=SessionImport)


def import_folder(
    engines: Engines,
    actor: Actor,
    folder: str,
    *,
    space: str | None,
    folders_as_spaces: bool,
    files: PathFilter,
    okf: bool,
    dry_run: bool,
    mask: bool,
    progress: Progress,
) -> TransferReport:
    """Import a folder, a Markdown file or an archive into a space, or into the spaces that its space files name.

    With `folders_as_spaces`, each folder with a possible name of a space is one. With `okf`, the folder is a bundle
    in the Open Knowledge Format even if it does not say so. With `mask`, secrets are masked in what is stored; the
    folder itself stays as it is.
    """
    permissions.require_owner(actor, "read folders of this machine")
    source_spaces = import_spaces.require_target(space, folders_as_spaces=folders_as_spaces)
    prefix = _prefix(engines, space, engines.external_files.source(folder))
    templates = TemplateFolders(engines.external_files.template_folders(folder))
    run = _Import(
        engines=engines,
        actor=actor,
        folder=folder,
        spaces=source_spaces,
        dry_run=dry_run,
        mask=mask,
        prefix=prefix,
        files=files,
        templates=templates,
        home_places=HomePlaces(engines),
    )
    _read_spaces(run)
    run.bundle = import_okf.find_bundle(engines, folder, required=okf)
    _read_notes(run, progress)
    with engines.db.reading() as tx:
        _read_records(run, tx)
        waiting = _skip_done(run, tx)
        new_spaces = _new_spaces(run, tx, waiting)
    for batch in _batches(run, waiting):
        _import_batch(run, batch)
        progress("importing", run.counts["seen"], len(run.notes))
    _add_late_sources(run)
    _import_sessions(run)
    copied = _copy_attachments(run)
    return TransferReport(
        done=run.counts["done"],
        unchanged=run.counts["unchanged"],
        updated=run.counts["updated"],
        links=run.counts["links"],
        skipped=tuple(run.skipped),
        ids=() if dry_run else tuple(dict.fromkeys(run.changed)),
        sessions=run.counts["sessions"],
        messages=run.counts["messages"],
        masked=run.counts["masked"],
        spaces=new_spaces,
        attachments=copied,
        new_ids=tuple(run.new_ids),
    )


# --- the first pass


def _prefix(engines: Engines, space: str | None, source: str) -> str:
    """Return the prefix of this import's keys: hashes of target and source, since names can reveal contents.

    Every file has a record, so that hashes are cut: to 64 bits in keys, and to 128 bits of contents.
    """
    target_hash, source_hash = engines.keys.keyed_hash("into", space or ""), engines.keys.keyed_hash("from", source)
    return f"import:{target_hash[:16]}:{source_hash[:16]}:"


def _read_spaces(run: _Import) -> None:
    """Read the space files of the source, unless its folders decide by their names."""
    if run.spaces.folders_as_spaces:
        return
    by_folder, malformed = import_spaces.read_space_files(run.engines, run.folder)
    run.spaces = run.spaces._replace(by_folder=by_folder)
    run.skipped += malformed


def _new_spaces(run: _Import, tx: Reading, waiting: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the spaces that the import makes, since its files and sessions name them."""
    places = [*(_place(run, path) for path in sorted(waiting)), *run.sessions.places()]
    return import_spaces.new_names(import_spaces.all_spaces(tx), places)


def _place(run: _Import, path: str) -> Place:
    place = run.places.get(path)
    if place is None:
        place = run.places[path] = run.spaces.place(import_file.with_our_ending(path))
    return place


def _read(run: _Import, file: SourceFile | Finding) -> ReadFile | Finding:
    if isinstance(file, Finding):
        return file
    read = read_file(run.engines, file, _place(run, file.path), run.home_places)
    return read if run.bundle is None or isinstance(read, Finding) else run.bundle.read(read)


def _read_notes(run: _Import, progress: Progress) -> None:
    """Read every file once, to know the targets of links and the files that cannot be imported."""
    # What a bundle says of a file is known only when all of it was read.
    room = _KEPT_BYTES if run.bundle is None else 0
    for file in run.engines.external_files.files(run.folder):
        if not _is_chosen(run, file.path if isinstance(file, SourceFile) else file.where):
            continue
        if isinstance(file, SourceFile) and run.sessions.takes(file, _place(run, file.path), run.skipped):
            continue
        if run.bundle is not None and run.bundle.is_listing(file):
            continue
        parsed = _read(run, file)
        if isinstance(parsed, Finding):
            run.skipped.append(parsed)
            continue
        run.notes[parsed.file.path] = _note(run, parsed)
        room -= len(parsed.file.data)
        if room >= 0:
            run.kept[parsed.file.path] = parsed
        progress("looking", len(run.notes), len(run.notes))
    run.notes, conflicts = without_conflict_copies(run.notes)
    run.skipped += conflicts
    run.skipped += run.bundle.findings() if run.bundle else ()
    run.names = VaultNotes((note.path, note.names) for note in run.notes.values())
    run.ids = frozenset(note.id for note in run.notes.values() if note.id)


def _is_chosen(run: _Import, path: str) -> bool:
    """Return whether a file is to be imported: it is neither a template nor left out by a pattern."""
    if run.files.takes(path) and not run.templates.skips(path):
        return True
    run.left_out_keys.add(_key(run, _path_hash(run, path)))
    return False


def _path_hash(run: _Import, path: str) -> str:
    return run.engines.keys.keyed_hash("path", path)


def _key(run: _Import, path_hash: str) -> str:
    return run.prefix + path_hash[:16]


def _note(run: _Import, read: ReadFile) -> Note:
    content = run.engines.keys.keyed_hash("content", file_journal.content_hash(read.file.data))[:32]
    path_hash = _path_hash(run, read.file.path)
    key = _key(run, path_hash)
    return import_file.note_of(read.file, read.document, path_hash=path_hash, key=key, content=content)


# --- records of earlier imports


def _read_records(run: _Import, tx: Reading) -> None:
    """Find the records of these files from earlier imports into the same space, also of files that were moved since."""
    target_prefix = run.prefix[: len("import:") + 17]
    # A file that is left out this time is still there: no other file is taken for it, moved.
    present = {note.key for note in run.notes.values()} | run.left_out_keys
    moved: dict[tuple[str, str], list[ImportRecord]] = {}
    for space in permissions.writable(tx, run.actor, import_spaces.all_spaces(tx)):
        answers = idempotency.find_by_prefix(tx, space=space, principal=run.actor.principal, prefix=target_prefix)
        for key, (content, answer) in answers.items():
            if not answer:
                continue
            record = ImportRecord.read(key, space, content, answer)
            if key in present:
                run.records[key] = record
            else:
                # A file that is gone from this folder: the same content at another path is that file, moved. A file of
                # another folder: the same content at the same path means that the folder was moved.
                path = "" if key.startswith(run.prefix) else key.rpartition(":")[2]
                moved.setdefault((path, content), []).append(record)
    for note in run.notes.values():
        if note.key not in run.records:
            candidates = moved.get(("", note.content)) or moved.get((note.key.rpartition(":")[2], note.content))
            if candidates:
                run.records[note.key] = candidates.pop(0)


def _skip_done(run: _Import, tx: Reading) -> frozenset[str]:
    """Count the files that are unchanged since they were imported; return the paths of the others."""
    known = {note.path: run.records[note.key] for note in run.notes.values() if note.key in run.records}
    readable = permissions.readable(tx, run.actor, import_spaces.all_spaces(tx))
    if run.bundle is not None:
        run.bundle.know(known)
    for batch in in_batches(list(known), _BATCH):
        by_id = memories.get_many(tx, readable, [known[path].memory for path in batch])
        for path in batch:
            memory = by_id.get(known[path].memory)
            live = memory is not None and memory.deleted is None
            if memory is not None and live:
                run.claimed.add(memory.id)
            if not _is_same(run.notes[path], known[path]):
                continue
            run.counts["seen"] += 1
            if live:
                run.counts["unchanged"] += 1
            else:
                run.skipped.append(not_imported(path, *_WHY_SKIPPED["deleted"]))
    return frozenset(path for path, note in run.notes.items() if path not in known or not _is_same(note, known[path]))


def _is_same(note: Note, known: ImportRecord) -> bool:
    return known.key == note.key and known.content == note.content


# --- batches


def _batches(run: _Import, waiting: frozenset[str]) -> Iterator[list[ImportedFile]]:
    """Read the waiting files in batches, so that other processes can write between them."""
    batch: list[ImportedFile] = []
    size = 0
    for parsed, note in _waiting_files(run, waiting):
        batch.append(imported_file(parsed, note, _place(run, parsed.file.path), mask=run.mask))
        size += len(parsed.file.data)
        if len(batch) == _BATCH or size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _waiting_files(run: _Import, waiting: frozenset[str]) -> Iterator[tuple[ReadFile, Note]]:
    """Yield the waiting files in their order: those that the first pass kept, then the others, read again."""
    kept, run.kept = run.kept, {}
    for path, read in kept.items():
        if path in waiting:
            yield read, run.notes[path]
    unread = waiting - kept.keys()
    for file in run.engines.external_files.files(run.folder, only=unread) if unread else ():
        # The first pass has reported unreadable files; a file that is new since then waits for the next import.
        parsed = None if isinstance(file, Finding) or file.path not in unread else _read(run, file)
        if isinstance(parsed, Finding):
            run.skipped.append(parsed)
        elif parsed is not None:
            yield parsed, _note(run, parsed)


def _import_batch(run: _Import, batch: Sequence[ImportedFile]) -> None:
    operation = partial(_plan_and_apply, run, batch=batch)
    plans = _write_unless_dry(run.engines, run.actor, operation, dry_run=run.dry_run)
    for plan in plans:
        run.counts["seen"] += 1
        if plan.outcome in _WHY_SKIPPED:
            run.skipped.append(not_imported(plan.path, *_WHY_SKIPPED[plan.outcome]))
            continue
        run.counts[plan.outcome] += 1
        run.claimed.add(plan.memory)
        if plan.outcome != "unchanged":
            run.counts["links"] += run.bundle.count_links(plan.path) if run.bundle else 0
            run.counts["masked"] += plan.imported.masked
            run.changed.append(plan.memory)
            run.new_ids += [plan.path] if plan.imported.foreign_id and plan.outcome == "done" else []
            run.counts["links"] += _count_links(run, plan.imported.note)


def _plan_and_apply(
    run: _Import, ctx: WriteContext, *, batch: Sequence[ImportedFile], scanned: bool
) -> list[ImportPlan]:
    records = _current_records(run, ctx, [imported.note for imported in batch])
    ctx.lock(_memory_ids(batch, records))
    claimed = {record.memory for record in run.records.values()} | run.claimed
    plans: list[ImportPlan] = []
    top = run.spaces.space
    if top is not None:
        batch = import_file.with_own_ids(ctx, batch, top, run.ids)
    for imported in batch:
        record = records.get(imported.note.key)
        plan = import_file.plan_import(ctx, imported, record, claimed, top=top, scanned=scanned)
        claimed.add(plan.memory)
        plans.append(plan)
    plans = run.bundle.with_sources(ctx, plans) if run.bundle else plans
    return import_file.apply_plans(ctx, plans, run.sessions)


def _memory_ids(batch: Sequence[ImportedFile], records: Mapping[str, ImportRecord]) -> Iterator[str]:
    """Yield the ids of the memories that these files may belong to."""
    for imported in batch:
        record = records.get(imported.note.key)
        memory_id = record.memory if record else imported.document.id
        if memory_id:
            yield memory_id


def _current_records(run: _Import, ctx: WriteContext, notes: Sequence[Note]) -> dict[str, ImportRecord]:
    """Return the records of these files, read again, since another process may be importing the same folder."""
    keys = [note.key for note in notes]
    answers = idempotency.find_many(ctx.tx, spaces=tuple(ctx.writable), principal=ctx.actor.principal, keys=keys)
    present = {key: ImportRecord.read(key, *answer) for key, answer in answers.items() if answer[2]}
    return {**{key: run.records[key] for key in keys if key in run.records}, **present}


def _count_links(run: _Import, note: Note) -> int:
    """Count the other files of the folder that a file links to."""
    paths = {run.names.find(name, origin=note.path) for name in note.links}
    return len(paths - {None, note.path})


def _add_late_sources(run: _Import) -> None:
    """Link the concepts of a bundle to the sources that were imported after them."""
    late = run.bundle.late_sources() if run.bundle else {}
    if run.dry_run:
        run.counts["links"] += sum(map(len, late.values()))
        return
    for batch in in_batches(list(late), _BATCH):
        operation = partial(_link_sources, run, late={path: late[path] for path in batch})
        added = _write_unless_dry(run.engines, run.actor, operation, dry_run=run.dry_run)
        run.counts["links"] += sum(added.values())
        run.changed += [memory_id for memory_id, count in added.items() if count]


def _link_sources(
    run: _Import, ctx: WriteContext, *, late: Mapping[str, Sequence[str]], scanned: bool
) -> dict[str, int]:
    records = _current_records(run, ctx, [run.notes[path] for path in late])
    by_path = {path: records[run.notes[path].key] for path in late if run.notes[path].key in records}
    return import_okf.add_late_links(ctx, late, by_path, scanned=scanned)


# --- sessions


def _import_sessions(run: _Import) -> None:
    """Store the sessions that have files of their own, when all memories are here."""
    for group in run.sessions.groups(run.engines.external_files, run.folder, run.spaces):
        operation = partial(_store_sessions, run, group=group)
        outcomes = _write_unless_dry(run.engines, run.actor, operation, dry_run=run.dry_run)
        run.counts["sessions"] += sum(outcome.stored for outcome in outcomes)
        run.counts["messages"] += sum(outcome.messages for outcome in outcomes)
        run.skipped += [finding for outcome in outcomes for finding in outcome.findings]


def _store_sessions(
    run: _Import, ctx: WriteContext, *, group: Sequence[ImportedSession | Finding], scanned: bool
) -> list[SessionOutcome]:
    del scanned
    return import_sessions.store(ctx, group, dry_run=run.dry_run)


# --- attachments


def _copy_attachments(run: _Import) -> tuple[str, ...]:
    """Copy the attachments beside the notes; return the paths of those that were copied."""
    wanted = attachments.selects(run.files)
    with run.engines.db.reading() as tx:
        known = import_spaces.all_spaces(tx)
    result = attachments.import_attachments(
        run.engines,
        run.folder,
        lambda path: wanted(path) and not run.templates.skips(path),
        lambda path: import_spaces.attachment_path(known, run.spaces.place(path)),
        dry_run=run.dry_run,
    )
    # A member of an archive that is refused by its name was named with the notes.
    run.skipped += [*run.templates.findings(), *(one for one in result.findings if one not in run.skipped)]
    return result.copied


class _Rollback(Exception):
    """Raised to roll back the transaction of a dry run."""


def _write_unless_dry(
    engines: Engines, actor: Actor, operation: scan.ScanAwareOperation[Result_co], *, dry_run: bool
) -> Result_co:
    """Run an operation in a transaction, which a dry run rolls back; return its result."""
    if not dry_run:
        return scan.write_with_scan(engines, RequestContext(actor), operation)
    results: list[Result_co] = []

    def roll_back(ctx: WriteContext) -> None:
        results.append(operation(ctx, scanned=True))
        raise _Rollback

    with suppress(_Rollback):
        write(engines, RequestContext(actor), roll_back)
    return results[-1]
