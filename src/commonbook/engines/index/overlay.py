"""Changes laid over what is there already: each a segment of its own, which hides what it replaces in older ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from commonbook.engines.index.search import Part
from commonbook.engines.index.segments import Bools, Hashes, Rows, build, hashed, merge, widened
from commonbook.ports.index import Delta, PendingDeltas

NOBODY: Final[Hashes] = np.zeros(0, np.uint64)

_FEW: Final = 8
"""So many layers are searched one by one; more are laid out as one."""


class OverlaidIndex:
    """Some parts, and the last tail over them, kept as it was laid out."""

    def __init__(self, parts: tuple[Part, ...] = ()) -> None:
        """Lay tails over these."""
        self._parts: Final = parts
        self._extended: tuple[PendingDeltas, tuple[Part, ...]] = ((), parts)

    def under(self, tail: PendingDeltas) -> tuple[Part, ...]:
        """Return the parts with a tail; only its layers that are new are laid out now."""
        before, laid = self._extended
        if len(before) > len(tail) or any(one is not other for one, other in zip(before, tail, strict=False)):
            before, laid = (), self._parts
        for layer in tail[len(before) :]:
            laid = extended(laid, layer)
            if len(laid) > len(self._parts) + _FEW:
                laid = merged(laid, len(self._parts))
        self._extended = (tail, laid)
        return laid


def extended(parts: tuple[Part, ...], layer: Delta) -> tuple[Part, ...]:
    """Return the parts with a layer as one more, and without what it replaces."""
    owners = layer.gone | {entry.owner for entry in layer.entries}
    wanted = np.array(sorted(hashed(owner) for owner in owners), np.uint64)
    older, killed = [], [NOBODY]
    for segment, alive in parts:
        rows = segment.owned_by(wanted)
        killed.append(segment.column("owner")[rows])
        older.append(Part(segment, without(alive, rows)))
    dimensions = _dimensions(parts, layer)
    newest = build(layer.entries, killed=np.unique(np.concatenate(killed)), dimensions=dimensions)
    wide = (Part(widened(segment, dimensions), alive) for segment, alive in older)
    return (*wide, Part(newest, np.ones(newest.rows, np.bool_)))


def _dimensions(parts: tuple[Part, ...], layer: Delta) -> int:
    """Return how long vectors are here: as those that are there already, else as the first that comes."""
    there = max((part.segment.dimensions for part in parts), default=0)
    return there or next((len(entry.vector) for entry in layer.entries if entry.vector is not None), 0)


def merged(parts: tuple[Part, ...], since: int) -> tuple[Part, ...]:
    """Return the parts with all from one on as one; what they kill in older ones stays killed."""
    kept = np.unique(np.concatenate([part.segment.killed for part in parts[since:]])) if since else NOBODY
    one = merge([(part.segment, part.alive) for part in parts[since:]], killed=kept)
    return (*parts[:since], Part(one, np.ones(one.rows, np.bool_)))


def without(alive: Bools, rows: Rows) -> Bools:
    """Return which rows still count when these do not."""
    if not len(rows):
        return alive
    alive = alive.copy()
    alive[rows] = False
    return alive
