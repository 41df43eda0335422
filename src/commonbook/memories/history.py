"""Reads the history of a memory, and decides which of its texts a principal may read after a move.

A text belongs to the space that the memory was in when it had the text last: only those who may read that space may
read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.access import permissions, scope
from commonbook.memories.deletions import with_deletions
from commonbook.model.memory import Revision
from commonbook.model.stored_memory import StoredMemory
from commonbook.tables import memories, revisions
from commonbook.text import validation

if TYPE_CHECKING:
    from commonbook.model.spaces import Actor, SpaceScope
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines


def history(engines: Engines, actor: Actor, memory_id: str) -> tuple[Revision, ...]:
    """Return every title and text that a memory has had, oldest first; a deleted memory keeps its history.

    Those that it had in a space that the actor may not read are left out of their revisions. Each revision names the
    deletions of its time, and how the memory came back.
    """
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        allowed = scope.select(tx, actor)
        memory = memories.find(tx, allowed, memory_id)
        if memory is None:
            raise permissions.no_memory(memory_id)
        past = readable_past(tx, memory, allowed)
        present = Revision(
            revision=memory.revision,
            title=memory.title,
            text=memory.text,
            author=memory.revised_by,
            at=memory.revised_at,
            how=memory.revised_how,
            current=memory.deleted is None,
        )
        return with_deletions(tx, allowed, memory_id, (*past, present))


def readable_past(tx: Reading, memory: StoredMemory, readable: SpaceScope) -> list[Revision]:
    """Return the past revisions of a memory, oldest first; those of other spaces have only their number and time."""
    return [
        revision if space in readable else _redacted(revision)
        for revision, space in revisions.past_revisions_by_space(tx, memory)
    ]


def _redacted(revision: Revision) -> Revision:
    return revision._replace(title="", text="", author="", how="", readable=False)
