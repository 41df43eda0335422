"""The book keeper stores messages in the book of this machine, within a time limit.

A single thread does all writes in order, and a caller waits for a few seconds at most. Messages that the book has not
stored by then go into the spill file, an outbox beside the book, where they are as durable. They are sent from there
into the book, in order, as soon as it accepts them. A message that took both ways is stored once, because its client
id is the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from commonbook.adapters.hermes.keeper import LAST_FLUSH_SECONDS, Result, StoredSession, Warn, count_of, for_outbox
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
from commonbook.model.session import Message, NewMessage, Session, SwitchReason
from commonbook.ports.outbox import OutboxEntry, SessionContext, Transport

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.client.outbox_client import Client


_PAGE = 1000
_CHORES_SECONDS = 2.0
_REFUSALS = (BadInput, Conflict, NotAllowed)


class BookKeeper:
    """Stores messages in a book, or in the spill file if the book does not accept them in time."""

    def __init__(
        self,
        open_book: Callable[[], Book],
        open_spill: Callable[[Transport], Client],
        *,
        space: str,
        find_space: Callable[[Book], str] | None = None,
        write_seconds: float,
        warn: Warn,
    ) -> None:
        """Start to open the book; `open_spill` opens the spill file when it is needed.

        All sessions are in the one space. `find_space` finds it once the book is open, which knows whether another
        repository has this name; until then, it is `space`.
        """
        self._space = self._likely_space = space
        self._find_space = find_space
        self._open_book, self._open_spill = open_book, open_spill
        self._write_seconds, self._warn = write_seconds, warn
        self._book: Book | None = None
        self._spill: Client | None = None
        self._refused_count = 0
        self._closed = False
        self._append_lock = threading.Lock()
        self._chores: Future[int] | None = None
        self._prefetch_lock = threading.Lock()
        self._prefetch_numbers: Counter[str] = Counter()
        self._writer = WorkerThread("commonbook-hermes")
        self._first_open: Future[object] = self._writer.put(self._opened_book)

    def wait_until_open(self, *, wait: float) -> None:
        """Wait until the book is open, and raise the error if it cannot be opened; a slow opening is no error."""
        error = _wait_for_error(self._first_open, wait)
        if error is not None and not isinstance(error, _TimedOut):
            raise error

    def catch_up(self, *, spilled: bool) -> None:
        """Send messages that an earlier process left in the spill file, and run jobs that are due."""
        if spilled:
            self._spill_client()
        self._first_open.add_done_callback(lambda _: self._begin_chores())

    def _begin_chores(self) -> None:
        if self._book is not None:
            self._chores = run_aside(
                lambda: self._require_open().work(seconds=_CHORES_SECONDS), "commonbook-hermes-chores"
            )

    # --- messages

    def append(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Store messages in the book; or in the spill file, also while earlier messages wait there."""
        if not self._is_spilling():
            future = self._writer.put(lambda: _append(self._opened_book(), self._space, session, messages, context))
            error = _wait_for_error(future, self._write_seconds)
            if error is None:
                return
            future.cancel()
            if isinstance(error, _REFUSALS) or not isinstance(error, Exception):
                raise error
            self._warn(f"The book did not store a message ({error}); it is safe in the spill file and is stored later.")
        self._spill_client().append(
            session, for_outbox(messages), space=self._space, parent=context.parent, tags=context.tags
        )

    def load(self, session: str) -> StoredSession | None:
        """Read a session from the book, and its waiting messages from the spill file."""
        future = self._writer.put(lambda: _read_session(self._opened_book(), self._space, session))
        if _wait_for_error(future, self._write_seconds) is not None:
            future.cancel()
            return None
        record, messages = future.result()
        stored_ids = {message.client_id for message in messages}
        waiting = [item.entry for item in self._spilled_entries(session) if item.entry.client_id not in stored_ids]
        return StoredSession(record, messages, tuple(waiting))

    def _spilled_entries(self, session: str) -> Iterator[Any]:
        if self._spill is not None:
            with suppress(CommonbookError):
                for item in self._spill.pending():
                    if (self._space_of(item.context), item.session) == (self._space, session):
                        yield item

    # --- sessions

    def rewind(self, session: str, after: str | None, removed_ids: Collection[str]) -> None:
        """Rewind a session, after the messages of the spill file are stored."""

        def work() -> None:
            self._flush_spill()
            book = self._opened_book()
            # Spilled messages wait: they are newer than the undone ones, and must not be removed with them.
            with self._append_lock:
                last_kept = _last_kept(book, self._space, session, after, removed_ids)
                book.rewind(session, last_kept, space=self._space)

        self._wait(self._writer.put(work), "Undone messages could not be rewound, and are still recalled")

    def switch(self, old: str, new: str, *, reason: SwitchReason, tags: Sequence[str]) -> None:
        """Switch in the book. No message depends on it: the first message of a new session names its parent."""

        def work() -> None:
            with suppress(Busy):
                self._flush_spill()
            self._opened_book().switch(old, new, reason=reason, space=self._space, tags=tags)

        self._wait(self._writer.put(work), f"The switch from {old} to {new} could not be made; its messages are safe")

    def settle(self, session: str, *, close: bool = False) -> None:
        """Settle in the background."""

        def work() -> None:
            with suppress(Busy):
                self._flush_spill()
            book = self._opened_book()
            with suppress(NotFound):
                (book.close_session if close else book.settle)(session, space=self._space)

        future = self._writer.put(work)
        future.add_done_callback(
            lambda done: self._warn_on_error(done, "The session could not be settled; it will be settled later")
        )

    def _wait(self, future: Future[Any], warning: str) -> None:
        with suppress(TimeoutError):
            future.exception(timeout=self._write_seconds)
        future.add_done_callback(lambda done: self._warn_on_error(done, warning))

    def _warn_on_error(self, future: Future[Any], warning: str) -> None:
        if not future.cancelled() and (error := future.exception()):
            self._warn(f"{warning} ({error}).")

    # --- other reads and writes

    def write(self, work: Callable[[Book], Result]) -> Result:
        """Run a write after all earlier writes; raise Busy if it takes too long, although it may still happen."""
        future = self._writer.put(lambda: work(self._opened_book()))
        error = _wait_for_error(future, self._write_seconds)
        if error is not None:
            future.cancel()
            raise error
        return future.result()

    def prefetch(self, session: str, query: str, recall_options: Mapping[str, Any]) -> None:
        """Start a recall; its result belongs to this session, its generation and this query."""
        number = self._next_prefetch(session)

        def work() -> None:
            # A late thread must not replace a recall that was started after it.
            with self._prefetch_lock:
                if self._prefetch_numbers[session] == number:
                    self._require_open().prefetch(session, query, space=self._space, **recall_options)

        run_aside(work, "commonbook-hermes-prefetch")

    def _next_prefetch(self, session: str) -> int:
        with self._prefetch_lock:
            self._prefetch_numbers[session] += 1
            return self._prefetch_numbers[session]

    def prefetched(
        self, session: str, query: str, recall_options: Mapping[str, Any], *, wait: float, reuse: bool
    ) -> RecallResult | None:
        """Return the recall that was started for this query, or the result of a new one."""

        def work(book: Book) -> RecallResult | None:
            def take() -> RecallResult | None:
                return book.prefetched(session, query, space=self._space, wait=wait)

            result = take() if reuse else None
            if result is None and self._next_prefetch(session):
                begun = book.prefetch(session, query, space=self._space, **recall_options)
                result = take() if begun else None
            return result

        try:
            return self.read(work, wait=wait)
        except _TimedOut:
            return None

    def read(self, work: Callable[[Book], Result], *, wait: float) -> Result:
        """Run a read in a thread of its own, concurrently with the writes."""
        future = run_aside(lambda: work(self._require_open()), "commonbook-hermes-recall")
        error = _wait_for_error(future, wait)
        if error is not None:
            raise error
        return future.result()

    def close(self, *, wait: float) -> bool:
        """Close the book and the spill file; work that hangs is left to end by itself."""
        self._closed = True
        if self._spill is not None:
            with suppress(CommonbookError):
                self._spill.flush(min(wait, LAST_FLUSH_SECONDS))
            self._spill.close()
        future = self._writer.put(self._close_book)
        self._writer.end()
        return _wait_for_error(future, wait) is None

    def _close_book(self) -> None:
        if self._chores is not None:
            _wait_for_error(self._chores, _CHORES_SECONDS)
        if self._book is not None:
            self._book.close()

    # --- the book and the spill file

    def _opened_book(self) -> Book:
        """Return the book, and open it first if needed. Only the writer thread may call this."""
        if self._book is None:
            book = self._open_book()
            if self._find_space is not None:
                self._space = self._find_space(book)
            self._book = book
        return self._book

    def _space_of(self, context: SessionContext) -> str:
        """Return the space of messages in the spill file, which may have been stored before the book was open."""
        return self._space if context.space in {None, "", self._likely_space} else context.space

    def _require_open(self) -> Book:
        if self._book is None:
            raise Busy("the book is not open yet", fix="wait a moment")
        return self._book

    def _is_spilling(self) -> bool:
        if self._spill is None:
            return False
        counts = self._spill.counts()
        if counts.refused > self._refused_count:
            messages = count_of(counts.refused, "message")
            self._warn(f"The book refused {messages} of the spill file; see the README.")
        self._refused_count = counts.refused
        return counts.waiting > 0

    def _spill_client(self) -> Client:
        if self._spill is None:
            self._spill = self._open_spill(_BookTransport(self))
        return self._spill

    def _flush_spill(self) -> None:
        """Store the messages of the spill file first; raise Busy if that takes too long."""
        if self._spill is not None and not self._closed and not self._spill.flush(self._write_seconds):
            raise Busy("earlier messages are still in the spill file", fix="try again later")

    def append_spilled(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Store messages of the spill file in the book."""
        if self._book is None:
            self._writer.put(self._opened_book)
            raise Unreachable("the book is not open")
        with self._append_lock:
            _append(self._book, self._space_of(context), session, messages, context)


class _BookTransport:
    """Transport of the spill file: it sends into the book as if that were a server."""

    def __init__(self, keeper: BookKeeper) -> None:
        self._keeper = keeper

    def append(
        self, session: str, messages: Sequence[OutboxEntry], *, context: SessionContext, timeout: float
    ) -> Mapping[str, object]:
        """Append to the book; an error that will not go away becomes Refused, any other is tried again."""
        del timeout  # The book has its own time limit; a message that is sent twice is stored once.
        sent = [
            NewMessage(entry.text, entry.role, entry.author, entry.time, entry.client_id, entry.masked)
            for entry in messages
        ]
        try:
            self._keeper.append_spilled(session, sent, context)
        except _REFUSALS as error:
            raise Refused(error.message, fix=error.fix) from error
        except Unreachable:
            raise
        except CommonbookError as error:
            raise Unreachable(error.message, fix=error.fix) from error
        return dict.fromkeys((entry.client_id for entry in messages), True)


# --- work of the writer thread


class _TimedOut(Busy):
    """The work was not done in time; it may still be done later."""


def _wait_for_error(future: Future[Any], seconds: float) -> BaseException | None:
    """Wait, and return the error of the work or of the time limit; None if it succeeded."""
    try:
        return future.exception(timeout=seconds)
    except TimeoutError:
        return _TimedOut(f"no answer within {seconds:g} seconds", fix="check the home with `commonbook status`")


def _append(book: Book, space: str, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
    try:
        book.append(session, messages, space=space, parent=context.parent, tags=context.tags)
    except KeyConflict:
        raise
    except Conflict:
        # Another process created the session with another parent. The messages matter more than the parent.
        book.append(session, messages, space=space)


def _read_session(book: Book, space: str, session: str) -> tuple[Session | None, tuple[Message, ...]]:
    try:
        messages = tuple(_messages(book, space, session))
        return book.messages(session, space=space, limit=1).session, messages
    except NotFound:
        return None, ()


def _messages(book: Book, space: str, session: str) -> Iterator[Message]:
    after: int | None = 0
    while after is not None:
        page = book.messages(session, space=space, after=after, limit=_PAGE)
        yield from page.items
        after = page.next


def _last_kept(book: Book, space: str, session: str, after: str | None, removed_ids: Collection[str]) -> int:
    """Return the number of the last message to keep; raise if others than the undone ones would be removed."""
    number = 0
    later_ids: list[str] = []
    for message in _messages(book, space, session):
        if after is not None and after in (message.client_id, message.id):
            number, later_ids = message.seq, []
        elif message.rewound_at is None:
            later_ids.append(message.client_id or message.id)
    if (after is not None and not number) or not set(later_ids) <= set(removed_ids):
        raise Conflict("the session has newer messages", fix="rewind it by hand: `commonbook session rewind`")
    return number
