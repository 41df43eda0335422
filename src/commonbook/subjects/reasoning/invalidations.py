"""Invalidations of a memory: ancestors that were superseded or deleted, with paths and depths to them.

One memory depends on another if a chain of links `reflects_on` and `derived_from` leads to it. A copy stands for its
source. Links made by hand may form a cycle, so every walk visits a memory once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import takewhile
from types import MappingProxyType
from typing import Final, NamedTuple

from commonbook.core.tables import copies, links, memories, supersession
from commonbook.core.tables.supersession import Successors
from commonbook.ports.database import Reading, Transaction
from commonbook.values.invalidation import DELETED, ENDED, REASONING, Invalidation, Notice
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredLink, StoredMemory, is_missing, missing_memory

_DEPENDENCIES: Final = (*REASONING, "shared_from")


def is_outdated(memory: StoredMemory, known: Mapping[str, StoredMemory]) -> bool:
    """Tell whether a live direct source of a memory says something else than when the memory was linked to it."""
    pairs = ((link, known.get(link.target)) for link in memory.links if link.relation in REASONING)
    return any(
        link.target_hash != target.content_hash
        for link, target in pairs
        if target is not None and target.deleted is None and link.target_hash is not None
    )


class _Visit(NamedTuple):
    """A memory that a walk has reached, the visit before it, and the number of reasoning links on the path."""

    memory: StoredMemory
    before: _Visit | None
    depth: int

    @property
    def path(self) -> tuple[str, ...]:
        """The ids from this memory to the one at which the walk began; built only on demand."""
        ids: list[str] = []
        visit: _Visit | None = self
        while visit is not None:
            ids.append(visit.memory.id)
            visit = visit.before
        return tuple(ids)


class Ancestors(NamedTuple):
    """All ancestors of some memories by id, those memories included, and the live memories that supersede each.

    An ancestor that this book does not have is known by `evidence`: an open notice or a decision names it as
    invalidated, and by what. The database that knew it was lost, or only a part of the book was imported.
    """

    known: Mapping[str, StoredMemory]
    superseding: Mapping[str, tuple[str, ...]]
    evidence: Mapping[str, frozenset[str]] = MappingProxyType({})

    def invalidating(self, memory: StoredMemory) -> Iterator[str]:
        """Yield the reasons why the dependents of a memory are invalidated: `deleted`, or ids of its successors."""
        if memory.id in self.evidence:
            yield from sorted(self.evidence[memory.id])
            return
        # A notice is deleted when it is settled: that does not invalidate a memory linked to it by hand.
        if memory.deleted is not None and memory.kind != "notice":
            yield DELETED
        yield from self.superseding.get(memory.id, ())


# --- ancestors


def lock_ancestors(tx: Transaction, start: Sequence[StoredMemory], lock: Callable[[Iterable[str]], None]) -> None:
    """Lock all ancestors of some memories until the transaction ends.

    A memory that is given in two states, before and after a change, has the ancestors of both.
    """
    locked: set[str] = set()
    # While we waited for the locks, the locked memories may have got further dependencies.
    while unlocked := set(_reachable(tx, start)) - locked:
        lock(unlocked)
        locked |= unlocked


def ancestors_of(tx: Reading, spaces: SpaceScope, start: Iterable[StoredMemory]) -> Ancestors:
    """Return all ancestors of some memories, read by one recursive query; a writer has locked them before."""
    states = tuple(start)
    known = {memory.id: memory for memory in states}
    wanted = _reachable(tx, states)
    known = {**memories.get_headers_any_space(tx, spaces, sorted(set(wanted) - known.keys())), **known}
    evidence = _evidence(tx, spaces, known, set(wanted) - known.keys())
    known |= {id_: missing_memory(id_) for id_ in evidence}
    superseding = supersession.superseding(tx, spaces, sorted(set(wanted) - evidence.keys()))
    return Ancestors(
        known,
        {id_: tuple(successor.id for successor in successors) for id_, successors in superseding.items()},
        evidence,
    )


def _reachable(tx: Reading, states: Sequence[StoredMemory]) -> list[str]:
    direct = sorted({id_ for memory in states for id_ in _dependencies(memory)})
    return links.reachable(tx, direct, relations=_DEPENDENCIES) if direct else []


def may_be_invalidated(tx: Reading, spaces: SpaceScope, candidates: Iterable[StoredMemory]) -> bool:
    """Tell whether one of these memories may be invalidated: if not, nobody needs to walk up from them.

    The memories that they directly depend on are enough. Each invalidation of such a memory by one further up has an
    open notice or a decision, unless the memory is a candidate itself, whose notices are only now brought up to date.
    """
    direct = {id_ for memory in candidates for id_ in _dependencies(memory)}
    if not direct:
        return False
    known = memories.get_headers_any_space(tx, spaces, sorted(direct))
    known |= copies.sources_of(tx, spaces, known.values())
    needed = direct | {copies.copied_from(memory) for memory in known.values()} - {None}
    if not known.keys() >= needed or any(memory.deleted or memory.decisions for memory in known.values()):
        return True
    incoming = links.incoming_any_space(tx, sorted(known), relations=(*supersession.RELATIONS, NOTICE_RELATION))
    if any(link.relation in supersession.RELATIONS for link in incoming):
        return True
    return bool(keys_among(tx, incoming))


def may_depend_on(tx: Reading, memory_ids: Sequence[str], on: str) -> bool:
    """Tell whether one of some memories may depend on another, or is it; a detached copy counts as a copy."""
    return links.may_reach(tx, memory_ids, on, relations=_DEPENDENCIES)


def may_be_deeper(tx: Reading, memory: StoredMemory, limit: int) -> bool:
    """Tell whether a path of more than `limit` links `reflects_on` may lead up from one; see `reflection_depth`."""
    direct = sorted(set(_dependencies(memory)))
    return links.has_chain_with(tx, direct, counted="reflects_on", count=limit, relations=_DEPENDENCIES)


def _evidence(
    tx: Reading, spaces: SpaceScope, known: Mapping[str, StoredMemory], missing: Container[str]
) -> dict[str, frozenset[str]]:
    """Return what invalidated those missing memories of which an open notice or a decision of a dependent tells.

    All dependents count, not only the direct ones: a copy of a missing memory has no notice of its own. A decision
    that was taken back tells of its cause all the same.
    """
    if not any(id_ in missing for memory in known.values() for id_ in _dependencies(memory)):
        return {}
    noticed = about(tx, spaces, sorted(known))
    keys = [one.notice.key for found in noticed.values() for one in found]
    keys += [decision.key for memory in known.values() for decision in memory.decisions]
    evidence: dict[str, frozenset[str]] = {}
    for invalidated, invalidating in keys:
        if invalidated in missing and invalidating != ENDED:
            evidence[invalidated] = evidence.get(invalidated, frozenset()) | {invalidating}
    return evidence


def _dependencies(memory: StoredMemory) -> Iterator[str]:
    """Yield the ids of a memory's direct sources, and of the memory that it is a copy of."""
    yield from memory.grounds
    source = copies.copied_from(memory)
    if source is not None:
        yield source


