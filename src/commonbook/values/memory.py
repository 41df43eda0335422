"""A memory with its links and revisions, and the values to write, filter and page memories.

`revision` counts changes of title or text; `version` counts every change, and is the number for optimistic locking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from commonbook.values.invalidation import Decision, Invalidation, Notice, SupersedeReason

Kind: TypeAlias = Literal["note", "fact", "preference", "decision", "procedure", "episode", "reflection", "notice"]
"""The kind of a memory; only the book itself writes a `notice`."""

Relation: TypeAlias = Literal["shared_from", "reflects_on", "derived_from", "supersedes", "contradicts", "related_to"]
"""A relation of links that the book knows; only sharing makes `shared_from`."""

Refresh: TypeAlias = Literal["live", "lazy", "snapshot"]
"""The time at which a copy follows its source: at once, when it is read, or never."""

CopyMode: TypeAlias = Literal["live", "lazy", "snapshot", "detached"]
"""The mode of a copy: when it follows its source, or that it has ceased to be a copy."""

Freshness: TypeAlias = Literal[
    "fresh", "stale", "source_deleted", "source_superseded", "revoked", "diverged", "detached"
]
"""The state of a copy relative to its source."""

Mark: TypeAlias = Literal[
    "deleted",
    "proposed",
    "superseded",
    "retracted",
    "expired",
    "ended",
    "not_yet",
    "missing",
    "malformed",
    "reverted",
    "suspect",
    "successor_ended",
    "source_changed",
]
"""A property of a memory that is computed when it is read."""

DEFAULT_KIND: Final[Kind] = "note"
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
RELATIONS: Final[tuple[Relation, ...]] = get_args(Relation)
MENTIONS: Final = "mentions"
"""The relation of a link that stands in a text, `[[like this]]`: nobody sets or removes it but by editing the text."""

WOULD_SUPERSEDE: Final = "would_supersede"
"""The relation of a proposed memory to those that it supersedes once it is approved."""

MAX_RELATION: Final = 40
"""The greatest length of a relation of the user's own, which means nothing to the book."""

MARKDOWN_ENDINGS: Final = (".md", ".MD", ".Md", ".mD")
"""How the name of a note may end, as in Obsidian."""

MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
MAX_FRONT_BYTES: Final = 64 * 1024
MAX_TITLE: Final = 200
MAX_TAG: Final = 64
MAX_TAGS: Final = 64
MAX_KEY: Final = 200
MAX_METADATA: Final = 32
MAX_METADATA_CHARS: Final = 500
MAX_NUMBER: Final = 2**53
"""The greatest number of metadata: above it a float is no exact integer."""


class Unset(Enum):
    """The type of an argument that was not given, where None already means 'remove it'."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


LIVE: Final = "live"
LAZY: Final = "lazy"
SNAPSHOT: Final = "snapshot"
DETACHED: Final = "detached"
MODES: Final[tuple[Refresh, ...]] = get_args(Refresh)
"""How a copy follows its source: at once, when it is read, or never. A detached copy has ceased to be one."""


Scalar: TypeAlias = str | int | float | bool
MetadataValue: TypeAlias = Scalar | Sequence[Scalar]
"""A value of metadata: a scalar, or a list of scalars."""


class Metadata(Mapping[str, MetadataValue]):
    """The fields of a user's own on a memory: an immutable mapping of names to values, in the order of the names."""

    __slots__ = ("_fields_by_name",)

    def __init__(self, fields: Mapping[str, MetadataValue] = MappingProxyType({})) -> None:
        """Hold a copy of these fields."""
        self._fields_by_name = {name: _immutable(value) for name, value in sorted(fields.items())}

    def __getitem__(self, name: str) -> MetadataValue:
        return self._fields_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields_by_name)

    def __len__(self) -> int:
        return len(self._fields_by_name)

    def __eq__(self, other: object) -> bool:
        # True equals 1 in Python, and is another value here.
        return isinstance(other, Mapping) and _typed(self) == _typed(other)

    def __hash__(self) -> int:
        return hash(_typed(self))

    def __repr__(self) -> str:
        return f"Metadata({self._fields_by_name!r})"


def _immutable(value: MetadataValue) -> MetadataValue:
    return tuple(value) if isinstance(value, list) else value


def _typed(fields: Mapping[str, MetadataValue]) -> frozenset[tuple[str, str]]:
    return frozenset((name, repr(_immutable(value))) for name, value in fields.items())


NO_METADATA: Final = Metadata()


class Link(NamedTuple):
    """A link from one memory to another."""

    source: str
    relation: str
    target: str


class CopyInfo(NamedTuple):
    """The part of a memory that is a copy: its source and mode, the first source of all (`root`), the sharer and time.

    `claimed` means that the copy came by import, so that this book cannot prove that it was shared. `approved_by`
    approved the request to share it, if the sharer could only request it. `source_ends` is the time at which a deleted
    source ended or ends.
    """

    source: str
    mode: CopyMode
    root: str
    by: str
    at: datetime
    claimed: bool = False
    approved_by: str | None = None
    source_ends: datetime | None = None


