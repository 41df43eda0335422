"""The storage that the provider writes to, a book of this machine or a server, and what both have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from commonbook.model.recall import RecallResult
from commonbook.model.session import Message, NewMessage, Session
from commonbook.ports.outbox import OutboxEntry, OutboxMessage, SessionContext

if TYPE_CHECKING:
    from commonbook.book.book import Book


Result = TypeVar("Result")
Tell = Callable[[str], None]
LAST_FLUSH_SECONDS: Final = 1.0
"""How long closing waits at most for an outbox to be sent."""


class Loaded(NamedTuple):
    """What is known of a session: itself, if there is one yet, its messages, and those that are still on their way."""

    session: Session | None
    messages: tuple[Message, ...]
    under_way: tuple[OutboxEntry, ...]


class Keeper(Protocol):
    """Keeps what was said. No call waits longer than the keeper's bound."""

    def append(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Store messages; when this returns they are durable. Raises if they are not."""
        ...

    def load(self, session: str) -> Loaded | None:
        """Return what is known of a session; None if that cannot be told, or not in time."""
        ...

    def rewind(self, session: str, after: str | None, gone: Collection[str]) -> None:
        """Take back these messages, which are all that stands behind the one with this id; without one, everything."""
        ...

    def switch(self, old: str, new: str, *, reason: str, tags: Sequence[str]) -> None:
        """Settle the old session and begin or resume the new one."""
        ...

    def settle(self, session: str, *, close: bool = False) -> None:
        """Make episodes of what is open, without anybody waiting for it."""
        ...

    def do(self, work: Callable[[Book], Result]) -> Result:
        """Do something else with the book, in its turn."""
        ...

    def look(self, work: Callable[[Book], Result], *, wait: float) -> Result:
        """Read something from the book, beside everything else."""
        ...

    def prefetch(self, session: str, query: str, asked: Mapping[str, Any]) -> None:
        """Begin a recall, without anybody waiting for it."""
        ...

    def prefetched(
        self, session: str, query: str, asked: Mapping[str, Any], *, wait: float, begun: bool
    ) -> RecallResult | None:
        """Return a recall for just this, if there is one in time; what was begun before only if it may be used."""
        ...

    def close(self, *, wait: float) -> bool:
        """Let go of everything; tell whether all was done in time. What is durable stays so."""
        ...


def for_outbox(messages: Sequence[NewMessage]) -> list[OutboxMessage]:
    """Return messages as an outbox takes them."""
    return [OutboxMessage(one.text, one.role, one.author, one.client_id) for one in messages]