def invalidations_of(memory: StoredMemory, ancestors: Ancestors, *, own: bool) -> dict[tuple[str, str], Invalidation]:
    """Return every invalidation of a memory by its key, each with the shortest path.

    With `own`, only those by the memory's own links, and not by those of its source if it is a copy. A successor does
    not invalidate itself, nor a memory that depends on the superseded one only through the successor.
    """
    invalidations: dict[tuple[str, str], Invalidation] = {}
    for visit in _walk_ancestors(memory, ancestors.known, own=own):
        ancestor = visit.memory
        for invalidating in ancestors.invalidating(ancestor):
            if invalidating == memory.id:
                continue
            by: _Visit | None = visit
            if invalidating in visit.path:
                detours = _walk_ancestors(memory, ancestors.known, own=own, avoiding=invalidating)
                by = next((detour for detour in detours if detour.memory.id == ancestor.id), None)
            if by is not None:
                invalidations[ancestor.id, invalidating] = Invalidation(ancestor.id, invalidating, by.depth, by.path)
    return invalidations


def ended_successors(
    chain: Sequence[StoredMemory], successors: Successors, now: datetime
) -> dict[str, list[Invalidation]]:
    """Return the successors that have ended of a memory and of its sources along the tie, by the id of each.

    Where something else stands in their place, there are none. A source that was deleted counts: its copies still say
    what it said.
    """
    memory = chain[0]
    return {
        member.id: []
        if (member is memory and memory.deleted) or supersession.has_expired(member, now) or member.notice
        else [
            Invalidation(successor.id, ENDED, 0, (successor.id, member.id))
            for successor in successors.ended(member.id, now)
        ]
        for member in chain
    }


Causes = Mapping[tuple[str, str], Invalidation]
"""Invalidations by their keys."""


def own_causes(
    tx: Reading, spaces: SpaceScope, live: Sequence[StoredMemory], ancestors: Ancestors, now: datetime
) -> dict[str, Causes]:
    """Return the invalidations for which each of these memories gets notices: those by its own links and successors.

    The source of a copy has notices itself. Only a source that was deleted has none: its copy gets those that nobody
    had decided about.
    """
    sources = copies.sources_of(tx, spaces, live)
    successors = supersession.successors_of(tx, spaces, sorted({*sources, *(memory.id for memory in live)}))
    found: dict[str, Causes] = {}
    for memory in live:
        deleted = takewhile(lambda source: source.deleted is not None, copies.chain_of(memory, sources)[1:])
        chain = [memory, *deleted]
        endings = ended_successors(chain, successors, now)
        left = _inherited(memory, _undecided(chain[1:], ancestors, endings))
        if supersession.has_expired(memory, now):
            left = {key: invalidation for key, invalidation in left.items() if invalidation.invalidating != ENDED}
        own = {ending.key: ending for ending in endings[memory.id]}
        found[memory.id] = {**left, **invalidations_of(memory, ancestors, own=True), **own}
    return found


