"""What a remote client, its outbox and its transport say to each other: values and seams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

WAITING: Final = "waiting"
REFUSED: Final = "refused"


class OutboxMessage(NamedTuple):
    """Something said, to be appended to a session. Without a client id it gets one, without a time the present."""

    text: str
    role: str = "user"
    author: str | None = None
    client_id: str | None = None
    time: datetime | None = None


class SessionContext(NamedTuple):
    """What an append says about its session."""

    space: str | None = None
    parent: str | None = None
    tags: tuple[str, ...] = ()


class OutboxEntry(NamedTuple):
    """A message fit for the outbox: checked, masked, with its client id and time."""

    client_id: str
    role: str
    author: str | None
    text: str
    time: datetime
    masked: int = 0


class EnqueuedMessage(NamedTuple):
    """One message of an append: under which number the outbox has it, and whether it was new to it."""

    id: int
    client_id: str
    new: bool
    masked: int


class OutboxReceipt(NamedTuple):
    """What a client's append returns: the messages are on this machine's disk, and with the server if `sent`."""

    session: str
    messages: tuple[EnqueuedMessage, ...]
    durable: bool = True
    sent: bool = False


class StoredMessage(NamedTuple):
    """A message that is still in the outbox: waiting, or set aside for a reason."""

    id: int
    session: str
    context: SessionContext
    entry: OutboxEntry
    state: str
    attempts: int
    reason: str


class OutboxCounts(NamedTuple):
    """How many messages wait, and how many were set aside."""

    waiting: int
    refused: int


class OutboxBatch(NamedTuple):
    """The next messages of a session, and the lease under which one sender at a time has them."""

    session: str
    token: str
    context: SessionContext
    entries: Mapping[int, OutboxEntry]
    tries: int
    """How many times in a row this session could not be sent."""
    failures: int
    """How many times the server failed on the first message."""


class DeliveryOutcome(NamedTuple):
    """What became of a parcel: the outbox does this, if the sender still has the lease."""

    sent: tuple[int, ...] = ()
    refused: Mapping[int, str] = {}
    reason: str = ""
    """Why the rest is still here."""
    pause: float = 0.0
    """For how many seconds the session is left alone."""
    asked: bool = False
    """Whether it is the server that asked for the pause: then nobody cuts it short."""
    failed: bool = False
    """Whether the try counts against the first message."""
    alone: bool = False
    """Whether each of the rest is to be sent by itself from now on."""


class Transport(Protocol):
    """The way to the server. Several threads use it at once, and a forked child goes on with its copy."""

    def append(
        self, session: str, messages: Sequence[OutboxEntry], *, context: SessionContext, timeout: float
    ) -> Mapping[str, object]:
        """Append messages in this order; return what the server said about each, by client id.

        What is in the answer is stored, durable, and never sent again; what is not in it is. A message that the
        server has under its client id already counts as stored. Raises a TransportError, Unreachable after at most
        `timeout` seconds: whoever takes longer may find that another process has sent the same meanwhile.
        """
        ...


class Outbox(Protocol):
    """A durable queue of messages; any number of processes share it."""

    def add(
        self, session: str, entries: Sequence[OutboxEntry], *, context: SessionContext
    ) -> tuple[EnqueuedMessage, ...]:
        """Keep messages, all or none; on return they are durable. KeyConflict if a client id has other words here."""
        ...

    def take(self, token: str, *, lease: float, most: int, most_bytes: int) -> OutboxBatch | None:
        """Take the next messages of a session that is due and that no other sender has, for `lease` seconds."""
        ...

    def settle(self, parcel: OutboxBatch, verdict: DeliveryOutcome) -> bool:
        """Give a parcel back; False, and nothing is changed, when its lease has gone to another sender."""
        ...

    def release(self, tokens: Iterable[str]) -> None:
        """Give leases back without a word on their messages."""
        ...

    def hurry(self) -> None:
        """End every pause that the server did not ask for."""
        ...

    def soonest(self) -> float | None:
        """Return in how many seconds there may be something to take; None when nothing waits."""
        ...

    def counts(self, *, session: str | None = None, first: int = 0, last: int | None = None) -> OutboxCounts:
        """Count what is here: of one session, from one message to another."""
        ...

    def held(self, state: str, *, limit: int) -> tuple[StoredMessage, ...]:
        """Return the first messages in this state."""
        ...

    def retry(self, ids: Sequence[int]) -> None:
        """Let messages that were set aside wait again, at their old place; NotFound if one is not set aside."""
        ...

    def discard(self, ids: Sequence[int]) -> None:
        """Throw away messages that were set aside; NotFound if one is not set aside."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
