"""Amending a memory: whoever changed it, by a verb or by hand, its rows, log and file follow in one way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from commonbook.model.invalidation import REASONING
from commonbook.model.memory import DETACHED, Memory
from commonbook.tables import copies, links, memories, revisions
from commonbook.write.context import WriteContext

_TELLING: Final = frozenset((*REASONING, "supersedes", "shared_from"))


def store_revision(
    ctx: WriteContext,
    old: Memory,
    new: Memory,
    changed: Sequence[str],
    *,
    how: str,
    seen: int | None = None,
    **logged: object,
) -> Memory:
    """Store a changed memory: a new version, a new revision if title or text changed, the old one kept.

    `logged` goes into the log besides.
    """
    new = _with_reasons(new._replace(version=old.version + 1, updated=ctx.tx.now))
    new = _tied(ctx, old, new)
    if "title" in changed or "text" in changed:
        revisions.archive(ctx.tx, old)
        new = new._replace(
            revision=old.revision + 1, revised_by=ctx.actor.principal, revised_at=ctx.tx.now, revised_how=how
        )
    if new.space.id != old.space.id:
        revisions.move(ctx.tx, old, new.space.id)
        memories.move(ctx.tx, old, new)
        ctx.log_memory(new._replace(space=old.space), "move.out", to=new.space.id)
    else:
        memories.replace(ctx.tx, new)
    if new.links != old.links or new.space.id != old.space.id:
        links.replace(ctx.tx, old.space.id, new)
        ctx.touch_superseded(old)
    if new.revision != old.revision or old.deleted is not None:
        ctx.pending.note_changed_text(new)
    if _stands_otherwise(old, new):
        ctx.note_reasoning_change(old, new)
    ctx.log_memory(new, _action(old, new, how), fields=sorted(changed), **logged)
    ctx.enqueue_files([new], seen=seen)
    return new


def delete(ctx: WriteContext, memory: Memory, *, how: str) -> None:
    """Delete a memory: a tombstone and its history stay. A file that is gone already need not be removed."""
    copies.unbind(ctx.tx, memory)
    gone = memory._replace(deleted=ctx.tx.now, version=memory.version + 1, updated=ctx.tx.now)
    memories.replace(ctx.tx, gone)
    ctx.note_reasoning_change(memory, gone)
    ctx.log_memory(gone, "delete", how=how)
    if how != "file":
        ctx.enqueue_files([gone])


def _with_reasons(memory: Memory) -> Memory:
    """Return a memory without reasons for superseding what it supersedes no longer."""
    superseded = {link.target for link in memory.links if link.relation == "supersedes"}
    return memory._replace(
        supersede_reasons=tuple(one for one in memory.supersede_reasons if one.superseded in superseded)
    )


def _tied(ctx: WriteContext, old: Memory, new: Memory) -> Memory:
    """Let a copy be the one of its root where it is now; if there is one already, it is a copy no longer."""
    if new.shared is None or _where_tied(old) == _where_tied(new):
        return new
    copies.unbind(ctx.tx, old)
    if not copies.is_bound(new) or is_tied_there(ctx, new):
        return new
    return detached(new)


def _stands_otherwise(old: Memory, new: Memory) -> bool:
    """Tell whether a memory rests on something else now, or is something else to rest on: others may be concerned."""
    if (old.deleted, old.space.id) != (new.deleted, new.space.id):
        return True
    return _stands_on(old) != _stands_on(new)


def _stands_on(memory: Memory) -> tuple[object, ...]:
    tied = memory.shared is not None and memory.shared.mode != DETACHED
    return tied, {(link.relation, link.target) for link in memory.links if link.relation in _TELLING}


def _where_tied(memory: Memory) -> tuple[object, ...]:
    """Return all of a memory that decides which tie it has; what it took over last does not."""
    return memory.space.id, memory.deleted, memory.shared and memory.shared.mode


def arrived(ctx: WriteContext, memory: Memory) -> Memory:
    """Return a memory that came as a file, tied to its root if it is a copy and the first of it here."""
    if memory.shared is None or not copies.is_bound(memory):
        return memory
    # A file whose revision somebody took out begins anew, and so does what it has of its source.
    memory = memory._replace(shared=memory.shared._replace(own=min(memory.shared.own, memory.revision)))
    return memory if is_tied_there(ctx, memory) else detached(memory)


def detached(memory: Memory) -> Memory:
    """Return a memory that is no copy any longer; where it came from stays known."""
    return memory._replace(shared=memory.shared._replace(mode=DETACHED)) if memory.shared else memory


def is_tied_there(ctx: WriteContext, copy: Memory) -> bool:
    """Tie a copy to its root in its space; tell whether it could be: there is one for each root and space."""
    root = memories.find(ctx.tx, {copy.space.id: copy.space}, copy.root)
    return (root is None or root.deleted is not None) and copies.bind(ctx.tx, copy)


def _action(old: Memory, new: Memory, how: str) -> str:
    if old.deleted is not None:
        return "restore"
    if new.space.id != old.space.id:
        return "move.in"
    return "edit" if how == "file" else how
