"""Lists the memories that depend on a memory, directly or through others."""

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
"""Maximum number of dependents that are returned."""


def dependents(engines: Engines, actor: Actor, memory_id: str) -> tuple[Dependent, ...]:
    """Return every readable memory that depends on one, or on a copy of it, the nearest first."""
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        readable = permissions.readable(tx, actor, all_spaces)
        memory = memories.find(tx, readable, memory_id)
        if memory is None:
            raise no_memory(memory_id)
        nodes = graph.dependents_of(tx, all_spaces, [memory.id], limit=MAX_DEPENDENTS).values()
        live = [node for node in nodes if node.own and node.memory.deleted is None and node.memory.id != memory.id]
        visible = [node for node in live if node.memory.space.id in readable][:MAX_DEPENDENTS]
        ancestors = graph.ancestors_of(tx, all_spaces, [node.memory for node in visible])
        on_paths = memories.get_headers(tx, readable, sorted({id_ for node in visible for id_ in node.path}))
        return tuple(
            Dependent(
                id=node.memory.id,
                title=node.memory.title,
                space=node.memory.space.name,
                kind=node.memory.kind,
                depth=node.depth,
                path=tuple(id_ if id_ in on_paths else None for id_ in node.path),
                suspect=bool(graph.open_invalidations(node.memory, ancestors)),
                source_changed=graph.is_outdated(node.memory, ancestors.known),
            )
            for node in visible
        )
