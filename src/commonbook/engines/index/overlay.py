"""Overlays deltas on segments: each delta becomes a segment, and masks the rows that it replaces in older ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from commonbook.engines.index.postings import Rows
from commonbook.engines.index.search import Part
from commonbook.engines.index.segments import Bools, Hashes, build, hash_text, merge, with_zero_vectors
from commonbook.ports.index import Delta, PendingDeltas

NO_OWNERS: Final[Hashes] = np.zeros(0, np.uint64)

_MAX_SEPARATE_DELTAS: Final = 8
"""The maximum of deltas that stay separate segments; more are merged into one."""


class OverlaidIndex:
    """Segments with pending deltas on top; the segments of the last deltas are cached."""

    def __init__(self, parts: tuple[Part, ...] = ()) -> None:
        """Use these as the base."""
        self._parts: Final = parts
        self._extended: tuple[PendingDeltas, tuple[Part, ...]] = ((), parts)

    def under(self, tail: PendingDeltas) -> tuple[Part, ...]:
        """Return the base with these deltas on top; only deltas that are new since the last call are built."""
        known, overlaid = self._extended
        if len(known) > len(tail) or any(delta is not other for delta, other in zip(known, tail, strict=False)):
            known, overlaid = (), self._parts
        for delta in tail[len(known) :]:
            overlaid = add_delta(overlaid, delta)
            if len(overlaid) > len(self._parts) + _MAX_SEPARATE_DELTAS:
                overlaid = merge_from(overlaid, len(self._parts))
        self._extended = (tail, overlaid)
        return overlaid


def add_delta(parts: tuple[Part, ...], delta: Delta) -> tuple[Part, ...]:
    """Return the parts with a delta as one more, and with the rows that it replaces masked."""
    owners = delta.replaced_owners | {entry.owner for entry in delta.entries}
    owner_hashes = np.array(sorted(hash_text(owner) for owner in owners), np.uint64)
    older, killed = [], [NO_OWNERS]
    for segment, alive in parts:
        rows = segment.owned_by(owner_hashes)
        killed.append(segment.column("owner")[rows])
        older.append(Part(segment, mask_rows(alive, rows)))
    dimensions = _dimensions(parts, delta)
    newest = build(delta.entries, killed=np.unique(np.concatenate(killed)), dimensions=dimensions)
    widened_parts = (Part(with_zero_vectors(segment, dimensions), alive) for segment, alive in older)
    return (*widened_parts, Part(newest, np.ones(newest.rows, np.bool_)))


def _dimensions(parts: tuple[Part, ...], delta: Delta) -> int:
    """Return the length of vectors: as in the existing segments, else as the first new vector has it."""
    existing = max((part.segment.dimensions for part in parts), default=0)
    return existing or next((len(entry.vector) for entry in delta.entries if entry.vector is not None), 0)


def merge_from(parts: tuple[Part, ...], since: int) -> tuple[Part, ...]:
    """Return the parts with those from `since` on merged into one, which keeps their deletions in older ones."""
    killed = np.unique(np.concatenate([part.segment.killed for part in parts[since:]])) if since else NO_OWNERS
    segment = merge([(part.segment, part.alive) for part in parts[since:]], killed=killed)
    return (*parts[:since], Part(segment, np.ones(segment.rows, np.bool_)))


def mask_rows(alive: Bools, rows: Rows) -> Bools:
    """Return the mask of live rows with these rows deleted."""
    if not len(rows):
        return alive
    alive = alive.copy()
    alive[rows] = False
    return alive
