"""The keeper is the port of the provider to its storage: a book on this machine, or the outbox for a server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from commonbook.model.recall import RecallResult
from commonbook.model.session import Message, NewMessage, Session, SwitchReason
from commonbook.ports.outbox import OutboxEntry, OutboxMessage, SessionContext

if TYPE_CHECKING:
    from commonbook.book.book import Book


Result = TypeVar("Result")
Warn = Callable[[str], None]
LAST_FLUSH_SECONDS: Final = 1.0
"""Time that closing waits for an outbox to be sent."""


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class StoredSession(NamedTuple):
    """A session as it is stored: its record if it exists, its messages, and those that wait in the spill file."""

    session: Session | None
    messages: tuple[Message, ...]
    pending: tuple[OutboxEntry, ...]


class Keeper(Protocol):
    """Stores messages and recalls. No call waits longer than the time limit of the keeper."""

    def append(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Store messages; they are durable when this returns. Raise if they are not."""
        ...

    def load(self, session: str) -> StoredSession | None:
        """Return a session as it is stored; None if it cannot be read in time."""
        ...

    def rewind(self, session: str, after: str | None, removed_ids: Collection[str]) -> None:
        """Rewind a session to the message with the id `after`, or to its beginning; `removed_ids` come after it."""
        ...

    def switch(self, old: str, new: str, *, reason: SwitchReason, tags: Sequence[str]) -> None:
        """Settle the old session, and create or resume the new one."""
        ...

    def settle(self, session: str, *, close: bool = False) -> None:
        """Settle a session in the background."""
        ...

    def write(self, work: Callable[[Book], Result]) -> Result:
        """Run a write on the book, after all earlier writes."""
        ...

    def read(self, work: Callable[[Book], Result], *, wait: float) -> Result:
        """Run a read on the book, concurrently with everything else."""
        ...

    def mirror_files(self, hermes_home: str, space: str) -> None:
        """Mirror the files of Hermes' own memory in the background, if they have changed."""
        ...

    def prefetch(self, session: str, query: str, recall_options: Mapping[str, Any]) -> None:
        """Start a recall in the background."""
        ...

    def prefetched(
        self, session: str, query: str, recall_options: Mapping[str, Any], *, wait: float, reuse: bool
    ) -> RecallResult | None:
        """Return a recall for this session and query, or None if it is too slow; `reuse` allows one started before."""
        ...

    def close(self, *, wait: float) -> bool:
        """Close everything, and tell whether that was done in time. Durable messages stay durable."""
        ...

    def drop(self, finish: Callable[[], None], tags: Sequence[str]) -> None:
        """Close in the background, after `finish`, because the provider was dropped; its sessions have the tags.

        A finalizer calls this, at any point of any thread.
        """
        ...


def for_outbox(messages: Sequence[NewMessage]) -> list[OutboxMessage]:
    """Convert messages for an outbox."""
    return [OutboxMessage(message.text, message.role, message.author, message.client_id) for message in messages]
