"""The server keeper puts messages for a server into an outbox."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from commonbook.adapters.hermes.keeper import LAST_FLUSH_SECONDS, Result, StoredSession, Warn, count_of, for_outbox
from commonbook.adapters.hermes.shared_book import run_aside
from commonbook.errors import BadInput, CommonbookError
from commonbook.model.recall import RecallResult
from commonbook.model.session import NewMessage, SwitchReason
from commonbook.ports.outbox import SessionContext

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.client.outbox_client import Client


class ServerKeeper:
    """Stores messages in an outbox for a server. Nothing else is possible with a server yet."""

    def __init__(self, client: Client, *, warn: Warn) -> None:
        """Use the outbox of a client, whose default space is that of all sessions."""
        self._client, self._warn = client, warn
        self._refused = 0

    def append(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Put messages into the outbox, where they are durable."""
        self._client.append(session, for_outbox(messages), parent=context.parent, tags=context.tags)
        refused = self._client.counts().refused
        if refused > self._refused:
            where = "it is" if refused == 1 else "they are"
            self._warn(f"The server refused {count_of(refused, 'message')}; {where} in the outbox.")
        self._refused = refused

    def load(self, session: str) -> StoredSession | None:
        """Return None: a server cannot be read yet."""
        del session
        return None

    def rewind(self, session: str, after: str | None, removed_ids: Collection[str]) -> None:
        """Warn that a server cannot rewind."""
        del after, removed_ids
        self._warn(f"Undone messages of {session} stay on the server: it cannot rewind yet.")

    def switch(self, old: str, new: str, *, reason: SwitchReason, tags: Sequence[str]) -> None:
        """Do nothing: the first message of the new session names its parent."""

    def settle(self, session: str, *, close: bool = False) -> None:
        """Do nothing: the server settles by itself."""

    def write(self, work: Callable[[Book], Result]) -> Result:
        """Refuse: a write needs a book on this machine."""
        del work
        raise BadInput("this needs a book on this machine", fix="choose a home in place of a url")

    def read(self, work: Callable[[Book], Result], *, wait: float) -> Result:
        """Refuse: a read needs a book on this machine."""
        del wait
        return self.write(work)

    def mirror_files(self, hermes_home: str, space: str) -> None:
        """Do nothing: a server cannot be read yet."""

    def prefetch(self, session: str, query: str, recall_options: Mapping[str, Any]) -> None:
        """Do nothing: a server cannot recall yet."""

    def prefetched(
        self, session: str, query: str, recall_options: Mapping[str, Any], *, wait: float, reuse: bool
    ) -> RecallResult | None:
        """Return None: a server cannot recall yet."""
        del session, query, recall_options, wait, reuse
        return None

    def close(self, *, wait: float) -> bool:
        """Send for a moment, and close; unsent messages stay in the outbox."""
        with suppress(CommonbookError):
            self._client.flush(min(wait, LAST_FLUSH_SECONDS))
        self._client.close()
        return True

    def drop(self, finish: Callable[[], None], tags: Sequence[str]) -> None:
        """Close in a thread of its own, because the provider was dropped."""
        del tags

        def close() -> None:
            try:
                finish()
            finally:
                self.close(wait=LAST_FLUSH_SECONDS)

        run_aside(close, "commonbook-hermes-close")
