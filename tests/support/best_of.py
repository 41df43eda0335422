"""Promises about seconds, proven on machines that are busy with something else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_TRIES: Final = 10


def seconds(action: Callable[[], object]) -> float:
    """Return how long something takes."""
    begun = time.monotonic()
    action()
    return time.monotonic() - begun


def takes_less_than(limit: float, attempt: Callable[[], float]) -> None:
    """Require that one of some attempts takes fewer seconds; each returns how long it took.

    Any one of them may be held up by other processes. What is always too slow is so every time.
    """
    took: list[float] = []
    while len(took) < _TRIES:
        took.append(attempt())
        if took[-1] < limit:
            return
    raise AssertionError(f"each time it took more than {limit} s: {took}")
