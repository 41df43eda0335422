"""The words of the book as frozen values: what crosses a border between two modules."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from commonbook.judgement import Because, Cause, Decision, Notice

LOCAL_OWNER: Final = "user:local"
FILESYSTEM: Final = "user:filesystem"

KINDS: Final = ("note", "fact", "preference", "decision", "procedure", "episode", "reflection", "notice")
RELATIONS: Final = ("shared_from", "reflects_on", "derived_from", "supersedes", "contradicts", "related_to")

MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
MAX_FRONT_BYTES: Final = 64 * 1024
MAX_TITLE: Final = 200
MAX_TAG: Final = 64
MAX_TAGS: Final = 64
MAX_KEY: Final = 200
MAX_MESSAGE_BYTES: Final = 1024 * 1024
MAX_MESSAGES: Final = 10_000

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told (what is being done, how many are done, how many there are) while long work goes on."""


def quiet(_what: str, _done: int, _total: int) -> None:
    """Show no progress."""


class Unset(Enum):
    """The mark of an argument that was not given, where None already means 'take it away'."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


UUID_PATTERN: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
"""The form of an id, in lower case."""


def new_id() -> str:
    """Make a UUIDv7: ids sort by the time they were made, and their tail is random."""
    stamp = time.time_ns() // 1_000_000
    number = (stamp << 80) | int.from_bytes(os.urandom(10), "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def stamp(time: datetime) -> str:
    """Write a moment as text of one width, which sorts as the moments do: `2026-11-15T20:18:24.123456Z`."""
    global _stamped  # noqa: PLW0603 - the moment of a transaction is written many times
    last, text = _stamped
    if last is not time:
        text = time.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"
        _stamped = (time, text)
    return text


_stamped: tuple[datetime | None, str] = (None, "")


def moment(text: str) -> datetime:
    """Read what `stamp` wrote."""
    return datetime.fromisoformat(text)


class Space(NamedTuple):
    """A named part of the book; the id stays when the name changes. `depth`: how deep reflections go, if it says so."""

    id: str
    name: str
    created: datetime
    depth: int | None = None


Spaces: TypeAlias = Mapping[str, Space]
"""The spaces that a question may reach, by id: it goes through every query."""


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


class Shared(NamedTuple):
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
        words = (self.mode, self.root, self.by, stamp(self.at), str(self.own), *(("claimed",) if self.claimed else ()))
        return " ".join(words)

    @classmethod
    def read(cls, line: str) -> Shared:
        """Read what `written` gave; raises ValueError for anything else."""
        mode, root, by, at, own, *claimed = line.split(" ")
        if mode not in (*MODES, DETACHED) or claimed not in ([], ["claimed"]):
            raise ValueError(line)
        return cls(mode, root, by, moment(at), int(own), claimed=bool(claimed))


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
    shared: Shared | None = None
    freshness: str | None = None
    successor: str | None = None
    notice: Notice | None = None
    decisions: tuple[Decision, ...] = ()
    because: tuple[Because, ...] = ()
    doubts: tuple[Cause, ...] = ()

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


class MoveReport(NamedTuple):
    """What a move of the whole book took along: rows of each table, and files that were written."""

    to: str
    rows: int
    tables: Mapping[str, int]
    files: int = 0


class Filter(NamedTuple):
    """Which memories a list or a delete means; everything given must hold."""

    space: str | None = None
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: datetime | str | None = None
    until: datetime | str | None = None
    deleted: bool = False


class Sent(NamedTuple):
    """A message as somebody sends it; what is not given is ours to fill in."""

    text: str
    role: str = "user"
    author: str | None = None
    time: datetime | str | None = None
    client_id: str | None = None


class Message(NamedTuple):
    """A message of a session: what was said, by whom, when, and where it is kept besides.

    `episode` is the memory that holds it; None while it is unsettled. `taken_back` says when it was.
    """

    id: str
    session: str
    seq: int
    role: str
    author: str
    text: str
    time: datetime
    client_id: str | None = None
    masked: int = 0
    episode: str | None = None
    taken_back: datetime | None = None


class Session(NamedTuple):
    """An ordered log of messages in a space. The generation counts switches and rewinds."""

    id: str
    space: Space
    parent: str | None
    tags: tuple[str, ...]
    created: datetime
    closed: datetime | None
    generation: int
    last: int
    unsettled: int = 0


class Appended(NamedTuple):
    """What became of a message that was sent: new, or a repeat of one that is here; how many secrets were masked."""

    id: str
    seq: int
    new: bool
    masked: int
    taken_back: bool = False


class Captured(NamedTuple):
    """The receipt of an append: every message is durable and searchable; settled if episodes hold them all."""

    session: str
    messages: tuple[Appended, ...]
    durable: bool = True
    searchable: bool = True
    settled: bool = False


class MessagePage(NamedTuple):
    """Some messages of a session, in order, and after which number the next page begins, if there is one."""

    session: Session
    items: tuple[Message, ...]
    next: int | None


class Settled(NamedTuple):
    """Which episodes were made of a session's messages, and how many of those are still unsettled."""

    session: str
    episodes: tuple[str, ...]
    unsettled: int


