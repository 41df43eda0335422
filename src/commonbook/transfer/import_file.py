"""The import of one file: parse it, plan what becomes of it by a three-way comparison, and apply the plan.

The comparison is between the file, the state that an earlier import recorded, and the memory as it is now. The values
here are named tuples: there is one for each file, and dataclasses would cost every start some milliseconds.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Self

from commonbook.errors import BadFile, FileInTheWay
from commonbook.files import hand_edits
from commonbook.markdown.front_matter import Document
from commonbook.markdown.memory_conversion import (
    memory_from_document,
    new_memory_from_document,
    parse_file,
    require_understood,
    says_the_same,
)
from commonbook.markdown.obsidian import hashtags, wiki_links
from commonbook.model.ids import new_id
from commonbook.model.memory import MAX_FRONT_BYTES, MAX_TAGS, Link, Memory
from commonbook.ports.engines import Engines
from commonbook.ports.files import SourceFile
from commonbook.tables import file_journal, idempotency, memories
from commonbook.text import dates, titles
from commonbook.transfer import import_sessions, import_spaces
from commonbook.transfer.import_spaces import Place
from commonbook.transfer.known_files import compare_with_history
from commonbook.write import store_version
from commonbook.write.context import WriteContext
from commonbook.write.new_memory import free_path, new_memory, path_of_restored

_RELATED: Final = "related_to"
# Every link is a line of front matter, whose size is limited; further links stay in the text alone.
_MAX_LINKS: Final = 500
_LINK_BYTES: Final = 64
_OWN_BYTES: Final = 4096
_MAX_NAME_BYTES: Final = 200
_MAX_PATH_BYTES: Final = 800
_FRONT_MATTER: Final = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n.*?^(?:---|\.\.\.)", re.DOTALL | re.MULTILINE)


class LinkTarget(NamedTuple):
    """The memory that a link leads to, with its content hash."""

    memory: str
    content_hash: str


class Note(NamedTuple):
    """A summary of a file from the first pass.

    `key` is its idempotency key, `content` a keyed hash of its content, and `room` the number of links for which its
    front matter has room.
    """

    path: str
    key: str
    content: str
    names: tuple[str, ...]
    wiki_links: tuple[str, ...]
    room: int


class ImportedFile(NamedTuple):
    """A file to import, read and parsed before the transaction; `place` is the space that it goes into.

    `original` is the document with its secrets, by which the file of a memory that was not masked is known again;
    `masked` is the number of secrets that were masked.
    """

    note: Note
    file: SourceFile
    document: Document
    place: Place
    original: Document
    masked: int = 0


class ImportRecord(NamedTuple):
    """The result of an earlier import of a file, stored as the answer to its idempotency key."""

    key: str
    space: str
    content: str
    memory: str
    version: int
    links: tuple[str, ...]

    @classmethod
    def read(cls, key: str, space: str, content: str, answer: str) -> Self:
        """Parse an answer that `store` wrote."""
        values = json.loads(answer)
        return cls(
            key=key,
            space=space,
            content=content,
            memory=values["memory"],
            version=values["version"],
            links=tuple(values["links"]),
        )

    def store(self, ctx: WriteContext, *, first: bool = False) -> None:
        """Store the record, as the first answer to its key or in place of an earlier one."""
        values = {"memory": self.memory, "version": self.version, "links": self.links}
        store = idempotency.claim if first else idempotency.replace
        store(
            ctx.tx,
            space=self.space,
            principal=ctx.actor.principal,
            key=self.key,
            content=self.content,
            answer=json.dumps(values),
        )


class ImportPlan(NamedTuple):
    """The decision about a file.

    `outcome` is `done` (a new memory), `updated`, `unchanged`, or the reason why the file is skipped. `proposed` is the
    memory as the file has it, `present` the memory as it is now.
    """

    imported: ImportedFile
    outcome: str
    target: LinkTarget
    proposed: Memory | None = None
    present: Memory | None = None
    record: ImportRecord | None = None
    linked: frozenset[str] = frozenset()
    new_links: int = 0

    @property
    def path(self) -> str:
        """The path of the file in its folder."""
        return self.imported.note.path


# --- parsing a file


def parse(data: bytes, engines: Engines) -> Document:
    """Parse a file to import; raises BadFile."""
    return parse_file(data, engines)


def note_of(file: SourceFile, document: Document, *, key: str, content: str) -> Note:
    """Return the summary of a file that links need; from a file that we wrote, no wiki links are guessed."""
    names = (document.title, _field(file.data, "permalink"))
    return Note(
        path=file.path,
        key=key,
        content=content,
        names=tuple(name for name in names if name),
        wiki_links=() if _is_ours(document) else wiki_links(document.text),
        room=min(_MAX_LINKS, _free_bytes(document) // _LINK_BYTES),
    )


def has_room(document: Document) -> bool:
    """Tell whether the front matter has room for our own fields."""
    return _is_ours(document) or _free_bytes(document) >= 0


def _free_bytes(document: Document) -> int:
    tags = sum(len(tag.encode()) + 4 for tag in _tags(document))
    return MAX_FRONT_BYTES - _OWN_BYTES - len(document.layout.encode()) - _LINK_BYTES * len(document.links) - tags


def has_place(place: Place, engines: Engines) -> bool:
    """Tell whether the home can have a file at this place, or at least in the folder of its space."""
    return engines.folder.is_ours(import_spaces.likely_path(place)) and _can_be_written(engines, f"{place.space}/-.md")


def with_our_ending(path: str) -> str:
    """Return the path of a file with the ending that files of a home have."""
    return posixpath.splitext(path)[0] + ".md"


def _is_ours(document: Document) -> bool:
    """Tell whether a verb made this file, or an earlier program completed it: no person writes all of these fields."""
    return document.id is not None and document.created is not None and document.author is not None


def _field(data: bytes, name: str) -> str:
    """Return the value of a field of the front matter that is not one of ours, if it is one plain line, else ''."""
    front = _FRONT_MATTER.match(data[:MAX_FRONT_BYTES])
    match = re.search(rf"^{name}:[ \t]*(.+?)[ \t]*\r?$".encode(), front[0], re.MULTILINE) if front else None
    return match[1].decode("utf-8", "replace").strip("\"'") if match else ""


def _title(document: Document, path: str) -> str:
    """Return the title in the front matter, else the name of the file, which is the title in an Obsidian vault."""
    return document.title or titles.title_of_note(path, document.id or "", document.text)


def _tags(document: Document) -> tuple[str, ...]:
    if _is_ours(document):
        return document.tags
    tags: dict[str, str] = {}
    for tag in (*document.tags, *hashtags(document.text)):
        tags.setdefault(tag.casefold(), tag)
    return tuple(tags.values())[:MAX_TAGS]


def _times(ctx: WriteContext, imported: ImportedFile) -> tuple[datetime, datetime]:
    """Return the times of creation and last change, from the front matter, else from the folder or archive."""
    changed = dates.time_of_file(imported.file.mtime_ns, now=ctx.tx.now)
    created = imported.document.created or changed
    return created, imported.document.updated or max(created, changed)


def _create_memory(ctx: WriteContext, imported: ImportedFile, memory_id: str) -> Memory:
    document = _completed_document(imported)
    created, updated = _times(ctx, imported)
    same_id = document.id == memory_id
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
    memory = new_memory_from_document(memory, document, ctx.engines.keys, same_id=same_id)
    memory = memory._replace(
        version=store_version.version_from_file(ctx) if same_id else 1,
        created=created,
        updated=updated,
        revised_at=updated,
        # An imported copy is claimed even if this home wrote its file: a tie that was ended here stays ended.
        shared=memory.shared._replace(claimed=True) if memory.shared else None,
        # Who may write here may decide here: decisions of another home are taken over.
        decisions=tuple(line.decision for line in document.invalidations_triaged) if same_id else (),
        # An episode that was moved away from its session names a log of another space: an import has no say there.
        session=None if document.session_space else document.session_id,
        session_space=None,
    )
    return store_version.with_hashes(ctx, memory)


def _updated_memory(memory: Memory, imported: ImportedFile) -> Memory:
    """Return a memory with the values of a changed file."""
    return memory_from_document(memory, _completed_document(imported))


def _completed_document(imported: ImportedFile) -> Document:
    """Return the document of a file, with the title from its name and the hashtags of its text."""
    document = imported.document
    return document._replace(title=_title(document, imported.note.path), tags=_tags(document), has_front=True)


# --- planning and applying


def plan_import(
    ctx: WriteContext,
    imported: ImportedFile,
    record: ImportRecord | None,
    claimed: Collection[str],
    *,
    scanned: bool,
) -> ImportPlan:
    """Decide what becomes of a file; `claimed` are ids of other files, which this one cannot have."""
    named = imported.document.id if imported.document.id not in claimed else None
    memory_id = record.memory if record else named
    present = memories.find(ctx.tx, ctx.readable, memory_id) if memory_id else None
    if present is None:
        free = memory_id if memory_id and not memories.exists(ctx.tx, memory_id) else new_id()
        proposed = _create_memory(ctx, imported, free)
        target = LinkTarget(free, proposed.content_hash)
        return ImportPlan(imported=imported, outcome="done", target=target, proposed=proposed)
    if present.deleted is None:
        try:
            present = hand_edits.with_file_changes(ctx, ctx.require_writable(present.id), scanned=scanned)
        except FileInTheWay:
            return ImportPlan(
                imported=imported, outcome="in the way", target=LinkTarget(present.id, present.content_hash)
            )
    try:
        require_understood(imported.document, present)
    except BadFile:
        return ImportPlan(imported=imported, outcome="mistyped", target=LinkTarget(present.id, present.content_hash))
    outcome = _compare(ctx, imported, record, present)
    proposed = _updated_memory(present, imported)._replace(deleted=None)
    if present.deleted:
        proposed = hand_edits.with_words_taken(ctx, proposed, imported.document)
    proposed = store_version.with_hashes(ctx, proposed)
    return ImportPlan(
        imported=imported,
        outcome=outcome,
        target=LinkTarget(present.id, (proposed if outcome == "updated" else present).content_hash),
        proposed=proposed,
        present=present,
        record=record,
    )


def _compare(ctx: WriteContext, imported: ImportedFile, record: ImportRecord | None, present: Memory) -> str:
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
    outcomes = [compare_with_history(ctx, imported.file, document, present) for document in documents]
    return "older" if "older" in outcomes else outcomes[-1]


def apply_plans(
    ctx: WriteContext,
    plans: Sequence[ImportPlan],
    targets_of: Callable[[Note], list[LinkTarget]],
    sessions: import_sessions.SessionImport,
) -> list[ImportPlan]:
    """Apply plans, with the links whose targets are here already; return them with their results."""
    added: list[Memory] = []
    applied = [_apply(ctx, plan, targets_of, added) for plan in plans]
    for memory in added:
        import_sessions.begin_session(ctx, memory, sessions)
    ctx.enqueue_files(added)
    return applied


def _apply(
    ctx: WriteContext, plan: ImportPlan, targets_of: Callable[[Note], list[LinkTarget]], added: list[Memory]
) -> ImportPlan:
    if plan.outcome == "done":
        return _add(ctx, plan, targets_of(plan.imported.note), added)
    if plan.outcome == "updated":
        return _update(ctx, plan, targets_of(plan.imported.note))
    if plan.outcome == "older":
        return plan._replace(outcome="unchanged")
    if plan.outcome == "unchanged" and plan.present is not None:
        known = plan.record.links if plan.record else ()
        version = plan.record.version if plan.record else plan.present.version
        return plan._replace(linked=_record_import(ctx, plan, plan.present, version, known))
    return plan


def _add(ctx: WriteContext, plan: ImportPlan, targets: Sequence[LinkTarget], added: list[Memory]) -> ImportPlan:
    if plan.proposed is None:
        return plan
    memory = _with_links(plan.proposed, targets)
    memory = memory._replace(path=free_path(ctx, _usable_path(ctx, memory)))
    # Only what the actor may read: else a link could tell something about a memory that it may not.
    memory = store_version.add_from_file(ctx, memory, readable=ctx.readable)
    file_journal.clear_former_path(ctx.tx, memory.path)
    ctx.log_memory(memory, "import", source=ctx.engines.keys.keyed_hash("path", plan.path))
    added.append(memory)
    linked = _record_import(ctx, plan, memory, memory.version, [target.memory for target in targets])
    return plan._replace(linked=linked, new_links=len(linked))


def _update(ctx: WriteContext, plan: ImportPlan, targets: Sequence[LinkTarget]) -> ImportPlan:
    if plan.proposed is None or plan.present is None:
        return plan
    old, new_state = plan.present, _with_links(plan.proposed, targets)
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
    linked = _record_import(ctx, plan, new, new.version, [target.memory for target in targets])
    before = {link.target for link in old.links if link.relation == _RELATED}
    return plan._replace(
        outcome="unchanged" if new == old else "updated", linked=linked, new_links=len(linked - before)
    )


def _record_import(
    ctx: WriteContext, plan: ImportPlan, memory: Memory, version: int, linked: Sequence[str]
) -> frozenset[str]:
    """Store the record of an import under the key of the file's path, and give up the key of a former path."""
    note, earlier = plan.imported.note, plan.record
    space = earlier.space if earlier else memory.space.id
    record = ImportRecord(
        key=note.key, space=space, content=note.content, memory=memory.id, version=version, links=tuple(linked)
    )
    if record != earlier:
        record.store(ctx, first=earlier is None or earlier.key != note.key)
    if earlier and earlier.key != note.key and earlier.key.rpartition(":")[0] == note.key.rpartition(":")[0]:
        idempotency.replace(ctx.tx, space=space, principal=ctx.actor.principal, key=earlier.key, content="", answer="")
    return frozenset(linked)


