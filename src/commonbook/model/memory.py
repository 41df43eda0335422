"""A memory with its links and revisions, and the values to write, filter and page memories.

`revision` counts changes of title or text; `version` counts every change, and is the number for optimistic locking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from commonbook.model.ids import format_time, parse_time
from commonbook.model.invalidation import RETRACT, Decision, Invalidation, Notice, SupersedeReason
from commonbook.model.spaces import Space

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


class Unset(Enum):
    """The type of an argument that was not given, where None already means 'remove it'."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


UNKNOWN_HASH: Final = "0" * 16
"""Stands for the content hash of a text that is not known: it equals no other."""


class Link(NamedTuple):
    """A link (source, relation, target), with the content hash of the target when it was made or last confirmed.

    A link that a program of an earlier version wrote has the target's revision, as digits, until the target is known.
    """

    source: str
    relation: str
    target: str
    target_hash: str | None = None

    def hash_taken(self, target: Memory) -> str:
        """Return the content hash that the link remembers of this target; `UNKNOWN_HASH` if none is known."""
        if self.target_hash is None or not is_revision_number(self.target_hash):
            return self.target_hash or UNKNOWN_HASH
        return target.content_hash if int(self.target_hash) == target.revision else UNKNOWN_HASH


def is_revision_number(target_hash: str) -> bool:
    """Tell whether a link remembers a revision number of an earlier program, and not a hash of 16 digits."""
    return len(target_hash) < len(UNKNOWN_HASH)


LIVE: Final = "live"
LAZY: Final = "lazy"
SNAPSHOT: Final = "snapshot"
DETACHED: Final = "detached"
MODES: Final[tuple[Refresh, ...]] = get_args(Refresh)
"""How a copy follows its source: at once, when it is read, or never. A detached copy has ceased to be one."""


Scalar: TypeAlias = str | int | float | bool
"""A value of metadata."""


class Metadata(Mapping[str, Scalar]):
    """The fields of a user's own on a memory: an immutable mapping of names to scalars, in the order of the names."""

    __slots__ = ("_fields_by_name",)

    def __init__(self, fields: Mapping[str, Scalar] = MappingProxyType({})) -> None:
        """Hold a copy of these fields."""
        self._fields_by_name = dict(sorted(fields.items()))

    def __getitem__(self, name: str) -> Scalar:
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


def _typed(fields: Mapping[str, Scalar]) -> frozenset[tuple[str, type, Scalar]]:
    return frozenset((name, type(value), value) for name, value in fields.items())


NO_METADATA: Final = Metadata()

_MODE_SET: Final = "since:"
_APPROVED_BY: Final = "approved:"
SOURCE_ENDS: Final = "ends:"
"""The beginning of the word of a copy that tells when its deleted source ended."""


class CopyInfo(NamedTuple):
    """The part of a memory that is a copy: its refresh mode, the first source of all (`root`), the sharer and the time.

    `claimed` means that the copy came by import, so that this book cannot prove that it was shared. The words that it
    took over are in the link to its source, as a hash.
    """

    mode: CopyMode
    root: str
    by: str
    at: datetime
    claimed: bool = False
    mode_set: datetime | None = None
    """When the mode was last changed; None if it is the one that the copy was shared with."""
    source_ends: datetime | None = None
    """When its source ended or ends, if that was deleted: the copy still knows it without the database."""
    approved_by: str | None = None
    """The principal that approved the request to share it, if the sharer could only request it."""

    @property
    def writer(self) -> str:
        """The principal in whose name it follows: it must be allowed to write to the space of the copy."""
        return self.approved_by or self.by

    @property
    def order(self) -> tuple[datetime, bool]:
        """The place among the states of one tie: of two, the greater one is the later. A detached copy stays one."""
        return self.mode_set or self.at, self.mode == DETACHED

    def serialize(self) -> str:
        """Serialize it on one line, as rows and files store it."""
        words = (
            self.mode,
            self.root,
            self.by,
            format_time(self.at),
            *((_MODE_SET + format_time(self.mode_set),) if self.mode_set else ()),
            *((SOURCE_ENDS + format_time(self.source_ends),) if self.source_ends else ()),
            *((_APPROVED_BY + self.approved_by,) if self.approved_by else ()),
            *(("claimed",) if self.claimed else ()),
        )
        return " ".join(words)

    @classmethod
    def parse(cls, line: str) -> CopyInfo:
        """Parse the line that `serialize` returned, also of an earlier program; raise ValueError for anything else."""
        mode, root, by, at, *claimed = line.split(" ")
        if claimed and claimed[0].isdecimal():
            # A revision of the copy, by which an earlier program recognised an edit of it.
            claimed = claimed[1:]
        mode_set, source_ends = (_take_time(claimed, prefix) for prefix in (_MODE_SET, SOURCE_ENDS))
        approved_by = _take_word(claimed, _APPROVED_BY)
        if mode not in (*MODES, DETACHED) or claimed not in ([], ["claimed"]):
            raise ValueError(line)
        return cls(
            cast("CopyMode", mode),
            root,
            by,
            parse_time(at),
            claimed=bool(claimed),
            mode_set=mode_set,
            source_ends=source_ends,
            approved_by=approved_by,
        )


