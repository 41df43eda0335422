"""How copies stand to their sources: found out whenever they are served, so that none is served stale unmarked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from commonbook.access import permissions
from commonbook.model.memory import DETACHED, SNAPSHOT, CopyInfo, Memory
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import memories, supersession

FRESH: Final = "fresh"
STALE: Final = "stale"
SOURCE_DELETED: Final = "source_deleted"
SOURCE_SUPERSEDED: Final = "source_superseded"
REVOKED: Final = "revoked"
DIVERGED: Final = "diverged"

FURTHEST: Final = 1_000
"""So many sources back are looked at; what has more counts as behind, since nobody can tell that it is not."""


class CopyState(NamedTuple):
    """How a copy stands to its source, and what that was superseded by, if it was."""

    freshness: str
    successor: str | None = None


class _Known(NamedTuple):
    """What is known of the sources: the memories themselves, who superseded them, and who may read which spaces."""

    memories: Mapping[str, Memory]
    superseded: Mapping[str, str]
    readable: Mapping[str, Collection[str]]


def states_of(tx: Reading, spaces: SpaceScope, found: Iterable[Memory]) -> dict[str, CopyState]:
    """Return how each of the copies among these memories stands; `spaces` are all that there are."""
    copies = [memory for memory in found if memory.source is not None]
    if not copies:
        return {}
    known = _known(tx, spaces, copies)
    return {copy.id: _standing(copy, known) for copy in copies}


def is_stale(copy: Memory, source: Memory) -> bool:
    """Tell whether the source says something else now than when the copy took it over."""
    link = copy.source
    return link is not None and (link.revision or 0) < source.revision


def has_diverged(copy: Memory) -> bool:
    """Tell whether a copy was edited here since it last took its source's text over."""
    return copy.shared is not None and copy.revision != copy.shared.own


def _standing(copy: Memory, known: _Known) -> CopyState:
    shared, link = copy.shared, copy.source
    if shared is None or link is None or shared.mode == DETACHED:
        return CopyState(DETACHED)
    source = known.memories.get(link.target)
    if source is not None and not _may_read(shared, source, known):
        return CopyState(REVOKED)
    if source is None or source.deleted is not None:
        # What came by import has a source that was never here.
        return CopyState(DETACHED if shared.claimed and source is None else SOURCE_DELETED)
    if has_diverged(copy):
        return CopyState(DIVERGED)
    if source.id in known.superseded:
        return CopyState(SOURCE_SUPERSEDED, known.superseded[source.id])
    return CopyState(STALE if _is_behind(copy, known) else FRESH)


def can_follow(tx: Reading, spaces: SpaceScope, found: Iterable[Memory]) -> list[Memory]:
    """Return those of the copies that a refresh would change, or one that they came through and that follows too."""
    copies = [memory for memory in found if memory.source is not None]
    known = _known(tx, spaces, copies) if copies else None
    return [copy for copy in copies if known is not None and _has_to_follow(copy, known)]


def _has_to_follow(copy: Memory, known: _Known) -> bool:
    seen: set[str] = set()
    while copy.id not in seen:
        seen.add(copy.id)
        source = _followed(copy, known)
        if source is None or copy.shared is None or copy.shared.claimed:
            return False
        if is_stale(copy, source):
            return True
        if source.shared is None or source.shared.mode == SNAPSHOT:
            # Nobody but a person lets that follow.
            return False
        copy = source
    return False


def _may_read(shared: CopyInfo, source: Memory, known: _Known) -> bool:
    """Tell whether whoever shared may still read the source; who that was, nobody knows of a copy that was imported."""
    return shared.claimed or source.space.id in known.readable.get(shared.by, ())


def _is_behind(copy: Memory, known: _Known) -> bool:
    """Tell whether a copy, or one that it came through, has not taken over what its own source says."""
    seen: set[str] = set()
    for _ in range(FURTHEST):
        source = _followed(copy, known)
        if source is None or copy.id in seen:
            return False
        if is_stale(copy, source):
            return True
        seen.add(copy.id)
        copy = source
    return True


def _followed(copy: Memory, known: _Known) -> Memory | None:
    """Return the source that a copy should say the same as; None if it goes its own way, or there is none."""
    shared, link = copy.shared, copy.source
    if shared is None or link is None or shared.mode == DETACHED or has_diverged(copy):
        return None
    source = known.memories.get(link.target)
    if source is None or source.deleted is not None or not _may_read(shared, source, known):
        return None
    return source


def _known(tx: Reading, spaces: SpaceScope, copies: Sequence[Memory]) -> _Known:
    sources: dict[str, Memory] = {}
    wanted = {copy.source.target for copy in copies if copy.source}
    for _ in range(FURTHEST):
        level = memories.get_headers(tx, spaces, sorted(wanted - sources.keys()))
        if not level:
            break
        sources |= level
        wanted = {memory.source.target for memory in level.values() if memory.source}
    everybody = {one.shared.by for one in (*copies, *sources.values()) if one.shared}
    places = permissions.with_ancestors(spaces, {one.space for one in sources.values()})
    readable = {by: frozenset(permissions.readable(tx, Actor(by), places)) for by in everybody}
    successors = supersession.newest(supersession.superseding(tx, spaces, sorted(sources)))
    return _Known(sources, successors, readable)
