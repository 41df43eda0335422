"""Computes the marks of memories when they are read: expired, superseded, suspect, malformed, freshness of a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from commonbook.reasoning import invalidations as graph
from commonbook.reasoning.invalidations import is_outdated
from commonbook.sharing import freshness
from commonbook.tables import file_journal, memories, spaces, supersession

if TYPE_CHECKING:
    from commonbook.model.memory import Link, Memory
    from commonbook.model.spaces import SpaceScope
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines


def with_marks(
    engines: Engines,
    tx: Reading,
    allowed: SpaceScope,
    unmarked: Sequence[Memory],
    now: datetime,
    *,
    superseded: Callable[[], list[Link]] | None = None,
) -> list[Memory]:
    """Return the memories with their marks, successors and open invalidations.

    `superseded` is the result of `supersession.request_links`, if the caller has requested these links already.
    """
    ids = tuple(memory.id for memory in unmarked)
    derived = [memory for memory in unmarked if graph.has_sources(memory)]
    all_spaces = spaces.get_all(tx) if derived else {}
    ancestors = graph.ancestors_of(tx, all_spaces, derived) if derived else graph.Ancestors({}, {})
    successors = supersession.newest(supersession.superseding(tx, allowed, ids, requested=superseded))
    troubles = file_journal.troubles_of(tx, ids) if engines.folder.keeps_files else {}
    copy_states = freshness.states_of(tx, all_spaces, unmarked)
    marked = []
    for memory in unmarked:
        trouble = troubles.get((memory.id, memory.path))
        marks = list(_marks(memory, now, trouble, superseded=memory.id in successors))
        invalidations = graph.open_invalidations(memory, ancestors) if memory.id in ancestors.known else ()
        invalidations = tuple(
            graph.visible_invalidation(invalidation, ancestors.known, allowed) for invalidation in invalidations
        )
        if invalidations:
            marks.append("suspect")
        if is_outdated(memory, ancestors.known):
            marks.append("source_changed")
        served = memory._replace(
            marks=tuple(marks), superseded_by=successors.get(memory.id), invalidations=invalidations
        )
        if memory.id in copy_states:
            served = _with_freshness(tx, allowed, served, copy_states[memory.id])
        marked.append(served)
    return marked


def _with_freshness(tx: Reading, allowed: SpaceScope, copy: Memory, state: freshness.CopyState) -> Memory:
    """Return a copy with its freshness; a successor of its source that may not be read is not named."""
    successor = (
        state.successor if state.successor and state.successor in live_ids(tx, allowed, [state.successor]) else None
    )
    return copy._replace(freshness=state.freshness, successor=successor)


def _marks(memory: Memory, now: datetime, trouble: str | None, *, superseded: bool) -> Iterable[str]:
    if memory.deleted:
        yield "deleted"
    if superseded:
        yield "superseded"
    if memory.expires and memory.expires < now:
        yield "expired"
    if memory.valid_until and memory.valid_until < now:
        yield "ended"
    if memory.valid_from and memory.valid_from > now:
        yield "not_yet"
    if trouble:
        yield "missing" if trouble == file_journal.MISSING else "malformed"


def live_ids(tx: Reading, allowed: SpaceScope, ids: Sequence[str]) -> frozenset[str]:
    """Return the ids of memories that are in these spaces and not deleted."""
    by_id = memories.get_many(tx, allowed, tuple(dict.fromkeys(ids)))
    return frozenset(id_ for id_, memory in by_id.items() if memory.deleted is None)
