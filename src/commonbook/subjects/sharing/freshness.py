"""Freshness: the state of a copy relative to its source, computed at every read.

Because it is computed and not stored, no copy is served stale without the mark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from commonbook.core.access import permissions
from commonbook.core.tables import memories, supersession
from commonbook.ports.database import Reading
from commonbook.values.memory import DETACHED, SNAPSHOT, Freshness
from commonbook.values.spaces import READER, WRITER, Actor, SpaceScope
from commonbook.values.stored_memory import StoredCopyInfo, StoredMemory

FRESH: Final = "fresh"
STALE: Final = "stale"
SOURCE_DELETED: Final = "source_deleted"
SOURCE_SUPERSEDED: Final = "source_superseded"
REVOKED: Final = "revoked"
DIVERGED: Final = "diverged"

REFRESHED_BY_READING: Final = frozenset((STALE, SOURCE_SUPERSEDED, SOURCE_DELETED))
"""The states in which a lazy copy may be behind its source.

A superseded source may have been edited, too. If only a source further up was deleted, the nearest one may have been.
"""

_FINAL_STATES: Final = frozenset((DETACHED, REVOKED, SOURCE_DELETED, DIVERGED))
"""The states of a copy relative to its own source that come first, whatever is true of the sources further up."""

MAX_CHAIN_LENGTH: Final = 1_000
"""Maximum number of sources read along a chain; a copy with a longer chain counts as stale, since it is unknown."""


class CopyState(NamedTuple):
    """Freshness of a copy, and the successor of its source if that was superseded.

    `tie` is its state relative to its own source alone, whatever is true of the sources further up.
    """

    freshness: Freshness
    tie: Freshness
    successor: str | None = None


class _Sources(NamedTuple):
    """All sources along the chains of some copies, their successors, and the permissions of each sharer."""

    memories: Mapping[str, StoredMemory]
    superseding: Mapping[str, Collection[str]]
    readable: Mapping[str, Collection[str]]
    writable: Mapping[str, Collection[str]]


def states_of(
    tx: Reading, spaces: SpaceScope, candidates: Iterable[StoredMemory], *, readable: SpaceScope
) -> dict[str, CopyState]:
    """Return the state of each copy among these memories, for a reader of the spaces `readable`.

    `spaces` are all spaces of the book.
    """
    copies = [memory for memory in candidates if memory.source is not None]
    if not copies:
        return {}
    sources = _load_sources(tx, spaces, copies)
    return {copy.id: _state_of(copy, sources, readable) for copy in copies}


def is_stale(copy: StoredMemory, source: StoredMemory) -> bool:
    """Tell whether a copy does not say what its source says."""
    return copy.copy_hash != source.content_hash


def has_diverged(copy: StoredMemory, source: StoredMemory) -> bool:
    """Tell whether a copy was edited here: it says neither what it took over nor what its source says.

    Of an imported copy it may not be known what it took over.
    """
    link, shared = copy.source, copy.shared
    if link is None or shared is None or not is_stale(copy, source):
        return False
    return link.target_hash == source.content_hash if shared.claimed else copy.copy_hash != link.target_hash


def was_edited(copy: StoredMemory) -> bool:
    """Tell, without its source, whether a copy says something else than it took over; False if that is not known."""
    link, shared = copy.source, copy.shared
    if link is None or shared is None or shared.claimed or link.target_hash is None:
        return False
    return copy.copy_hash != link.target_hash


def is_own_text(copy: StoredMemory, source: StoredMemory, readable: SpaceScope) -> bool:
    """Tell whether a copy was edited, for a reader of these spaces.

    That an edited copy says what its source says is not for those who may not read the source: they could guess.
    """
    return has_diverged(copy, source) or (was_edited(copy) and source.space.id not in readable)


def _state_of(copy: StoredMemory, sources: _Sources, readable: SpaceScope) -> CopyState:
    """Return the state of a copy, in the order of DESIGN: a chain of copies is fresh only if each of them is.

    Below a copy that is detached or was edited, its own words count.
    """
    tie = _tie_state(copy, sources, readable)
    if tie in _FINAL_STATES:
        return CopyState(tie, tie)
    chain = _followed_chain(copy, sources, readable)
    if chain is None:
        return CopyState(STALE, tie)
    if _is_source_gone(chain[-1], sources):
        return CopyState(SOURCE_DELETED, tie)
    if successors := _nearest_successors(chain, sources):
        return CopyState(SOURCE_SUPERSEDED, tie, max(successors))
    is_stale_above = any(is_stale(*pair) for pair in pairwise(chain))
    return CopyState(STALE if tie == STALE or is_stale_above else FRESH, tie)


def _tie_state(copy: StoredMemory, sources: _Sources, readable: SpaceScope) -> Freshness:
    """Return the state of a copy relative to its own source, except that a superseded source is not looked for."""
    shared, link = copy.shared, copy.source
    if shared is None or link is None or shared.mode == DETACHED:
        return DETACHED
    source = sources.memories.get(link.target)
    if source is not None and not _sharer_may_share(copy, shared, source, sources):
        return REVOKED
    if source is None and shared.claimed:
        # The source of an imported copy may never have been in this book.
        return DETACHED
    if source is None or source.deleted is not None:
        return SOURCE_DELETED
    if is_own_text(copy, source, readable):
        return DIVERGED
    if shared.claimed and link.target_hash != source.content_hash and source.space.id not in readable:
        # Anybody could import a guess about an unreadable memory as a copy of it, and learn here whether it is right.
        return STALE
    return STALE if is_stale(copy, source) else FRESH


def _followed_chain(copy: StoredMemory, sources: _Sources, readable: SpaceScope) -> list[StoredMemory] | None:
    """Return a copy and the sources whose words it has or had, the nearest first; None if there are too many.

    A copy between them whose sharer may no longer share it is followed too: it stays behind when its source changes.
    """
    chain, seen = [copy], {copy.id}
    while (source := _followed_source(chain[-1], sources, readable)) is not None and source.id not in seen:
        if len(chain) >= MAX_CHAIN_LENGTH:
            return None
        chain.append(source)
        seen.add(source.id)
    return chain


def _is_source_gone(copy: StoredMemory, sources: _Sources) -> bool:
    """Tell whether a copy had a source that was deleted; an imported one may never have had it in this book."""
    shared, link = copy.shared, copy.source
    if shared is None or link is None or shared.mode == DETACHED:
        return False
    source = sources.memories.get(link.target)
    return not shared.claimed if source is None else source.deleted is not None


def _nearest_successors(chain: Sequence[StoredMemory], sources: _Sources) -> list[str]:
    """Return what supersedes the nearest source that is superseded; a copy that does so holds in its source's place."""
    before = {chain[0].id}
    for source in chain[1:]:
        before.add(source.id)
        if successors := [id_ for id_ in sources.superseding[source.id] if id_ not in before]:
            return successors
    return []


