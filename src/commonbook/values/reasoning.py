"""Reasoning: the limit of its depth, dependents of a memory, and the results of supersede, inbox and triage."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from commonbook.values.invalidation import Verdict
from commonbook.values.memory import Kind
from commonbook.values.sharing import ShareRequest
from commonbook.values.spaces import Space, SpaceScope

_DEFAULT_MAX_DEPTH: Final = 3
"""How many reflections may build on each other, where no space sets another limit."""


def depth_cap(space: Space, spaces: SpaceScope) -> int:
    """Return the limit of the depth of reflections in a space: its own, or the limit of the nearest space above it."""
    depth_by_name = {other.name: other.depth for other in spaces.values()}
    parts = space.name.split("/")
    depths = (depth_by_name.get("/".join(parts[:end])) for end in range(len(parts), 0, -1))
    return next((depth for depth in depths if depth is not None), _DEFAULT_MAX_DEPTH)


class SupersedeReport(NamedTuple):
    """The result of superseding or reinstating a memory; `notified` counts the notices that the caller may read."""

    id: str
    by: str
    new: bool
    notified: int


class Dependent(NamedTuple):
    """A memory that depends on another, and the path between them; None stands for a memory that may not be read."""

    id: str
    title: str
    space: str
    kind: Kind
    depth: int
    path: tuple[str | None, ...]
    suspect: bool
    source_changed: bool


class MemoryReference(NamedTuple):
    """A memory that a notice names; without title if the caller may not read it, or if it does not exist."""

    id: str
    title: str | None = None
    space: str | None = None
    deleted: datetime | None = None


class InboxItem(NamedTuple):
    """A notice that waits for a decision: the suspect memory (`dependent`), the cause, its reason, and the path.

    With `successor_ended` the memory is not suspect: `invalidated` superseded it, and has expired or was deleted.
    """

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
    successor_ended: bool = False


class Inbox(NamedTuple):
    """A page of notices, newest first, and the cursor of the next page, if there is one.

    The first page has the newest proposals too; `pending` lists all of them.
    """

    items: tuple[InboxItem, ...]
    next: str | None = None
    proposals: tuple[ShareRequest, ...] = ()


class TriageReport(NamedTuple):
    """The result of a decision about a suspect memory: how many causes it settled, and the present version."""

    id: str
    verdict: Verdict
    resolved: int
    version: int
    space: str
    path: str
