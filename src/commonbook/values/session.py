"""Sessions and their messages, and the receipts of appending and settling."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from commonbook.values.spaces import Space

SwitchReason: TypeAlias = Literal["new", "reset", "resume", "branch", "compress"]
"""The reason of a switch between sessions."""

MAX_MESSAGE_BYTES: Final = 1024 * 1024
MAX_MESSAGES: Final = 10_000


class NewMessage(NamedTuple):
    """A message as a caller gives it; the book fills in the missing fields.

    `masked` is the number of secrets that the caller has masked already. The book counts them with those it masks.
    """

    text: str
    role: str = "user"
    author: str | None = None
    time: datetime | str | None = None
    client_id: str | None = None
    masked: int = 0


class ChatObject(Protocol):
    """A message of a client library, such as OpenAI's and Anthropic's, which can be dumped as a mapping."""

    def model_dump(self) -> Mapping[str, object]:
        """Return the fields of the message."""
        ...


ChatMessage: TypeAlias = Mapping[str, object] | ChatObject
"""A message as OpenAI's and Anthropic's interfaces have it: a `role`, and as `content` a text or a list of parts."""


class Message(NamedTuple):
    """A message of a session.

    `episode` is the memory that contains it; None while it is unsettled, and if the caller may not read that memory.
    `rewound_at` is the time at which a rewind withdrew it. `masked` is the number of secrets that were masked in its
    text.
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
    rewound_at: datetime | None = None


class Session(NamedTuple):
    """An ordered log of messages in a space; `generation` counts switches and rewinds, `last` is the last number.

    `id` is the name that its users gave it; the same name in two spaces is two sessions. `parent` is the session that
    it continues, in the space `parent_space`.
    """

    id: str
    space: Space
    parent: str | None
    tags: tuple[str, ...]
    created: datetime
    closed: datetime | None
    generation: int
    last: int
    unsettled: int = 0
    parent_space: str | None = None


class MessageReceipt(NamedTuple):
    """The receipt of one message: whether it was new or a repetition, and how many secrets were masked."""

    id: str
    seq: int
    new: bool
    masked: int
    rewound: bool = False


class AppendReceipt(NamedTuple):
    """The receipt of an append: every message is durable and searchable; `settled` if all are in episodes."""

    session: str
    messages: tuple[MessageReceipt, ...]
    durable: bool = True
    searchable: bool = True
    settled: bool = False
    space: str = ""


class MessagePage(NamedTuple):
    """A page of messages of a session, in order, and the number after which the next page begins, if there is one."""

    session: Session
    items: tuple[Message, ...]
    next: int | None


class SettleReport(NamedTuple):
    """The episodes that were made from the messages of a session, and the number of messages still unsettled."""

    session: str
    episodes: tuple[str, ...]
    unsettled: int
    space: str = ""


class WorkReport(NamedTuple):
    """The result of one background job of settling, or the error with which it failed this time."""

    settled: SettleReport
    error: str = ""


class PromptPassage(NamedTuple):
    """A passage that was put into a prompt: the memory or message that it is from, and the SHA-256 of its bytes.

    `revision` is the one that the memory had then; None for a message that is in no episode yet.
    """

    id: str
    hash: str
    revision: int | None = None


class PromptUse(NamedTuple):
    """A passage that reached a turn of a session: `seq` is the number of the message that it went with.

    At the start of a session, that is 0; after a compaction, the number of the last message before it. `by` is the
    principal that put it there. `memory` is the memory that has the passage: for a message its episode, None while it
    is in none and if the caller may not read that.
    """

    session: str
    space: str
    seq: int
    id: str
    hash: str
    revision: int | None
    at: datetime
    by: str
    memory: str | None = None
