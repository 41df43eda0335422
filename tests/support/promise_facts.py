"""The plain values of the model of the promises: memories, messages and rules, with the words that they say.

Every text that a test writes has one word that no other text has, so the words of an answer show where they come from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

OWNER = "user:local"
ROLES = ("reader", "writer", "admin")
REASONING = ("reflects_on", "derived_from")
SUPERSEDES, WOULD_SUPERSEDE = "supersedes", "would_supersede"
PROPOSED = "/_proposed"
"""The end of the name of a space that holds what is proposed to the space above it."""
DELETED = "deleted"
ENDED = "ended"
_WORD = re.compile(r"zq\d+")
NOTICE_PATTERN = re.compile(r"invalidation: (\S+) -> ([0-9a-f-]+)")

Words = tuple[str, ...]
Key = tuple[str, str]
"""The invalidated memory, and what invalidates it: an id, or the word `deleted`."""
SessionKey = tuple[str, str]
"""A session belongs to its space: the space and the name."""


def proposals_of(space: str) -> str:
    """Return the space of what is proposed to a space."""
    return f"{space}{PROPOSED}"


def words_of(answer: object) -> Words:
    """Return the words of a text, or of everything in an answer, in their order."""
    return tuple(_WORD.findall(answer if isinstance(answer, str) else repr(answer)))


@dataclass
class Memory:
    """A memory of the model. `took` are the words that a copy took over from its source."""

    id: str
    space: str
    words: Words
    kind: str = "note"
    author: str = ""
    deleted: bool = False
    ends: datetime | None = None
    links: dict[tuple[str, str], Words] = field(default_factory=dict)
    """By relation and target: the words of the target when the link was made or confirmed."""
    decisions: set[Key] = field(default_factory=set)
    retracted: set[Key] = field(default_factory=set)
    """The decisions that retracted it, which `reinstate` takes back."""
    session: SessionKey | None = None
    """Of an episode: its session."""
    session_unsure: bool = False
    """Whether a move of its session, or an older database, leaves it to its file to tell the space of its session."""
    source: str | None = None
    root: str = ""
    mode: str = ""
    sharer: str = ""
    writer: str = ""
    """The principal by whose right to write a copy follows: the sharer, or the one that approved its request."""
    took: Words = ()
    claimed: bool = False
    noted: datetime | None = None
    """Of a copy: when its deleted source ends, as its own file says."""
    written_in: dict[Words, set[str]] = field(default_factory=dict)
    """All words that it ever had, with the spaces in which it was when they were written."""
    unsure: set[str] = field(default_factory=set)
    """Marks about which the promises say nothing at present."""
    forgotten: bool = False
    """Whether the database that knew of its deletion was lost."""
    noticed: set[Key] = field(default_factory=set)
    """The causes of open notices when a database was lost: their files may be all that is left of the causes."""
    evidence: set[str] = field(default_factory=set)
    """The forgotten grounds of which an open notice about it, or a decision of it, tells that they are gone."""

    @property
    def bound(self) -> bool:
        return self.source is not None and self.mode != "detached"

    def write(self, words: Words) -> None:
        self.words = words
        self.note_place()

    def note_place(self) -> None:
        self.written_in.setdefault(self.words, set()).add(self.space)

    @property
    def proposed(self) -> bool:
        return self.space.endswith(PROPOSED)

    def replaced(self) -> list[str]:
        """Return what a proposed memory supersedes when it is accepted."""
        return [target for relation, target in self.links if relation == WOULD_SUPERSEDE]

    def superseded(self) -> list[str]:
        """Return what a memory superseded, whether it still holds or not."""
        return [target for relation, target in self.links if relation == SUPERSEDES]

    def direct_sources(self) -> list[str]:
        return [target for relation, target in self.links if relation in REASONING]


@dataclass
class Message:
    """A message; `unsure` if a lost or older database leaves open whether it is there, or is rewound.

    `by` is the principal that appended it, as far as that is known.
    """

    word: str
    episode: str | None = None
    rewound: bool = False
    unsure: bool = False
    by: str | None = None


@dataclass
class Rule:
    """A sharing rule, in the name of its maker."""

    id: str
    space: str
    source: str
    maker: str
