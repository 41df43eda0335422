"""A memory, its links and revisions, and the values that write, filter and page memories."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from commonbook.model.ids import format_time, parse_time
from commonbook.model.invalidation import Decision, Invalidation, Notice, SupersedeReason
from commonbook.model.spaces import Space

KINDS: Final = ("note", "fact", "preference", "decision", "procedure", "episode", "reflection", "notice")
RELATIONS: Final = ("shared_from", "reflects_on", "derived_from", "supersedes", "contradicts", "related_to")

MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
MAX_FRONT_BYTES: Final = 64 * 1024
MAX_TITLE: Final = 200
MAX_TAG: Final = 64
MAX_TAGS: Final = 64
MAX_KEY: Final = 200


class Unset(Enum):
    """The mark of an argument that was not given, where None already means 'take it away'."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


class Link(NamedTuple):
    """(source, relation, target), with the target's revision when the link was made."""

    source: str
    relation: str
    target: str
    revision: int | None = None


LIVE: Final = "live"
LAZY: Final = "lazy"
SNAPSHOT: Final = "snapshot"
DETACHED: Final = "detached"
MODES: Final = (LIVE, LAZY, SNAPSHOT)
"""How a copy follows its source."""


class CopyInfo(NamedTuple):
    """What makes a memory a copy: how it follows its source, the first source of all, who shared it and when.

    `own` is its own revision that says what the source said; after an edit here it has a higher one. `claimed`: it came
    by import, and nobody here saw it being shared.
    """

    mode: str
    root: str
    by: str
    at: datetime
    own: int
    claimed: bool = False

    def written(self) -> str:
        """Write it on one line, as rows and files have it."""
        words = (
            self.mode,
            self.root,
            self.by,
            format_time(self.at),
            str(self.own),
            *(("claimed",) if self.claimed else ()),
        )
        return " ".join(words)

    @classmethod
    def read(cls, line: str) -> CopyInfo:
        """Read what `written` gave; raises ValueError for anything else."""
        mode, root, by, at, own, *claimed = line.split(" ")
        if mode not in (*MODES, DETACHED) or claimed not in ([], ["claimed"]):
            raise ValueError(line)
        return cls(mode, root, by, parse_time(at), int(own), claimed=bool(claimed))


class Memory(NamedTuple):
    """One memory, as the database and its Markdown file both say it.

    `freshness` says how a copy stands to its source, `successor` what that was superseded by, `doubts` why the memory
    is suspect; all of them are found out.
    """

    id: str
    space: Space
    kind: str
    title: str
    text: str
    tags: tuple[str, ...]
    author: str
    created: datetime
    updated: datetime
    importance: float | None
    occurred: datetime | None
    valid_from: datetime | None
    valid_until: datetime | None
    expires: datetime | None
    revision: int
    version: int
    revised_by: str
    revised_at: datetime
    revised_how: str
    path: str
    layout: str
    deleted: datetime | None = None
    links: tuple[Link, ...] = ()
    marks: tuple[str, ...] = ()
    superseded_by: str | None = None
    session: str | None = None
    shared: CopyInfo | None = None
    freshness: str | None = None
    successor: str | None = None
    notice: Notice | None = None
    decisions: tuple[Decision, ...] = ()
    supersede_reasons: tuple[SupersedeReason, ...] = ()
    invalidations: tuple[Invalidation, ...] = ()

    @property
    def source(self) -> Link | None:
        """Where a copy was shared from, with the revision that it has; None for what is no copy."""
        if self.shared is None:
            return None
        # Without a generator, which would cost more than the look itself: a lineage asks this of thousands.
        for link in self.links:
            if link.relation == "shared_from":
                return link
        return None

    @property
    def root(self) -> str:
        """The first source of a copy; of what is no copy, or no longer tied, itself."""
        return self.id if self.shared is None or self.shared.mode == DETACHED else self.shared.root


class Draft(NamedTuple):
    """What somebody asks to be remembered; the rest of a memory is ours to fill in."""

    text: str
    space: str | None = None
    kind: str = "note"
    title: str | None = None
    tags: tuple[str, ...] = ()
    importance: float | None = None
    occurred: datetime | str | None = None
    valid_from: datetime | str | None = None
    valid_until: datetime | str | None = None
    expires: datetime | str | None = None
    links: tuple[tuple[str, str], ...] = ()
    replaces: str | None = None
    key: str | None = None


class Changes(NamedTuple):
    """What an edit changes; a field that is UNSET stays as it is."""

    text: str | Unset = UNSET
    title: str | None | Unset = UNSET
    kind: str | Unset = UNSET
    tags: tuple[str, ...] | Unset = UNSET
    importance: float | None | Unset = UNSET
    occurred: datetime | str | None | Unset = UNSET
    valid_from: datetime | str | None | Unset = UNSET
    valid_until: datetime | str | None | Unset = UNSET
    expires: datetime | str | None | Unset = UNSET


class Receipt(NamedTuple):
    """What a write returns: what was stored where, whether it was new, and how far it is."""

    id: str
    revision: int
    version: int
    space: str
    path: str
    new: bool
    durable: bool = True
    searchable: bool = True
    duplicate_of: str | None = None
    near: tuple[str, ...] = ()
    copies: int = 0
    """How many copies took the change over, of those that the one who made it may read."""


class Filter(NamedTuple):
    """Which memories a list or a delete means; everything given must hold."""

    space: str | None = None
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: datetime | str | None = None
    until: datetime | str | None = None
    deleted: bool = False


class Page(NamedTuple):
    """Some memories, newest first, and the cursor of the next page if there is one."""

    items: tuple[Memory, ...]
    next: str | None


class Revision(NamedTuple):
    """One title and text that a memory had: by whom, when, and how it came about."""

    revision: int
    title: str
    text: str
    author: str
    at: datetime
    how: str
    current: bool = False


class Deleted(NamedTuple):
    """Which memories a delete removed, or would remove."""

    ids: tuple[str, ...]
    dry_run: bool


def receipt_of(memory: Memory, *, new: bool) -> Receipt:
    """Return the receipt for a memory as it is now."""
    return Receipt(
        id=memory.id,
        revision=memory.revision,
        version=memory.version,
        space=memory.space.name,
        path=memory.path,
        new=new,
    )
