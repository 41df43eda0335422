"""Words of doubt: why a memory is suspect, the notice that says so, and what somebody decided about it."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

REASONING: Final = ("reflects_on", "derived_from")
"""The relations by which one memory rests on another."""

DELETED: Final = "deleted"
"""Stands for what invalidated a memory that nothing follows: it was deleted."""

KEEP: Final = "keep"
RETRACT: Final = "retract"
SUPERSEDE: Final = "supersede"
DISMISS: Final = "dismiss"
VERDICTS: Final = (KEEP, RETRACT, SUPERSEDE, DISMISS)


class Invalidation(NamedTuple):
    """Why a memory is in doubt: what it rests on was superseded by something, or deleted.

    `path` leads from what was invalidated to the memory, both included, without the names of what may not be read;
    `depth` counts the steps of reasoning on it.
    """

    invalidated: str
    invalidating: str
    depth: int = 0
    path: tuple[str | None, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What tells one cause from another."""
        return self.invalidated, self.invalidating


class Notice(NamedTuple):
    """What makes a memory a notice: which memory is in doubt, why, and since when."""

    dependent: str
    invalidated: str
    invalidating: str
    at: datetime

    @property
    def key(self) -> tuple[str, str]:
        """The cause that it tells of."""
        return self.invalidated, self.invalidating


class Decision(NamedTuple):
    """What somebody decided about a memory that was in doubt: for one cause, and for good."""

    verdict: str
    invalidated: str
    invalidating: str
    by: str
    at: datetime
    note: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The cause that it settles."""
        return self.invalidated, self.invalidating


class SupersedeReason(NamedTuple):
    """Why a memory supersedes another."""

    superseded: str
    why: str
