"""The remote client: what it appends is on this machine's disk when the call returns, and goes to the server in order.

The outbox is the truth, the threads only hurry: whatever dies, the next process that opens the outbox sends the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from commonbook.client.sender import Sender
from commonbook.errors import BadInput, BadTime, CommonbookError, HomeError
from commonbook.model.ids import format_time, new_id
from commonbook.ports.keys import Clock
from commonbook.ports.outbox import (
    REFUSED,
    WAITING,
    EnqueuedMessage,
    Outbox,
    OutboxCounts,
    OutboxEntry,
    OutboxMessage,
    OutboxReceipt,
    SessionContext,
    StoredMessage,
    Transport,
)
from commonbook.text import space_paths, validation

__all__ = [
    "Client",
    "EnqueuedMessage",
    "OutboxCounts",
    "OutboxEntry",
    "OutboxMessage",
    "OutboxReceipt",
    "SessionContext",
    "StoredMessage",
    "Transport",
]

Mask = Callable[[str], tuple[str, int]]
"""Returns a text without its secrets, and how many there were."""


class Client:
    """Appends to sessions of a server that may be down. Use it from any thread; close it, or use it in `with`."""

    def __init__(
        self,
        transport: Transport,
        outbox: Outbox,
        *,
        mask: Mask,
        clock: Clock,
        background: bool = True,
        senders: int = 4,
        answer_seconds: float = 15.0,
    ) -> None:
        """Send what the outbox holds, in threads, or without `background` only while a call waits for it.

        The outbox becomes the client's own, and is closed with it.
        """
        self._outbox, self._mask, self._clock = outbox, mask, clock
        self._sender = Sender(transport, outbox, background=background, threads=senders, answer_seconds=answer_seconds)
        self._sender.wake()

    @property
    def trouble(self) -> CommonbookError | None:
        """Why the last thread that tried could not read or write the outbox, if it could not."""
        return self._sender.trouble

    # --- verbs

    def append(
        self,
        session: str,
        messages: Iterable[OutboxMessage],
        *,
        space: str | None = None,
        parent: str | None = None,
        tags: Iterable[str] = (),
        wait: float = 0.0,
    ) -> OutboxReceipt:
        """Keep messages for a session, all or none, and return when they are durable.

        With `wait`, stay for at most so many seconds until the server has them too.
        """
        self._require_open()
        validation.validate_session_id(session)
        context = _context(space, parent, tags)
        validation.require_message_list(messages)
        entries = [self._entry(message, item) for item, message in enumerate(messages)]
        kept = self._outbox.add(session, entries, context=context) if entries else ()
        self._sender.wake()
        return OutboxReceipt(session, kept, durable=True, sent=wait > 0 and self._sent(session, kept, wait))

    def flush(self, timeout: float) -> bool:
        """Try everything now; tell whether nothing waits any more. What was set aside does not wait."""
        self._require_open()
        self._outbox.hurry()
        self._sender.wake()
        return self._sender.until(lambda: self._outbox.soonest() is None, timeout)

    def pending(self, *, limit: int = 1000) -> tuple[StoredMessage, ...]:
        """Return the first messages that wait, in order."""
        return self._outbox.held(WAITING, limit=limit)

    def refused(self, *, limit: int = 1000) -> tuple[StoredMessage, ...]:
        """Return the first messages that were set aside, with the reasons."""
        return self._outbox.held(REFUSED, limit=limit)

    def counts(self) -> OutboxCounts:
        """Count both."""
        return self._outbox.counts()

    def retry(self, ids: Sequence[int]) -> None:
        """Send messages that were set aside once more."""
        self._outbox.retry(ids)
        self._sender.wake()

    def discard(self, ids: Sequence[int]) -> None:
        """Throw away messages that were set aside; nothing else ever does."""
        self._outbox.discard(ids)

    def close(self) -> None:
        """Stop, soon, whatever the network does. What was not acknowledged stays in the outbox."""
        if not self._sender.closed:
            self._sender.close()
            self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _sent(self, session: str, kept: Sequence[EnqueuedMessage], seconds: float) -> bool:
        """Wait for these messages to be acknowledged; no trouble here takes back that they are durable."""
        first, last = min((one.id for one in kept), default=0), max((one.id for one in kept), default=0)

        def left() -> OutboxCounts:
            return self._outbox.counts(session=session, first=first, last=last)

        with suppress(CommonbookError):
            return self._sender.until(lambda: not left().waiting, seconds) and not left().refused
        return False

    # --- messages

    def _require_open(self) -> None:
        if self._sender.closed:
            raise HomeError("the client is closed", fix="make a new one; what was appended is in its outbox")

    def _entry(self, message: OutboxMessage, item: int) -> OutboxEntry:
        with validation.error_item(item):
            _check(message)
            text, masked = self._mask(message.text)
            # What stands for a secret may be longer than the secret.
            _check(message._replace(text=text))
        # The id is made before the message is written: a resend after a lost answer has the same one.
        client_id = new_id() if message.client_id is None else message.client_id
        return OutboxEntry(client_id, message.role, message.author, text, message.time or self._clock.now(), masked)


def _check(message: object) -> None:
    """Refuse here what the server would refuse for ever."""
    if not isinstance(message, OutboxMessage):
        raise BadInput("a message is not an OutMessage", fix="make it with OutMessage(text)")
    validation.validate_message(message.text, role=message.role, author=message.author, client_id=message.client_id)
    if message.client_id is not None:
        validation.validate_key(message.client_id)
    if message.time is not None:
        _check_time(message.time)


def _check_time(value: object) -> None:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise BadTime("the time of a message has no zone", fix="give a datetime with its zone, or none for now")
    try:
        format_time(value)
    except OverflowError as error:
        raise BadTime(f"{value} is before the first or after the last year", fix="give another time") from error


def _context(space: str | None, parent: str | None, tags: Iterable[str]) -> SessionContext:
    if space is not None:
        _require_text(space, "space")
        space_paths.require_space_name(space)
    if parent is not None:
        validation.validate_session_id(parent)
    listed = validation.validate_list(tags, "tags")
    for tag in listed:
        _require_text(tag, "tag")
    return SessionContext(space, parent, validation.validate_tags(listed))


def _require_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise BadInput(f"the {what} is no text", fix="give a string")
