"""Words of who is in doubt: what rests on a memory, what became of superseding it, and what waits for a decision."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Superseded(NamedTuple):
    """What became of superseding or reinstating a memory: `notified` counts the notices that one may read."""

    id: str
    by: str
    new: bool
    notified: int


class Dependent(NamedTuple):
    """A memory that rests on another, and how: what may not be read on the path to it is not named."""

    id: str
    title: str
    space: str
    kind: str
    depth: int
    path: tuple[str | None, ...]
    suspect: bool
    source_changed: bool


class Mention(NamedTuple):
    """A memory that a notice names; without title where one may not read it, or there is none."""

    id: str
    title: str | None = None
    space: str | None = None
    deleted: datetime | None = None


class Waiting(NamedTuple):
    """A notice that waits for a decision: what is in doubt, what was superseded by what, why, and by which path."""

    id: str
    dependent: Mention
    text: str
    invalidated: Mention
    invalidating: Mention | None
    reason: str
    by: str
    at: datetime
    expires: datetime | None
    expired: bool
    depth: int
    path: tuple[str, ...]
    space: str


class Inbox(NamedTuple):
    """Some notices, newest first, and the cursor of the next page if there is one."""

    items: tuple[Waiting, ...]
    next: str | None = None


class Triaged(NamedTuple):
    """What was decided about a memory: how many doubts it settled, and what the memory is now."""

    id: str
    verdict: str
    settled: int
    version: int
    space: str
    path: str
