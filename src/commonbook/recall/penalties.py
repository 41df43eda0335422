"""Penalties: what is taken off the score of a memory that is suspect, or that is an outdated copy.

A memory that others link to gets a little more instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from commonbook.tables import links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commonbook.memories import marks
    from commonbook.model.memory import Memory
    from commonbook.model.spaces import SpaceScope
    from commonbook.ports.database import Reading

_OUTDATED: Final = frozenset({"stale", "source_superseded"})
"""The freshness of a copy that differs from its source, or whose source was superseded."""

_OUTDATED_COPY_PENALTY: Final = -0.08
"""Added to the score of a copy whose source has changed or was superseded."""

_LINK_BONUS: Final = 0.01
_MAX_LINKS: Final = 3

_LINKING: Final = ("related_to", "derived_from", "reflects_on")
"""The relations whose links say that a memory is worth something; those in texts do too."""

SUSPECT_PENALTY: Final = -0.12
"""Added to the score of a memory that depends on something invalidated, until somebody decides about it."""


def bounds(scores: npt.NDArray[np.float64], suspect: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return the highest score that each row can have, if these are its scores without penalties.

    `suspect` are rows that are suspect for certain. Without any, the scores themselves are returned.
    """
    if not suspect.any():
        return scores
    penalised: npt.NDArray[np.float64] = np.round(scores + np.where(suspect, SUSPECT_PENALTY, 0.0), 6)
    return penalised


def penalties_of(memory: Memory, doubts: marks.Doubts) -> dict[str, float]:
    """Return the penalties of a memory that is suspect, or that is an outdated copy."""
    penalties = {"suspect": SUSPECT_PENALTY} if doubts.is_suspect(memory) else {}
    is_outdated = doubts.freshness_of(memory) in _OUTDATED
    return {**penalties, "freshness": _OUTDATED_COPY_PENALTY} if is_outdated else penalties


def link_bonuses(tx: Reading, spaces: SpaceScope, targets: Sequence[Memory]) -> dict[str, float]:
    """Return what is added to the scores of those of these memories that others of these spaces link to."""
    counts = links.count_linking(tx, spaces, targets, relations=_LINKING)
    return {id_: _LINK_BONUS * min(count, _MAX_LINKS) for id_, count in counts.items()}
