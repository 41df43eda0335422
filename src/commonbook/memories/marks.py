"""Marks of a memory as it is served: expired, superseded, suspect, malformed, and the freshness of a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from commonbook.model.memory import Link, Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.reasoning import graph
from commonbook.reasoning.graph import is_outdated
from commonbook.sharing import freshness
from commonbook.tables import files, memories, spaces, supersession


def with_marks(
    engines: Engines,
    tx: Reading,
    allowed: SpaceScope,
    found: Sequence[Memory],
    now: datetime,
    *,
    superseded: Callable[[], list[Link]] | None = None,
) -> list[Memory]:
    """Return the memories with what supersedes them and what is to be said of them.

    `superseded` is what `supersession.request_links` returned, where somebody has asked for those already.
    """
    ids = tuple(memory.id for memory in found)
    resting = [memory for memory in found if graph.has_sources(memory)]
    every = spaces.get_all(tx) if resting else {}
    above = graph.ancestors_of(tx, every, resting) if resting else graph.Ancestors({}, {})
    successors = supersession.newest(supersession.superseding(tx, allowed, ids, requested=superseded))
    troubles = files.troubles_of(tx, ids) if engines.folder.keeps_files else {}
    stands = freshness.states_of(tx, every, found)
    shown = []
    for memory in found:
        trouble = troubles.get((memory.id, memory.path))
        marks = list(_marks(memory, now, trouble, superseded=memory.id in successors))
        doubts = graph.open_invalidations(memory, above) if memory.id in above.known else ()
        doubts = tuple(graph.visible_invalidation(cause, above.known, allowed) for cause in doubts)
        if doubts:
            marks.append("suspect")
        if is_outdated(memory, above.known):
            marks.append("source_changed")
        said = memory._replace(marks=tuple(marks), superseded_by=successors.get(memory.id), invalidations=doubts)
        shown.append(_standing(tx, allowed, said, stands[memory.id]) if memory.id in stands else said)
    return shown


def _standing(tx: Reading, allowed: SpaceScope, copy: Memory, stands: freshness.CopyState) -> Memory:
    """Return a copy with how it stands to its source; a successor that may not be read is not named."""
    successor = (
        stands.successor if stands.successor and stands.successor in live_ids(tx, allowed, [stands.successor]) else None
    )
    return copy._replace(freshness=stands.freshness, successor=successor)


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
        yield "missing" if trouble == files.MISSING else "malformed"


def live_ids(tx: Reading, allowed: SpaceScope, ids: Sequence[str]) -> frozenset[str]:
    """Return those of the ids whose memories are in these spaces and not deleted."""
    found = memories.get_many(tx, allowed, tuple(dict.fromkeys(ids)))
    return frozenset(id_ for id_, memory in found.items() if memory.deleted is None)
