"""Sharing: rules, requests, rate limits, receipts, and the lineage of copies."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from commonbook.values.memory import CopyMode, Freshness, Kind, Refresh
from commonbook.values.spaces import Space

RequestState: TypeAlias = Literal["waiting", "approved", "rejected", "withdrawn"]
"""The state of a request."""

RequestPurpose: TypeAlias = Literal["share", "proposal"]
"""A request asks to share a memory into a space, or to accept a proposed memory."""

LimitedAction: TypeAlias = Literal["write", "share", "request", "recall"]
"""A class of verbs that a rate limit counts."""


class SharingRule(NamedTuple):
    """A rule that shares new memories of one space (`source`) into another (`space`).

    It selects by kinds, by tags (all must be present) and by a minimum of importance. It acts with the permissions of
    its creator. `idle` is the reason why it does nothing at present, if there is one.
    """

    id: str
    space: Space
    source: Space
    created_by: str
    kinds: tuple[Kind, ...]
    tags: tuple[str, ...]
    importance: float | None
    approval: bool
    refresh: Refresh
    created: datetime
    idle: str = ""


WAITING: Final = "waiting"
APPROVED: Final = "approved"
REJECTED: Final = "rejected"
WITHDRAWN: Final = "withdrawn"


class ShareRequest(NamedTuple):
    """A request to share a memory into a space, which an admin of that space approves or rejects.

    `on_behalf_of` is the principal in whose name it is shared: the creator of the rule, or the one who requested it.
    Title and text are missing if that principal can no longer read the memory, or if it is deleted.

    A request whose purpose is `proposal` is a proposed memory, which has the id of the request. A writer of the space
    approves or rejects it. `version` is the version of a waiting memory.
    """

    id: str
    space: str
    space_id: str
    memory: str
    rule: str | None
    refresh: Refresh
    on_behalf_of: str
    requested_by: str
    requested_at: datetime
    state: RequestState = WAITING
    decided_by: str | None = None
    decided_at: datetime | None = None
    note: str = ""
    copy: str | None = None
    title: str | None = None
    text: str | None = None
    purpose: RequestPurpose = "share"
    version: int | None = None


EVERYBODY: Final = "*"
"""Stands for all principals without a limit of their own."""


class RateLimit(NamedTuple):
    """The number of times in a minute that a principal may use a class of verbs (`action`); None is no limit."""

    principal: str
    action: LimitedAction
    per_minute: int | None
    set_by: str = ""
    set_at: datetime | None = None


class ShareReceipt(NamedTuple):
    """The receipt of sharing a memory: the copy, new or existing; in a batch, the error if this one failed.

    `retied` says that an existing copy had lost its source or the right of its sharer, and now follows in the name of
    the one who shared. `freshness` is the state of an existing copy after that.
    """

    id: str
    source: str
    space: str
    new: bool
    refresh: CopyMode | None = None
    revision: int = 0
    error: str = ""
    retied: bool = False
    freshness: Freshness | None = None


class Ancestor(NamedTuple):
    """A memory that another was copied from; without title and space if the caller may not read it.

    If it is a copy itself, `refresh` and `freshness` describe its relation to its own source.
    """

    id: str
    title: str | None = None
    space: str | None = None
    deleted: datetime | None = None
    readable: bool = True
    claimed: bool = False
    refresh: CopyMode | None = None
    freshness: Freshness | None = None


class CopyNode(NamedTuple):
    """A copy in the tree of a lineage: its relation to its source, and the copies made from it."""

    id: str
    source: str
    depth: int
    title: str | None = None
    space: str | None = None
    refresh: CopyMode | None = None
    freshness: Freshness | None = None
    readable: bool = True
    copies: tuple[CopyNode, ...] = ()


class Lineage(NamedTuple):
    """The ancestors of a memory, nearest first, and the tree of its copies; `truncated` if there are more.

    The other fields describe the memory itself, as in an `Ancestor`.
    """

    id: str
    ancestors: tuple[Ancestor, ...]
    copies: tuple[CopyNode, ...]
    truncated: bool = False
    title: str = ""
    space: str = ""
    deleted: datetime | None = None
    refresh: CopyMode | None = None
    freshness: Freshness | None = None
