"""Invalidations of a memory: ancestors that were superseded or deleted, with paths and depths to them.

One memory depends on another if a chain of links `reflects_on` and `derived_from` leads to it. A copy stands for its
source. Links made by hand may form a cycle, so every walk visits a memory once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from commonbook.model.invalidation import DELETED, REASONING, Invalidation
from commonbook.model.memory import DETACHED, Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import memories, supersession


def is_outdated(memory: Memory, known: Mapping[str, Memory]) -> bool:
    """Tell whether a live direct source of a memory has a newer revision than the one that the memory links to."""
    pairs = ((link, known.get(link.target)) for link in memory.links if link.relation in REASONING)
    return any(
        target is not None and target.deleted is None and link.revision is not None and link.revision < target.revision
        for link, target in pairs
    )


_Visit: TypeAlias = tuple[Memory, tuple[str, ...], int]
"""A memory that a walk has reached, the path of ids to it, and the number of reasoning links on that path."""


class Ancestors(NamedTuple):
    """All ancestors of some memories by id, those memories included, and the live memories that supersede each."""

    known: Mapping[str, Memory]
    superseding: Mapping[str, tuple[str, ...]]

    def invalidating(self, memory: Memory) -> Iterator[str]:
        """Yield the reasons why the dependents of a memory are invalidated: `deleted`, or ids of its successors."""
        # A notice is deleted when it is settled: that does not invalidate a memory linked to it by hand.
        if memory.deleted is not None and memory.kind != "notice":
            yield DELETED
        yield from self.superseding.get(memory.id, ())


def direct_sources(memory: Memory) -> tuple[str, ...]:
    """Return the ids of the memories that a memory links to as its sources."""
    return tuple(link.target for link in memory.links if link.relation in REASONING and link.target != memory.id)


def copied_from(memory: Memory) -> str | None:
    """Return the source of a copy, unless it is detached."""
    if memory.shared is None or memory.shared.mode == DETACHED:
        return None
    return memory.source.target if memory.source else None


def has_sources(memory: Memory) -> bool:
    """Tell whether a memory depends on anything, so that it could be invalidated."""
    return bool(direct_sources(memory)) or copied_from(memory) is not None


# --- ancestors


def ancestors_of(
    tx: Reading, spaces: SpaceScope, start: Iterable[Memory], *, lock: Callable[[Iterable[str]], None] | None = None
) -> Ancestors:
    """Return all ancestors of some memories, read breadth-first; a writer passes `lock` to lock them on the way.

    A memory that is given in two states, before and after a change, has the ancestors of both.
    """
    level: Iterable[Memory] = tuple(start)
    known = {memory.id: memory for memory in level}
    requested = set(known)
    while wanted := sorted({id_ for memory in level for id_ in _dependencies(memory)} - requested):
        if lock is not None:
            lock(wanted)
        requested.update(wanted)
        headers = memories.get_headers_any_space(tx, spaces, wanted)
        known |= headers
        level = headers.values()
    dependency_ids = {id_ for memory in known.values() for id_ in _dependencies(memory)}
    superseding = supersession.superseding(tx, spaces, sorted(dependency_ids), anywhere=True)
    return Ancestors(
        known, {id_: tuple(successor.id for successor in successors) for id_, successors in superseding.items()}
    )


def _dependencies(memory: Memory) -> Iterator[str]:
    """Yield the ids of a memory's direct sources, and of the memory that it is a copy of."""
    yield from direct_sources(memory)
    source = copied_from(memory)
    if source is not None:
        yield source


def invalidations_of(memory: Memory, ancestors: Ancestors, *, own: bool) -> dict[tuple[str, str], Invalidation]:
    """Return every invalidation of a memory by its key, each with the shortest path.

    With `own`, only those by the memory's own links, and not by those of its source if it is a copy. A successor does
    not invalidate itself, nor a memory that depends on the superseded one only through the successor.
    """
    invalidations: dict[tuple[str, str], Invalidation] = {}
    for ancestor, path, depth in _walk_ancestors(memory, ancestors.known, own=own):
        for invalidating in ancestors.invalidating(ancestor):
            if invalidating == memory.id:
                continue
            by_path, steps = path, depth
            if invalidating in path:
                detours = _walk_ancestors(memory, ancestors.known, own=own, avoiding=invalidating)
                by_path, steps = next(
                    ((detour, length) for end, detour, length in detours if end.id == ancestor.id), ((), 0)
                )
            if by_path:
                invalidations[ancestor.id, invalidating] = Invalidation(ancestor.id, invalidating, steps, by_path)
    return invalidations


