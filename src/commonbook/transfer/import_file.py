"""One file of an import: what it says, whether its memory is known here, and what becomes of it.

The values here are tuples: there is one for each file, and making dataclasses would cost every start some milliseconds.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self

from commonbook.errors import BadFile, FileInTheWay
from commonbook.files import episode_files, hand_edits
from commonbook.markdown.front_matter import FIELDS, Document
from commonbook.markdown.memory_file import (
    copy_info_of,
    dialect,
    filled_from_file,
    memory_from_document,
    parse_file,
    render_memory,
)
from commonbook.markdown.obsidian import hashtags, wiki_links
from commonbook.model.ids import new_id
from commonbook.model.memory import MAX_FRONT_BYTES, MAX_TAGS, MAX_TITLE, CopyInfo, Link, Memory
from commonbook.ports.engines import Engines
from commonbook.ports.files import SourceFile
from commonbook.tables import files, idempotency, links, memories, revisions
from commonbook.text import space_paths, titles
from commonbook.write import revise
from commonbook.write.context import WriteContext
from commonbook.write.new_memory import free_path, new_memory

_RELATED: Final = "related_to"
# Every link is a line of front matter, which has a limit; those beyond stay in the text alone.
_MOST_LINKS: Final = 500
_LINK_BYTES: Final = 64
_OWN_BYTES: Final = 4096
_LONGEST_NAME: Final = 200
_LONGEST_PATH: Final = 800
_NAMELESS: Final = frozenset({"index", "readme"})
_FRONT: Final = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n.*?^(?:---|\.\.\.)", re.DOTALL | re.MULTILINE)
_SET_ASIDE: Final = b"imported_"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LinkTarget(NamedTuple):
    """What a link leads to: a memory, and its revision."""

    memory: str
    revision: int


class Note(NamedTuple):
    """What the first look at a file keeps of it; `room` is how many links its front matter can take."""

    path: str
    key: str
    content: str
    names: tuple[str, ...]
    wiki_links: tuple[str, ...]
    room: int


class ImportedFile(NamedTuple):
    """A file that is to be taken in, read and understood before the transaction; `wanted` is its path in the home."""

    note: Note
    file: SourceFile
    document: Document
    wanted: str


class ImportRecord(NamedTuple):
    """What an earlier import made of a file."""

    key: str
    space: str
    content: str
    memory: str
    version: int
    links: tuple[str, ...]

    @classmethod
    def read(cls, key: str, space: str, content: str, answer: str) -> Self:
        """Read what `keep` wrote."""
        said = json.loads(answer)
        return cls(
            key=key,
            space=space,
            content=content,
            memory=said["memory"],
            version=said["version"],
            links=tuple(said["links"]),
        )

    def keep(self, ctx: WriteContext, *, first: bool = False) -> None:
        """Keep the answer, in place of an earlier one or as the first."""
        said = {"memory": self.memory, "version": self.version, "links": self.links}
        keep = idempotency.claim if first else idempotency.remember
        keep(
            ctx.tx,
            space=self.space,
            principal=ctx.actor.principal,
            key=self.key,
            content=self.content,
            answer=json.dumps(said),
        )


class ImportPlan(NamedTuple):
    """What becomes of a file: `done` (a new memory), `updated`, `unchanged`, or why it is not taken in."""

    arrival: ImportedFile
    outcome: str
    target: LinkTarget
    said: Memory | None = None
    present: Memory | None = None
    answer: ImportRecord | None = None
    linked: frozenset[str] = frozenset()
    new_links: int = 0

    @property
    def path(self) -> str:
        """The path of the file in its folder."""
        return self.arrival.note.path


# --- what a file says


def parse_foreign_file(data: bytes, engines: Engines) -> Document:
    """Read a file of somebody else's: a field that has our name but not our meaning is kept under another name."""
    read = data
    for _ in FIELDS:
        try:
            document = parse_file(read, engines)
        except BadFile as error:
            lines = read.split(b"\n")
            if not error.field or not lines[error.line - 1].startswith(error.field.encode()):
                raise
            lines[error.line - 1] = _SET_ASIDE + lines[error.line - 1]
            read = b"\n".join(lines)
            continue
        return parse_file(data, engines) if read != data and _is_ours(document) else document
    return parse_file(read, engines)