class Worked(NamedTuple):
    """What became of a piece of work in the background: what was settled, or why that failed this time."""

    settled: Settled
    error: str = ""


class Asked(NamedTuple):
    """A question to the book; everything given must hold of what is found, before the best are chosen."""

    query: str = ""
    spaces: tuple[str, ...] = ()
    k: int = 10
    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: datetime | str | None = None
    until: datetime | str | None = None
    as_of: datetime | str | None = None
    min_score: float | None = None
    budget_tokens: int | None = None
    include: tuple[str, ...] = ()
    explain: bool = False


class Hit(NamedTuple):
    """A passage that answers a question, where it stands, and what is to be known about it.

    `passage` is what was found, `before` and `after` what stands around it; `text` is all of the message or memory.
    """

    type: str
    id: str
    passage_id: str
    memory: str
    session: str | None
    seq: int | None
    kind: str
    space: str
    title: str
    text: str
    passage: str
    before: str
    after: str
    author: str
    score: float
    parts: Mapping[str, float]
    freshness: str | None
    suspect: bool
    superseded_by: str | None
    marks: tuple[str, ...]
    source: Mapping[str, object]
    tags: tuple[str, ...]
    occurred: datetime | None
    created: datetime
    matched: tuple[str, ...] = ()
    shared: Shared | None = None
    shared_from: Link | None = None
    successor: str | None = None


class Recalled(NamedTuple):
    """The answer to a question: hits, best first, and how long it took; with `explain`, how long each step did."""

    hits: tuple[Hit, ...]
    took_ms: float
    steps: Mapping[str, float] = {}
    notes: tuple[str, ...] = ()


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


class Change(NamedTuple):
    """One change to be numbered and logged when the transaction is sealed."""

    space: str
    actor: str
    action: str
    subjects: tuple[str, ...]
    payload: Mapping[str, object]


class LogEntry(NamedTuple):
    """One signed entry of a space's log, exactly as stored."""

    space: str
    seq: int
    time: str
    actor: str
    action: str
    subjects: str
    payload: str
    previous: str
    hash: str
    signature: str
    key_id: str


class Finding(NamedTuple):
    """Something that is wrong, where, and what to do about it."""

    what: str
    where: str
    why: str
    fix: str


class Unsent(NamedTuple):
    """What remote clients have appended and no server has taken: how much waits, how much was set aside, and why."""

    waiting: int = 0
    refused: int = 0
    findings: tuple[Finding, ...] = ()


class LogReport(NamedTuple):
    """What a walk over the log found: how much was read, and the first bad entry of each space."""

    spaces: int
    entries: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class SyncReport(NamedTuple):
    """What a look at the folder took in."""

    new: int = 0
    edited: int = 0
    moved: int = 0
    deleted: int = 0
    restored: int = 0
    malformed: int = 0
    held_back: int = 0
    read: int = 0


class TransferReport(NamedTuple):
    """What an import or export did, file by file in numbers, and what it could not take."""

    done: int = 0
    unchanged: int = 0
    updated: int = 0
    links: int = 0
    skipped: tuple[Finding, ...] = ()
    ids: tuple[str, ...] = ()


class Deleted(NamedTuple):
    """Which memories a delete removed, or would remove."""

    ids: tuple[str, ...]
    dry_run: bool


class Status(NamedTuple):
    """The state of a home in numbers, with what is pending and what is wrong."""

    home: str
    program: str
    schema: int
    spaces: int
    memories: int
    kinds: Mapping[str, int]
    deleted: int
    links: int
    log_entries: int
    database_bytes: int | None
    """None if that is not the asker's to know."""
    markdown_bytes: int | None
    """The same; and None for a book on a server, which has no files."""
    pending_files: int
    pending_deletions: int
    wrong: tuple[Finding, ...]
    sessions: int = 0
    messages: int = 0
    unsettled: int = 0
    waiting_jobs: int = 0
    failed_jobs: int = 0
    unsent: int = 0
    refused: int = 0
    copies: int = 0
