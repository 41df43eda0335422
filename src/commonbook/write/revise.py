"""Amending a memory: whoever changed it, by a verb or by hand, its rows, log and file follow in one way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from commonbook.model.invalidation import REASONING
from commonbook.model.memory import DETACHED, Memory
from commonbook.tables import copies, links, memories, revisions
from commonbook.write.context import Desk

_TELLING: Final = frozenset((*REASONING, "supersedes", "shared_from"))


def amend(
    desk: Desk,
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
    new = _with_reasons(new._replace(version=old.version + 1, updated=desk.tx.now))
    new = _tied(desk, old, new)
    if "title" in changed or "text" in changed:
        revisions.archive(desk.tx, old)
        new = new._replace(
            revision=old.revision + 1, revised_by=desk.actor.principal, revised_at=desk.tx.now, revised_how=how
        )
    if new.space.id != old.space.id:
        revisions.move(desk.tx, old, new.space.id)
        memories.move(desk.tx, old, new)
        desk.log_memory(new._replace(space=old.space), "move.out", to=new.space.id)
    else:
        memories.replace(desk.tx, new)
    if new.links != old.links or new.space.id != old.space.id:
        links.replace(desk.tx, old.space.id, new)
        desk.touch_superseded(old)
    if new.revision != old.revision or old.deleted is not None:
        desk.pending.note_changed_text(new)
    if _stands_otherwise(old, new):
        desk.shake(old, new)
    desk.log_memory(new, _action(old, new, how), fields=sorted(changed), **logged)
    desk.issue([new], seen=seen)
    return new


def remove(desk: Desk, memory: Memory, *, how: str) -> None:
    """Delete a memory: a tombstone and its history stay. A file that is gone already need not be removed."""
    copies.untie(desk.tx, memory)
    gone = memory._replace(deleted=desk.tx.now, version=memory.version + 1, updated=desk.tx.now)
    memories.replace(desk.tx, gone)
    desk.shake(memory, gone)
    desk.log_memory(gone, "delete", how=how)
    if how != "file":
        desk.issue([gone])


def _with_reasons(memory: Memory) -> Memory:
    """Return a memory without reasons for superseding what it supersedes no longer."""
    superseded = {link.target for link in memory.links if link.relation == "supersedes"}
    return memory._replace(because=tuple(one for one in memory.because if one.superseded in superseded))


def _tied(desk: Desk, old: Memory, new: Memory) -> Memory:
    """Let a copy be the one of its root where it is now; if there is one already, it is a copy no longer."""
    if new.shared is None or _where_tied(old) == _where_tied(new):
        return new
    copies.untie(desk.tx, old)
    if not copies.is_tied(new) or is_tied_there(desk, new):
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


def arrived(desk: Desk, memory: Memory) -> Memory:
    """Return a memory that came as a file, tied to its root if it is a copy and the first of it here."""
    if memory.shared is None or not copies.is_tied(memory):
        return memory
    # A file whose revision somebody took out begins anew, and so does what it has of its source.
    memory = memory._replace(shared=memory.shared._replace(own=min(memory.shared.own, memory.revision)))
    return memory if is_tied_there(desk, memory) else detached(memory)


def detached(memory: Memory) -> Memory:
    """Return a memory that is no copy any longer; where it came from stays known."""
    return memory._replace(shared=memory.shared._replace(mode=DETACHED)) if memory.shared else memory


def is_tied_there(desk: Desk, copy: Memory) -> bool:
    """Tie a copy to its root in its space; tell whether it could be: there is one for each root and space."""
    root = memories.find(desk.tx, {copy.space.id: copy.space}, copy.root)
    return (root is None or root.deleted is not None) and copies.tie(desk.tx, copy)


def _action(old: Memory, new: Memory, how: str) -> str:
    if old.deleted is not None:
        return "restore"
    if new.space.id != old.space.id:
        return "move.in"
    return "edit" if how == "file" else how
