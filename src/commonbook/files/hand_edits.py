"""Taking in what people did to files: every save becomes a revision, and none overwrites what it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from commonbook.errors import BadFile, FileInTheWay, TooLarge
from commonbook.files import episode_files
from commonbook.files.write_out import ConcurrentSave
from commonbook.markdown.front_matter import VERBATIM, Document
from commonbook.markdown.memory_file import (
    copy_info_of,
    filled_from_file,
    memory_from_document,
    parse_file,
    render_document,
    render_memory,
)
from commonbook.model.ids import new_id
from commonbook.model.memory import Memory, Revision
from commonbook.model.spaces import FILESYSTEM, FILESYSTEM_ACTOR, Space
from commonbook.ports.files import FileStat
from commonbook.tables import files, links, memories, revisions
from commonbook.tables.files import SaveOrder
from commonbook.text import space_paths, titles
from commonbook.write import revise
from commonbook.write.context import WriteContext
from commonbook.write.new_memory import new_memory

Outcome = Literal["new", "edited", "moved", "restored", "malformed", "known", "copied", "none"]

_MANY: Final = 10**12
_FIELDS: Final = (
    "title",
    "text",
    "kind",
    "tags",
    "author",
    "created",
    *VERBATIM,
    "links",
    "layout",
)


def apply_file(ctx: WriteContext, path: str) -> Outcome:
    """Look at the file at a path and let the book say what it says; tell what it was."""
    base = files.synced_file(ctx.tx, path)
    stat = ctx.engines.folder.stat(path)
    if stat is None:
        return "none"
    try:
        data = ctx.engines.folder.read(path)
    except OSError as error:
        return _refuse(ctx, path, stat, "", base, f"cannot be read: {error.strerror}")
    if data is None:
        return "none"
    hash_ = files.content_hash(data)
    if base is not None and base.hash == hash_:
        trouble = None if base.trouble == files.MISSING else base.trouble
        files.set_synced(ctx.tx, path, stat, hash_, memory=base.memory, version=base.version, trouble=trouble)
        if trouble is None:
            _follow_again(ctx, base)
        return "known"
    try:
        document = parse_file(data, ctx.engines)
    except BadFile as error:
        return _refuse(ctx, path, stat, hash_, base, str(error))
    if not _has_room(ctx, document):
        return _refuse(ctx, path, stat, hash_, base, "the front matter is too long: no room is left for our fields")
    _follow_again(ctx, base)
    memory, how = _whose(ctx, path, base, document)
    if memory is None:
        return _add(ctx, path, stat, hash_, document, fresh_id=how == "copied")
    return _update(ctx, memory, path, stat, hash_, document)


def _has_room(ctx: WriteContext, document: Document) -> bool:
    """Tell whether the front matter can take the fields that we add."""
    whole = document._replace(
        id=document.id or new_id(),
        title=document.title or titles.title_from(document.text),
        created=document.created or ctx.tx.now,
        updated=ctx.tx.now,
        author=document.author or FILESYSTEM,
        revision=_MANY,
        version=_MANY,
        has_front=True,
    )
    try:
        render_document(whole, ctx.engines)
    except TooLarge:
        return False
    return True


class FileGone(Exception):
    """A file is not where its memory says: before it is changed, somebody has to look where it went."""


def with_file_changes(ctx: WriteContext, memory: Memory, *, looked: bool) -> Memory:
    """Take in what a person did to the file of a memory that is about to be changed; return it as it is then."""
    if not ctx.engines.folder.keeps_files:
        return memory
    base = files.synced_file(ctx.tx, memory.path)
    try:
        stat = ctx.engines.folder.stat(memory.path)
    except OSError as error:
        raise FileInTheWay(
            f"{memory.path} cannot be looked at: {error.strerror}", fix="give this user the right to read it"
        ) from error
    if stat is None:
        if base is not None and not looked and not files.journal_entries(ctx.tx, [memory.id]):
            raise FileGone
        return memory
    if base is not None and base.matches(stat) and base.trouble is None:
        return memory
    if apply_file(ctx.acting_as(FILESYSTEM_ACTOR), memory.path) == "malformed" or _in_trouble(ctx, memory.path):
        raise FileInTheWay(
            f"{memory.path} does not parse, and we do not write over what a person is mending",
            fix=f"mend the front matter of {memory.path}; `commonbook doctor` says what is wrong with it",
        )
    return ctx.require(memory.id)


def _in_trouble(ctx: WriteContext, path: str) -> bool:
    base = files.synced_file(ctx.tx, path)
    return base is not None and base.trouble is not None


def apply_concurrent_saves(ctx: WriteContext, found: Sequence[ConcurrentSave]) -> None:
    """Take in what came out of an exchange: on top of what the memory says, or into its history."""
    for one in found:
        data = ctx.engines.folder.read_out(one.name)
        memory = memories.find(ctx.tx, ctx.spaces, one.memory)
        if data is None:
            continue
        if memory is None:
            # The database that knew the memory is lost: its text is not.
            ctx.engines.folder.put_back(one.name, f"recovered-{one.name}.md")
            continue
        document = _legible(ctx, data)
        if document.id not in (None, memory.id):
            # Another memory's file lay at our path: it goes beside it, where the next look finds it.
            ctx.engines.folder.put_back(one.name, one.path or memory.path)
            continue
        if files.content_hash(data) in files.known_hashes(ctx.tx, memory.id):
            continue
        if document.version != memory.version and _is_known(ctx, memory, document):
            # A text of ours that another process wrote out late, or one that a person went back to: it is kept already.
            continue
        verdict = files.place_in_history(version=document.version, row_version=memory.version, journal=one.journal)
        if one.journal is not None and verdict is SaveOrder.NEWER and memory.deleted is None:
            _revise(ctx, memory, memory_from_document(memory, document), seen=document.version)
        else:
            _record_earlier(ctx, memory, document)


def _refuse(
    ctx: WriteContext, path: str, stat: FileStat, hash_: str, base: files.SyncedFile | None, reason: str
) -> Outcome:
    """Leave a file that does not parse alone, and remember what is wrong with it."""
    memory = base.memory if base else memories.at_path(ctx.tx, path)
    version = base.version if base else 0
    files.set_synced(ctx.tx, path, stat, hash_, memory=memory, version=version, trouble=reason)
    return "malformed"


def _whose(
    ctx: WriteContext, path: str, base: files.SyncedFile | None, document: Document
) -> tuple[Memory | None, str]:
    """Decide which memory a file means: the known path keeps its id, a moved file takes its own along."""
    here = memories.find(ctx.tx, ctx.spaces, base.memory) if base and base.memory else None
    if here is not None and here.deleted is not None:
        here = None
    named = memories.find(ctx.tx, ctx.spaces, document.id) if document.id else None
    if named is not None and here is not None and named.id != here.id:
        # An id edited by hand is put back, unless the file that it belongs to was really moved over this one.
        moved_over = named.deleted is not None or not _is_at_home(ctx, named)
        return (named, "moved") if moved_over else (here, "known")
    if here is not None:
        return here, "known"
    if named is None:
        return None, "new"
    if named.deleted is not None:
        return named, "restored"
    pending = files.journal_entries(ctx.tx, [named.id]).get(named.id)
    if named.path == path or (pending and path in pending.paths) or files.moved_from(ctx.tx, path) == named.id:
        return named, "known"
    if pending or _is_at_home(ctx, named):
        return None, "copied"
    return named, "moved"


def _is_at_home(ctx: WriteContext, memory: Memory) -> bool:
    """Tell whether a memory's own file is still where it was: a file that names another memory is not it."""
    try:
        data = ctx.engines.folder.read(memory.path)
        there = None if data is None else parse_file(data, ctx.engines).id
    except (BadFile, OSError):
        return True
    return ctx.engines.folder.exists(memory.path) if data is None else there in {None, memory.id}


