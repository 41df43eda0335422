"""The class `Client`: appends to a durable outbox on this machine, whose messages are sent to the server in order.

An append is durable when it returns. The outbox alone holds the state, the threads only send: after any crash, the next
process that opens the outbox sends the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Self, cast

from commonbook.core.text import chat_messages, space_names, validation
from commonbook.errors import BadInput, BadTime, CommonbookError, HomeError
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
from commonbook.remote.sender import Sender
from commonbook.values.ids import format_time, new_id
from commonbook.values.session import ChatMessage

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
"""Returns a text with its secrets masked, and how many there were."""


class Client:
    """Appends to sessions of a server that may be down; safe to use from any thread.

    Close it, or use it in a `with` statement.
    """

    def __init__(
        self,
        transport: Transport,
        outbox: Outbox,
        *,
        mask: Mask,
        clock: Clock,
        space: str | None,
        background: bool = True,
        senders: int = 4,
        answer_seconds: float = 15.0,
    ) -> None:
        """Send the messages of the outbox in threads, or without `background` only while a call waits for it.

        `space` is the default space: that of messages which name none. Without one, such messages go to the default
        space that the API key has on the server. At most `senders` threads send at once. The server has
        `answer_seconds` for each answer. The client owns the outbox and closes it.
        """
        self._outbox, self._mask, self._clock, self._space = outbox, mask, clock, space
        self._sender = Sender(transport, outbox, background=background, threads=senders, answer_seconds=answer_seconds)
        self._sender.wake()

    @property
    def trouble(self) -> CommonbookError | None:
        """The error of the last attempt of a thread to read or write the outbox; None if it succeeded."""
        return self._sender.trouble

    # --- verbs

    def append(
        self,
        session: str,
        messages: Iterable[OutboxMessage | str | ChatMessage],
        *,
        space: str | None = None,
        parent: str | None = None,
        tags: Iterable[str] = (),
        wait: float = 0.0,
    ) -> OutboxReceipt:
        """Store messages for a session in the outbox, all or none, and return when they are durable.

        A message may be a text, or have the shape of OpenAI's or Anthropic's interface, as for `Book.append`.
        A session belongs to its space; without `space` it is the one in the default space of this client. `parent` and
        `tags` are for a session that the server does not have yet. With `wait`, also wait up to so many seconds until
        the server has acknowledged the messages; the receipt's `sent` says whether it has.
        """
        self._require_open()
        context = session_context(session, self._space if space is None else space, parent, tags)
        validation.require_message_list(messages)
        entries = [self._entry(message, item) for item, message in enumerate(messages)]
        return self.enqueue(session, entries, context, wait=wait)

    def enqueue(
        self, session: str, entries: Sequence[OutboxEntry], context: SessionContext, *, wait: float = 0.0
    ) -> OutboxReceipt:
        """Store messages that are validated and masked already; `append` explains the rest."""
        self._require_open()
        stored = self._outbox.add(session, entries, context=context) if entries else ()
        self._sender.wake()
        name = context.space or ""
        sent = wait > 0 and self._wait_until_sent((name, session), stored, wait)
        return OutboxReceipt(session, stored, durable=True, sent=sent, space=name)

    def is_waiting(self, session: str, *, space: str | None = None) -> bool:
        """Tell whether messages of a session wait to be sent."""
        name = self._space if space is None else space
        return self._outbox.counts(session=(name or "", session)).waiting > 0

    def flush(self, timeout: float) -> bool:
        """Send all waiting messages now, for at most `timeout` seconds; return whether none waits any more.

        Messages that the server has refused do not count as waiting.
        """
        self._require_open()
        self._outbox.hurry()
        self._sender.wake()
        return self._sender.until(lambda: self._outbox.soonest() is None, timeout)

    def pending(self, *, limit: int = 1000) -> tuple[StoredMessage, ...]:
        """Return the first messages that wait to be sent, in order."""
        return self._outbox.held(WAITING, limit=limit)

    def refused(self, *, limit: int = 1000) -> tuple[StoredMessage, ...]:
        """Return the first messages that the server has refused, each with its reason."""
        return self._outbox.held(REFUSED, limit=limit)

    def counts(self) -> OutboxCounts:
        """Count the waiting and the refused messages."""
        return self._outbox.counts()

    def retry(self, ids: Sequence[int]) -> None:
        """Send refused messages once more."""
        self._outbox.retry(ids)
        self._sender.wake()

    def discard(self, ids: Sequence[int]) -> None:
        """Delete refused messages; nothing else ever deletes a message that was not sent."""
        self._outbox.discard(ids)

    def close(self) -> None:
        """Stop within about half a second, whatever the network does; messages not acknowledged stay in the outbox."""
        if not self._sender.closed:
            self._sender.close()
            self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _wait_until_sent(self, session: tuple[str, str], stored: Sequence[EnqueuedMessage], seconds: float) -> bool:
        """Wait for the server to acknowledge these messages; an error here is not raised, since they are durable."""
        ids = [message.id for message in stored]
        first, last = min(ids, default=0), max(ids, default=0)

        def remaining() -> OutboxCounts:
            return self._outbox.counts(session=session, first=first, last=last)

        with suppress(CommonbookError):
            return self._sender.until(lambda: not remaining().waiting, seconds) and not remaining().refused
        return False

    # --- messages

    def _require_open(self) -> None:
        if self._sender.closed:
            raise HomeError("the client is closed", fix="make a new one; what was appended is in its outbox")

    def _entry(self, given: OutboxMessage | str | ChatMessage, item: int) -> OutboxEntry:
        with validation.error_item(item):
            message = _outbox_message(given)
            _check(message)
            text, masked = self._mask(message.text)
            # The replacement of a secret may be longer than the secret.
            _check(message._replace(text=text))
        # The id is made before the message is stored: a resend after a lost answer has the same one.
        client_id = new_id() if message.client_id is None else message.client_id
        return OutboxEntry(client_id, message.role, message.author, text, message.time or self._clock.now(), masked)


def _outbox_message(given: OutboxMessage | str | ChatMessage) -> OutboxMessage:
    """Return a message of any shape as the outbox takes it."""
    if isinstance(given, OutboxMessage):
        return given
    if isinstance(given, str):
        return OutboxMessage(given)
    message = chat_messages.parse_message(given)
    # A time that is a text is refused with the other times that have no zone.
    time = cast("datetime | None", message.time)
    return OutboxMessage(message.text, message.role, message.author, message.client_id, time)


def _check(message: OutboxMessage) -> None:
    """Refuse a message that the server would always refuse."""
    validation.validate_message(message.text, role=message.role, author=message.author, client_id=message.client_id)
    if message.client_id is not None:
        validation.validate_key(message.client_id)
    if message.time is not None:
        require_time_with_zone(message.time)


def require_time_with_zone(value: object) -> None:
    """Raise BadTime unless this is a time with its zone that can be stored."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise BadTime("the time of a message has no zone", fix="give a datetime with its zone, or none for now")
    try:
        format_time(value)
    except OverflowError as error:
        raise BadTime(f"{value} is before the first or after the last year", fix="give another time") from error


def session_context(session: str, space: str | None, parent: str | None, tags: Iterable[str]) -> SessionContext:
    """Validate the name of a session, and return its space, parent and tags, validated too."""
    validation.validate_session_id(session)
    if space is not None:
        _require_text(space, "space")
        space_names.require_space_name(space)
    if parent is not None:
        validation.validate_session_id(parent)
    tag_list = validation.validate_list(tags, "tags")
    for tag in tag_list:
        _require_text(tag, "tag")
    return SessionContext(space, parent, validation.validate_tags(tag_list))


def _require_text(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise BadInput(f"the {name} is no text", fix="give a string")
