"""What memories rest on, and what rests on them: by reflection and derivation, through copies too.

One memory rests on another if a chain of links `reflects_on` and `derived_from` leads there; a copy stands for its
source. Chains made by hand may go round: whatever was seen is not seen again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from commonbook.model.invalidation import DELETED, REASONING, Invalidation
from commonbook.model.memory import DETACHED, Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import links, memories, supersession


def is_outdated(memory: Memory, known: Mapping[str, Memory]) -> bool:
    """Tell whether something that a memory was reasoned from says something else now."""
    pairs = ((link, known.get(link.target)) for link in memory.links if link.relation in REASONING)
    return any(
        target is not None and target.deleted is None and link.revision is not None and link.revision < target.revision
        for link, target in pairs
    )


_COPYING: Final = ("shared_from",)

Step: TypeAlias = tuple[Memory, tuple[str, ...], int]
"""Where a walk is: at a memory, by this path, after so many steps of reasoning."""


class Ancestors(NamedTuple):
    """What some memories rest on, by id, and which live memories supersede each of them."""

    known: Mapping[str, Memory]
    superseding: Mapping[str, tuple[str, ...]]

    def invalidating(self, memory: Memory) -> Iterator[str]:
        """Yield what takes the ground from under those who rest on a memory."""
        # A notice is taken away once it is settled: whoever named it by hand has nothing to fear from that.
        if memory.deleted is not None and memory.kind != "notice":
            yield DELETED
        yield from self.superseding.get(memory.id, ())


class DependentNode(NamedTuple):
    """A memory that rests on another: how many steps of reasoning away, by which path, by links of its own or not."""

    memory: Memory
    depth: int
    path: tuple[str, ...]
    own: bool


def direct_sources(memory: Memory) -> tuple[str, ...]:
    """Return what a memory says that it was reasoned from."""
    return tuple(link.target for link in memory.links if link.relation in REASONING and link.target != memory.id)


def copied_from(memory: Memory) -> str | None:
    """Return what a memory is a copy of, as long as it is tied to it."""
    if memory.shared is None or memory.shared.mode == DETACHED:
        return None
    return memory.source.target if memory.source else None


def has_sources(memory: Memory) -> bool:
    """Tell whether anything could put a memory in doubt."""
    return bool(direct_sources(memory)) or copied_from(memory) is not None


# --- up: what memories rest on


def ancestors_of(
    tx: Reading, spaces: SpaceScope, start: Iterable[Memory], *, hold: Callable[[Iterable[str]], None] | None = None
) -> Ancestors:
    """Return all that some memories rest on; who is going to write lets nobody change it meanwhile, by `hold`.

    One that is given twice, as it was and as it is, rests on what it says either time.
    """
    level: Iterable[Memory] = tuple(start)
    known = {memory.id: memory for memory in level}
    asked = set(known)
    while wanted := sorted({one for memory in level for one in _next(memory)} - asked):
        if hold is not None:
            hold(wanted)
        asked.update(wanted)
        found = memories.get_headers_any_space(tx, spaces, wanted)
        known |= found
        level = found.values()
    stood_on = {one for memory in known.values() for one in _next(memory)}
    superseding = supersession.superseding(tx, spaces, sorted(stood_on), anywhere=True)
    return Ancestors(known, {id_: tuple(one.id for one in found) for id_, found in superseding.items()})


def _next(memory: Memory) -> Iterator[str]:
    yield from direct_sources(memory)
    source = copied_from(memory)
    if source is not None:
        yield source


def invalidations_of(memory: Memory, found: Ancestors, *, own: bool) -> dict[tuple[str, str], Invalidation]:
    """Return everything that puts a memory in doubt, each with the shortest way to it.

    With `own`, only by what the memory itself says that it rests on, and not by what its source says. Whoever follows
    what was superseded, by itself or through others, has nothing to fear from it.
    """
    told: dict[tuple[str, str], Invalidation] = {}
    for ground, path, depth in _walk(memory, found.known, own=own):
        for invalidating in found.invalidating(ground):
            if invalidating == memory.id:
                continue
            by_path, steps = path, depth
            if invalidating in path:
                ways = _walk(memory, found.known, own=own, avoiding=invalidating)
                by_path, steps = next(((other, deep) for end, other, deep in ways if end.id == ground.id), ((), 0))
            if by_path:
                told[ground.id, invalidating] = Invalidation(ground.id, invalidating, steps, by_path)
    return told


def open_invalidations(memory: Memory, found: Ancestors) -> tuple[Invalidation, ...]:
    """Return what puts a memory in doubt and nobody has decided about.

    A copy is in doubt for what its source is in doubt for too, unless that was decided here or there.
    """
    told: dict[tuple[str, str], Invalidation] = {}
    for at in reversed(_sources(memory, found.known)):
        decided = {one.key for one in at.decisions}
        passed_on = [one._replace(path=(*one.path, at.id)) for one in told.values() if one.invalidating != at.id]
        every = sorted(
            [*passed_on, *invalidations_of(at, found, own=True).values()], key=lambda one: one.depth, reverse=True
        )
        told = {cause.key: cause for cause in every if cause.key not in decided}
    return tuple(cause for _, cause in sorted(told.items()))


def visible_invalidation(cause: Invalidation, known: Mapping[str, Memory], readable: Container[str]) -> Invalidation:
    """Return a cause as it is told to somebody who may read these spaces: what else is on the path is not named."""
    ends = {cause.invalidated, *cause.path[-1:]}
    named = {id_ for id_ in cause.path if id_ and (id_ in ends or (id_ in known and known[id_].space.id in readable))}
    return cause._replace(path=tuple(id_ if id_ in named else None for id_ in cause.path))


def _sources(memory: Memory, known: Mapping[str, Memory]) -> list[Memory]:
    """Return a memory and what it is a copy of, and so on, the nearest first."""
    chain = [memory]
    while (source := known.get(copied_from(chain[-1]) or "")) is not None and source not in chain:
        chain.append(source)
    return chain


def _walk(memory: Memory, known: Mapping[str, Memory], *, own: bool, avoiding: str = "") -> Iterator[Step]:
    """Yield what a memory rests on, the nearest first, each with the path from there to the memory."""
    queue: deque[Step] = deque([(memory, (memory.id,), 0)])
    seen: set[tuple[str, bool]] = set()
    while queue:
        at, path, depth = queue.popleft()
        if (at.id, depth > 0) in seen or (depth and at.id == memory.id):
            continue
        seen.add((at.id, depth > 0))
        if depth:
            yield at, path, depth
        source = known.get(copied_from(at) or "")
        if source is not None and source.id != avoiding and (depth or not own):
            queue.appendleft((source, (source.id, *path), depth))
        for id_ in direct_sources(at):
            ground = known.get(id_)
            if ground is not None and ground.id != avoiding:
                queue.append((ground, (ground.id, *path), depth + 1))


def path_between(memory: Memory, to: str, known: Mapping[str, Memory]) -> tuple[str, ...]:
    """Return how a memory rests on another, as ids from that one to the memory; nothing if it does not."""
    if memory.id == to:
        return (to,)
    queue: deque[tuple[str, ...]] = deque([(memory.id,)])
    seen: set[str] = set()
    while queue:
        path = queue.popleft()
        at = known.get(path[0])
        if path[0] == to:
            return path
        if at is not None and at.id not in seen:
            seen.add(at.id)
            queue += [(one, *path) for one in _next(at)]
    return ()


def reflection_depth(memory: Memory, known: Mapping[str, Memory], *, most: int) -> int:
    """Return how many reflections stand on each other up to this one, but no more than one above `most`.

    What is derived from a reflection, or a copy of it, is as deep as that.
    """
    queue = deque([(memory.id, 0)])
    seen: set[tuple[str, int]] = set()
    deepest = 0
    while queue and deepest <= most:
        id_, depth = queue.popleft()
        at = known.get(id_)
        if at is None or (id_, depth) in seen:
            continue
        seen.add((id_, depth))
        deepest = max(deepest, depth)
        queue += [
            (one.target, depth + (one.relation == "reflects_on")) for one in at.links if one.relation in REASONING
        ]
        source = copied_from(at)
        if source is not None:
            queue.append((source, depth))
    return deepest


# --- down: what rests on memories


def dependents_of(
    tx: Reading, spaces: SpaceScope, roots: Iterable[str], *, most: int | None = None
) -> dict[str, DependentNode]:
    """Return all that rests on some memories or on copies of them, each once, the nearest first; at most so many."""
    descent = _Descent(tx, spaces, roots)
    while descent.level and (most is None or len(descent.reached) < most):
        descent.go_down()
    return descent.reached


class _Descent:
    """A walk down from some memories, level by level: what was reached so far, and what was passed."""

    def __init__(self, tx: Reading, spaces: SpaceScope, roots: Iterable[str]) -> None:
        self._tx = tx
        self._spaces = spaces
        self._depth = 0
        self.level: dict[str, tuple[str, ...]] = {root: (root,) for root in roots}
        self._passed = set(self.level)
        self.reached: dict[str, DependentNode] = {}

    def go_down(self) -> None:
        """Go on to what was reasoned from the memories of this level, or from copies of them."""
        copied = self.level
        while copied := self._copies(copied):
            self.level |= copied
        self._depth += 1
        self.level = self._dependents()

    def _copies(self, level: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Return the copies of some memories that were not passed before, with their paths; all are equally deep."""
        found = links.incoming_any_space(self._tx, sorted(level), relations=_COPYING)
        there = memories.get_headers_any_space(
            self._tx, self._spaces, sorted({link.source for link in found} - self._passed)
        )
        copied: dict[str, tuple[str, ...]] = {}
        for link in found:
            copy = there.get(link.source)
            if copy is not None and copied_from(copy) == link.target and copy.id not in copied:
                copied[copy.id] = (*level[link.target], copy.id)
                if self._depth:
                    self.reached.setdefault(copy.id, DependentNode(copy, self._depth, copied[copy.id], own=False))
        self._passed.update(copied)
        return copied

    def _dependents(self) -> dict[str, tuple[str, ...]]:
        """Return what was reasoned from the memories of this level and not passed before, with its paths."""
        found = links.incoming_any_space(self._tx, sorted(self.level), relations=REASONING)
        there = memories.get_headers_any_space(self._tx, self._spaces, sorted({link.source for link in found}))
        fresh: dict[str, tuple[str, ...]] = {}
        for link in found:
            dependent, path = there.get(link.source), self.level[link.target]
            if dependent is None or dependent.id in path:
                continue
            before = self.reached.get(dependent.id)
            if before is None or not before.own:
                # What was passed as a copy comes in its place by its own links: the nearest first.
                self.reached.pop(dependent.id, None)
                self.reached[dependent.id] = DependentNode(dependent, self._depth, (*path, dependent.id), own=True)
            if dependent.id not in self._passed:
                self._passed.add(dependent.id)
                fresh[dependent.id] = (*path, dependent.id)
        return fresh
