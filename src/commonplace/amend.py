"""Amending a memory: whoever changed it, by a verb or by hand, its rows, log and file follow in one way."""

from __future__ import annotations

from collections.abc import Sequence

from commonplace import links, memories, revisions
from commonplace.desk import Desk
from commonplace.model import Memory


def amend(desk: Desk, old: Memory, new: Memory, changed: Sequence[str], *, how: str, seen: int | None = None) -> Memory:
    """Store a changed memory: a new version, a new revision if title or text changed, the old one kept."""
    new = new._replace(version=old.version + 1, updated=desk.tx.now)
    if "title" in changed or "text" in changed:
        revisions.archive(desk.tx, old)
        new = new._replace(revision=old.revision + 1, revised_by=desk.actor, revised_at=desk.tx.now, revised_how=how)
    if new.space.id != old.space.id:
        revisions.move(desk.tx, old, new.space.id)
        memories.move(desk.tx, old, new)
        desk.log_memory(new._replace(space=old.space), "move.out", to=new.space.id)
    else:
        memories.replace(desk.tx, new)
    if new.links != old.links or new.space.id != old.space.id:
        links.replace(desk.tx, old.space.id, new)
        desk.touch_superseded(old)
    desk.log_memory(new, _action(old, new, how), fields=sorted(changed))
    desk.issue([new], seen=seen)
    return new


def remove(desk: Desk, memory: Memory, *, how: str) -> None:
    """Delete a memory: a tombstone and its history stay. A file that is gone already need not be removed."""
    gone = memory._replace(deleted=desk.tx.now, version=memory.version + 1, updated=desk.tx.now)
    memories.replace(desk.tx, gone)
    desk.log_memory(gone, "delete", how=how)
    if how != "file":
        desk.issue([gone])


def _action(old: Memory, new: Memory, how: str) -> str:
    if old.deleted is not None:
        return "restore"
    if new.space.id != old.space.id:
        return "move.in"
    return "edit" if how == "file" else how
