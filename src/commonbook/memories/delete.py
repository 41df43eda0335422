"""Deletes memories, by their ids or by a filter, all or none; `commonbook.memories.undelete` brings them back."""

from __future__ import annotations

from collections.abc import Sequence

from commonbook.errors import BadInput
from commonbook.files import hand_edits, scan
from commonbook.memories import read
from commonbook.memories.edit import require_version
from commonbook.model.memory import Deleted, Filter
from commonbook.model.request import RequestContext
from commonbook.ports.engines import Engines
from commonbook.reasoning import open_notices
from commonbook.text import validation
from commonbook.write import store_version
from commonbook.write.context import WriteContext


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
            if open_notices.is_open(memory):
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
