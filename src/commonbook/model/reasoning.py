"""Words of what rests on what: how deep it may, what became of superseding a memory, and what waits for a decision."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from commonbook.model.spaces import Space, SpaceScope

DEPTH: Final = 3
"""So deep reflections may stand on each other, where no space says otherwise."""


def depth_cap(space: Space, spaces: SpaceScope) -> int:
    """Return how deep reflections may go in a space: as it says, or the nearest above it that does."""
    by_name = {one.name: one.depth for one in spaces.values()}
    parts = space.name.split("/")
    found = (by_name.get("/".join(parts[:end])) for end in range(len(parts), 0, -1))
    return next((depth for depth in found if depth is not None), DEPTH)


class SupersedeReport(NamedTuple):
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


class MemoryReference(NamedTuple):
    """A memory that a notice names; without title where one may not read it, or there is none."""

    id: str
    title: str | None = None
    space: str | None = None
    deleted: datetime | None = None


class InboxItem(NamedTuple):
    """A notice that waits for a decision: what is in doubt, what was superseded by what, why, and by which path."""

    id: str
    dependent: MemoryReference
    text: str
    invalidated: MemoryReference
    invalidating: MemoryReference | None
    reason: str
    by: str
    at: datetime
    expires: datetime | None
    expired: bool
    depth: int
    path: tuple[str | None, ...]
    space: str


class Inbox(NamedTuple):
    """Some notices, newest first, and the cursor of the next page if there is one."""

    items: tuple[InboxItem, ...]
    next: str | None = None


class TriageReport(NamedTuple):
    """What was decided about a memory: how many doubts it settled, and what the memory is now."""

    id: str
    verdict: str
    settled: int
    version: int
    space: str
    path: str
