"""The keeper stores messages in the book of this machine, within a time limit.

A single thread does all writes of a process in order, and a caller waits for a few seconds at most. Messages that the
book has not stored by then go into the spill file, an outbox beside the book, where they are as durable. They are sent
from there into the book, in order, as soon as it accepts them. A message that took both ways is stored once, because
its client id is the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from commonbook.adapters.hermes.memory_mirror import file_state, mirror_files
from commonbook.adapters.hermes.shared_book import (
    REFUSALS,
    LeftSessions,
    SharedBook,
    TimedOut,
    append,
    run_aside,
    shared_books,
    wait_for_error,
)
from commonbook.errors import Busy, CommonbookError, Conflict, NotFound
from commonbook.ports.outbox import OutboxEntry, OutboxMessage, SessionContext
from commonbook.values.recall import RecallResult
from commonbook.values.session import Message, NewMessage, Session, SwitchReason

if TYPE_CHECKING:
    from commonbook.service.book import Book


_PAGE = 1000

Result = TypeVar("Result")
Warn = Callable[[str], None]


class StoredSession(NamedTuple):
    """A session as it is stored: its record if it exists, its messages, and those that wait in the spill file."""

    session: Session | None
    messages: tuple[Message, ...]
    pending: tuple[OutboxEntry, ...]


class Keeper:
    """Stores the messages of one provider in a book, or in the spill file if the book does not accept them in time."""

    def __init__(self, shared: SharedBook, *, space: str, write_seconds: float, warn: Warn) -> None:
        """Use a shared book, which is acquired already. All sessions are in the one space."""
        self.shared = shared
        self._space = space
        self._write_seconds, self._warn = write_seconds, warn
        self._writer = shared.writer
        self._prefetch_lock = threading.Lock()
        self._prefetch_numbers: Counter[str] = Counter()
        self._first_open: Future[object] = self._writer.put(shared.opened)

    def wait_until_open(self, *, wait: float) -> None:
        """Wait until the book is open, and raise the error if it cannot be opened; a slow opening is not an error."""
        error = wait_for_error(self._first_open, wait)
        if error is not None and not isinstance(error, TimedOut):
            raise error

    # --- messages

    def append(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Store messages in the book; or in the spill file, also while earlier messages wait there."""
        if not self._is_spilling():
            future = self._writer.put(lambda: append(self.shared.opened(), self._space, session, messages, context))
            error = wait_for_error(future, self._write_seconds)
            if error is None:
                return
            future.cancel()
            if isinstance(error, REFUSALS) or not isinstance(error, Exception):
                raise error
            self._warn(f"The book did not store a message ({error}); it is safe in the spill file and is stored later.")
        self.shared.spill_client().append(
            session,
            [OutboxMessage(message.text, message.role, message.author, message.client_id) for message in messages],
            space=self._space,
            parent=context.parent,
            tags=context.tags,
        )

    def load(self, session: str) -> StoredSession | None:
        """Read a session from the book, and its waiting messages from the spill file."""
        # The spill file first: a message that is sent meanwhile is then read twice, and not missed in both.
        spilled = list(self._spilled_entries(session))
        future = self._writer.put(lambda: _read_session(self.shared.opened(), self._space, session))
        if wait_for_error(future, self._write_seconds) is not None:
            future.cancel()
            return None
        record, messages = future.result()
        stored_ids = {message.client_id for message in messages}
        waiting = [item.entry for item in spilled if item.entry.client_id not in stored_ids]
        return StoredSession(record, messages, tuple(waiting))

    def _spilled_entries(self, session: str) -> Iterator[Any]:
        if self.shared.spill is not None:
            with suppress(CommonbookError):
                for item in self.shared.spill.pending():
                    if (item.context.space or self._space, item.session) == (self._space, session):
                        yield item

    # --- sessions

    def rewind(self, session: str, after: str | None, removed_ids: Collection[str]) -> None:
        """Rewind a session, after the messages of the spill file are stored."""

        def work() -> None:
            self.shared.flush_spill(self._write_seconds)
            book = self.shared.opened()
            # Spilled messages wait: they are newer than the undone ones, and must not be removed with them.
            with self.shared.append_lock:
                last_kept = _last_kept(book, self._space, session, after, removed_ids)
                book.rewind(session, last_kept, space=self._space)

        self._wait(self._writer.put(work), "Undone messages could not be rewound, and are still recalled")

    def switch(self, old: str, new: str, *, reason: SwitchReason, tags: Sequence[str]) -> None:
        """Switch in the book. No message depends on it: the first message of a new session names its parent."""

        def work() -> None:
            with suppress(Busy):
                self.shared.flush_spill(self._write_seconds)
            self.shared.opened().switch(old, new, reason=reason, space=self._space, tags=tags)

        self._wait(self._writer.put(work), f"The switch from {old} to {new} could not be made; its messages are safe")

    def settle(self, session: str, *, close: bool = False) -> None:
        """Settle in the background."""

        def work() -> None:
            with suppress(Busy):
                self.shared.flush_spill(self._write_seconds)
            book = self.shared.opened()
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
        future = self._writer.put(lambda: work(self.shared.opened()))
        error = wait_for_error(future, self._write_seconds)
        if error is not None:
            future.cancel()
            raise error
        return future.result()

    def mirror_files(self, hermes_home: str, space: str) -> None:
        """Mirror the files of Hermes' memory in the background, if they have changed since this process last did it."""
        state = file_state(hermes_home)
        key = f"{hermes_home}\n{space}"
        if state is None or self.shared.file_states.get(key) == state:
            return

        def work() -> None:
            if self.shared.file_states.get(key) != state:
                mirror_files(self.shared.opened(), space, hermes_home)
                self.shared.file_states[key] = state

        future = self._writer.put(work)
        future.add_done_callback(lambda done: self._warn_on_error(done, "Hermes' memory could not be mirrored"))

    def prefetch(self, session: str, query: str, recall_options: Mapping[str, Any]) -> None:
        """Start a recall; its result belongs to this session, its generation and this query."""
        number = self._next_prefetch(session)

        def work() -> None:
            # A late thread must not replace a recall that was started after it.
            with self._prefetch_lock:
                if self._prefetch_numbers[session] == number:
                    _prefetch(self.shared.require_open(), self._space, session, query, recall_options)

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
                begun = _prefetch(book, self._space, session, query, recall_options)
                result = take() if begun else None
            return result

        try:
            return self.read(work, wait=wait)
        except TimedOut:
            return None

    def read(self, work: Callable[[Book], Result], *, wait: float) -> Result:
        """Run a read in a thread of its own, concurrently with the writes."""
        future = run_aside(lambda: work(self.shared.require_open()), "commonbook-hermes-recall")
        error = wait_for_error(future, wait)
        if error is not None:
            raise error
        return future.result()

    def close(self, *, wait: float) -> bool:
        """Let go of the book; the last provider closes it. Wait until earlier writes are done, for so long at most."""
        if shared_books.release(self.shared):
            return self.shared.close(wait=wait)
        return wait_for_error(self._writer.put(lambda: None), wait) is None

    def drop(self, finish: Callable[[], None], tags: Sequence[str]) -> None:
        """Have the housekeeper let go of the book. A finalizer calls this: it takes no lock and waits for nothing."""
        shared, space = self.shared, self._space

        def release() -> None:
            try:
                finish()
            finally:
                if tags:
                    shared.note_left(LeftSessions(space, tuple(tags)))
                shared_books.let_go(shared)

        shared.release_later(release)

    def _is_spilling(self) -> bool:
        if self.shared.spill is None:
            return False
        counts = self.shared.spill.counts()
        if counts.refused > self.shared.refused_count:
            noun = "message" if counts.refused == 1 else "messages"
            self._warn(f"The book refused {counts.refused} {noun} of the spill file; see the README.")
        self.shared.refused_count = counts.refused
        return counts.waiting > 0


def _prefetch(book: Book, space: str, session: str, query: str, recall_options: Mapping[str, Any]) -> bool:
    """Start a recall. The spaces to recall from are given as a function, since some depend on the book."""
    find_spaces: Callable[[Book], Sequence[str]] = recall_options["spaces"]
    return book.prefetch(session, query, space=space, **{**recall_options, "spaces": find_spaces(book)})


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
