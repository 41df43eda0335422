"""Penalties: what is taken off the score of a memory that is suspect, or that is an outdated copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from commonbook.memories import marks
    from commonbook.model.memory import Memory

_OUTDATED: Final = frozenset({"stale", "source_superseded"})
"""The freshness of a copy that differs from its source, or whose source was superseded."""

_OUTDATED_COPY_PENALTY: Final = -0.08
"""Added to the score of a copy whose source has changed or was superseded."""

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
