"""Copying a memory into another space, tied to its source: one copy for each root and space."""

from __future__ import annotations

from collections.abc import Sequence

from commonbook.errors import BadInput
from commonbook.model.ids import new_id
from commonbook.model.memory import MODES, CopyInfo, Link, Memory
from commonbook.model.sharing import ShareReceipt
from commonbook.model.spaces import Space
from commonbook.ports.database import RetryTransaction
from commonbook.tables import copies, links, memories
from commonbook.write.context import WriteContext
from commonbook.write.new_memory import first_version


def make_copy(ctx: WriteContext, source: Memory, to: Space, refresh: str, **why: object) -> ShareReceipt:
    """Copy a memory into a space, by whoever acts; or return what is there, unchanged. `why` goes into the log."""
    require_shareable(source)
    there = existing_copy(ctx, source, to)
    if there is not None:
        return _sharing(there, source, new=False)
    copy = _copy(ctx, source, to, refresh)
    if ctx.engines.folder.keeps_files:
        # What cannot be done is found out before anything is.
        ctx.engines.folder.require_place(copy.path)
    if not copies.bind(ctx.tx, copy):
        # Somebody else was quicker, on another machine: theirs is the copy.
        there = existing_copy(ctx, source, to)
        if there is not None:
            return _sharing(there, source, new=False)
        # And has just unshared it: from the beginning.
        raise RetryTransaction
    memories.add(ctx.tx, [copy])
    links.add(ctx.tx, to.id, copy.links)
    ctx.log_memory(copy, "share", source.id, source_revision=source.revision, refresh=refresh, **why)
    ctx.enqueue_files([copy])
    return _sharing(copy, source, new=True)


def require_shareable(source: Memory) -> None:
    """Refuse what is not shared."""
    if source.kind == "notice":
        raise BadInput("a notice is not shared: it concerns one memory here", fix="share the memory that it names")


def existing_copy(ctx: WriteContext, source: Memory, to: Space) -> Memory | None:
    """Return what a space has of a memory's root: the root itself, or the copy of it."""
    known = {to.id: to}
    root = memories.find(ctx.tx, known, source.root)
    if root is not None and root.deleted is None:
        return root
    copy_id = copies.of_root(ctx.tx, source.root, to.id)
    copy = memories.find(ctx.tx, known, copy_id) if copy_id else None
    return copy if copy is not None and copy.deleted is None else None


def _copy(ctx: WriteContext, source: Memory, to: Space, refresh: str) -> Memory:
    copy_id = new_id()
    return source._replace(
        **first_version(ctx, memory_id=copy_id, space=to, title=source.title, how="share"),
        links=(Link(copy_id, "shared_from", source.id, source.revision),),
        session=None,
        shared=CopyInfo(refresh, source.root, ctx.actor.principal, ctx.tx.now, own=1),
        decisions=(),
        supersede_reasons=(),
    )


def _sharing(memory: Memory, source: Memory, *, new: bool) -> ShareReceipt:
    return ShareReceipt(
        id=memory.id,
        source=source.id,
        space=memory.space.name,
        new=new,
        refresh=memory.shared.mode if memory.shared else None,
        revision=memory.revision,
    )


def require_mode(refresh: str) -> str:
    """Return one of the ways to refresh a copy."""
    if refresh not in MODES:
        raise BadInput(f"{refresh!r} is no way to refresh a copy", fix=f"use one of {', '.join(MODES)}")
    return refresh


def locked_memories(ctx: WriteContext, ids: Sequence[str]) -> list[Memory]:
    """Lock memories until the transaction ends, and return those that exist, in the order of the ids."""
    ctx.lock(ids)
    found = memories.get_many(ctx.tx, ctx.spaces, ids)
    return [found[id_] for id_ in ids if id_ in found]
