"""Copies and their lineage, sharing rules, and share requests."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from commonbook.model.spaces import Space


class SharingRule(NamedTuple):
    """What a space takes in of what another one writes: kinds, tags that all must be there, how important at least.

    It acts in the name of its maker; `idle` says why it does nothing now, if so.
    """

    id: str
    space: Space
    source: Space
    maker: str
    kinds: tuple[str, ...]
    tags: tuple[str, ...]
    importance: float | None
    approval: bool
    refresh: str
    created: datetime
    idle: str = ""


WAITING: Final = "waiting"
APPROVED: Final = "approved"
REJECTED: Final = "rejected"
WITHDRAWN: Final = "withdrawn"


class ShareRequest(NamedTuple):
    """A memory that is to be shared into a space once somebody there agrees: who asked, and what was decided.

    It would be shared in the name of `name`: the maker of the rule, or whoever asked. Where that one can no longer read
    it, or it is deleted, there is no title and no text.
    """

    id: str
    space: str
    space_id: str
    memory: str
    rule: str | None
    refresh: str
    name: str
    asked_by: str
    asked_at: datetime
    state: str = WAITING
    decided_by: str | None = None
    decided_at: datetime | None = None
    note: str = ""
    copy: str | None = None
    title: str | None = None
    text: str | None = None


EVERYBODY: Final = "*"


class RateLimit(NamedTuple):
    """How often in a minute a principal may do something; `*` is everybody who has no limit of its own."""

    principal: str
    action: str
    per_minute: int
    set_by: str = ""
    set_at: datetime | None = None


class ShareReceipt(NamedTuple):
    """What became of sharing a memory: the copy, or what was there before; of one of many, why it failed."""

    id: str
    source: str
    space: str
    new: bool
    refresh: str | None = None
    revision: int = 0
    error: str = ""


class Ancestor(NamedTuple):
    """One step back in a lineage; what one may not read is shown without title and space.

    One that is a copy itself says how it stands to its own source.
    """

    id: str
    title: str | None = None
    space: str | None = None
    deleted: datetime | None = None
    readable: bool = True
    claimed: bool = False
    refresh: str | None = None
    freshness: str | None = None


class CopyNode(NamedTuple):
    """A copy in a lineage, how it stands to its source, and the copies made from it."""

    id: str
    source: str
    depth: int
    title: str | None = None
    space: str | None = None
    refresh: str | None = None
    freshness: str | None = None
    readable: bool = True
    copies: tuple[CopyNode, ...] = ()


class Lineage(NamedTuple):
    """Where a memory came from, nearest first, and what was copied from it; `cut` if that went beyond the depth.

    What is known of the memory itself stands with it, as for an ancestor.
    """

    id: str
    ancestors: tuple[Ancestor, ...]
    copies: tuple[CopyNode, ...]
    cut: bool = False
    title: str = ""
    space: str = ""
    deleted: datetime | None = None
    refresh: str | None = None
    freshness: str | None = None