def _take_time(words: list[str], prefix: str) -> datetime | None:
    """Remove the first word and return the time in it, if it has this prefix."""
    word = _take_word(words, prefix)
    return parse_time(word) if word is not None else None


def _take_word(words: list[str], prefix: str) -> str | None:
    """Remove the first word and return it without its prefix, if it has this one."""
    return words.pop(0)[len(prefix) :] if words and words[0].startswith(prefix) else None


class Memory(NamedTuple):
    """A memory: the fields that its row and its Markdown file have in common, and some that are derived.

    The derived fields are `marks`, `superseded_by`, `invalidations` (why the memory is suspect), `freshness` (whether a
    copy is up to date with its source) and `successor` (the memory that superseded the source of a copy).
    """

    id: str
    space: Space
    kind: Kind
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
    content_hash: str = ""
    """A keyed hash of id, title and text: two of one memory are equal if it says the same."""
    copy_hash: str | None = None
    """Of a copy: the content hash that its source would have with the copy's title and text.

    `get` and `list` leave it out if the copy was edited.
    """
    metadata: Metadata = NO_METADATA
    message_lines: tuple[str, ...] = ()
    """Of an episode: the lines of its file that prove its messages; `get` and `list` leave them out."""

    @property
    def source(self) -> Link | None:
        """The link from a copy to its source, with the hash of the words that it took over; None if it is no copy."""
        if self.shared is None:
            return None
        # A loop, since a generator would cost more than the comparison: a lineage asks this of thousands of memories.
        for link in self.links:
            if link.relation == "shared_from":
                return link
        return None

    @property
    def settled_causes(self) -> frozenset[tuple[str, str]]:
        """The keys of the invalidations that somebody has decided about."""
        return frozenset(decision.key for decision in self.decisions if decision.settles)

    @property
    def root(self) -> str:
        """The id of the first source of a copy; the own id of a memory that is no copy, or is detached."""
        return self.id if self.shared is None or self.shared.mode == DETACHED else self.shared.root


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
    metadata: Mapping[str, Scalar] = NO_METADATA
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
    metadata: Mapping[str, Scalar] | None | Unset = UNSET


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
    metadata: Mapping[str, Scalar] = NO_METADATA


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
    may not read. `deletions` are those of the time when the memory had this text.
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


def is_retracted(memory: Memory, now: datetime) -> bool:
    """Tell whether a memory has ended because somebody retracted it."""
    ended = memory.expires is not None and memory.expires <= now
    return ended and any(decision.verdict == RETRACT for decision in memory.decisions)


def receipt_of(memory: Memory, *, new: bool) -> Receipt:
    """Return the receipt for a memory as it is now."""
    return Receipt(
        id=memory.id,
        revision=memory.revision,
        version=memory.version,
        space=memory.space.name,
        path=memory.path,
        new=new,
        proposed=memory.space.holds_proposals,
    )


_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_missing(memory: Memory) -> bool:
    """Tell whether a memory is a tombstone for one that this book does not have."""
    return not memory.space.id


def missing_memory(id_: str) -> Memory:
    """Return a tombstone for a memory that this book does not have: nobody may read it."""
    return Memory(
        id=id_,
        space=Space("", "", _LONG_AGO),
        kind="note",
        title="",
        text="",
        tags=(),
        author="",
        created=_LONG_AGO,
        updated=_LONG_AGO,
        importance=None,
        occurred=None,
        valid_from=None,
        valid_until=None,
        expires=None,
        revision=1,
        version=1,
        revised_by="",
        revised_at=_LONG_AGO,
        revised_how="",
        path="",
        layout="",
        deleted=_LONG_AGO,
    )
