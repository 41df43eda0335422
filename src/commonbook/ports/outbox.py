"""The ports of a remote client: its durable outbox, the transport to the server, and the values they exchange.

A message is written to the outbox before `append` returns; senders deliver it later. A sender takes a batch of one
session under a lease with a token, so that the messages of a session are sent in order and by one sender at a time. A
session belongs to its space: the same name in two spaces is two sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

WAITING: Final = "waiting"
REFUSED: Final = "refused"


class OutboxMessage(NamedTuple):
    """A message to append to a session; a missing client id is generated, a missing time is the present."""

    text: str
    role: str = "user"
    author: str | None = None
    client_id: str | None = None
    time: datetime | None = None


class SessionContext(NamedTuple):
    """The space of a session, and its parent and tags if it is new.

    The space is fixed when the outbox takes a message. Without one, the session is in the default space that the API
    key has on the server.
    """

    space: str | None = None
    parent: str | None = None
    tags: tuple[str, ...] = ()


class OutboxEntry(NamedTuple):
    """A message ready for the outbox: validated, with masked secrets, client id and time."""

    client_id: str
    role: str
    author: str | None
    text: str
    time: datetime
    masked: int = 0


class EnqueuedMessage(NamedTuple):
    """The receipt of one message: its number in the outbox, and whether it was new there."""

    id: int
    client_id: str
    new: bool
    masked: int


class OutboxReceipt(NamedTuple):
    """The receipt of an append: the messages are durable on this machine, and stored by the server if `sent`."""

    session: str
    messages: tuple[EnqueuedMessage, ...]
    durable: bool = True
    sent: bool = False
    space: str = ""


class StoredMessage(NamedTuple):
    """A message in the outbox: waiting, or refused by the server and set aside for a reason."""

    id: int
    session: str
    context: SessionContext
    entry: OutboxEntry
    state: str
    attempts: int
    reason: str


class OutboxCounts(NamedTuple):
    """The numbers of messages that wait, and that the server refused."""

    waiting: int
    refused: int


class OutboxBatch(NamedTuple):
    """The next messages of a session, and the token of the lease under which a sender has them."""

    session: str
    token: str
    context: SessionContext
    entries: Mapping[int, OutboxEntry]
    tries: int
    """The number of failed attempts in a row for this session."""
    failures: int
    """The number of attempts in which the server failed on the first message."""


class DeliveryOutcome(NamedTuple):
    """The outcome of sending a batch; the outbox applies it if the sender still has the lease."""

    sent: tuple[int, ...] = ()
    refused: Mapping[int, str] = {}
    reason: str = ""
    """Why the other messages were not sent."""
    pause: float = 0.0
    """Seconds until the next attempt for this session."""
    requested_by_server: bool = False
    """Whether the server asked for the pause, so that `hurry` must not cut it short."""
    failed: bool = False
    """Whether the attempt counts as a failure of the first message."""
    alone: bool = False
    """Whether each of the other messages is sent in a batch of its own from now on."""


class Transport(Protocol):
    """The connection to the server. Several threads use it at once, and a forked child keeps using its copy."""

    def append(
        self, session: str, messages: Sequence[OutboxEntry], *, context: SessionContext, timeout: float
    ) -> Mapping[str, object]:
        """Append messages in this order; return the answer of the server for each, by client id.

        A message in the answer is stored and durable, and is never sent again; the others are. A message that the
        server already has under its client id counts as stored. Raises a TransportError, and Unreachable after at most
        `timeout` seconds: a call that takes longer outlives its lease, and another process may send the same messages.
        """
        ...


class Outbox(Protocol):
    """A durable queue of messages; any number of processes share it."""

    def add(
        self, session: str, entries: Sequence[OutboxEntry], *, context: SessionContext
    ) -> tuple[EnqueuedMessage, ...]:
        """Store messages, all or none; on return they are durable. KeyConflict if a client id has another content."""
        ...

    def take(self, token: str, *, lease: float, most: int, most_bytes: int) -> OutboxBatch | None:
        """Lease the next messages of a due session for `lease` seconds, during which no other sender gets them."""
        ...

    def settle(self, batch: OutboxBatch, outcome: DeliveryOutcome) -> bool:
        """Apply the outcome of a batch and end its lease; False, without a change, if another sender has the lease."""
        ...

    def release(self, tokens: Iterable[str]) -> None:
        """End leases without an outcome."""
        ...

    def hurry(self) -> None:
        """End every pause that the server did not ask for."""
        ...

    def soonest(self) -> float | None:
        """Return the seconds until there may be a batch to take; None if nothing waits."""
        ...

    def counts(
        self, *, session: tuple[str, str] | None = None, first: int = 0, last: int | None = None
    ) -> OutboxCounts:
        """Count the messages, of all or of one session (its space and id), from number `first` to `last`."""
        ...

    def held(self, state: str, *, limit: int) -> tuple[StoredMessage, ...]:
        """Return the first messages in this state."""
        ...

    def retry(self, ids: Sequence[int]) -> None:
        """Let refused messages wait again, at their old place; NotFound if one is not refused."""
        ...

    def discard(self, ids: Sequence[int]) -> None:
        """Delete refused messages; NotFound if one is not refused."""
        ...

    def close(self) -> None:
        """Close the database of the outbox."""
        ...
