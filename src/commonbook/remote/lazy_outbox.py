"""The outbox of a remote book: opened when messages wait in it, or have to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from commonbook.core.text import chat_messages, validation
from commonbook.errors import BadTime, Unreachable
from commonbook.ports.keys import Clock
from commonbook.ports.outbox import OutboxEntry, SessionContext
from commonbook.remote.outbox_client import Client, Mask, require_time_with_zone
from commonbook.runtime import reset_in_child
from commonbook.values.ids import new_id
from commonbook.values.session import ChatMessage, NewMessage


class PreparedMessage(NamedTuple):
    """A message with masked secrets and a client id: sent again, it is the same message."""

    message: NewMessage
    client_id: str

    @property
    def masked(self) -> int:
        """The number of secrets that were masked."""
        return self.message.masked


class LazyOutbox:
    """An outbox that is opened at need; once opened, its messages are sent in the background."""

    def __init__(
        self, open_client: Callable[[], Client], exists: Callable[[], bool], *, mask: Mask, clock: Clock
    ) -> None:
        """Open the outbox now if it exists: an earlier process may have left messages in it."""
        self._open, self._exists = open_client, exists
        self._mask, self._clock = mask, clock
        self._client: Client | None = None
        self.reset_after_fork()
        reset_in_child(self)
        if exists():
            self.client()

    def reset_after_fork(self) -> None:
        """Make a new lock, at first and in a forked child."""
        self._guard = threading.Lock()

    def client(self) -> Client:
        """Return the client of the outbox, which is created if it does not exist."""
        with self._guard:
            if self._client is None:
                self._client = self._open()
            return self._client

    def is_waiting(self, session: str, space: str | None) -> bool:
        """Tell whether messages of a session wait to be sent, also those of other processes."""
        return (self._client is not None or self._exists()) and self.client().is_waiting(session, space=space)

    def prepare(self, given: Iterable[NewMessage | str | ChatMessage]) -> list[PreparedMessage]:
        """Validate and mask messages, and give each a client id."""
        validation.require_message_list(given)
        return [self._prepare(message, item) for item, message in enumerate(given)]

    def enqueue(self, session: str, prepared: Sequence[PreparedMessage], context: SessionContext) -> list[bool]:
        """Store messages in the outbox; return for each whether it was new there."""
        entries = []
        for item, (message, client_id) in enumerate(prepared):
            with validation.error_item(item):
                time = self._time(message.time)
            entries.append(OutboxEntry(client_id, message.role, message.author, message.text, time, message.masked))
        return [message.new for message in self.client().enqueue(session, entries, context).messages]

    def close(self) -> None:
        """Close the outbox, if it is open; messages that were not sent stay in it."""
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _prepare(self, given: NewMessage | str | ChatMessage, item: int) -> PreparedMessage:
        with validation.error_item(item):
            message = _new_message(given)
            _check(message)
            # The server compares a repeated message as it was sent: so it is masked before the first attempt.
            text, masked = self._mask(message.text)
            client_id = new_id() if message.client_id is None else message.client_id
            sent = message._replace(
                text=text, client_id=client_id, masked=masked + validation.validate_masked(message.masked)
            )
            _check(sent)
        return PreparedMessage(sent, client_id)

    def _time(self, value: datetime | str | None) -> datetime:
        """Return the time of a message for the outbox, where the zone of the book is not known."""
        if value is None:
            return self._clock.now()
        try:
            time = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            raise BadTime(
                f"no server answers, and {value!r} is no time that can be stored without one",
                fix="give a datetime with its zone, or none for now",
            ) from None
        require_time_with_zone(time)
        return time


def _new_message(given: NewMessage | str | ChatMessage) -> NewMessage:
    if isinstance(given, NewMessage):
        return given
    return NewMessage(given) if isinstance(given, str) else chat_messages.parse_message(given)


def _check(message: NewMessage) -> None:
    validation.validate_message(message.text, role=message.role, author=message.author, client_id=message.client_id)
    if message.client_id is not None:
        validation.validate_key(message.client_id)


_SESSION_ARGUMENTS: Final = {
    "switch": "old",
    "rewind": "session",
    "settle": "session",
    "close_session": "session",
    "move_session": "session",
    "record_uses": "session",
}
"""The verbs that must find all messages of a session on the server, with the argument that names the session."""


def send_waiting(
    outbox: LazyOutbox, verb: str, arguments: Mapping[str, object], *, default_space: str | None, seconds: float
) -> None:
    """Send the messages of a verb's session that wait in the outbox, if the verb must find them on the server.

    Unreachable is raised if they cannot be sent in so many seconds: the verb is then not called.
    """
    if verb not in _SESSION_ARGUMENTS:
        return
    session, given_space = str(arguments[_SESSION_ARGUMENTS[verb]]), arguments.get("space")
    space = given_space if isinstance(given_space, str) else default_space
    if not outbox.is_waiting(session, space):
        return
    outbox.client().flush(seconds)
    if outbox.is_waiting(session, space):
        raise Unreachable(
            f"messages of the session {session!r} wait in the outbox of this machine",
            fix="try again when the server answers",
        )
