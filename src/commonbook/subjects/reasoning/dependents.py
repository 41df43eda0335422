"""Dependents of a memory: a breadth-first walk down the reasoning links and copies, and which of them get notices.

The verb that lists them is here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.tables import copies, links, memories, spaces
from commonbook.core.text import validation
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.reasoning import invalidations as graph
from commonbook.values.invalidation import ENDED, REASONING
from commonbook.values.reasoning import Dependent
from commonbook.values.spaces import Actor, SpaceScope
from commonbook.values.stored_memory import StoredLink, StoredMemory

MAX_DEPENDENTS: Final = 10_000
"""Maximum number of dependents that are returned."""

_COPY_RELATIONS: Final = ("shared_from",)


class DependentNode(NamedTuple):
    """A dependent, its depth in reasoning links, and the path to it; not `own` if it only copies a dependent."""

    memory: StoredMemory
    depth: int
    path: tuple[str, ...]
    own: bool


def dependents(engines: Engines, actor: Actor, memory_id: str) -> tuple[Dependent, ...]:
    """Return every readable memory that depends on one, or on a copy of it, the nearest first.

    Proposed memories are left out, unless it is one of them.
    """
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        readable = permissions.readable(tx, actor, all_spaces)
        memory = memories.find(tx, readable, memory_id)
        if memory is None:
            raise permissions.no_memory(memory_id)
        nodes = dependents_of(tx, all_spaces, [memory.id], limit=MAX_DEPENDENTS).values()
        live = [node for node in nodes if node.own and node.memory.deleted is None and node.memory.id != memory.id]
        shown = permissions.without_proposals(readable, memory.space.name)
        visible = [node for node in live if node.memory.space.id in shown][:MAX_DEPENDENTS]
        headers = [node.memory for node in visible]
        sources = copies.sources_of(tx, all_spaces, headers)
        noticed = graph.keys_about(tx, sorted({*sources, *(memory.id for memory in headers)}))
        grounds = {id_ for memory in headers for id_ in memory.grounds}
        known = memories.get_headers_any_space(tx, all_spaces, sorted(grounds))
        on_paths = memories.get_headers(tx, readable, sorted({id_ for node in visible for id_ in node.path}))
        return tuple(
            Dependent(
                id=node.memory.id,
                title=node.memory.title,
                space=node.memory.space.name,
                kind=node.memory.kind,
                depth=node.depth,
                path=tuple(id_ if id_ in on_paths else None for id_ in node.path),
                suspect=any(
                    invalidating != ENDED for _, invalidating in graph.open_causes(node.memory, sources, noticed, {})
                ),
                source_changed=graph.is_outdated(node.memory, known),
            )
            for node in visible
        )


def dependents_of(
    tx: Reading, spaces: SpaceScope, roots: Iterable[str], *, limit: int | None = None
) -> dict[str, DependentNode]:
    """Return all memories that depend on the roots or on copies of them, each once, the nearest first.

    The search stops after the level that reaches the limit.
    """
    search = _DependentSearch(tx, spaces, roots)
    while search.level and (limit is None or len(search.reached) < limit):
        search.advance()
    return search.reached


class _DependentSearch:
    """Breadth-first search for the dependents of some memories, level by level."""

    def __init__(self, tx: Reading, spaces: SpaceScope, roots: Iterable[str]) -> None:
        self._depth = 0
        self.level: dict[str, tuple[str, ...]] = {root: (root,) for root in roots}
        """Paths to the memories of the current level, by id."""
        self._visited = set(self.level)
        self.reached: dict[str, DependentNode] = {}
        # All links and memories below the roots are read at once: a chain may have a thousand levels.
        incoming = links.reaching(tx, sorted(self.level), relations=(*REASONING, *_COPY_RELATIONS))
        self._incoming: dict[str, list[StoredLink]] = {}
        for link in incoming:
            self._incoming.setdefault(link.target, []).append(link)
        ids = sorted({link.source for link in incoming})
        self._headers = memories.get_headers_any_space(tx, spaces, ids)

    def _links_to(self, level: Iterable[str], relations: Sequence[str]) -> list[StoredLink]:
        """Return the links of these relations to the memories of a level, in the order of their targets."""
        found = (link for id_ in sorted(level) for link in self._incoming.get(id_, ()))
        return [link for link in found if link.relation in relations]

    def advance(self) -> None:
        """Extend the level by the copies of its memories, and go on to the direct dependents of all of them."""
        copied = self.level
        while copied := self._copies(copied):
            self.level |= copied
        self._depth += 1
        self.level = self._dependents()

    def _copies(self, level: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Return the unvisited copies of some memories with their paths; a copy has the depth of its source."""
        copied: dict[str, tuple[str, ...]] = {}
        for link in self._links_to(level, _COPY_RELATIONS):
            copy = self._headers.get(link.source) if link.source not in self._visited else None
            if copy is not None and copies.copied_from(copy) == link.target and copy.id not in copied:
                copied[copy.id] = (*level[link.target], copy.id)
                if self._depth:
                    self.reached.setdefault(copy.id, DependentNode(copy, self._depth, copied[copy.id], own=False))
        self._visited.update(copied)
        return copied

    def _dependents(self) -> dict[str, tuple[str, ...]]:
        """Record the direct dependents of the level; return the unvisited ones with their paths."""
        unvisited: dict[str, tuple[str, ...]] = {}
        for link in self._links_to(self.level, REASONING):
            dependent, path = self._headers.get(link.source), self.level[link.target]
            if dependent is None or dependent.id in path:
                continue
            before = self.reached.get(dependent.id)
            if before is None or not before.own:
                # A dependent by its own links replaces its entry as a copy, and moves to the end: the nearest first.
                self.reached.pop(dependent.id, None)
                self.reached[dependent.id] = DependentNode(dependent, self._depth, (*path, dependent.id), own=True)
            if dependent.id not in self._visited:
                self._visited.add(dependent.id)
                unvisited[dependent.id] = (*path, dependent.id)
        return unvisited


def with_notices(dependents: Mapping[str, DependentNode]) -> set[str]:
    """Return the dependents that get notices: not a copy, unless its source is deleted and so has none itself."""
    return {
        id_
        for id_, node in dependents.items()
        if node.own
        or ((source := dependents.get(copies.copied_from(node.memory) or "")) and source.memory.deleted is not None)
    }
