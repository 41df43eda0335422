"""Words of sharing: what became of it, where a memory came from, and what was copied from it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Sharing(NamedTuple):
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


class CopyOf(NamedTuple):
    """A copy in a lineage, how it stands to its source, and the copies made from it."""

    id: str
    source: str
    depth: int
    title: str | None = None
    space: str | None = None
    refresh: str | None = None
    freshness: str | None = None
    readable: bool = True
    copies: tuple[CopyOf, ...] = ()


class Lineage(NamedTuple):
    """Where a memory came from, nearest first, and what was copied from it; `cut` if that went beyond the depth.

    What is known of the memory itself stands with it, as for an ancestor.
    """

    id: str
    ancestors: tuple[Ancestor, ...]
    copies: tuple[CopyOf, ...]
    cut: bool = False
    title: str = ""
    space: str = ""
    deleted: datetime | None = None
    refresh: str | None = None
    freshness: str | None = None