class Memory(NamedTuple):
    """A memory as its readers see it: what is stored, and what is derived when it is read.

    The derived fields are `marks`, `superseded_by`, `invalidations` (why the memory is suspect), `freshness` (whether a
    copy is up to date with its source) and `successor` (the memory that superseded the source of a copy). `revised_by`
    wrote the present title and text; of a copy that follows its source, it is the principal that shared it.
    `session_space` is the space of its session, if that is another one.
    """

    id: str
    space: str
    kind: Kind
    title: str
    text: str
    tags: tuple[str, ...]
    author: str
    revised_by: str
    created: datetime
    updated: datetime
    importance: float | None
    occurred: datetime | None
    valid_from: datetime | None
    valid_until: datetime | None
    expires: datetime | None
    revision: int
    version: int
    path: str
    deleted: datetime | None = None
    metadata: Metadata = NO_METADATA
    links: tuple[Link, ...] = ()
    marks: tuple[Mark, ...] = ()
    superseded_by: str | None = None
    session: str | None = None
    session_space: str | None = None
    shared: CopyInfo | None = None
    freshness: Freshness | None = None
    successor: str | None = None
    notice: Notice | None = None
    decisions: tuple[Decision, ...] = ()
    supersede_reasons: tuple[SupersedeReason, ...] = ()
    invalidations: tuple[Invalidation, ...] = ()


class Draft(NamedTuple):
    """A memory as a caller gives it; the book fills in the other fields."""

    text: str
    space: str | None = None
    kind: Kind = "note"
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
    metadata: Mapping[str, MetadataValue] = NO_METADATA
    mask: bool = True
    """Whether secrets in title and text are masked before they are stored."""


class Changes(NamedTuple):
    """The changes of an edit; a field that is UNSET stays as it is."""

    text: str | Unset = UNSET
    title: str | None | Unset = UNSET
    kind: Kind | Unset = UNSET
    tags: tuple[str, ...] | Unset = UNSET
    importance: float | None | Unset = UNSET
    occurred: datetime | str | None | Unset = UNSET
    valid_from: datetime | str | None | Unset = UNSET
    valid_until: datetime | str | None | Unset = UNSET
    expires: datetime | str | None | Unset = UNSET
    metadata: Mapping[str, MetadataValue] | None | Unset = UNSET


class Receipt(NamedTuple):
    """The receipt of a write: the stored memory, whether it was new, and whether it is durable and searchable."""

    id: str
    revision: int
    version: int
    space: str
    path: str
    new: bool
    durable: bool = True
    searchable: bool = True
    duplicate_of: str | None = None
    copies: int = 0
    """The number of copies that took the change over, as far as the caller may read them."""
    masked: int = 0
    """The number of secrets that were masked."""
    tags_in_text: tuple[str, ...] = ()
    """After an edit of the tags: further tags of the memory, which stand in its text as `#tag`."""
    unfollowed: str | None = None
    """After an edit of a copy that followed a memory: the id of that memory, whose changes do not come any longer."""
    proposed: bool = False
    """Whether the memory waits for approval: it is not recalled before."""


class Filter(NamedTuple):
    """The filter of a list or a delete; a memory must pass every given condition."""

    space: str | None = None
    kinds: tuple[Kind, ...] = ()
    tags: tuple[str, ...] = ()
    since: datetime | str | None = None
    until: datetime | str | None = None
    deleted: bool = False
    metadata: Mapping[str, MetadataValue] = NO_METADATA


class Page(NamedTuple):
    """A page of memories, newest first, and the cursor of the next page, if there is one."""

    items: tuple[Memory, ...]
    next: str | None


class Deletion(NamedTuple):
    """A deletion of a memory: when, by whom and by which action (`how`), and its end if the memory came back.

    It has no names and actions where the memory was in a space that the caller may not read.
    """

    at: datetime
    by: str
    how: str
    restored_at: datetime | None = None
    restored_by: str = ""
    restored_how: str = ""


class Revision(NamedTuple):
    """A title and text that a memory had or has: by whom, when, and by which action (`how`).

    A past one that is not `readable` has neither title, text nor author: the memory was then in a space that the caller
    may not read. `deletions` happened while the memory had this text.
    """

    revision: int
    title: str
    text: str
    author: str
    at: datetime
    how: str
    current: bool = False
    readable: bool = True
    deletions: tuple[Deletion, ...] = ()


class Deleted(NamedTuple):
    """The memories that a delete removed, or with `dry_run` would remove, with their titles in the same order."""

    ids: tuple[str, ...]
    dry_run: bool
    titles: tuple[str, ...] = ()