def open_invalidations(memory: Memory, ancestors: Ancestors) -> tuple[Invalidation, ...]:
    """Return the invalidations of a memory that have no decision.

    A copy inherits those of its source, unless they were decided at the copy or at the source.
    """
    undecided: dict[tuple[str, str], Invalidation] = {}
    for member in reversed(_copy_chain(memory, ancestors.known)):
        decided = {decision.key for decision in member.decisions}
        inherited = [
            invalidation._replace(path=(*invalidation.path, member.id))
            for invalidation in undecided.values()
            if invalidation.invalidating != member.id
        ]
        # The deepest come first, so that of two with the same key the shorter one remains.
        candidates = sorted(
            [*inherited, *invalidations_of(member, ancestors, own=True).values()],
            key=lambda invalidation: invalidation.depth,
            reverse=True,
        )
        undecided = {invalidation.key: invalidation for invalidation in candidates if invalidation.key not in decided}
    return tuple(invalidation for _, invalidation in sorted(undecided.items()))


def visible_invalidation(
    invalidation: Invalidation, known: Mapping[str, Memory], readable: Container[str]
) -> Invalidation:
    """Return an invalidation for a reader of these spaces: unreadable memories on the path become None, ends stay."""
    path = invalidation.path
    ends = {invalidation.invalidated, *path[-1:]}
    visible = {id_ for id_ in path if id_ and (id_ in ends or (id_ in known and known[id_].space.id in readable))}
    return invalidation._replace(path=tuple(id_ if id_ in visible else None for id_ in path))


def _copy_chain(memory: Memory, known: Mapping[str, Memory]) -> list[Memory]:
    """Return a memory, the memory that it is a copy of, and so on, the nearest first."""
    chain = [memory]
    while (source := known.get(copied_from(chain[-1]) or "")) is not None and source not in chain:
        chain.append(source)
    return chain


def _walk_ancestors(memory: Memory, known: Mapping[str, Memory], *, own: bool, avoiding: str = "") -> Iterator[_Visit]:
    """Yield the ancestors of a memory breadth-first, each with the path from there to the memory.

    A step to the source of a copy adds no depth, so it goes to the front of the queue.
    """
    queue: deque[_Visit] = deque([(memory, (memory.id,), 0)])
    seen: set[tuple[str, bool]] = set()
    while queue:
        current, path, depth = queue.popleft()
        if (current.id, depth > 0) in seen or (depth and current.id == memory.id):
            continue
        seen.add((current.id, depth > 0))
        if depth:
            yield current, path, depth
        source = known.get(copied_from(current) or "")
        if source is not None and source.id != avoiding and (depth or not own):
            queue.appendleft((source, (source.id, *path), depth))
        for id_ in direct_sources(current):
            ancestor = known.get(id_)
            if ancestor is not None and ancestor.id != avoiding:
                queue.append((ancestor, (ancestor.id, *path), depth + 1))


def path_between(memory: Memory, to: str, known: Mapping[str, Memory]) -> tuple[str, ...]:
    """Return the shortest path from an ancestor to a memory, as ids; empty if the memory does not depend on it."""
    if memory.id == to:
        return (to,)
    queue: deque[tuple[str, ...]] = deque([(memory.id,)])
    seen: set[str] = set()
    while queue:
        path = queue.popleft()
        current = known.get(path[0])
        if path[0] == to:
            return path
        if current is not None and current.id not in seen:
            seen.add(current.id)
            queue += [(id_, *path) for id_ in _dependencies(current)]
    return ()


def reflection_depth(memory: Memory, known: Mapping[str, Memory], *, limit: int) -> int:
    """Return the largest number of links `reflects_on` on a path up from this memory, at most one above `limit`.

    Links `derived_from` and copies add nothing.
    """
    queue = deque([(memory.id, 0)])
    seen: set[tuple[str, int]] = set()
    deepest = 0
    while queue and deepest <= limit:
        id_, depth = queue.popleft()
        current = known.get(id_)
        if current is None or (id_, depth) in seen:
            continue
        seen.add((id_, depth))
        deepest = max(deepest, depth)
        queue += [
            (link.target, depth + (link.relation == "reflects_on"))
            for link in current.links
            if link.relation in REASONING
        ]
        source = copied_from(current)
        if source is not None:
            queue.append((source, depth))
    return deepest
