"""Deletes memories, by their ids or by a filter, all or none, and brings them back.

A tombstone becomes the memory that it was, with its history, links, tags and session.
"""

from __future__ import annotations

from collections.abc import Sequence

from commonbook.core.access import permissions
from commonbook.core.files import hand_edits, scan
from commonbook.core.tables import file_journal, memories
from commonbook.core.text import validation
from commonbook.core.write import store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import path_of_restored
from commonbook.core.write.transaction import logging_refusal, write
from commonbook.errors import BadInput
from commonbook.ports.engines import Engines
from commonbook.subjects.memories import read
from commonbook.subjects.memories.edit import require_version
from commonbook.subjects.reasoning import invalidations
from commonbook.subjects.sharing import propagate
from commonbook.values.memory import Deleted, Filter, Receipt
from commonbook.values.request import RequestContext
from commonbook.values.stored_memory import StoredMemory, receipt_of


def delete(
    engines: Engines,
    caller: RequestContext,
    ids: Sequence[str],
    *,
    expected_version: int | None = None,
    dry_run: bool = False,
) -> Deleted:
    """Delete memories, all or none; files are removed, tombstones and history are kept."""
    unique = tuple(dict.fromkeys(validation.validate_memory_id(memory_id) for memory_id in ids))

    def operation(ctx: WriteContext, *, scanned: bool) -> Deleted:
        ctx.lock(unique)
        deleted: list[str] = []
        for memory_id in unique:
            memory = hand_edits.with_file_changes(ctx, ctx.require_writable(memory_id), scanned=scanned)
            require_version(memory, expected_version)
            if invalidations.is_open(memory):
                raise BadInput(f"{memory_id} is a notice, which only a decision removes", fix="`triage` it")
            deleted.append(memory.title)
            if not dry_run:
                store_version.delete(ctx, memory, how="delete")
        return Deleted(ids=unique, dry_run=dry_run, titles=tuple(deleted))

    return scan.write_with_scan(engines, caller, operation)


def delete_where(engines: Engines, caller: RequestContext, chosen: Filter, *, dry_run: bool) -> Deleted:
    """Delete every memory that matches a filter; an empty filter is refused."""
    if chosen == Filter():
        raise BadInput("nothing says which memories to delete", fix="give ids, a tag, a kind, a space or a time")
    ids: list[str] = []
    after = None
    while True:
        page = read.list_page(engines, caller.actor, chosen, limit=validation.MAX_PAGE, after=after)
        ids += [memory.id for memory in page.items]
        after = page.next
        if after is None:
            break
    return delete(engines, caller, ids, dry_run=dry_run)


def undelete(engines: Engines, caller: RequestContext, memory_id: str) -> Receipt:
    """Bring a deleted memory back; one that is not deleted stays as it is."""
    memory_id = validation.validate_memory_id(memory_id)

    def operation(ctx: WriteContext) -> Receipt:
        ctx.lock([memory_id])
        memory = _require_writable(ctx, memory_id)
        if memory.deleted is not None:
            memory = _with_file_back(ctx, memory)
        if memory.deleted is not None:
            memory = _restore(ctx, memory)
        updated = propagate.propagate_to_copies(ctx)
        readable = ctx.readable if updated else {}
        return receipt_of(memory, new=False)._replace(copies=sum(copy.space.id in readable for copy in updated))

    with logging_refusal(engines, caller.actor, "supersede", ()):
        return write(engines, caller, operation)


def _require_writable(ctx: WriteContext, memory_id: str) -> StoredMemory:
    """Return a memory, deleted or not, of a space that the actor may write to."""
    memory = memories.find(ctx.tx, ctx.readable, memory_id)
    if memory is None:
        raise permissions.no_memory(memory_id)
    permissions.require_writable(ctx.actor, memory, ctx.writable, ctx.spaces)
    return memory


def _with_file_back(ctx: WriteContext, tombstone: StoredMemory) -> StoredMemory:
    """Apply a file that a person has put back at the path of the memory: it brings the memory back by itself."""
    if not ctx.engines.folder.exists(tombstone.path) or file_journal.journal_entries(ctx.tx, [tombstone.id]):
        return tombstone
    hand_edits.apply_file(ctx.as_filesystem(), tombstone.path)
    return _require_writable(ctx, tombstone.id)


def _restore(ctx: WriteContext, tombstone: StoredMemory) -> StoredMemory:
    if tombstone.notice is not None:
        raise BadInput(
            f"{tombstone.id} is a notice that was decided or withdrawn",
            fix="a notice comes back by itself when its cause does; `history` of the memory shows the decision",
        )
    restored = store_version.without_rewound(ctx, tombstone, _with_tie(ctx, tombstone))
    changed = hand_edits.changed_fields(tombstone, restored)
    return hand_edits.restore(
        ctx, tombstone, restored._replace(path=path_of_restored(ctx, tombstone)), changed, how="undelete"
    )


def _with_tie(ctx: WriteContext, tombstone: StoredMemory) -> StoredMemory:
    """Return a copy with the tie that it may have: it follows its source again only by a reader of that.

    Else every writer of the space could have the words of a source whose sharing was ended, by any deletion. As a
    snapshot it is still no better than its source.
    """
    link = tombstone.source
    if link is None or memories.find(ctx.tx, ctx.readable, link.target) is not None:
        return tombstone
    return store_version.following_no_more(ctx, tombstone)
