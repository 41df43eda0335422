"""The import of one file: parse it, plan what becomes of it by a three-way comparison, and apply the plan.

The comparison is between the file, the state that an earlier import recorded, and the memory as it is now. The values
here are named tuples: there is one for each file, and dataclasses would cost every start some milliseconds.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Self

from commonbook.core.files import hand_edits
from commonbook.core.markdown import obsidian
from commonbook.core.markdown.front_matter import Document
from commonbook.core.markdown.memory_conversion import (
    memory_from_document,
    new_memory_from_document,
    render_memory,
    require_understood,
    says_the_same,
    title_of_note,
)
from commonbook.core.tables import file_journal, memories, revisions
from commonbook.core.text import nearness, space_names, titles, user_times
from commonbook.core.write import idempotency, store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import free_path, log_new_memory, new_memory, path_of_restored
from commonbook.errors import BadFile, Conflict, FileInTheWay
from commonbook.ports.database import RetryTransaction
from commonbook.ports.engines import Engines
from commonbook.ports.files import SourceFile
from commonbook.subjects.transfer import import_sessions, import_spaces
from commonbook.subjects.transfer.import_spaces import Place
from commonbook.values.ids import derived_id, new_id
from commonbook.values.memory import MAX_FRONT_BYTES
from commonbook.values.stored_memory import StoredMemory

_LINK_BYTES: Final = 64
_OWN_BYTES: Final = 4096
_MAX_NAME_BYTES: Final = 200
_MAX_PATH_BYTES: Final = 800


class Note(NamedTuple):
    """A summary of a file from the first pass.

    `path_hash` is a keyed hash of its path, `content` one of its content, and `key` its idempotency key. `links` are
    the names of the notes that its text and its front matter link to. `id` is the id in its front matter.
    """

    path: str
    path_hash: str
    key: str
    content: str
    names: tuple[str, ...]
    links: tuple[str, ...]
    id: str | None = None


class ImportedFile(NamedTuple):
    """A file to import, read and parsed before the transaction; `place` is the space that it goes into.

    `original` is the document with its secrets, by which the file of a memory that was not masked is known again;
    `masked` is the number of secrets that were masked, `written` the time of the file by a field that is not one of
    ours. `foreign_id` is the id in the file if that is one of a memory out of reach: `document` has another then.
    """

    note: Note
    file: SourceFile
    document: Document
    place: Place
    original: Document
    masked: int = 0
    written: datetime | None = None
    foreign_id: str | None = None


class ImportRecord(NamedTuple):
    """The result of an earlier import of a file, stored as the answer to its idempotency key."""

    key: str
    space: str
    content: str
    memory: str
    version: int

    @classmethod
    def read(cls, key: str, space: str, content: str, answer: str) -> Self:
        """Parse an answer that `store` wrote."""
        memory, _, version = answer.partition(" ")
        return cls(key=key, space=space, content=content, memory=memory, version=int(version))

    def store(self, ctx: WriteContext, *, first: bool = False) -> None:
        """Store the record, as the first answer to its key or in place of an earlier one."""
        key = idempotency.StoredKey(self.space, ctx.actor.principal, self.key)
        if first and not idempotency.claim(ctx.tx, key, self.content):
            raise RetryTransaction
        idempotency.store(ctx.tx, key, self.content, f"{self.memory} {self.version}")


class ImportPlan(NamedTuple):
    """The decision about a file.

    `outcome` is `done` (a new memory), `updated`, `unchanged`, or the reason why the file is skipped. `memory` is the
    id of the memory, `proposed` the memory as the file has it, `present` the memory as it is now.
    """

    imported: ImportedFile
    outcome: str
    memory: str
    proposed: StoredMemory | None = None
    present: StoredMemory | None = None
    record: ImportRecord | None = None

    @property
    def path(self) -> str:
        """The path of the file in its folder."""
        return self.imported.note.path


# --- parsing a file


def note_of(file: SourceFile, document: Document, *, path_hash: str, key: str, content: str) -> Note:
    """Return the summary of a file, which tells between which files there are links."""
    names = (document.title, *obsidian.aliases_in(document.layout))
    return Note(
        path=file.path,
        path_hash=path_hash,
        key=key,
        content=content,
        names=tuple(name for name in names if name),
        links=obsidian.links_in(document.text, document.layout, document.metadata),
        id=document.id,
    )


def has_room(document: Document) -> bool:
    """Return whether the front matter has room for our own fields."""
    return _is_ours(document) or _free_bytes(document) >= 0


def _free_bytes(document: Document) -> int:
    tags = sum(len(tag.encode()) + 4 for tag in document.tags)
    return MAX_FRONT_BYTES - _OWN_BYTES - len(document.layout.encode()) - _LINK_BYTES * len(document.links) - tags


class HomePlaces:
    """Tells which places of files the home can have; what all files of a run share is asked once."""

    def __init__(self, engines: Engines) -> None:
        """Read the ignore file of the home."""
        self._engines = engines
        self._is_ours = engines.folder.our_paths()
        self._usable_spaces: dict[str, bool] = {}

    def has(self, place: Place) -> bool:
        """Return whether the home can have a file at this place, or at least in the folder of its space."""
        if place.space not in self._usable_spaces:
            self._usable_spaces[place.space] = _can_be_written(self._engines, f"{place.space}/-.md")
        return self._usable_spaces[place.space] and self._is_ours(import_spaces.likely_path(place))


def with_our_ending(path: str) -> str:
    """Return the path of a file with the ending that files of a home have."""
    return posixpath.splitext(path)[0] + ".md"


def _is_ours(document: Document) -> bool:
    """Return whether a verb made this file: no person writes all of these fields."""
    return document.id is not None and document.created is not None and document.author is not None


def _title(document: Document, path: str) -> str:
    """Return the title in the front matter, else the name of the file, which is the title in an Obsidian vault."""
    return document.title or titles.title_of_note(path, document.id or "", document.text)


def _times(ctx: WriteContext, imported: ImportedFile) -> tuple[datetime, datetime]:
    """Return the times of creation and last change, from the front matter, else from the folder or archive."""
    changed = user_times.time_of_file(imported.file.mtime_ns, now=ctx.tx.now)
    created = imported.document.created or imported.written or changed
    return created, imported.document.updated or max(created, changed)


def _create_memory(ctx: WriteContext, imported: ImportedFile, memory_id: str) -> StoredMemory:
    document = _completed_document(imported)
    created, updated = _times(ctx, imported)
    same_id = document.id == memory_id and imported.foreign_id is None
    space = import_spaces.require_space(ctx, imported.place)
    memory = new_memory(
        ctx,
        memory_id=memory_id,
        space=space,
        path=import_spaces.home_path(ctx, space, imported.place.rest),
        how="import",
        title=document.title or "",
        text=document.text,
    )
    # Who may write here may decide here: decisions of another home are taken over.
    memory = new_memory_from_document(memory, document, same_id=same_id)
    return memory._replace(
        version=store_version.version_from_file(ctx) if same_id else 1,
        created=created,
        updated=updated,
        revised_at=updated,
        # An episode that was moved away from its session names a log of another space: an import has no say there.
        session=None if document.session_space else document.session_id,
        session_space=None,
    )


def _updated_memory(memory: StoredMemory, imported: ImportedFile) -> StoredMemory:
    """Return a memory with the values of a changed file."""
    return memory_from_document(memory, _completed_document(imported))


def _completed_document(imported: ImportedFile) -> Document:
    """Return the document of a file, with the title from its name."""
    document = imported.document
    return document._replace(title=_title(document, imported.note.path), has_front=True)


# --- ids of memories outside of the given space


def with_own_ids(
    ctx: WriteContext, batch: Sequence[ImportedFile], top: str, in_run: Collection[str]
) -> list[ImportedFile]:
    """Return the files of an import into the space `top`, without ids of memories that live neither there nor below.

    Such an id, and each link to it if a file of the run has it, becomes one derived from it and the space: another
    import of the same file finds the same memory. The ids in the files are locked.
    """
    named = {imported.document.id for imported in batch if imported.document.id}
    named |= {target for imported in batch for _, target, _ in imported.document.links if target in in_run}
    outside = [id_ for id_, space in memories.spaces_of(ctx.tx, sorted(named)).items() if not _is_in(ctx, space, top)]
    if not outside:
        return list(batch)
    space = ctx.require_writable_space(top, origin="import").id
    new_ids = {id_: derived_id(id_, ctx.engines.keys.keyed_hash("imported into", space, id_)) for id_ in outside}
    return [_with_ids(imported, new_ids) for imported in batch]


def _is_in(ctx: WriteContext, space_id: str, top: str) -> bool:
    return space_id in ctx.spaces and space_names.is_within(ctx.spaces[space_id].name, top)


def _with_ids(imported: ImportedFile, new_ids: Mapping[str, str]) -> ImportedFile:
    def replaced(document: Document) -> Document:
        links = tuple((relation, new_ids.get(target, target), hash_) for relation, target, hash_ in document.links)
        return document._replace(id=new_ids.get(document.id or "", document.id), links=links)

    return imported._replace(
        document=replaced(imported.document),
        original=replaced(imported.original),
        foreign_id=imported.document.id if imported.document.id in new_ids else None,
    )


# --- planning and applying


def plan_import(
    ctx: WriteContext,
    imported: ImportedFile,
    record: ImportRecord | None,
    claimed: Collection[str],
    *,
    top: str | None,
    scanned: bool,
) -> ImportPlan:
    """Decide what becomes of a file; `claimed` are ids of other files, which this one cannot have.

    A memory that was moved out of `top`, the space that the import goes into, stays as it is.
    """
    named = imported.document.id if imported.document.id not in claimed else None
    memory_id = record.memory if record else named
    present = memories.find(ctx.tx, ctx.readable, memory_id) if memory_id else None
    if present is None:
        free = memory_id if memory_id and not memories.exists(ctx.tx, memory_id) else new_id()
        proposed = _create_memory(ctx, imported, free)
        return ImportPlan(imported=imported, outcome="done", memory=free, proposed=proposed)
    if top is not None and not _is_in(ctx, present.space.id, top):
        return ImportPlan(imported=imported, outcome="moved", memory=present.id)
    if present.deleted is None:
        try:
            present = hand_edits.with_file_changes(ctx, ctx.require_writable(present.id), scanned=scanned)
        except FileInTheWay:
            return ImportPlan(imported=imported, outcome="in the way", memory=present.id)
    try:
        require_understood(imported.document, present)
    except BadFile:
        return ImportPlan(imported=imported, outcome="mistyped", memory=present.id)
    outcome = _compare(ctx, imported, record, present)
    proposed = _updated_memory(present, imported)._replace(deleted=None)
    if present.deleted:
        proposed = hand_edits.with_words_taken(ctx, proposed, imported.document)
    try:
        proposed = store_version.without_rewound(ctx, present, store_version.with_hashes(ctx, proposed))
    except Conflict:
        outcome = "rewound" if outcome == "updated" else outcome
    return ImportPlan(
        imported=imported,
        outcome=outcome,
        memory=present.id,
        proposed=proposed,
        present=present,
        record=record,
    )


def _compare(ctx: WriteContext, imported: ImportedFile, record: ImportRecord | None, present: StoredMemory) -> str:
    """Return the outcome of the three-way comparison: the file, the record of its import, and the memory now."""
    if record is not None:
        if present.deleted:
            return "deleted"
        if record.content != imported.note.content:
            return "updated" if record.version == present.version else "both"
        # A file that was only moved can have another title now.
        moved = record.key != imported.note.key
        return "updated" if moved and record.version == present.version else "unchanged"
    if present.deleted:
        return "updated"
    documents = (imported.document,) if not imported.masked else (imported.original, imported.document)
    if any(says_the_same(document, present, ctx.engines) for document in documents):
        return "unchanged"
    outcomes = [_compare_with_history(ctx, imported.file, document, present) for document in documents]
    return "older" if "older" in outcomes else outcomes[-1]


def apply_plans(
    ctx: WriteContext, plans: Sequence[ImportPlan], sessions: import_sessions.SessionImport
) -> list[ImportPlan]:
    """Apply plans; return them with their results."""
    added = _add(ctx, [plan for plan in plans if plan.outcome == "done"])
    applied = [_apply(ctx, plan) for plan in plans]
    for memory in added:
        import_sessions.begin_session(ctx, memory, sessions)
    ctx.enqueue_files(added)
    return applied


def _apply(ctx: WriteContext, plan: ImportPlan) -> ImportPlan:
    if plan.outcome == "updated":
        return _update(ctx, plan)
    if plan.outcome == "older":
        return plan._replace(outcome="unchanged")
    if plan.outcome == "unchanged" and plan.present is not None:
        _record_import(ctx, plan, plan.present, plan.record.version if plan.record else plan.present.version)
    return plan


def _add(ctx: WriteContext, plans: Sequence[ImportPlan]) -> list[StoredMemory]:
    """Add the new memories, and return them."""
    proposed: dict[str, StoredMemory] = {}
    checked_folders: set[str] = set()
    for plan in plans:
        if plan.proposed is not None:
            path = free_path(ctx, _usable_path(ctx, plan.proposed, checked_folders), taken=proposed)
            proposed[path] = plan.proposed._replace(path=path)
    # Only what the actor may read: else a link could tell something about a memory that it may not.
    added = store_version.add_many_from_files(ctx, list(proposed.values()), readable=ctx.readable)
    file_journal.clear_former_paths(ctx.tx, proposed)
    for plan, memory in zip((plan for plan in plans if plan.proposed is not None), added, strict=True):
        log_new_memory(ctx, memory, "import", source=plan.imported.note.path_hash)
        _record_import(ctx, plan, memory, memory.version)
    return added


def _update(ctx: WriteContext, plan: ImportPlan) -> ImportPlan:
    if plan.proposed is None or plan.present is None:
        return plan
    old, new_state = plan.present, plan.proposed
    changed = hand_edits.changed_fields(old, new_state)
    # A file of ours may be of another book, or of a state of this one that was lost: no version of it may match.
    is_same = plan.imported.document.id == old.id
    version = store_version.version_from_file(ctx, above=old.version) if is_same else None
    new = old
    if old.deleted:
        restored = new_state._replace(path=path_of_restored(ctx, old))
        new = hand_edits.restore(ctx, old, restored, changed, how="import", version=version)
    elif changed:
        new = store_version.store_version(ctx, old, new_state, changed, how="import", version=version)
    _record_import(ctx, plan, new, new.version)
    return plan._replace(outcome="unchanged" if new == old else "updated")


def _record_import(ctx: WriteContext, plan: ImportPlan, memory: StoredMemory, version: int) -> None:
    """Store the record of an import under the key of the file's path, and give up the key of a former path."""
    note, earlier = plan.imported.note, plan.record
    space = earlier.space if earlier else memory.space.id
    record = ImportRecord(key=note.key, space=space, content=note.content, memory=memory.id, version=version)
    if record != earlier:
        record.store(ctx, first=earlier is None or earlier.key != note.key)
    if earlier and earlier.key != note.key and earlier.key.rpartition(":")[0] == note.key.rpartition(":")[0]:
        idempotency.store(ctx.tx, idempotency.StoredKey(space, ctx.actor.principal, earlier.key), "", "")


