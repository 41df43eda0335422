"""A memory as its row and its Markdown file have it, with everything that only the core needs.

`StoredMemory.public` is the one place where it becomes the `Memory` of an interface: hashes, layouts and proofs stay
behind, so a new column of a table changes no interface.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple, cast

from commonbook.values.ids import format_time, parse_time
from commonbook.values.invalidation import REASONING, RETRACT, Decision, Invalidation, Notice, SupersedeReason
from commonbook.values.memory import (
    DETACHED,
    MODES,
    NO_METADATA,
    CopyInfo,
    CopyMode,
    Freshness,
    Kind,
    Link,
    Mark,
    Memory,
    Metadata,
    Receipt,
)
from commonbook.values.spaces import Space

UNKNOWN_HASH: Final = "0" * 16
"""Stands for the content hash of a text that is not known: it equals no other."""


class StoredLink(NamedTuple):
    """A link (source, relation, target), with the content hash of the target when it was made or last confirmed."""

    source: str
    relation: str
    target: str
    target_hash: str | None = None

    def public(self) -> Link:
        """Return the link as an interface hands it out."""
        return Link(self.source, self.relation, self.target)


_MODE_SET: Final = "since:"
_APPROVED_BY: Final = "approved:"
SOURCE_ENDS: Final = "ends:"
"""The beginning of the word of a copy that tells when its deleted source ended."""


class StoredCopyInfo(NamedTuple):
    """The part of a memory that is a copy: its refresh mode, the first source of all (`root`), the sharer and the time.

    `claimed` means that the copy came as a file alone, so that nobody here has shared it. The words that it
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
    def parse(cls, line: str) -> StoredCopyInfo:
        """Parse the line that `serialize` returned; raise ValueError for anything else."""
        mode, root, by, at, *claimed = line.split(" ")
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


class StoredMemory(NamedTuple):
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
    revision: int
    version: int
    revised_by: str
    revised_at: datetime
    revised_how: str
    path: str
    layout: str
    importance: float | None = None
    occurred: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    expires: datetime | None = None
    deleted: datetime | None = None
    links: tuple[StoredLink, ...] = ()
    marks: tuple[Mark, ...] = ()
    superseded_by: str | None = None
    session: str | None = None
    session_space: str | None = None
    shared: StoredCopyInfo | None = None
    freshness: Freshness | None = None
    successor: str | None = None
    notice: Notice | None = None
    decisions: tuple[Decision, ...] = ()
    supersede_reasons: tuple[SupersedeReason, ...] = ()
    invalidations: tuple[Invalidation, ...] = ()
    content_hash: str = ""
    """A keyed hash of id, title and text: two of one memory are equal if it says the same."""
    copy_hash: str | None = None
    """Of a copy: the content hash that its source would have with the copy's title and text."""
    metadata: Metadata = NO_METADATA
    message_lines: tuple[str, ...] = ()
    """Of an episode: the lines of its file that prove its messages."""

    @property
    def source(self) -> StoredLink | None:
        """The link from a copy to its source, with the hash of the words that it took over; None if it is no copy."""
        if self.shared is None:
            return None
        # A loop, since a generator would cost more than the comparison: a lineage asks this of thousands of memories.
        for link in self.links:
            if link.relation == "shared_from":
                return link
        return None

    @property
    def grounds(self) -> tuple[str, ...]:
        """The ids of the memories that it depends on by its own links."""
        return tuple(link.target for link in self.links if link.relation in REASONING and link.target != self.id)

    @property
    def copy_info(self) -> CopyInfo | None:
        """The public part of the tie of a copy to its source; None if it is no copy."""
        tie, source = self.shared, self.source
        if tie is None or source is None:
            return None
        return CopyInfo(
            source=source.target,
            mode=tie.mode,
            root=tie.root,
            by=tie.by,
            at=tie.at,
            claimed=tie.claimed,
            approved_by=tie.approved_by,
            source_ends=tie.source_ends,
        )

    def public(self) -> Memory:
        """Return the memory as an interface hands it out."""
        fields = {name: getattr(self, name) for name in Memory._fields}
        links = tuple(link.public() for link in self.links)
        return Memory(**{**fields, "space": self.space.name, "links": links, "shared": self.copy_info})

    @property
    def settled_causes(self) -> frozenset[tuple[str, str]]:
        """The keys of the invalidations that somebody has decided about."""
        return frozenset(decision.key for decision in self.decisions if decision.settles)

    @property
    def root(self) -> str:
        """The id of the first source of a copy; the own id of a memory that is no copy, or is detached."""
        return self.id if self.shared is None or self.shared.mode == DETACHED else self.shared.root


def is_retracted(memory: StoredMemory, now: datetime) -> bool:
    """Return whether a memory has ended because somebody retracted it."""
    ended = memory.expires is not None and memory.expires <= now
    return ended and any(decision.verdict == RETRACT for decision in memory.decisions)


def receipt_of(memory: StoredMemory, *, new: bool) -> Receipt:
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


def is_missing(memory: StoredMemory) -> bool:
    """Return whether a memory is a tombstone for one that this book does not have."""
    return not memory.space.id


def missing_memory(id_: str) -> StoredMemory:
    """Return a tombstone for a memory that this book does not have: nobody may read it."""
    return StoredMemory(
        id=id_,
        space=Space("", "", _LONG_AGO),
        kind="note",
        title="",
        text="",
        tags=(),
        author="",
        created=_LONG_AGO,
        updated=_LONG_AGO,
        revision=1,
        version=1,
        revised_by="",
        revised_at=_LONG_AGO,
        revised_how="",
        path="",
        layout="",
        deleted=_LONG_AGO,
    )
