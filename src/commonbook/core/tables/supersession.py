"""Supersession: which memories supersede others, and until when, by one rule for marks, copies, notices and the index.

It owns no table: it reads the links `supersedes` of the table `link`.

A memory is superseded by every live memory but itself that has a link `supersedes` to it. Where a single one is named,
it is the newest: ids sort by the time they were made. A successor that was deleted or has expired has *ended*: it no
longer keeps the old memory out of recall. The successors of an ended successor count in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from commonbook.core.tables import copies, links, memories
from commonbook.ports.database import Reading
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredLink, StoredMemory

RELATIONS: Final = ("supersedes",)
"""The relations of the links that `successors_among` reads."""

Superseding = Mapping[str, Sequence[StoredMemory]]
"""The successors of each memory whose dependents are in doubt, by its id; without their texts."""


def has_ended(memory: StoredMemory, now: datetime) -> bool:
    """Tell whether a memory was deleted, or has expired."""
    return memory.deleted is not None or has_expired(memory, now)


def has_expired(memory: StoredMemory, now: datetime) -> bool:
    """Tell whether a memory has expired, deleted or not."""
    return memory.expires is not None and memory.expires <= now


def may_end(memory: StoredMemory) -> bool:
    """Tell whether a memory has ended, or will at a known time."""
    return memory.deleted is not None or memory.expires is not None


class Successors(NamedTuple):
    """The memories that have links `supersedes` to some memories, deleted ones too, by the id of the superseded one.

    Of a successor that has ended, or will at a known time, its own successors are here too.
    """

    direct: Mapping[str, Sequence[StoredMemory]]

    def standing(self, memory_id: str, now: datetime) -> list[StoredMemory]:
        """Return the successors of a memory that have not ended; those of an ended one count in its place."""
        return [
            successor
            for successor in self._reached(memory_id, through=lambda successor: has_ended(successor, now))
            if not has_ended(successor, now)
        ]

    def ended(self, memory_id: str, now: datetime) -> list[StoredMemory]:
        """Return the direct successors of a memory that have ended, if no other memory stands in its place."""
        direct = self.direct.get(memory_id, ())
        if not direct or self.standing(memory_id, now):
            return []
        return [successor for successor in direct if has_ended(successor, now)]

    def lasting(self, memory_id: str) -> list[StoredMemory]:
        """Return the successors of a memory that are not deleted, direct or in the place of one that may end."""
        return [successor for successor in self._reached(memory_id, through=may_end) if successor.deleted is None]

    def leading_to(self, memory_id: str, standing_id: str, now: datetime) -> list[StoredMemory]:
        """Return the direct successors of a memory that another one is, or in whose place it stands."""
        return [
            successor
            for successor in self.direct.get(memory_id, ())
            if successor.id == standing_id
            or (has_ended(successor, now) and standing_id in {one.id for one in self.standing(successor.id, now)})
        ]

    def doubted(self, memory_id: str) -> list[StoredMemory]:
        """Return the direct successors of a memory without those that are deleted, and nothing else in their place."""
        return [
            successor
            for successor in self.direct.get(memory_id, ())
            if successor.deleted is None or self._is_replaced(memory_id, successor.id)
        ]

    def _is_replaced(self, memory_id: str, deleted_id: str) -> bool:
        """Tell whether a memory that is not deleted stands behind a deleted successor of another one."""
        behind = self._reached(deleted_id, through=lambda successor: successor.deleted is not None)
        return any(successor.deleted is None and successor.id != memory_id for successor in behind)

    def _reached(self, memory_id: str, *, through: Callable[[StoredMemory], bool]) -> Iterator[StoredMemory]:
        """Yield the successors of a memory, each once, going on to the successors of those that `through` accepts."""
        seen, level = {memory_id}, [memory_id]
        while level:
            at = level.pop()
            for successor in self.direct.get(at, ()):
                if successor.id not in seen:
                    seen.add(successor.id)
                    yield successor
                    if through(successor):
                        level.append(successor.id)


def in_place_of_others(
    chain: Sequence[StoredMemory], successors: Iterable[Sequence[StoredMemory]]
) -> list[list[StoredMemory]]:
    """Return the successors of each member of a chain of copies, the nearest first, without the copies before it.

    A copy that supersedes its own source holds in the source's place: it is not superseded by itself.
    """
    before: set[str] = set()
    others = []
    for member, found in zip(chain, successors, strict=True):
        before.add(member.id)
        others.append([successor for successor in found if successor.id not in before])
    return others


def successors_of(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> Successors:
    """Return the successors of these memories; `spaces` are all spaces of the book, since a successor may be anywhere.

    RetryTransaction is raised if one is in a space that was made since `spaces` was read.
    """
    return successors_among(tx, spaces, _incoming(tx, ids))


def successors_among(tx: Reading, spaces: SpaceScope, incoming: Iterable[StoredLink]) -> Successors:
    """Return the same from links to the memories, which were read before."""
    direct: dict[str, list[StoredMemory]] = {}
    level = [link for link in incoming if link.relation in RELATIONS and link.source != link.target]
    while level:
        sources = with_ends(tx, spaces, memories.get_headers_any_space(tx, spaces, _source_ids(level)).values())
        for link in level:
            if link.source in sources:
                direct.setdefault(link.target, []).append(sources[link.source])
        ends = sorted(id_ for id_, source in sources.items() if may_end(source) and id_ not in direct)
        level = [link for link in _incoming(tx, ends) if link.source != link.target]
    return Successors(direct)


def _incoming(tx: Reading, ids: Sequence[str]) -> list[StoredLink]:
    return links.incoming_any_space(tx, ids, relations=RELATIONS)


def with_ends(tx: Reading, spaces: SpaceScope, superseding: Collection[StoredMemory]) -> dict[str, StoredMemory]:
    """Return memories by id, with the time at which each expires; a copy expires with its source at the latest."""
    sources = copies.sources_of(tx, spaces, superseding)
    return {
        memory.id: memory._replace(
            expires=min(filter(None, (member.expires for member in copies.chain_of(memory, sources))), default=None)
        )
        for memory in superseding
    }


def predecessors_of(tx: Reading, spaces: SpaceScope, superseding: Iterable[StoredMemory]) -> set[str]:
    """Return the memories that these supersede, and those that one which may end supersedes in turn."""
    reached: set[str] = set()
    level = {target for memory in superseding for target in targets_of(memory)}
    while level:
        reached |= level
        headers = with_ends(tx, spaces, memories.get_headers_any_space(tx, spaces, sorted(level)).values())
        level = {target for memory in headers.values() if may_end(memory) for target in targets_of(memory)} - reached
    return reached


def targets_of(memory: StoredMemory) -> list[str]:
    """Return the ids of the memories that a memory has links `supersedes` to."""
    return [link.target for link in memory.links if link.relation == "supersedes" and link.target != memory.id]


def superseding(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> Superseding:
    """Return the direct successors of these memories that leave dependents in doubt, in any space.

    These are the ones that are not deleted, whether they have expired or not, and deleted ones behind which another
    memory stands in their place.

    It is for a writer that decides who is notified, and may miss nothing: `spaces` are all that the transaction knows,
    and RetryTransaction is raised if a memory is in a space that was made since.
    """
    successors = successors_of(tx, spaces, ids)
    found = {id_: successors.doubted(id_) for id_ in ids if id_ in successors.direct}
    return {id_: doubted for id_, doubted in found.items() if doubted}


def _source_ids(incoming: Sequence[StoredLink]) -> list[str]:
    return sorted({link.source for link in incoming})
