"""Computes the marks of memories when they are read: expired, superseded, suspect, malformed, freshness of a copy.

It leaves out what a reader may not see: the session or the successor in a hidden space, the reason of a supersession.
A copy keeps its own times, and is no better than its source: it has ended, is superseded or is in doubt whenever its
source is, along the whole chain of copies. A detached copy has no tie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.markdown import obsidian
from commonbook.core.tables import copies, file_journal, links, memories, spaces, supersession
from commonbook.core.tables.supersession import Successors
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.reasoning import invalidations as graph
from commonbook.subjects.reasoning.invalidations import is_outdated
from commonbook.subjects.sharing import freshness
from commonbook.values.invalidation import ENDED, Invalidation
from commonbook.values.memory import Mark
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredLink, StoredMemory, is_retracted


class Doubts(NamedTuple):
    """The part of the marks that a ranking needs: open notices, and the freshness of copies."""

    sources: Mapping[str, StoredMemory]
    """The sources along the ties of the copies among the memories."""
    incoming: tuple[StoredLink, ...]
    """The links to the memories and to these sources that marks depend on."""
    noticed: Mapping[str, Collection[tuple[str, str]]]
    """The keys of the open notices about the memories and these sources."""
    copy_states: Mapping[str, freshness.CopyState]

    def is_suspect(self, memory: StoredMemory) -> bool:
        """Return whether a decision about a memory is waited for, because of a memory that it depends on."""
        causes = graph.open_causes(memory, self.sources, self.noticed, {}) if self.noticed else ()
        return any(invalidating != ENDED for _, invalidating in causes)

    def freshness_of(self, memory: StoredMemory) -> str | None:
        """Return the freshness of a copy; None for another memory."""
        state = self.copy_states.get(memory.id)
        return state.freshness if state else None

    def merged(self, other: Doubts) -> Doubts:
        """Return these doubts together with those about further memories."""
        return Doubts(
            {**self.sources, **other.sources},
            (*self.incoming, *other.incoming),
            {**self.noticed, **other.noticed},
            {**self.copy_states, **other.copy_states},
        )


NO_DOUBTS: Final = Doubts({}, (), {}, {})


class _Surroundings(NamedTuple):
    """The memories around those that are marked: sources along the ties, grounds, successors and open notices."""

    sources: Mapping[str, StoredMemory]
    grounds: Mapping[str, StoredMemory]
    successors: supersession.Successors
    noticed: Mapping[str, Collection[tuple[str, str]]]
    now: datetime

    def is_plain(self, memory: StoredMemory) -> bool:
        """Return whether only its file can mark a memory: it has no links, times, notices or successors.

        Most are so, which is told faster than each mark can be looked for.
        """
        has_times = memory.deleted or memory.expires or memory.valid_from or memory.valid_until
        is_linked = memory.links or memory.shared or memory.id in self.successors.direct or memory.id in self.noticed
        return not (has_times or is_linked or memory.space.holds_proposals)

    def chain(self, memory: StoredMemory) -> list[StoredMemory]:
        """Return a memory and its sources along the tie: what is true of one of them is true of the memory."""
        return copies.chain_of(memory, self.sources)

    def newest_successor(self, memory: StoredMemory, allowed: SpaceScope) -> tuple[bool, str | None]:
        """Return whether a memory is superseded, and by which; one that may not be read is not named."""
        chain = self.chain(memory)
        standing = [self.successors.standing(member.id, self.now) for member in chain]
        nearest = next(filter(None, supersession.in_place_of_others(chain, standing)), ())
        return bool(nearest), max((one.id for one in nearest if one.space.id in allowed), default=None)

    def endings(self, memory: StoredMemory) -> dict[str, list[Invalidation]]:
        """Return the successors of a memory, and of its sources along the tie, that have ended."""
        return graph.ended_successors(self.chain(memory), self.successors, self.now)

    def causes(self, memory: StoredMemory) -> set[tuple[str, str]]:
        """Return the causes that wait for a decision about a memory."""
        return graph.open_causes(memory, self.sources, self.noticed, self.endings(memory))


def with_marks(
    engines: Engines,
    tx: Reading,
    allowed: SpaceScope,
    unmarked: Sequence[StoredMemory],
    now: datetime,
    *,
    doubts: Doubts | None = None,
) -> list[StoredMemory]:
    """Return the memories with their marks and successors; what is about a hidden session or memory is left out.

    `doubts` are those about these memories, and perhaps others, if the caller has read them already.
    """
    all_spaces = permissions.LazyScope(partial(spaces.get_all, tx))
    unmarked = _without_hidden_reasons(tx, all_spaces, allowed, unmarked)
    ids = tuple(memory.id for memory in unmarked)
    doubts = doubts or doubts_about(tx, allowed, unmarked)
    around = _surroundings(tx, all_spaces, unmarked, now, doubts)
    troubles = file_journal.troubles_of(tx, ids) if engines.folder.keeps_files else {}
    reverted = file_journal.reverted(tx) if engines.folder.keeps_files else {}
    marked = []
    for memory in unmarked:
        is_reverted = reverted.get(memory.id) == memory.revision
        marks = tuple(_file_marks(troubles.get((memory.id, memory.path)), is_reverted=is_reverted))
        successor = None
        if not around.is_plain(memory):
            is_superseded, successor = around.newest_successor(memory, allowed)
            validity_marks = _validity_marks(memory, around, is_superseded=is_superseded)
            marks = (*validity_marks, *marks, *_reasoning_marks(memory, around))
        served = _without_hidden_session(memory, allowed)._replace(
            marks=marks, superseded_by=successor, tags=obsidian.tags_of(memory)
        )
        if memory.id in doubts.copy_states:
            served = _with_freshness(tx, allowed, served, doubts.copy_states[memory.id])
        marked.append(served)
    return marked


def doubts_about(tx: Reading, allowed: SpaceScope, unmarked: Sequence[StoredMemory]) -> Doubts:
    """Return the doubts about memories. No text is needed."""
    # From successors and from notices.
    incoming = partial(links.incoming_any_space, tx, relations=(*supersession.RELATIONS, graph.NOTICE_RELATION))
    ids = sorted({memory.id for memory in unmarked})
    found = incoming(ids)
    if not found and not any(memory.source for memory in unmarked):
        return NO_DOUBTS
    all_spaces = permissions.LazyScope(partial(spaces.get_all, tx))
    sources = copies.sources_of(tx, all_spaces, unmarked)
    found = [*found, *incoming(sorted(sources.keys() - set(ids)))]
    return Doubts(
        sources,
        tuple(found),
        graph.keys_among(tx, found),
        freshness.states_of(tx, all_spaces, unmarked, readable=allowed),
    )


def with_invalidations(
    tx: Reading, allowed: SpaceScope, marked: Sequence[StoredMemory], now: datetime
) -> list[StoredMemory]:
    """Return marked memories with their open invalidations, each with its path, as a reader of these spaces sees it."""
    waiting = [memory for memory in marked if {"suspect", "successor_ended"} & set(memory.marks)]
    if not waiting:
        return list(marked)
    all_spaces = spaces.get_all(tx)
    doubts = doubts_about(tx, allowed, waiting)
    around = _surroundings(tx, all_spaces, waiting, now, doubts)
    ancestors = graph.ancestors_of(tx, all_spaces, waiting)
    found = {}
    for memory in waiting:
        walked = {one.key: one for one in graph.open_invalidations(memory, ancestors, around.endings(memory))}
        found[memory.id] = tuple(
            # A cause that only a notice tells of has no path but its ends.
            graph.visible_invalidation(
                walked.get(key, Invalidation(*key, 0, (key[0], memory.id))), ancestors.known, allowed
            )
            for key in sorted(around.causes(memory))
        )
    return [memory._replace(invalidations=found.get(memory.id, ())) for memory in marked]


def _surroundings(
    tx: Reading,
    all_spaces: SpaceScope,
    unmarked: Sequence[StoredMemory],
    now: datetime,
    doubts: Doubts,
) -> _Surroundings:
    wanted = {*doubts.sources, *(memory.id for memory in unmarked)}
    grounds = sorted({id_ for memory in unmarked for id_ in memory.grounds})
    return _Surroundings(
        doubts.sources,
        memories.get_headers_any_space(tx, all_spaces, grounds) if grounds else {},
        supersession.successors_among(tx, all_spaces, [link for link in doubts.incoming if link.target in wanted]),
        doubts.noticed,
        now,
    )


def _without_hidden_session(memory: StoredMemory, allowed: SpaceScope) -> StoredMemory:
    """Return a memory without its session, if that is in another space that may not be read."""
    if memory.session_space is None or any(space.name == memory.session_space for space in allowed.values()):
        return memory
    return memory._replace(session=None, session_space=None)


def _without_hidden_reasons(
    tx: Reading, all_spaces: SpaceScope, allowed: SpaceScope, superseding: Sequence[StoredMemory]
) -> Sequence[StoredMemory]:
    """Return memories without the reasons why they supersede others in spaces that may not be read.

    A reason tells about the old memory: it is for those who may read both. If nobody knows any longer where the old
    memory was, since it was deleted before the database was lost, that is for those who may read all spaces.
    """
    superseded = sorted({reason.superseded for memory in superseding for reason in memory.supersede_reasons})
    places = memories.spaces_of(tx, superseded)
    hidden = {id_ for id_ in superseded if places.get(id_) not in allowed}
    if not hidden or all_spaces.keys() <= allowed.keys():
        return superseding
    return [
        memory._replace(
            supersede_reasons=tuple(reason for reason in memory.supersede_reasons if reason.superseded not in hidden)
        )
        for memory in superseding
    ]


def _with_freshness(tx: Reading, allowed: SpaceScope, copy: StoredMemory, state: freshness.CopyState) -> StoredMemory:
    """Return a copy with its freshness; a successor of its source that may not be read is not named."""
    successor = (
        state.successor if state.successor and state.successor in live_ids(tx, allowed, [state.successor]) else None
    )
    return copy._replace(freshness=state.freshness, successor=successor)


def _validity_marks(memory: StoredMemory, around: _Surroundings, *, is_superseded: bool) -> Iterator[Mark]:
    """Yield the marks of a memory that is no longer valid, by itself or through its tie to a source."""
    chain, now = around.chain(memory), around.now
    if memory.deleted:
        yield "deleted"
    if memory.space.holds_proposals:
        yield "proposed"
    if is_superseded:
        yield "superseded"
    if any(is_retracted(member, now) for member in chain):
        yield "retracted"
    if any(member.expires and member.expires <= now for member in chain):
        yield "expired"
    if any(member.valid_until and member.valid_until <= now for member in chain):
        yield "ended"
    if memory.valid_from and memory.valid_from > now:
        yield "not_yet"


def _file_marks(trouble: str | None, *, is_reverted: bool) -> Iterator[Mark]:
    if trouble:
        yield "missing" if trouble == file_journal.MISSING else "malformed"
    if is_reverted:
        yield "reverted"


def _reasoning_marks(memory: StoredMemory, around: _Surroundings) -> Iterator[Mark]:
    causes = {invalidating for _, invalidating in around.causes(memory)}
    if causes - {ENDED}:
        yield "suspect"
    if ENDED in causes:
        yield "successor_ended"
    if is_outdated(memory, around.grounds):
        yield "source_changed"


def live_ids(tx: Reading, allowed: SpaceScope, ids: Sequence[str]) -> frozenset[str]:
    """Return the ids of memories that are in these spaces and not deleted."""
    by_id = memories.get_many(tx, allowed, tuple(dict.fromkeys(ids)))
    return frozenset(id_ for id_, memory in by_id.items() if memory.deleted is None)


# --- the times that the index stores


class Validity(NamedTuple):
    """The times at which a memory ends, and between which it is superseded; None stands for never."""

    expires: datetime | None
    valid_until: datetime | None
    superseded_since: datetime | None
    superseded_until: datetime | None


def validities_of(tx: Reading, spaces: SpaceScope, live: Sequence[StoredMemory]) -> dict[str, Validity]:
    """Return the validity of each of these memories; `spaces` are all spaces of the book.

    Successors of any space count: the index has one time for a passage, regardless of the reader.
    """
    sources = copies.sources_of(tx, spaces, live)
    ids = sorted({*(memory.id for memory in live), *sources})
    successors = supersession.successors_of(tx, spaces, ids)
    return {memory.id: validity_of(memory, sources, successors) for memory in live}


def validity_of(memory: StoredMemory, sources: Mapping[str, StoredMemory], successors: Successors) -> Validity:
    """Return the validity of a memory, whose sources along the tie and their successors were read before."""
    chain = copies.chain_of(memory, sources)
    lasting = supersession.in_place_of_others(chain, [successors.lasting(member.id) for member in chain])
    superseding = [successor for found in lasting for successor in found]
    return Validity(
        expires=_earliest(member.expires for member in chain),
        valid_until=_earliest(member.valid_until for member in chain),
        superseded_since=_earliest(map(valid_since, superseding)),
        superseded_until=_latest([successor.expires for successor in superseding]),
    )


def valid_since(memory: StoredMemory) -> datetime:
    """Return the time from which a memory is valid: as it states, else since it occurred or was created."""
    return memory.valid_from or min(memory.created, memory.occurred or memory.created)


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min(filter(None, times), default=None)


def _latest(times: Sequence[datetime | None]) -> datetime | None:
    """Return the latest of some times, where None is later than any other."""
    return None if None in times else max(filter(None, times), default=None)
