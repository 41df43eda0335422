"""Invalidation: the cause that makes a memory suspect, the notice about it, and the decision that settles it.

A memory is suspect if a memory that it depends on, directly or not, was superseded or deleted. A superseded memory
whose successor has ended waits for a decision in the same way. The pair (invalidated, invalidating) identifies the
cause; notices and decisions refer to it by the same pair (`key`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

REASONING: Final = ("reflects_on", "derived_from")
"""The relations by which one memory depends on another."""

DELETED: Final = "deleted"
"""Stands in place of the id of an invalidating memory if the invalidated one was deleted."""

ENDED: Final = "ended"
"""Stands in its place if the invalidated memory superseded the one in question, and has expired or was deleted."""

CAUSES_WITHOUT_ID: Final = frozenset({DELETED, ENDED})

Verdict: TypeAlias = Literal["keep", "retract", "supersede", "dismiss"]
"""A decision about a suspect memory."""

KEEP: Final = "keep"
RETRACT: Final = "retract"
SUPERSEDE: Final = "supersede"
DISMISS: Final = "dismiss"
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
"""The possible decisions about a suspect memory."""

REINSTATE: Final = "reinstate"
"""The verdict of a line that takes a retraction back: it settles nothing."""


class Invalidation(NamedTuple):
    """The cause of a suspicion: a memory that this one depends on was superseded by another, or deleted.

    If `invalidating` is the word `ended`, the cause is that a successor of this memory has ended.

    `path` leads from the invalidated memory to the suspect one, both included; None stands for a memory that the caller
    may not read. `depth` counts the steps of reasoning on the path.
    """

    invalidated: str
    invalidating: str
    depth: int = 0
    path: tuple[str | None, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """The pair that identifies the cause."""
        return self.invalidated, self.invalidating


class Notice(NamedTuple):
    """The part of a memory of kind `notice`: the suspect memory (`dependent`), the cause, and the time."""

    dependent: str
    invalidated: str
    invalidating: str
    at: datetime

    @property
    def key(self) -> tuple[str, str]:
        """The pair that identifies the cause."""
        return self.invalidated, self.invalidating


class Decision(NamedTuple):
    """A final decision about a suspect memory, for one cause."""

    verdict: Verdict | Literal["reinstate"]
    invalidated: str
    invalidating: str
    by: str
    at: datetime
    note: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The pair that identifies the cause that it settles."""
        return self.invalidated, self.invalidating

    @property
    def settles(self) -> bool:
        """Whether the cause is settled; a retraction that was taken back leaves it open."""
        return self.verdict != REINSTATE


class SupersedeReason(NamedTuple):
    """The reason why a memory supersedes another."""

    superseded: str
    why: str