def needing_refresh(tx: Reading, spaces: SpaceScope, candidates: Iterable[StoredMemory]) -> list[StoredMemory]:
    """Return the copies that a refresh of the chain would change: the copy itself, or one between it and its root."""
    copies = [memory for memory in candidates if memory.source is not None]
    sources = _load_sources(tx, spaces, copies) if copies else None
    return [copy for copy in copies if sources is not None and _needs_refresh(copy, sources)]


def _needs_refresh(copy: StoredMemory, sources: _Sources) -> bool:
    seen: set[str] = set()
    while copy.id not in seen:
        seen.add(copy.id)
        source = _followed_source(copy, sources, {})
        if source is None or copy.shared is None or copy.shared.claimed:
            return False
        if not _sharer_may_share(copy, copy.shared, source, sources):
            return False
        if is_stale(copy, source):
            return True
        if source.shared is None or source.shared.mode == SNAPSHOT:
            # A snapshot is refreshed only on request.
            return False
        copy = source
    return False


def _sharer_may_share(copy: StoredMemory, shared: StoredCopyInfo, source: StoredMemory, sources: _Sources) -> bool:
    """Tell whether the sharer may still read the source, and write to the space that the copy is in now.

    The second right is that of the principal that approved the share, if one did. Both are always true of an imported
    copy, whose sharer is unknown.
    """
    may_read = source.space.id in sources.readable.get(shared.by, ())
    return shared.claimed or (may_read and copy.space.id in sources.writable.get(shared.writer, ()))


def _followed_source(copy: StoredMemory, sources: _Sources, readable: SpaceScope) -> StoredMemory | None:
    """Return the source whose words a copy has or had; None if it is detached or was edited, or the source is gone."""
    shared, link = copy.shared, copy.source
    if shared is None or link is None or shared.mode == DETACHED:
        return None
    source = sources.memories.get(link.target)
    if source is None or source.deleted is not None or is_own_text(copy, source, readable):
        return None
    return source


def _load_sources(tx: Reading, spaces: SpaceScope, copies: Sequence[StoredMemory]) -> _Sources:
    """Read the sources of some copies breadth-first, one query per level."""
    sources: dict[str, StoredMemory] = {}
    wanted = {copy.source.target for copy in copies if copy.source}
    for _ in range(MAX_CHAIN_LENGTH):
        level = memories.get_headers(tx, spaces, sorted(wanted - sources.keys()))
        if not level:
            break
        sources |= level
        wanted = {memory.source.target for memory in level.values() if memory.source}
    readable, writable = _permissions_of_sharers(tx, spaces, (*copies, *sources.values()))
    successors = supersession.successors_of(tx, spaces, sorted(sources))
    standing = {id_: [successor.id for successor in successors.standing(id_, tx.now)] for id_ in sources}
    return _Sources(sources, standing, readable, writable)


def _permissions_of_sharers(
    tx: Reading, spaces: SpaceScope, chain: Sequence[StoredMemory]
) -> tuple[dict[str, SpaceScope], dict[str, SpaceScope]]:
    """Return which spaces of these memories are readable, and which are writable, for each principal that shared."""
    relevant = permissions.with_ancestors(spaces, {memory.space for memory in chain})
    shared = [memory.shared for memory in chain if memory.shared]
    principals = {principal for copy in shared for principal in (copy.by, copy.writer)}
    snapshots = {principal: permissions.PermissionSnapshot(tx, Actor(principal)) for principal in principals}
    readable = {principal: snapshot.with_role(READER, relevant) for principal, snapshot in snapshots.items()}
    writable = {principal: snapshot.with_role(WRITER, relevant) for principal, snapshot in snapshots.items()}
    return readable, writable