def _usable_path(ctx: WriteContext, memory: Memory) -> str:
    """Return the intended path of a memory's file, or a new path if the home cannot have a file there."""
    parts = memory.path.split("/")
    short = (
        all(len(part.encode()) <= _MAX_NAME_BYTES for part in parts) and len(memory.path.encode()) <= _MAX_PATH_BYTES
    )
    # A folder with the name of a Markdown file would conflict with a file of that name.
    if short and not any(part.endswith(".md") for part in parts[:-1]) and _can_be_written(ctx.engines, memory.path):
        return memory.path
    return import_spaces.plain_path(memory)


def _can_be_written(engines: Engines, path: str) -> bool:
    try:
        engines.folder.require_place(path)
    except FileInTheWay:
        return False
    return True


def _with_links(memory: Memory, targets: Sequence[LinkTarget]) -> Memory:
    by_key = {(link.relation, link.target): link for link in memory.links}
    for target in targets:
        link = Link(memory.id, _RELATED, target.memory, target.content_hash)
        by_key.setdefault((link.relation, link.target), link)
    return memory._replace(links=tuple(by_key[key] for key in sorted(by_key)))


def add_links(ctx: WriteContext, record: ImportRecord, targets: Sequence[LinkTarget], *, scanned: bool) -> int:
    """Add links to memories that were imported after this one; return how many."""
    memory = memories.find(ctx.tx, ctx.writable, record.memory)
    if memory is None or memory.deleted is not None:
        return 0
    try:
        memory = hand_edits.with_file_changes(ctx, memory, scanned=scanned)
    except FileInTheWay:
        return 0
    known = memories.get_many(ctx.tx, ctx.readable, [target.memory for target in targets])
    live = [target for target in targets if target.memory in known and known[target.memory].deleted is None]
    linked = _with_links(memory, live)
    new = store_version.store_version(ctx, memory, linked, ["links"], how="import") if linked != memory else memory
    # A memory that was changed here since the import must still count as changed.
    version = new.version if record.version == memory.version else record.version
    targets_done = tuple(dict.fromkeys((*record.links, *(target.memory for target in live))))
    record._replace(version=version, links=targets_done).store(ctx)
    return len(linked.links) - len(memory.links)