def _usable_path(ctx: WriteContext, memory: StoredMemory, checked_folders: set[str]) -> str:
    """Return the intended path of a memory's file, or a new path if the home cannot have a file there."""
    parts = memory.path.split("/")
    short = (
        all(len(part.encode()) <= _MAX_NAME_BYTES for part in parts) and len(memory.path.encode()) <= _MAX_PATH_BYTES
    )
    # A folder with the name of a Markdown file would conflict with a file of that name.
    is_free = short and not any(part.endswith(".md") for part in parts[:-1])
    if is_free and _can_be_written(ctx.engines, memory.path, checked_folders):
        return memory.path
    return import_spaces.plain_path(memory)


def _can_be_written(engines: Engines, path: str, checked_folders: set[str] | None = None) -> bool:
    try:
        engines.folder.require_place(path, checked_folders=checked_folders)
    except FileInTheWay:
        return False
    return True


def _compare_with_history(ctx: WriteContext, file: SourceFile, document: Document, present: StoredMemory) -> str:
    """Return the outcome for a file that differs from its memory, and was not imported before.

    `updated` takes the file over, `older` leaves the memory as it is, `both` names the file to the person.
    """
    words = (document.title or title_of_note(present, document.text), document.text)
    past = [(revision.title, revision.text) for revision in revisions.past_revisions(ctx.tx, present)]
    is_edited_export = bool(file.exported) and file_journal.content_hash(file.data) not in file.exported
    if is_edited_export and file_journal.content_hash(render_memory(present, ctx.engines)) in file.exported:
        return "updated"
    if words == (present.title, present.text):
        is_newer = not file.exported and user_times.time_of_file(file.mtime_ns, now=ctx.tx.now) > present.updated
        return "updated" if is_newer else "older"
    if words in past:
        return "older"
    texts = [text for _, text in (*past, (present.title, present.text))]
    is_based_on_present = not past or nearness.nearest(document.text, texts) == len(past)
    return "updated" if is_based_on_present and not is_edited_export else "both"
