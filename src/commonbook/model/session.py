"""Sessions and their messages, and the receipts of appending and settling."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from commonbook.model.spaces import Space

MAX_MESSAGE_BYTES: Final = 1024 * 1024
MAX_MESSAGES: Final = 10_000


class NewMessage(NamedTuple):
    """A message as somebody sends it; what is not given is ours to fill in."""

    text: str
    role: str = "user"
    author: str | None = None
    time: datetime | str | None = None
    client_id: str | None = None


class Message(NamedTuple):
    """A message of a session: what was said, by whom, when, and where it is kept besides.

    `episode` is the memory that holds it; None while it is unsettled. `rewound_at` says when a rewind took it back.
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


class MessageReceipt(NamedTuple):
    """What became of a message that was sent: new, or a repeat of one that is here; how many secrets were masked."""

    id: str
    seq: int
    new: bool
    masked: int
    rewound: bool = False


class AppendReceipt(NamedTuple):
    """The receipt of an append: every message is durable and searchable; settled if episodes hold them all."""

    session: str
    messages: tuple[MessageReceipt, ...]
    durable: bool = True
    searchable: bool = True
    settled: bool = False


class MessagePage(NamedTuple):
    """Some messages of a session, in order, and after which number the next page begins, if there is one."""

    session: Session
    items: tuple[Message, ...]
    next: int | None


class SettleReport(NamedTuple):
    """Which episodes were made of a session's messages, and how many of those are still unsettled."""

    session: str
    episodes: tuple[str, ...]
    unsettled: int


class WorkReport(NamedTuple):
    """What became of a piece of work in the background: what was settled, or why that failed this time."""

    settled: SettleReport
    error: str = ""