def _legible(ctx: WriteContext, data: bytes) -> Document:
    """Read what a person typed; what does not parse is kept as plain text."""
    try:
        return parse_file(data, ctx.engines)
    except BadFile:
        text = data.decode("utf-8", "replace").replace("\0", "\ufffd")
        return Document(text=text)


# --- a file that is new


def _add(ctx: WriteContext, path: str, stat: FileStat, hash_: str, document: Document, *, fresh_id: bool) -> Outcome:
    memory_id = document.id if document.id and not fresh_id else new_id()
    space = ctx.space(space_paths.space_of(path), origin="folder")
    own = document.id == memory_id
    memory = new_memory(
        ctx,
        memory_id=memory_id,
        space=space,
        path=path,
        how="file",
        title=titles.title_from(document.text),
        text=document.text,
    )
    memory = filled_from_file(memory, document, same_id=own)._replace(
        updated=document.updated or ctx.tx.now,
        shared=copy_info_of(document),
    )
    # A file that somebody copied was shared by nobody: it does not follow what the copied one follows.
    memory = revise.arrived(ctx, memory) if own else revise.detached(memory)
    memories.add(ctx.tx, [memory])
    links.add(ctx.tx, space.id, memory.links)
    episode_files.adopt_messages(ctx, memory)
    files.set_synced(ctx.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    files.clear_former_path(ctx.tx, path)
    ctx.note_reasoning_change(None, memory)
    ctx.log_memory(memory, "remember", how="file")
    if files.content_hash(render_memory(memory, ctx.engines)) != hash_:
        ctx.enqueue_files([memory])
    return "copied" if fresh_id else "new"


# --- a file of a memory that we know


def _update(ctx: WriteContext, memory: Memory, path: str, stat: FileStat, hash_: str, document: Document) -> Outcome:
    unchanged = hash_ == files.content_hash(render_memory(memory, ctx.engines))
    if path != memory.path or memory.deleted is not None:
        if files.moved_from(ctx.tx, path) == memory.id and memory.deleted is None and _is_at_home(ctx, memory):
            return _save_at_left_path(ctx, memory, path, stat, hash_, document)
        _replace_base(ctx, path, stat, hash_, memory)
        return _arrive(ctx, memory, path, None if unchanged else document)
    journal = files.journal_entries(ctx.tx, [memory.id]).get(memory.id)
    if journal is not None and hash_ in journal.hashes:
        return "known"
    _replace_base(ctx, path, stat, hash_, memory)
    if unchanged:
        return "known"
    if journal is not None and _is_written_late(ctx, memory, document):
        ctx.enqueue_files([memory], seen=journal.seen)
        return "known"
    if (
        files.place_in_history(version=document.version, row_version=memory.version, journal=journal)
        is SaveOrder.EARLIER
    ):
        _record_earlier(ctx, memory, document)
    else:
        _revise(ctx, memory, memory_from_document(memory, document), seen=document.version)
    return "edited"


def _arrive(ctx: WriteContext, memory: Memory, path: str, document: Document | None) -> Outcome:
    """Let a memory be where its file was found, moved or brought back, and say what the file says if that is new."""
    if path != memory.path:
        files.drop_synced(ctx.tx, memory.path, memory.id)
    files.clear_former_path(ctx.tx, path)
    said = memory if document is None else memory_from_document(memory, document)
    space = ctx.space(space_paths.space_of(path), origin="folder")
    seen = memory.version if document is None else document.version
    _revise(ctx, memory, said._replace(path=path, deleted=None), to=space, seen=seen)
    _follow(ctx, memory.id)
    return "moved" if memory.deleted is None else "restored"


def _follow_again(ctx: WriteContext, base: files.SyncedFile | None) -> None:
    """Let a copy follow whose file was in trouble and is no longer."""
    if base is not None and base.trouble is not None:
        _follow(ctx, base.memory)


def _follow(ctx: WriteContext, memory_id: str | None) -> None:
    """Let a copy take over what its source said while its file was away.

    It is the source's copies that are looked at when the story ends, this one among them.
    """
    memory = memories.find(ctx.tx, ctx.spaces, memory_id) if memory_id else None
    link = memory.source if memory else None
    source = memories.find(ctx.tx, ctx.spaces, link.target) if link else None
    if source is not None and source.deleted is None:
        ctx.pending.check_copies(source)


def _replace_base(ctx: WriteContext, path: str, stat: FileStat, hash_: str, memory: Memory) -> None:
    """Let the path be this memory's; one whose file lay there before has none any more."""
    base = files.synced_file(ctx.tx, path)
    files.set_synced(ctx.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    if base is not None and base.memory not in {None, memory.id}:
        handle_missing_file(ctx, path, base.memory)


def handle_missing_file(ctx: WriteContext, path: str, memory_id: str | None) -> bool:
    """Delete the memory whose file was at this path and is gone, unless its file is meant to be elsewhere now."""
    memory = memories.find(ctx.tx, ctx.spaces, memory_id) if memory_id else None
    if (
        memory is None
        or memory.deleted is not None
        or memory.path != path
        or files.journal_entries(ctx.tx, [memory.id])
    ):
        return False
    revise.delete(ctx, memory, how="file")
    return True


def _save_at_left_path(
    ctx: WriteContext, memory: Memory, path: str, stat: FileStat, hash_: str, document: Document
) -> Outcome:
    """Take a save at a path that we left for an edit of the moved memory; the stray file is then taken away."""
    known = hash_ in files.known_hashes(ctx.tx, memory.id)
    files.set_synced(ctx.tx, path, stat, hash_, memory=memory.id, version=memory.version)
    if known:
        ctx.enqueue_files([memory])
    else:
        _revise(ctx, memory, memory_from_document(memory, document), seen=document.version)
    return "edited"


def changed_fields(old: Memory, new: Memory) -> list[str]:
    """Return the names of the fields that a file can change and that differ."""
    return [name for name in _FIELDS if getattr(old, name) != getattr(new, name)]


def _revise(ctx: WriteContext, old: Memory, said: Memory, *, seen: int | None, to: Space | None = None) -> None:
    """Let the memory say this from now on, in the name of the file system."""
    changed = changed_fields(old, said)
    space = to or old.space
    if space.id != old.space.id:
        changed.append("space")
    if old.deleted is not None:
        changed.append("deleted")
    if changed:
        revise.store_revision(ctx, old, said._replace(space=space), changed, how="file", seen=seen)
        return
    if said.path != old.path:
        memories.relocate(ctx.tx, old, said.path)
    if said.path == old.path or files.journal_entries(ctx.tx, [old.id]):
        ctx.enqueue_files([said])


def _is_written_late(ctx: WriteContext, memory: Memory, document: Document) -> bool:
    """Tell whether a file that we are about to write over has a text of ours that another process wrote out late."""
    return memory.deleted is None and document.version != memory.version and _is_known(ctx, memory, document)


def _is_known(ctx: WriteContext, memory: Memory, document: Document) -> bool:
    """Tell whether the memory says or ever said what a file says."""
    said = (document.title or memory.title, document.text)
    past = ((one.title, one.text) for one in revisions.older(ctx.tx, memory))
    return said == (memory.title, memory.text) or said in past


def _record_earlier(ctx: WriteContext, memory: Memory, document: Document) -> None:
    """Keep a text that was typed before the present one and came in after it, then let the present one stand."""
    title = document.title or memory.title
    if _is_known(ctx, memory, document):
        if memory.deleted is None:
            ctx.enqueue_files([memory])
        return
    revisions.archive(ctx.tx, memory)
    earlier = Revision(
        revision=memory.revision + 1,
        title=title,
        text=document.text,
        author=FILESYSTEM,
        at=ctx.tx.now,
        how="file, overtaken",
    )
    revisions.keep(ctx.tx, memory, earlier)
    said = memory._replace(title=title, text=document.text, revision=earlier.revision, version=memory.version + 1)
    ctx.log_memory(said, "edit", overtaken=True)
    stands = memory._replace(
        revision=memory.revision + 2, version=memory.version + 2, updated=ctx.tx.now, revised_at=ctx.tx.now
    )
    if stands.shared is not None and stands.shared.own == memory.revision:
        # It says what its source says, as before.
        stands = stands._replace(shared=stands.shared._replace(own=stands.revision))
    memories.replace(ctx.tx, stands)
    ctx.pending.note_changed_text(stands)
    ctx.log_memory(stands, "edit", stands=True)
    ctx.enqueue_files([stands])
