"""Stores messages in the book of this machine, and bounds how long anybody waits for that.

All writes happen one after the other in a thread of their own; a caller waits for a few seconds at most. Messages that
the book has not taken by then go into a spill, an outbox beside it, and are as durable there; from it they are sent on,
in order, as soon as the book takes them. A message that was under way both ways is stored once: its client id is the
same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from commonbook.adapters.hermes.keeper import LAST_FLUSH_SECONDS, Loaded, Result, Tell, for_outbox
from commonbook.adapters.hermes.worker_thread import WorkerThread, run_aside
from commonbook.errors import (
    BadInput,
    Busy,
    CommonbookError,
    Conflict,
    KeyConflict,
    NotAllowed,
    NotFound,
    Refused,
    Unreachable,
)
from commonbook.model.recall import RecallResult
from commonbook.model.session import Message, NewMessage, Session
from commonbook.ports.outbox import OutboxEntry, SessionContext, Transport

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.client.client import Client


_PAGE = 1000
_CHORES = 2.0
_REFUSALS = (BadInput, Conflict, NotAllowed)


class BookKeeper:
    """Keeps everything in a book, and beside it what the book does not take in time."""

    def __init__(
        self,
        opening: Callable[[], Book],
        spilling: Callable[[Transport], Client],
        *,
        seconds: float,
        tell: Tell,
    ) -> None:
        """Begin to open the book; `spilling` opens what stands beside it."""
        self._opening, self._spilling = opening, spilling
        self._seconds, self._tell = seconds, tell
        self._book: Book | None = None
        self._spill: Client | None = None
        self._refused = 0
        self._closed = False
        self._taking = threading.Lock()
        self._chores: Future[int] | None = None
        self._asking = threading.Lock()
        self._asked: Counter[str] = Counter()
        self._line = WorkerThread("commonbook-hermes")
        self._first: Future[object] = self._line.put(self._opened)

    def opened(self, *, wait: float) -> None:
        """Wait until the book is open, and raise what keeps it from being so; a slow one is not an error."""
        error = _outcome(self._first, wait)
        if error is not None and not isinstance(error, _Late):
            raise error

    def catch_up(self, *, spilled: bool) -> None:
        """Send on what an earlier process left beside the book, and settle what has become due."""
        if spilled:
            self._spilled()
        self._first.add_done_callback(lambda _: self._begin_chores())

    def _begin_chores(self) -> None:
        if self._book is not None:
            self._chores = run_aside(lambda: self._ready().work(seconds=_CHORES), "commonbook-hermes-chores")

    # --- messages

    def append(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Store messages in the book, or beside it behind what is there already."""
        if not self._is_spilling():
            future = self._line.put(lambda: _append(self._opened(), session, messages, context))
            error = _outcome(future, self._seconds)
            if error is None:
                return
            future.cancel()
            if isinstance(error, _REFUSALS) or not isinstance(error, Exception):
                raise error
            self._tell(f"The book did not take a message ({error}); it is kept beside it and follows later.")
        self._spilled().append(session, for_outbox(messages), parent=context.parent, tags=context.tags)

    def load(self, session: str) -> Loaded | None:
        """Read a session from the book, and from the spill what is on its way there."""
        future = self._line.put(lambda: _loaded(self._opened(), session))
        if _outcome(future, self._seconds) is not None:
            future.cancel()
            return None
        found, messages = future.result()
        there = {one.client_id for one in messages}
        waiting = [one.entry for one in self._waiting(session) if one.entry.client_id not in there]
        return Loaded(found, messages, tuple(waiting))

    def _waiting(self, session: str) -> Iterator[Any]:
        if self._spill is not None:
            with suppress(CommonbookError):
                yield from (one for one in self._spill.pending() if one.session == session)

    # --- sessions

    def rewind(self, session: str, after: str | None, gone: Collection[str]) -> None:
        """Take messages back, when those that were on their way have arrived."""

        def work() -> None:
            self._send_on()
            book = self._opened()
            # What comes from beside the book waits: it was said after what was undone, and must not go with it.
            with self._taking:
                book.rewind(session, _last_kept(book, session, after, gone))

        self._wait(self._line.put(work), "What was undone could not be taken back, and is still recalled")

    def switch(self, old: str, new: str, *, reason: str, tags: Sequence[str]) -> None:
        """Switch in the book; nothing said depends on it: a new session's first message brings its parent along."""

        def work() -> None:
            with suppress(Busy):
                self._send_on()
            self._opened().switch(old, new, reason=reason, tags=tags)

        self._wait(self._line.put(work), f"The switch from {old} to {new} could not be made; its messages are safe")

    def settle(self, session: str, *, close: bool = False) -> None:
        """Settle in the background."""

        def work() -> None:
            with suppress(Busy):
                self._send_on()
            book = self._opened()
            with suppress(NotFound):
                book.close_session(session) if close else book.settle(session)

        future = self._line.put(work)
        future.add_done_callback(lambda done: self._told(done, "What was said could not be settled; it will be later"))

    def _wait(self, future: Future[Any], what: str) -> None:
        with suppress(TimeoutError):
            future.exception(timeout=self._seconds)
        future.add_done_callback(lambda done: self._told(done, what))

    def _told(self, future: Future[Any], what: str) -> None:
        if not future.cancelled() and (error := future.exception()):
            self._tell(f"{what} ({error}).")

    # --- the rest

    def do(self, work: Callable[[Book], Result]) -> Result:
        """Do something in its turn; Busy if that takes too long: then it may still happen."""
        future = self._line.put(lambda: work(self._opened()))
        error = _outcome(future, self._seconds)
        if error is not None:
            future.cancel()
            raise error
        return future.result()

    def prefetch(self, session: str, query: str, asked: Mapping[str, Any]) -> None:
        """Begin a recall; what comes of it belongs to this session, its generation and this query."""
        number = self._next_asked(session)

        def work() -> None:
            # A thread that is late must not take the place of what was asked for after it.
            with self._asking:
                if self._asked[session] == number:
                    self._ready().prefetch(session, query, **asked)

        run_aside(work, "commonbook-hermes-prefetch")

    def _next_asked(self, session: str) -> int:
        with self._asking:
            self._asked[session] += 1
            return self._asked[session]

    def prefetched(
        self, session: str, query: str, asked: Mapping[str, Any], *, wait: float, begun: bool
    ) -> RecallResult | None:
        """Return what was begun for just this, or what a recall finds now."""

        def work(book: Book) -> RecallResult | None:
            found = book.prefetched(session, query, wait=wait) if begun else None
            if found is None and self._next_asked(session) and book.prefetch(session, query, **asked):
                found = book.prefetched(session, query, wait=wait)
            return found

        try:
            return self.look(work, wait=wait)
        except _Late:
            return None

    def look(self, work: Callable[[Book], Result], *, wait: float) -> Result:
        """Read something from the book beside everything that is written."""
        future = run_aside(lambda: work(self._ready()), "commonbook-hermes-recall")
        error = _outcome(future, wait)
        if error is not None:
            raise error
        return future.result()

    def close(self, *, wait: float) -> bool:
        """Close both; what still hangs is left to end by itself."""
        self._closed = True
        if self._spill is not None:
            with suppress(CommonbookError):
                self._spill.flush(min(wait, LAST_FLUSH_SECONDS))
            self._spill.close()
        future = self._line.put(self._shut)
        self._line.end()
        return _outcome(future, wait) is None

    def _shut(self) -> None:
        if self._chores is not None:
            _outcome(self._chores, _CHORES)
        if self._book is not None:
            self._book.close()

    # --- the book and what stands beside it

    def _opened(self) -> Book:
        """Return the book, opened now if it is not: only in the line."""
        if self._book is None:
            self._book = self._opening()
        return self._book

    def _ready(self) -> Book:
        if self._book is None:
            raise Busy("the book is not open yet", fix="wait a moment")
        return self._book

    def _is_spilling(self) -> bool:
        if self._spill is None:
            return False
        counts = self._spill.counts()
        if counts.refused > self._refused:
            self._tell(f"{counts.refused} messages beside the book were refused by it; see the README.")
        self._refused = counts.refused
        return counts.waiting > 0

    def _spilled(self) -> Client:
        if self._spill is None:
            self._spill = self._spilling(_IntoTheBook(self))
        return self._spill

    def _send_on(self) -> None:
        """Let what is on its way arrive first."""
        if self._spill is not None and not self._closed and not self._spill.flush(self._seconds):
            raise Busy("messages that come before are still on their way", fix="try again later")

    def take(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Put into the book what comes from beside it."""
        if self._book is None:
            self._line.put(self._opened)
            raise Unreachable("the book is not open")
        with self._taking:
            _append(self._book, session, messages, context)


class _IntoTheBook:
    """The way from the spill into the book, which is a server to it."""

    def __init__(self, keeper: BookKeeper) -> None:
        self._keeper = keeper

    def append(
        self, session: str, messages: Sequence[OutboxEntry], *, context: SessionContext, timeout: float
    ) -> Mapping[str, object]:
        """Append as the book does; what it will never take is refused, all else tried again."""
        del timeout  # The book waits as long as it was told to; what is sent twice meanwhile is stored once.
        sent = [NewMessage(one.text, one.role, one.author, one.time, one.client_id) for one in messages]
        try:
            self._keeper.take(session, sent, context)
        except _REFUSALS as error:
            raise Refused(error.message, fix=error.fix) from error
        except Unreachable:
            raise
        except CommonbookError as error:
            raise Unreachable(error.message, fix=error.fix) from error
        return dict.fromkeys((one.client_id for one in messages), True)


# --- what the line does


class _Late(Busy):
    """It was not done in time; perhaps it is later."""


def _outcome(future: Future[Any], seconds: float) -> BaseException | None:
    """Return what went wrong, if anything did; too late is wrong too."""
    try:
        return future.exception(timeout=seconds)
    except TimeoutError:
        return _Late(f"no answer within {seconds:g} seconds", fix="see who holds the home: `commonbook status`")


def _append(book: Book, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
    try:
        book.append(session, messages, parent=context.parent, tags=context.tags)
    except KeyConflict:
        raise
    except Conflict:
        # Somebody else began the session, with another parent; what was said in it is more than where it came from.
        book.append(session, messages)


def _loaded(book: Book, session: str) -> tuple[Session | None, tuple[Message, ...]]:
    try:
        messages = tuple(_messages(book, session))
        return book.messages(session, limit=1).session, messages
    except NotFound:
        return None, ()


def _messages(book: Book, session: str) -> Iterator[Message]:
    after: int | None = 0
    while after is not None:
        page = book.messages(session, after=after, limit=_PAGE)
        yield from page.items
        after = page.next


def _last_kept(book: Book, session: str, after: str | None, gone: Collection[str]) -> int:
    """Return the number of the last message that stays; raise if more would go than what was undone."""
    number = 0
    behind: list[str] = []
    for one in _messages(book, session):
        if after is not None and after in (one.client_id, one.id):
            number, behind = one.seq, []
        elif one.rewound_at is None:
            behind.append(one.client_id or one.id)
    if (after is not None and not number) or not set(behind) <= set(gone):
        raise Conflict("other things were said meanwhile", fix="take it back by hand: `commonbook session rewind`")
    return number
