"""Importing a folder or an archive of Markdown: each file becomes a memory, and importing again changes nothing.

Every file that is taken in leaves an answer under a key of its own, in the transaction that stores its memory: which
memory it became, at which version, and which of its wiki links were made. By that the next run knows what is done,
what changed in the folder since, and what changed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from commonbook.access import permissions
from commonbook.errors import BadFile
from commonbook.files import scan
from commonbook.files.scan import Told_co
from commonbook.markdown.front_matter import Document
from commonbook.markdown.obsidian import Notes
from commonbook.model.reports import Finding, Progress, TransferReport
from commonbook.model.spaces import Actor
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.files import SourceFile
from commonbook.runtime.batches import in_batches
from commonbook.tables import files, idempotency, memories, spaces
from commonbook.text import space_paths
from commonbook.transfer import import_file
from commonbook.transfer.import_file import ImportedFile, ImportPlan, ImportRecord, LinkTarget, Note
from commonbook.write.context import WriteContext
from commonbook.write.transaction import write

_BATCH: Final = 200
_BATCH_BYTES: Final = 32 * 1024 * 1024
_WHY_SKIPPED: Final = {
    "both": (
        "the file was changed since it was imported or exported, and so was its memory",
        "bring the two together by hand: `commonbook show` has the memory, and an edit here or in the home stays",
    ),
    "deleted": (
        "its memory was deleted here after it was imported",
        "copy the file into the home's folder if the memory should come back",
    ),
    "in the way": (
        "the file of its memory in the home does not parse",
        "mend that file first: `commonbook doctor` says what is wrong with it",
    ),
}


@dataclass(slots=True, kw_only=True)
class _Import:
    """One run: what there is to take in, what was known of it, and what came of it."""

    parts: Engines
    actor: Actor
    folder: str
    space: str | None
    dry_run: bool
    prefix: str
    notes: dict[str, Note] = field(default_factory=dict)
    answers: dict[str, ImportRecord] = field(default_factory=dict)
    names: Notes = field(default_factory=lambda: Notes(()))
    targets: dict[str, LinkTarget] = field(default_factory=dict)
    linked: dict[str, frozenset[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[Finding] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


def import_folder(
    engines: Engines, actor: Actor, folder: str, *, space: str | None, dry_run: bool, progress: Progress
) -> TransferReport:
    """Take in a folder, a Markdown file or an archive, as if it lay in the home or in the folder of the space."""
    permissions.require_owner(actor, "read folders of this machine")
    if space is not None:
        space_paths.require_space_name(space)
    prefix = _prefix(engines, space, engines.outside.source(folder))
    run = _Import(parts=engines, actor=actor, folder=folder, space=space, dry_run=dry_run, prefix=prefix)
    _look(run, progress)
    with engines.db.reading() as tx:
        _recall(run, tx)
        waiting = _leave_settled(run, tx)
    for batch in _batches(run, waiting):
        _take_in(run, batch)
        progress("importing", run.counts["seen"], len(run.notes))
    _link(run, progress)
    return TransferReport(
        done=run.counts["done"],
        unchanged=run.counts["unchanged"],
        updated=run.counts["updated"],
        links=run.counts["links"],
        skipped=tuple(run.skipped),
        ids=() if dry_run else tuple(dict.fromkeys(run.changed)),
    )


# --- what there is


def _prefix(engines: Engines, space: str | None, source: str) -> str:
    """Return how the keys of this import begin: from where into what, as hashes, since names can tell of contents."""
    into, out_of = engines.keys.keyed_hash("into", space or ""), engines.keys.keyed_hash("from", source)
    return f"import:{into[:16]}:{out_of[:16]}:"


def _look(run: _Import, progress: Progress) -> None:
    """Read every file once, to know what links can mean and which files cannot be taken in."""
    for found in run.parts.outside.files(run.folder):
        read = _understood(run, found)
        if isinstance(read, Finding):
            run.skipped.append(read)
            continue
        run.notes[read[0].path] = _note(run, *read)
        progress("looking", len(run.notes), len(run.notes))
    run.names = Notes((note.path, note.names) for note in run.notes.values())


def _note(run: _Import, found: SourceFile, document: Document) -> Note:
    keyed = run.parts.keys.keyed_hash
    content = keyed("content", files.content_hash(found.data))
    return import_file.note_of(found, document, key=run.prefix + keyed("path", found.path), content=content)


def _understood(run: _Import, found: SourceFile | Finding) -> tuple[SourceFile, Document] | Finding:
    if isinstance(found, Finding):
        return found
    try:
        document = import_file.parse_foreign_file(found.data, run.parts)
    except BadFile as error:
        return _not_imported(found.path, error.message, error.fix)
    if not import_file.has_room(document):
        return _not_imported(
            found.path, "the front matter is too long: no room is left for our fields", "move some of it into the text"
        )
    if not import_file.has_place(import_file.target_path(run.space, found.path), run.parts):
        return _not_imported(
            found.path,
            "the home has no place for it",
            "look at the home's .commonbookignore, and for links or files in place of its folders",
        )
    return found, document


def _not_imported(path: str, why: str, fix: str) -> Finding:
    return Finding(what="not imported", where=path, why=why, fix=fix)


# --- what is known of it


def _recall(run: _Import, tx: Reading) -> None:
    """Learn what earlier imports into the same place made of these files, also where those lay elsewhere then."""
    into = run.prefix[: len("import:") + 17]
    present = {note.key for note in run.notes.values()}
    stray: dict[tuple[str, str], list[ImportRecord]] = {}
    for space in permissions.writable(tx, run.actor, spaces.get_all(tx)):
        said = idempotency.answers(tx, space=space, principal=run.actor.principal, prefix=into)
        for key, (content, answer) in said.items():
            if not answer:
                continue
            known = ImportRecord.read(key, space, content, answer)
            if key in present:
                run.answers[key] = known
            else:
                # Gone from this folder: the same content at another path was moved. In another folder: the
                # same content at the same path is that folder, moved.
                path = "" if key.startswith(run.prefix) else key.rpartition(":")[2]
                stray.setdefault((path, content), []).append(known)
    for note in run.notes.values():
        if note.key not in run.answers:
            found = stray.get(("", note.content)) or stray.get((note.key.rpartition(":")[2], note.content))
            if found:
                run.answers[note.key] = found.pop(0)


def _leave_settled(run: _Import, tx: Reading) -> frozenset[str]:
    """Count the files that are as they were when they were imported; return the paths of the others."""
    known = {note.path: run.answers[note.key] for note in run.notes.values() if note.key in run.answers}
    readable = permissions.readable(tx, run.actor, spaces.get_all(tx))
    for some in in_batches(list(known), _BATCH):
        found = memories.get_many(tx, readable, [known[path].memory for path in some])
        for path in some:
            memory = found.get(known[path].memory)
            live = memory is not None and memory.deleted is None
            if memory is not None and live:
                run.targets[path] = LinkTarget(memory.id, memory.revision)
            if not _is_same(run.notes[path], known[path]):
                continue
            run.counts["seen"] += 1
            if live:
                run.counts["unchanged"] += 1
                run.linked[path] = frozenset(known[path].links)
            else:
                run.skipped.append(_not_imported(path, *_WHY_SKIPPED["deleted"]))
    return frozenset(path for path, note in run.notes.items() if path not in known or not _is_same(note, known[path]))


def _is_same(note: Note, known: ImportRecord) -> bool:
    return known.key == note.key and known.content == note.content


# --- taking it in


def _batches(run: _Import, waiting: frozenset[str]) -> Iterator[list[ImportedFile]]:
    """Read the waiting files, so many at a time that other processes get their turn to write."""
    batch: list[ImportedFile] = []
    size = 0
    for found in run.parts.outside.files(run.folder, only=waiting) if waiting else ():
        # What cannot be read was said at the first look; a file that has come since waits for the next import.
        read = None if isinstance(found, Finding) or found.path not in waiting else _understood(run, found)
        if read is None:
            continue
        if isinstance(read, Finding):
            run.skipped.append(read)
            continue
        batch.append(
            ImportedFile(
                note=_note(run, *read),
                file=read[0],
                document=read[1],
                wanted=import_file.target_path(run.space, read[0].path),
            )
        )
        size += len(read[0].data)
        if len(batch) == _BATCH or size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _take_in(run: _Import, batch: Sequence[ImportedFile]) -> None:
    fates = _write(run, lambda ctx, *, looked: _arrive(run, ctx, batch, looked=looked))
    for fate in fates:
        run.counts["seen"] += 1
        if fate.outcome in _WHY_SKIPPED:
            run.skipped.append(_not_imported(fate.path, *_WHY_SKIPPED[fate.outcome]))
            continue
        run.counts[fate.outcome] += 1
        run.counts["links"] += fate.new_links
        run.targets[fate.path] = fate.target
        run.linked[fate.path] = fate.linked
        if fate.outcome != "unchanged":
            run.changed.append(fate.target.memory)


def _arrive(run: _Import, ctx: WriteContext, batch: Sequence[ImportedFile], *, looked: bool) -> list[ImportPlan]:
    answers = _present_answers(run, ctx, [arrival.note for arrival in batch])
    ctx.lock(_named(batch, answers))
    claimed = {known.memory for known in run.answers.values()} | {target.memory for target in run.targets.values()}
    fates: list[ImportPlan] = []
    for arrival in batch:
        fate = import_file.plan_import(ctx, arrival, answers.get(arrival.note.key), claimed, looked=looked)
        claimed.add(fate.target.memory)
        fates.append(fate)
    known = {**run.targets, **{fate.path: fate.target for fate in fates if fate.outcome not in _WHY_SKIPPED}}
    return import_file.apply_plans(ctx, fates, lambda note: _targets(run, note, known))


def _named(batch: Sequence[ImportedFile], answers: Mapping[str, ImportRecord]) -> Iterator[str]:
    """Yield the ids of the memories that these files may be."""
    for arrival in batch:
        known = answers.get(arrival.note.key)
        named = known.memory if known else arrival.document.id
        if named:
            yield named


def _present_answers(run: _Import, ctx: WriteContext, notes: Sequence[Note]) -> dict[str, ImportRecord]:
    """Return what is known of these files now, since another process may be importing the same folder."""
    keys = [note.key for note in notes]
    said = idempotency.find_many(ctx.tx, spaces=tuple(ctx.writable), principal=ctx.actor.principal, keys=keys)
    present = {key: ImportRecord.read(key, *known) for key, known in said.items() if known[2]}
    return {**{key: run.answers[key] for key in keys if key in run.answers}, **present}


def _targets(run: _Import, note: Note, known: Mapping[str, LinkTarget]) -> list[LinkTarget]:
    """Return the memories that the wiki links of a file mean, as far as they are here already."""
    found = [run.names.find(name, origin=note.path) for name in note.wiki_links]
    means = dict.fromkeys(path for path in found if path is not None and path != note.path)
    return [known[path] for path in means if path in known][: note.room]


# --- links to files that came later


def _link(run: _Import, progress: Progress) -> None:
    """Make the links that could not be made when their file was taken in, since what they mean came later."""
    waiting: dict[str, list[LinkTarget]] = {}
    for path in run.linked:
        wanted = _targets(run, run.notes[path], run.targets)
        missing = [target for target in wanted if target.memory not in run.linked[path]]
        if missing:
            waiting[path] = missing
    if run.dry_run:
        run.counts["links"] += sum(len(missing) for missing in waiting.values())
        return
    for at, some in enumerate(in_batches(list(waiting), _BATCH)):
        part = {path: waiting[path] for path in some}
        made = _write(run, partial(_add_links, run, waiting=part))
        run.counts["links"] += sum(made.values())
        run.changed += [run.targets[path].memory for path in some if made[path]]
        progress("linking", min((at + 1) * _BATCH, len(waiting)), len(waiting))


def _add_links(
    run: _Import, ctx: WriteContext, *, waiting: Mapping[str, list[LinkTarget]], looked: bool
) -> dict[str, int]:
    answers = _present_answers(run, ctx, [run.notes[path] for path in waiting])
    ctx.lock(answer.memory for answer in answers.values())
    return {
        path: import_file.add_links(ctx, answers[run.notes[path].key], targets, looked=looked)
        for path, targets in waiting.items()
    }


# --- writing


class _Undone(Exception):
    """Ends the transaction of a dry run, so that nothing of it stays."""


def _write(run: _Import, operation: scan.Operation[Told_co]) -> Told_co:
    """Let a story happen; in a dry run it happens too, and is then taken back."""
    if run.dry_run:
        return _rehearsed(run, operation)
    return scan.write_with_scan(run.parts, run.actor, operation)


def _rehearsed(run: _Import, operation: scan.Operation[Told_co]) -> Told_co:
    told: list[Told_co] = []

    def undone(ctx: WriteContext) -> None:
        told.append(operation(ctx, looked=True))
        raise _Undone

    with suppress(_Undone):
        write(run.parts, run.actor, undone)
    return told[-1]
