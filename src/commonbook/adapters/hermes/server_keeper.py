"""Stores messages on a server. There, the outbox is the only way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from commonbook.adapters.hermes.keeper import LAST_FLUSH_SECONDS, Loaded, Result, Tell, for_outbox
from commonbook.errors import BadInput, CommonbookError
from commonbook.model.recall import RecallResult
from commonbook.model.session import NewMessage
from commonbook.ports.outbox import SessionContext

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.client.client import Client


class ServerKeeper:
    """Keeps messages for a server, in an outbox. A server can do nothing else for Hermes yet."""

    def __init__(self, client: Client, *, space: str | None, tell: Tell) -> None:
        """Send what the client's outbox holds."""
        self._client, self._space, self._tell = client, space, tell
        self._refused = 0

    def append(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Put messages into the outbox: they are durable there."""
        self._client.append(session, for_outbox(messages), space=self._space, parent=context.parent, tags=context.tags)
        refused = self._client.counts().refused
        if refused > self._refused:
            self._tell(f"The server refused {refused} messages; they are in the outbox.")
        self._refused = refused

    def load(self, session: str) -> Loaded | None:
        """Nobody can read from a server yet."""
        del session
        return None

    def rewind(self, session: str, after: str | None, gone: Collection[str]) -> None:
        """Say that nothing can be taken back."""
        del after, gone
        self._tell(f"What was undone in {session} stays on the server: it cannot be taken back there yet.")

    def switch(self, old: str, new: str, *, reason: str, tags: Sequence[str]) -> None:
        """Leave it to the first message of the new session, which names its parent."""

    def settle(self, session: str, *, close: bool = False) -> None:
        """Leave it to the server."""

    def do(self, work: Callable[[Book], Result]) -> Result:
        """Refuse: that needs a book on this machine."""
        del work
        raise BadInput("this needs a book on this machine", fix="choose a home in place of a url")

    def look(self, work: Callable[[Book], Result], *, wait: float) -> Result:
        """Refuse in the same way."""
        del wait
        return self.do(work)

    def prefetch(self, session: str, query: str, asked: Mapping[str, Any]) -> None:
        """Begin nothing."""

    def prefetched(
        self, session: str, query: str, asked: Mapping[str, Any], *, wait: float, begun: bool
    ) -> RecallResult | None:
        """Return nothing."""
        del session, query, asked, wait, begun
        return None

    def close(self, *, wait: float) -> bool:
        """Send what can be sent soon, and stop; what has not arrived stays in the outbox."""
        with suppress(CommonbookError):
            self._client.flush(min(wait, LAST_FLUSH_SECONDS))
        self._client.close()
        return True
