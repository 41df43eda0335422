"""Exponential back-off with jitter, for everything that is tried again."""

from __future__ import annotations

import random
from typing import Final

_MAX_DOUBLINGS: Final = 20
_RANDOM: Final = random.SystemRandom()
"""A forked child does not repeat its numbers."""


def pause_seconds(failures: int, *, first: float, most: float, share: float | None = None) -> float:
    """Return the pause after some failures in a row: it begins at `first` and doubles up to `most`.

    Half of it is random, so that two that collided do not come back at the same moment. `share`, from 0 to 1, fixes the
    random part.
    """
    share = _RANDOM.random() if share is None else share
    return min(most, first * 2.0 ** min(failures, _MAX_DOUBLINGS)) * (1 + share) / 2