def open_invalidations(
    memory: StoredMemory, ancestors: Ancestors, endings: Mapping[str, Iterable[Invalidation]] = MappingProxyType({})
) -> tuple[Invalidation, ...]:
    """Return the invalidations of a memory that have no decision.

    A copy inherits those of its source, unless they were decided at the copy or at the source. `endings` has the ended
    successors of the memory and of its sources along the tie, by their ids.
    """
    undecided = _undecided(copies.chain_of(memory, ancestors.known), ancestors, endings)
    return tuple(invalidation for _, invalidation in sorted(undecided.items()))


def _undecided(
    chain: Sequence[StoredMemory], ancestors: Ancestors, endings: Mapping[str, Iterable[Invalidation]]
) -> Causes:
    """Return the invalidations that have no decision of the first member of a chain of copies, the nearest first."""
    undecided: Causes = {}
    for member in reversed(chain):
        decided = member.settled_causes
        # The deepest come first, so that of two with the same key the shorter one remains.
        candidates = sorted(
            [
                *_inherited(member, undecided).values(),
                *invalidations_of(member, ancestors, own=True).values(),
                *endings.get(member.id, ()),
            ],
            key=lambda invalidation: invalidation.depth,
            reverse=True,
        )
        undecided = {invalidation.key: invalidation for invalidation in candidates if invalidation.key not in decided}
    return undecided


def _inherited(copy: StoredMemory, causes: Causes) -> Causes:
    """Return the invalidations that a copy inherits from its source: not those that it is an end of itself."""
    return {
        key: invalidation._replace(path=(*invalidation.path, copy.id))
        for key, invalidation in causes.items()
        if copy.id not in key
    }


def visible_invalidation(
    invalidation: Invalidation, known: Mapping[str, StoredMemory], readable: Container[str]
) -> Invalidation:
    """Return an invalidation for a reader of these spaces: unreadable memories on the path become None, ends stay."""
    path = invalidation.path
    ends = {invalidation.invalidated, *path[-1:]}
    visible = {id_ for id_ in path if id_ and (id_ in ends or (id_ in known and known[id_].space.id in readable))}
    return invalidation._replace(path=tuple(id_ if id_ in visible else None for id_ in path))


def _walk_ancestors(
    memory: StoredMemory, known: Mapping[str, StoredMemory], *, own: bool, avoiding: str = ""
) -> Iterator[_Visit]:
    """Yield the ancestors of a memory breadth-first, each with the path from there to the memory.

    A step to the source of a copy adds no depth, so it goes to the front of the queue.
    """
    queue: deque[_Visit] = deque([_Visit(memory, None, 0)])
    seen: set[tuple[str, bool]] = set()
    while queue:
        visit = queue.popleft()
        current, depth = visit.memory, visit.depth
        if (current.id, depth > 0) in seen or (depth and current.id == memory.id):
            continue
        seen.add((current.id, depth > 0))
        if depth:
            yield visit
        source = known.get(copies.copied_from(current) or "")
        if source is not None and source.id != avoiding and (depth or not own):
            queue.appendleft(_Visit(source, visit, depth))
        for id_ in current.grounds:
            ancestor = known.get(id_)
            if ancestor is not None and ancestor.id != avoiding:
                queue.append(_Visit(ancestor, visit, depth + 1))


def has_unknown_ancestor(memory: StoredMemory, ancestors: Ancestors) -> bool:
    """Tell whether a memory depends on one that this book does not have, so that there may be ancestors behind it."""
    queue, seen = deque([memory]), {memory.id}
    while queue:
        for id_ in _dependencies(queue.popleft()):
            ancestor = ancestors.known.get(id_)
            if ancestor is None or is_missing(ancestor):
                return True
            if id_ not in seen:
                seen.add(id_)
                queue.append(ancestor)
    return False


def path_between(memory: StoredMemory, to: str, known: Mapping[str, StoredMemory]) -> tuple[str, ...]:
    """Return the shortest path from an ancestor to a memory, as ids; empty if the memory does not depend on it."""
    below: dict[str, str] = {memory.id: ""}
    queue = deque([memory.id])
    while queue and to not in below:
        current = known.get(queue.popleft())
        for id_ in _dependencies(current) if current is not None else ():
            if id_ not in below:
                below[id_] = current.id if current else ""
                queue.append(id_)
    path: list[str] = []
    at = to if to in below else ""
    while at:
        path.append(at)
        at = below[at]
    return tuple(path)


