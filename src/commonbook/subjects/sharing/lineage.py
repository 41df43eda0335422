"""Lineage: the chain of sources from a memory back to its root, and the tree of copies made from it."""

from __future__ import annotations

from typing import Final

from commonbook.core.access import permissions
from commonbook.core.tables import copies, memories, spaces
from commonbook.core.text import validation
from commonbook.errors import BadInput
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.sharing import freshness
from commonbook.values.memory import Freshness
from commonbook.values.sharing import Ancestor, CopyNode, Lineage
from commonbook.values.spaces import Actor, SpaceScope
from commonbook.values.stored_memory import StoredMemory

MAX_DEPTH: Final = 32
MAX_COPIES: Final = 10_000
"""Maximum number of copies in the tree."""
_NO_LIMIT: Final = 2**31


def lineage(engines: Engines, actor: Actor, memory_id: str, *, depth: int = MAX_DEPTH) -> Lineage:
    """Return the chain back to the root and the tree of copies, each at most `depth` steps."""
    memory_id = validation.validate_memory_id(memory_id)
    if not 0 <= depth <= MAX_DEPTH:
        raise BadInput(f"depth {depth} is out of range", fix=f"ask for 0 to {MAX_DEPTH} steps")
    with engines.db.reading() as tx:
        walk = _LineageWalk(tx, actor)
        memory = memories.find(tx, walk.readable, memory_id)
        if memory is None:
            raise permissions.no_memory(memory_id)
        own, *ancestors = walk.back(memory, depth)
        return Lineage(
            id=memory.id,
            ancestors=tuple(ancestors),
            copies=walk.forward(memory, depth),
            truncated=walk.truncated,
            title=memory.title,
            space=memory.space.name,
            deleted=memory.deleted,
            refresh=own.refresh,
            freshness=own.freshness,
        )


def all_copies(engines: Engines, actor: Actor, memory_id: str) -> tuple[CopyNode, ...]:
    """Return every copy of a memory, direct or not, as a flat list in depth-first order.

    There is no limit: a space has one copy of a root at most.
    """
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        walk = _LineageWalk(tx, actor, max_copies=_NO_LIMIT)
        memory = memories.find(tx, walk.readable, memory_id)
        if memory is None:
            raise permissions.no_memory(memory_id)
        flat: list[CopyNode] = []
        # A stack, since a chain of copies may be longer than Python lets functions call themselves.
        stack = list(reversed(walk.forward(memory, _NO_LIMIT)))
        while stack:
            node = stack.pop()
            flat.append(node._replace(copies=()))
            stack += reversed(node.copies)
        return tuple(flat)


class _LineageWalk:
    """One traversal of a lineage; visits each memory once, so that it terminates on a cycle."""

    def __init__(self, tx: Reading, actor: Actor, *, max_copies: int = MAX_COPIES) -> None:
        self._tx = tx
        self._all_spaces: SpaceScope = spaces.get_all(tx)
        self.readable = permissions.readable(tx, actor, self._all_spaces)
        self.truncated = False
        self._copies_left = max_copies

    def back(self, memory: StoredMemory, depth: int) -> list[Ancestor]:
        """Return a memory and its sources, the nearest first; a deleted one is a tombstone."""
        chain: dict[str, StoredMemory | None] = {memory.id: memory}
        link = memory.source
        while link is not None and link.target not in chain and len(chain) <= depth:
            source = memories.find(self._tx, self._all_spaces, link.target)
            chain[link.target] = source
            link = source.source if source else None
        self.truncated = self.truncated or link is not None
        known = [source for source in chain.values() if source]
        states = freshness.states_of(self._tx, self._all_spaces, known, readable=self.readable)
        ancestors: list[Ancestor] = []
        claimed = False
        for id_, source in chain.items():
            ancestors.append(self._ancestor(id_, source, states.get(id_), claimed=claimed))
            claimed = claimed or (source is not None and source.shared is not None and source.shared.claimed)
        return ancestors

    def _ancestor(
        self, id_: str, source: StoredMemory | None, state: freshness.CopyState | None, *, claimed: bool
    ) -> Ancestor:
        if source is None or source.space.id not in self.readable:
            deleted = source.deleted if source else None
            return Ancestor(id_, deleted=deleted, readable=False, claimed=claimed)
        return Ancestor(
            id=id_,
            title=source.title,
            space=source.space.name,
            deleted=source.deleted,
            claimed=claimed,
            refresh=source.shared.mode if source.shared else None,
            freshness=state.freshness if state else None,
        )

    def forward(self, memory: StoredMemory, depth: int) -> tuple[CopyNode, ...]:
        """Return the tree of copies below a memory, read breadth-first."""
        seen = {memory.id}
        levels: list[list[tuple[StoredMemory, str]]] = []
        sources = [memory.id]
        while sources:
            level = self._next_level(sources, seen)
            if level and len(levels) == depth:
                self.truncated = True
                break
            if level:
                levels.append(level)
            sources = [copy.id for copy, _ in level]
        return self._build_tree(memory.id, levels)

    def _next_level(self, sources: list[str], seen: set[str]) -> list[tuple[StoredMemory, str]]:
        """Return the copies of some memories, each with the id of its source, as far as they were not seen before."""
        source_by_id = copies.copies_of(self._tx, sources, limit=self._copies_left + len(seen) + 1)
        unseen = {id_: source for id_, source in source_by_id.items() if id_ not in seen}
        if len(unseen) > self._copies_left:
            self.truncated = True
        level = dict(list(unseen.items())[: self._copies_left])
        self._copies_left -= len(level)
        seen.update(level)
        headers = memories.get_headers(self._tx, self._all_spaces, list(level))
        return [(headers[id_], source) for id_, source in level.items() if id_ in headers]

    def _build_tree(self, root_id: str, levels: list[list[tuple[StoredMemory, str]]]) -> tuple[CopyNode, ...]:
        """Build the nodes bottom-up, the deepest level first."""
        known = [copy for level in levels for copy, _ in level]
        states = freshness.states_of(self._tx, self._all_spaces, known, readable=self.readable)
        children: dict[str, tuple[CopyNode, ...]] = {}
        for depth in range(len(levels), 0, -1):
            nodes: dict[str, list[CopyNode]] = {}
            for copy, source in levels[depth - 1]:
                node = self._node(copy, source, depth, states[copy.id].freshness)
                nodes.setdefault(source, []).append(
                    node._replace(copies=children[copy.id]) if copy.id in children else node
                )
            children = {source: tuple(siblings) for source, siblings in nodes.items()}
        return children.get(root_id, ())

    def _node(self, copy: StoredMemory, source: str, depth: int, state: Freshness) -> CopyNode:
        if copy.space.id not in self.readable:
            return CopyNode(copy.id, source, depth, readable=False)
        mode = copy.shared.mode if copy.shared else None
        return CopyNode(copy.id, source, depth, copy.title, copy.space.name, mode, state)
