"""Lineage: where a memory came from, and what was copied from it, through every copy."""

from __future__ import annotations

from typing import Final

from commonbook.access import permissions
from commonbook.errors import BadInput
from commonbook.model.memory import Memory
from commonbook.model.sharing import Ancestor, CopyNode, Lineage
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.sharing import freshness
from commonbook.tables import copies, memories, spaces
from commonbook.text import validation
from commonbook.write.context import no_memory

DEEPEST: Final = 32
MOST: Final = 10_000
"""So many copies are shown."""


def lineage(engines: Engines, actor: Actor, memory_id: str, *, depth: int = DEEPEST) -> Lineage:
    """Return the chain back to the root and the tree of copies, at most so deep each way."""
    memory_id = validation.validate_memory_id(memory_id)
    if not 0 <= depth <= DEEPEST:
        raise BadInput(f"depth {depth} is out of range", fix=f"ask for 0 to {DEEPEST} steps")
    with engines.db.reading() as tx:
        walk = _Walk(tx, actor)
        memory = memories.find(tx, walk.allowed, memory_id)
        if memory is None:
            raise no_memory(memory_id)
        own, *ancestors = walk.back(memory, depth)
        return Lineage(
            id=memory.id,
            ancestors=tuple(ancestors),
            copies=walk.forward(memory, depth),
            cut=walk.cut,
            title=memory.title,
            space=memory.space.name,
            deleted=memory.deleted,
            refresh=own.refresh,
            freshness=own.freshness,
        )


def all_copies(engines: Engines, actor: Actor, memory_id: str) -> tuple[CopyNode, ...]:
    """Return every copy of a memory, and theirs, one after the other."""
    found: list[CopyNode] = []

    def collect(some: tuple[CopyNode, ...]) -> None:
        for one in some:
            found.append(one._replace(copies=()) if one.copies else one)
            collect(one.copies)

    collect(lineage(engines, actor, memory_id).copies)
    return tuple(found)


class _Walk:
    """One look at a lineage: what was seen is not seen again, so that a circle has an end."""

    def __init__(self, tx: Reading, actor: Actor) -> None:
        self._tx = tx
        self._every: SpaceScope = spaces.get_all(tx)
        self.allowed = permissions.readable(tx, actor, self._every)
        self.cut = False
        self._left = MOST

    def back(self, memory: Memory, depth: int) -> list[Ancestor]:
        """Return a memory and its sources, the nearest first; a deleted one is a tombstone."""
        chain: dict[str, Memory | None] = {memory.id: memory}
        link = memory.source
        while link is not None and link.target not in chain and len(chain) <= depth:
            source = memories.find(self._tx, self._every, link.target)
            chain[link.target] = source
            link = source.source if source else None
        self.cut = self.cut or link is not None
        stands = freshness.states_of(self._tx, self._every, [one for one in chain.values() if one])
        found: list[Ancestor] = []
        claimed = False
        for id_, one in chain.items():
            found.append(self._ancestor(id_, one, stands.get(id_), claimed=claimed))
            claimed = claimed or (one is not None and one.shared is not None and one.shared.claimed)
        return found

    def _ancestor(
        self, id_: str, source: Memory | None, stands: freshness.CopyState | None, *, claimed: bool
    ) -> Ancestor:
        if source is None or source.space.id not in self.allowed:
            deleted = source.deleted if source else None
            return Ancestor(id_, deleted=deleted, readable=False, claimed=claimed)
        return Ancestor(
            id=id_,
            title=source.title,
            space=source.space.name,
            deleted=source.deleted,
            claimed=claimed,
            refresh=source.shared.mode if source.shared else None,
            freshness=stands.freshness if stands else None,
        )

    def forward(self, memory: Memory, depth: int) -> tuple[CopyNode, ...]:
        """Return the tree of copies below a memory, level by level."""
        seen = {memory.id}
        levels: list[list[tuple[Memory, str]]] = []
        sources = [memory.id]
        while sources:
            level = self._level(sources, seen)
            if level and len(levels) == depth:
                self.cut = True
                break
            if level:
                levels.append(level)
            sources = [copy.id for copy, _ in level]
        return self._tree(memory.id, levels)

    def _level(self, sources: list[str], seen: set[str]) -> list[tuple[Memory, str]]:
        found = copies.copies_of(self._tx, sources, limit=self._left + len(seen) + 1)
        ids = {id_: source for id_, source in found.items() if id_ not in seen}
        if len(ids) > self._left:
            self.cut = True
        kept = dict(list(ids.items())[: self._left])
        self._left -= len(kept)
        seen.update(kept)
        there = memories.get_headers(self._tx, self._every, list(kept))
        return [(there[id_], source) for id_, source in kept.items() if id_ in there]

    def _tree(self, top: str, levels: list[list[tuple[Memory, str]]]) -> tuple[CopyNode, ...]:
        stands = freshness.states_of(self._tx, self._every, [copy for level in levels for copy, _ in level])
        below: dict[str, tuple[CopyNode, ...]] = {}
        for depth in range(len(levels), 0, -1):
            made: dict[str, list[CopyNode]] = {}
            for copy, source in levels[depth - 1]:
                one = self._copy(copy, source, depth, stands[copy.id].freshness)
                made.setdefault(source, []).append(one._replace(copies=below[copy.id]) if copy.id in below else one)
            below = {source: tuple(some) for source, some in made.items()}
        return below.get(top, ())

    def _copy(self, copy: Memory, source: str, depth: int, stands: str) -> CopyNode:
        if copy.space.id not in self.allowed:
            return CopyNode(copy.id, source, depth, readable=False)
        mode = copy.shared.mode if copy.shared else None
        return CopyNode(copy.id, source, depth, copy.title, copy.space.name, mode, stands)