def note_of(found: SourceFile, document: Document, *, key: str, content: str) -> Note:
    """Return what links need to know of a file; of one that we wrote nothing is to be guessed from its text."""
    names = (document.title, _line(found.data, "permalink"))
    return Note(
        path=found.path,
        key=key,
        content=content,
        names=tuple(name for name in names if name),
        wiki_links=() if _is_ours(document) else wiki_links(document.text),
        room=min(_MOST_LINKS, _free_bytes(document) // _LINK_BYTES),
    )


def has_room(document: Document) -> bool:
    """Tell whether our own fields still find room in the front matter."""
    return _is_ours(document) or _free_bytes(document) >= 0


def _free_bytes(document: Document) -> int:
    tags = sum(len(tag.encode()) + 4 for tag in _tags(document))
    return MAX_FRONT_BYTES - _OWN_BYTES - len(document.layout.encode()) - _LINK_BYTES * len(document.links) - tags


def has_place(path: str, engines: Engines) -> bool:
    """Tell whether a file can lie at this path in the home, or at least in the folder of its space."""
    return engines.folder.is_ours(path) and _can_be_written(engines, f"{space_paths.space_of(path)}/-.md")


def target_path(space: str | None, path: str) -> str:
    """Return where a file goes in the home: the same path, below the folder of the space if one is named."""
    name = posixpath.splitext(path)[0] + ".md"
    return f"{space}/{name}" if space else name


def _is_ours(document: Document) -> bool:
    return document.id is not None and document.version is not None


def _line(data: bytes, name: str) -> str:
    """Return a field of the front matter that is not one of ours, if it is one plain line."""
    front = _FRONT.match(data[:MAX_FRONT_BYTES])
    found = re.search(rf"^{name}:[ \t]*(.+?)[ \t]*\r?$".encode(), front[0], re.MULTILINE) if front else None
    return found[1].decode("utf-8", "replace").strip("\"'") if found else ""


def _title(document: Document, path: str) -> str:
    """Return the title: as the file says, else its name, which is the title in a vault."""
    if document.title:
        return document.title
    stem = " ".join(posixpath.splitext(posixpath.basename(path))[0].split())
    if stem.lower() in _NAMELESS or not stem.isprintable():
        return titles.title_from(document.text)
    return stem[:MAX_TITLE]


def _tags(document: Document) -> tuple[str, ...]:
    if _is_ours(document):
        return document.tags
    tags: dict[str, str] = {}
    for tag in (*document.tags, *hashtags(document.text)):
        tags.setdefault(tag.casefold(), tag)
    return tuple(tags.values())[:MAX_TAGS]


def _times(ctx: WriteContext, arrival: ImportedFile) -> tuple[datetime, datetime]:
    """Return when a file was made and last changed: as it says, else as its folder or archive says."""
    changed = min(_EPOCH + timedelta(microseconds=max(0, arrival.file.mtime_ns) // 1000), ctx.tx.now)
    created = arrival.document.created or _date(ctx, arrival.file.data) or changed
    return created, arrival.document.updated or max(created, changed)


def _date(ctx: WriteContext, data: bytes) -> datetime | None:
    line = _line(data, "date")
    try:
        return dialect(ctx.engines).read_time("created", line) if line else None
    except ValueError:
        return None


def _new(ctx: WriteContext, arrival: ImportedFile, memory_id: str) -> Memory:
    document = _completed(arrival)
    created, updated = _times(ctx, arrival)
    own = document.id == memory_id
    memory = new_memory(
        ctx,
        memory_id=memory_id,
        space=ctx.space(space_paths.space_of(arrival.wanted), origin="import"),
        path=arrival.wanted,
        how="import",
        title=document.title or "",
        text=document.text,
    )
    return filled_from_file(memory, document, same_id=own)._replace(
        created=created,
        updated=updated,
        revised_at=updated,
        shared=_claimed(document) if own else None,
    )


def _claimed(document: Document) -> CopyInfo | None:
    """Return what makes a file a copy, as it claims: nobody here saw it being shared."""
    shared = copy_info_of(document)
    return shared._replace(claimed=True) if shared else None


def _said(memory: Memory, arrival: ImportedFile) -> Memory:
    """Return a memory as a changed file says it."""
    return memory_from_document(memory, _completed(arrival))


def _completed(arrival: ImportedFile) -> Document:
    """Return what a file says, with the title that its name gives and the tags that are in its text."""
    document = arrival.document
    return document._replace(title=_title(document, arrival.note.path), tags=_tags(document), has_front=True)


# --- what becomes of it


def plan_import(
    ctx: WriteContext, arrival: ImportedFile, answer: ImportRecord | None, claimed: Collection[str], *, looked: bool
) -> ImportPlan:
    """Decide what becomes of a file; an id that another file has claimed is not this one's."""
    named = arrival.document.id if arrival.document.id not in claimed else None
    memory_id = answer.memory if answer else named
    present = memories.find(ctx.tx, ctx.readable, memory_id) if memory_id else None
    if present is None:
        free = memory_id if memory_id and not memories.exists(ctx.tx, memory_id) else new_id()
        said = _new(ctx, arrival, free)
        return ImportPlan(arrival=arrival, outcome="done", target=LinkTarget(free, said.revision), said=said)
    if present.deleted is None:
        try:
            present = hand_edits.with_file_changes(ctx, ctx.require(present.id), looked=looked)
        except FileInTheWay:
            return ImportPlan(arrival=arrival, outcome="in the way", target=LinkTarget(present.id, present.revision))
    outcome = _judged(ctx, arrival, answer, present)
    said = _said(present, arrival)._replace(deleted=None)
    reworded = outcome == "updated" and (said.title, said.text) != (present.title, present.text)
    return ImportPlan(
        arrival=arrival,
        outcome=outcome,
        target=LinkTarget(present.id, present.revision + reworded),
        said=said,
        present=present,
        answer=answer,
    )


def _judged(ctx: WriteContext, arrival: ImportedFile, answer: ImportRecord | None, present: Memory) -> str:
    """Compare what the file says, what it said when it was imported, and what the memory says now."""
    if answer is not None:
        if present.deleted:
            return "deleted"
        if answer.content != arrival.note.content:
            return "updated" if answer.version == present.version else "both"
        # A file that was only moved can have another title now.
        moved = answer.key != arrival.note.key
        return "updated" if moved and answer.version == present.version else "unchanged"
    if present.deleted:
        return "updated"
    if files.content_hash(render_memory(present, ctx.engines)) == files.content_hash(arrival.file.data):
        return "unchanged"
    version = arrival.document.version
    if version is None or version >= present.version:
        return "updated"
    known = [(one.title, one.text) for one in revisions.older(ctx.tx, present)]
    words = (arrival.document.title, arrival.document.text)
    return "older" if words in [*known, (present.title, present.text)] else "both"


def apply_plans(
    ctx: WriteContext, fates: Sequence[ImportPlan], targets_of: Callable[[Note], list[LinkTarget]]
) -> list[ImportPlan]:
    """Let the files become what was decided, with the links to what is here already."""
    added: list[Memory] = []
    arrived = [_arrive(ctx, fate, targets_of, added) for fate in fates]
    ctx.enqueue_files(added)
    return arrived


def _arrive(
    ctx: WriteContext, fate: ImportPlan, targets_of: Callable[[Note], list[LinkTarget]], added: list[Memory]
) -> ImportPlan:
    if fate.outcome == "done":
        return _add(ctx, fate, targets_of(fate.arrival.note), added)
    if fate.outcome == "updated":
        return _update(ctx, fate, targets_of(fate.arrival.note))
    if fate.outcome == "older":
        return fate._replace(outcome="unchanged")
    if fate.outcome == "unchanged" and fate.present is not None:
        known = fate.answer.links if fate.answer else ()
        version = fate.answer.version if fate.answer else fate.present.version
        return fate._replace(linked=_keep(ctx, fate, fate.present, version, known))
    return fate


def _add(ctx: WriteContext, fate: ImportPlan, targets: Sequence[LinkTarget], added: list[Memory]) -> ImportPlan:
    if fate.said is None:
        return fate
    memory = _with_links(fate.said, targets)
    memory = memory._replace(path=free_path(ctx, _place(ctx, memory)))
    memory = revise.arrived(ctx, memory)
    memories.add(ctx.tx, [memory])
    episode_files.adopt_messages(ctx, memory)
    links.add(ctx.tx, memory.space.id, memory.links)
    files.clear_former_path(ctx.tx, memory.path)
    ctx.note_reasoning_change(None, memory)
    ctx.log_memory(memory, "import", source=ctx.engines.keys.keyed_hash("path", fate.path))
    added.append(memory)
    linked = _keep(ctx, fate, memory, memory.version, [target.memory for target in targets])
    return fate._replace(linked=linked, new_links=len(linked))


def _update(ctx: WriteContext, fate: ImportPlan, targets: Sequence[LinkTarget]) -> ImportPlan:
    if fate.said is None or fate.present is None:
        return fate
    old, said = fate.present, _with_links(fate.said, targets)
    changed = hand_edits.changed_fields(old, said)
    if old.deleted:
        changed = [*changed, "deleted"]
        # Its space may have another name by now than when it was deleted.
        name = space_paths.space_of(old.path)
        path = old.path if name == old.space.name else space_paths.moved(old.path, name, old.space.name)
        said = said._replace(path=free_path(ctx, path))
        files.clear_former_path(ctx.tx, said.path)
    new = revise.store_revision(ctx, old, said, changed, how="import") if changed else old
    linked = _keep(ctx, fate, new, new.version, [target.memory for target in targets])
    before = {link.target for link in old.links if link.relation == _RELATED}
    return fate._replace(outcome="updated" if changed else "unchanged", linked=linked, new_links=len(linked - before))


def _keep(ctx: WriteContext, fate: ImportPlan, memory: Memory, version: int, linked: Sequence[str]) -> frozenset[str]:
    """Keep what became of a file, under the key of its path, and no longer under that of a path it left."""
    note, earlier = fate.arrival.note, fate.answer
    space = earlier.space if earlier else memory.space.id
    answer = ImportRecord(
        key=note.key, space=space, content=note.content, memory=memory.id, version=version, links=tuple(linked)
    )
    if answer != earlier:
        answer.keep(ctx, first=earlier is None or earlier.key != note.key)
    if earlier and earlier.key != note.key and earlier.key.rpartition(":")[0] == note.key.rpartition(":")[0]:
        idempotency.remember(ctx.tx, space=space, principal=ctx.actor.principal, key=earlier.key, content="", answer="")
    return frozenset(linked)


def _place(ctx: WriteContext, memory: Memory) -> str:
    """Return the path that a file had in its folder, unless no file of ours can have it."""
    parts = memory.path.split("/")
    short = all(len(part.encode()) <= _LONGEST_NAME for part in parts) and len(memory.path.encode()) <= _LONGEST_PATH
    # A folder with the name of a Markdown file would stand in that file's way, or that in the folder's.
    if short and not any(part.endswith(".md") for part in parts[:-1]) and _can_be_written(ctx.engines, memory.path):
        return memory.path
    return space_paths.path_for(memory.space.name, memory.created, titles.slug(memory.title), memory.id)


def _can_be_written(engines: Engines, path: str) -> bool:
    try:
        engines.folder.require_place(path)
    except FileInTheWay:
        return False
    return True


def _with_links(memory: Memory, targets: Sequence[LinkTarget]) -> Memory:
    found = {(link.relation, link.target): link for link in memory.links}
    for target in targets:
        link = Link(memory.id, _RELATED, target.memory, target.revision)
        found.setdefault((link.relation, link.target), link)
    return memory._replace(links=tuple(found[pair] for pair in sorted(found)))


def add_links(ctx: WriteContext, answer: ImportRecord, targets: Sequence[LinkTarget], *, looked: bool) -> int:
    """Add links to what came after a file was taken in; return how many."""
    memory = memories.find(ctx.tx, ctx.writable, answer.memory)
    if memory is None or memory.deleted is not None:
        return 0
    try:
        memory = hand_edits.with_file_changes(ctx, memory, looked=looked)
    except FileInTheWay:
        return 0
    there = memories.get_many(ctx.tx, ctx.readable, [target.memory for target in targets])
    live = [target for target in targets if target.memory in there and there[target.memory].deleted is None]
    said = _with_links(memory, live)
    new = revise.store_revision(ctx, memory, said, ["links"], how="import") if said != memory else memory
    # What was changed here since the import stays known as changed.
    version = new.version if answer.version == memory.version else answer.version
    done = tuple(dict.fromkeys((*answer.links, *(target.memory for target in live))))
    answer._replace(version=version, links=done).keep(ctx)
    return len(said.links) - len(memory.links)
