"""The tree of memories that depend on a memory."""

from __future__ import annotations

from typing import Final

from commonbook.access import permissions
from commonbook.model.reasoning import Dependent
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.reasoning import graph
from commonbook.tables import memories, spaces
from commonbook.text import validation
from commonbook.write.context import no_memory

MAX_DEPENDENTS: Final = 10_000
"""So many dependents are shown."""


# --- looking


def dependents(engines: Engines, actor: Actor, memory_id: str) -> tuple[Dependent, ...]:
    """Return every memory that rests on one, or on a copy of it, the nearest first, as far as the actor may read."""
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        every = spaces.get_all(tx)
        allowed = permissions.readable(tx, actor, every)
        memory = memories.find(tx, allowed, memory_id)
        if memory is None:
            raise no_memory(memory_id)
        resting = graph.dependents_of(tx, every, [memory.id], most=MAX_DEPENDENTS)
        shown = [one for one in resting.values() if one.own and one.memory.deleted is None]
        shown = [one for one in shown if one.memory.space.id in allowed and one.memory.id != memory.id][:MAX_DEPENDENTS]
        above = graph.ancestors_of(tx, every, [one.memory for one in shown])
        known = memories.get_headers(tx, allowed, sorted({id_ for one in shown for id_ in one.path}))
        return tuple(
            Dependent(
                id=one.memory.id,
                title=one.memory.title,
                space=one.memory.space.name,
                kind=one.memory.kind,
                depth=one.depth,
                path=tuple(id_ if id_ in known else None for id_ in one.path),
                suspect=bool(graph.open_invalidations(one.memory, above)),
                source_changed=graph.is_outdated(one.memory, above.known),
            )
            for one in shown
        )
