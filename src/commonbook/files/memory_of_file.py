"""Decides which memory a file belongs to: by its path, by the id in it, or by its content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.errors import BadFile
from commonbook.markdown.front_matter import Document
from commonbook.markdown.memory_conversion import claim_of, new_memory_from_document, parse_file
from commonbook.model.ids import new_id
from commonbook.model.memory import DETACHED
from commonbook.model.stored_memory import StoredMemory
from commonbook.tables import copies, file_journal, memories
from commonbook.text import file_paths, titles, user_times
from commonbook.write import store_version
from commonbook.write.new_memory import new_memory

if TYPE_CHECKING:
    from commonbook.model.spaces import Space
    from commonbook.ports.files import FileStat
    from commonbook.write.context import WriteContext


def match_memory(
    ctx: WriteContext, path: str, synced: file_journal.SyncedFile | None, document: Document
) -> tuple[StoredMemory | None, bool]:
    """Decide which memory a file belongs to: a known path keeps its memory, a moved file the one that its id names.

    The second value tells that the file is a copy of the file of another memory, whose id it must not keep.
    """
    at_path = memories.find(ctx.tx, ctx.spaces, synced.memory) if synced and synced.memory else None
    if at_path is not None and at_path.deleted is not None:
        at_path = None
    named = memories.find(ctx.tx, ctx.spaces, document.id) if document.id else None
    if named is not None and at_path is not None and named.id != at_path.id:
        # An id edited by hand is put back, unless the file that it belongs to was really moved over this one.
        moved_over = named.deleted is not None or not is_in_place(ctx, named)
        return (named if moved_over else at_path), False
    if named is None and at_path is not None and document.id and _waits_for_its_id(ctx, at_path):
        # The database was lost while the commit was checked out that has no ids; now the file brings its own.
        return None, False
    if at_path is not None:
        return at_path, False
    if named is None or named.deleted is not None:
        return named, False
    pending = file_journal.journal_entries(ctx.tx, [named.id]).get(named.id)
    if named.path == path or (pending and path in pending.paths) or file_journal.moved_from(ctx.tx, path) == named.id:
        return named, False
    if pending or is_in_place(ctx, named):
        return None, True
    return named, False


def known_without_id(ctx: WriteContext, path: str, document: Document, gone_id: str | None) -> StoredMemory | None:
    """Return the memory that a file without an id belongs to at a path that is new, or None.

    Either the file of a memory had this very content at a path where it is no longer, or a memory with this text was
    deleted here.
    """
    moved = memories.find(ctx.tx, ctx.spaces, gone_id) if gone_id else None
    if moved is not None and moved.deleted is None and not ctx.engines.folder.exists(moved.path):
        return moved
    deleted_id = memories.at_path(ctx.tx, path, is_deleted=True)
    deleted = memories.find(ctx.tx, ctx.spaces, deleted_id) if deleted_id else None
    return deleted if deleted is not None and deleted.text == document.text else None


def _waits_for_its_id(ctx: WriteContext, memory: StoredMemory) -> bool:
    """Tell whether the file of a memory was still to be completed, so that its id may never have stood in the file."""
    pending = file_journal.journal_entries(ctx.tx, [memory.id]).get(memory.id)
    return pending is not None and pending.is_write_back


def is_in_place(ctx: WriteContext, memory: StoredMemory) -> bool:
    """Tell whether the file of a memory is still at its path; a file there that names another memory does not count."""
    try:
        data = ctx.engines.folder.read(memory.path)
        named_id = None if data is None else parse_file(data, ctx.engines).id
    except (BadFile, OSError):
        return True
    return ctx.engines.folder.exists(memory.path) if data is None else named_id in {None, memory.id}


def is_place_taken(ctx: WriteContext, path: str, memory: StoredMemory | None, document: Document) -> bool:
    """Tell whether a copy that is new in this space cannot be tied here: its root, or another copy of it, is there.

    In an older database, that may be a memory whose file is gone, since it was moved or deleted since.
    """
    ties = (claim_of(document), memory.shared if memory else None)
    roots = {tie.root for tie in ties if tie is not None and tie.mode != DETACHED}
    space = file_paths.space_at(path, ctx.spaces.values())
    if not roots or space is None or (memory is not None and not _is_new_in(ctx, memory, space)):
        return False
    bound = {copies.of_root(ctx.tx, root, space.id) or root for root in roots}
    own = {document.id, memory.id if memory else None}
    in_space = memories.get_headers(ctx.tx, {space.id: space}, sorted((roots | bound) - own)).values()
    return any(other.deleted is None for other in in_space)


def _is_new_in(ctx: WriteContext, memory: StoredMemory, space: Space) -> bool:
    """Tell whether a memory whose file is in this space was deleted, or was elsewhere before."""
    return memory.deleted is not None or (memory.space.id != space.id and not is_in_place(ctx, memory))


def new_memory_of(ctx: WriteContext, path: str, stat: FileStat, document: Document, *, fresh_id: bool) -> StoredMemory:
    """Return the new memory of a file that belongs to none, with the id in the file unless `fresh_id` is set."""
    memory_id = document.id if document.id and not fresh_id else new_id()
    space = ctx.space_of_file(path)
    same_id = document.id == memory_id
    memory = new_memory(
        ctx,
        memory_id=memory_id,
        space=space,
        path=path,
        how="file",
        title=titles.title_of_note(path, memory_id, document.text),
        text=document.text,
    )
    saved = user_times.time_of_file(stat.mtime_ns, now=ctx.tx.now)
    memory = new_memory_from_document(memory, document, same_id=same_id)
    memory = memory._replace(
        created=document.created or saved,
        updated=document.updated or saved,
        version=store_version.version_from_file(ctx) if same_id else 1,
    )
    # A file that somebody copied was not shared: it does not follow the source of the copied file.
    return memory if same_id else store_version.detached(memory._replace(shared=claim_of(document)))