def reflection_depth(memory: StoredMemory, known: Mapping[str, StoredMemory], *, limit: int) -> int:
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
        source = copies.copied_from(current)
        if source is not None:
            queue.append((source, depth))
    return deepest


NOTICE_RELATION: Final = "related_to"
"""The relation of the link from a notice to the memory that it is about."""


class OpenNotice(NamedTuple):
    """A notice that is not settled: the memory, without its text, and its content."""

    memory: StoredMemory
    notice: Notice


def about(tx: Reading, spaces: SpaceScope, dependents: Sequence[str]) -> dict[str, list[OpenNotice]]:
    """Return the open notices about some memories, by the id of each; `spaces` are all that the transaction knows."""
    related = _from_notices(links.incoming_any_space(tx, dependents, relations=(NOTICE_RELATION,)))
    headers = memories.get_headers_any_space(tx, spaces, sorted({link.source for link in related}))
    wanted = frozenset(link.target for link in related)
    found: dict[str, list[OpenNotice]] = {}
    for memory in headers.values():
        if memory.notice is not None and memory.notice.dependent in wanted and is_open(memory):
            found.setdefault(memory.notice.dependent, []).append(OpenNotice(memory, memory.notice))
    return found


def keys_about(tx: Reading, dependents: Sequence[str]) -> dict[str, set[tuple[str, str]]]:
    """Return the keys of the invalidations that open notices about some memories tell of, by the id of each."""
    return keys_among(tx, links.incoming_any_space(tx, dependents, relations=(NOTICE_RELATION,)))


def keys_among(tx: Reading, incoming: Iterable[StoredLink]) -> dict[str, set[tuple[str, str]]]:
    """Return the same from links to the memories, which were read before."""
    related = _from_notices(incoming)
    notices = memories.get_notices(tx, sorted({link.source for link in related}))
    wanted = frozenset(link.target for link in related)
    found: dict[str, set[tuple[str, str]]] = {}
    for id_, notice in notices.items():
        if notice.dependent in wanted and _has_own_id(id_, notice):
            found.setdefault(notice.dependent, set()).add(notice.key)
    return found


def is_open(memory: StoredMemory) -> bool:
    """Tell whether a memory is a notice that is not settled; id and link must be those that we would give it.

    Somebody may have edited its file while the database was lost.
    """
    notice = memory.notice
    if notice is None or memory.deleted is not None or not _has_own_id(memory.id, notice):
        return False
    return any((link.relation, link.target) == (NOTICE_RELATION, notice.dependent) for link in memory.links)


def doubted_by(memory: StoredMemory) -> str | None:
    """Return the memory that is suspect because this one is an open notice about it; None if it is no such notice.

    It is suspect unless it has a decision of its own. About a successor that has ended, nothing is suspect.
    """
    notice = memory.notice
    return notice.dependent if notice is not None and notice.invalidating != ENDED and is_open(memory) else None


def _has_own_id(id_: str, notice: Notice) -> bool:
    return id_ == notice_id(notice.dependent, Invalidation(*notice.key))


def notice_id(dependent: str, cause: Invalidation) -> str:
    """Return the id of the notice about a dependent and an invalidation: a hash, the same on every machine."""
    digits = sha256(f"{dependent} {cause.invalidated} {cause.invalidating}".encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"


def _from_notices(incoming: Iterable[StoredLink]) -> list[StoredLink]:
    # Many other memories may be related to one: the ids of notices look different.
    return [link for link in incoming if link.relation == NOTICE_RELATION and _is_notice_id(link.source)]


def _is_notice_id(id_: str) -> bool:
    """Tell whether an id has the form of `notice_id`, and not that of other memories: a UUID of version 7."""
    return id_[14:15] == "8" and id_[19:20] == "a"


def open_causes(
    memory: StoredMemory,
    sources: Mapping[str, StoredMemory],
    noticed: Mapping[str, Collection[tuple[str, str]]],
    endings: Mapping[str, Iterable[Invalidation]],
) -> set[tuple[str, str]]:
    """Return the keys of the invalidations that wait for a decision about a memory.

    A copy inherits those of its source, unless they were decided at the copy or at the source. `sources` are those
    along the tie, `noticed` the keys of the open notices about all of them, `endings` their successors that have ended.
    """
    undecided: set[tuple[str, str]] = set()
    for member in reversed(copies.chain_of(memory, sources)):
        inherited = {key for key in undecided if member.id not in key}
        own = noticed.get(member.id, ())
        undecided = (inherited | {*own} | {ending.key for ending in endings.get(member.id, ())}) - member.settled_causes
    return undecided
