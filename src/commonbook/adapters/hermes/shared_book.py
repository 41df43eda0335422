"""Shared books: one open book for each home in a process, counted by the providers that use it.

Hermes' gateway makes a provider for each request of its API, and drops it without a shutdown. So book, writer thread
and spill file belong to the process. A provider that is shut down lets go of them, and the last one closes them. One
that is dropped is released by its finalizer, which may run anywhere: it only puts the release into a queue. One thread
for each book, the housekeeper, does such work. It also runs jobs that are due, closes sessions of dropped providers
that have fallen silent, and closes a book that nobody has used for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from commonbook.errors import BadInput, Busy, CommonbookError, Conflict, KeyConflict, NotAllowed, Refused, Unreachable
from commonbook.ports.outbox import OutboxEntry, SessionContext, Transport
from commonbook.runtime import reset_in_child
from commonbook.values.session import NewMessage

if TYPE_CHECKING:
    from collections.abc import Hashable

    from commonbook.remote.outbox_client import Client
    from commonbook.service.book import Book
    from commonbook.values.session import Session


REFUSALS: Final = (BadInput, Conflict, NotAllowed)
_LAST_FLUSH_SECONDS: Final = 1.0
"""Time that closing waits for the spill file to be sent."""
CHORES_EVERY: Final = 60.0
LINGER_SECONDS: Final = 30.0
SILENCE: Final = timedelta(hours=1)
"""A session that was left is closed after so long without a message."""
_CHORES_SECONDS: Final = 2.0
_MAX_SESSIONS: Final = 200
MAX_ASIDE: Final = 24
"""The number of jobs that may run in threads of their own at the same time, in the whole process."""

_room: Final = threading.BoundedSemaphore(MAX_ASIDE)


Result = TypeVar("Result")
_Job = tuple[Future[Any], Callable[[], Any]]


class LeftSessions(NamedTuple):
    """The sessions of a dropped provider: their space, and the tags that all of them have."""

    space: str
    tags: tuple[str, ...]


class SharedBook:
    """The open book of a home, with the thread that writes to it, its spill file and its housekeeper."""

    def __init__(self, open_book: Callable[[], Book], open_spill: Callable[[Transport], Client]) -> None:
        """Start to open the book; `open_spill` opens the spill file when it is needed."""
        self._open_book, self._open_spill = open_book, open_spill
        self.book: Book | None = None
        self.spill: Client | None = None
        self.users = 0
        self.closed = False
        self.refused_count = 0
        """The number of refused messages that was last reported."""
        self.file_states: dict[str, object] = {}
        """The states in which files of Hermes were last mirrored, by path."""
        self.append_lock = threading.Lock()
        self._spill_lock = threading.Lock()
        self._left: set[LeftSessions] = set()
        self._last_use = self._last_chores = time.monotonic()
        self._releases: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._chores_lock = threading.Lock()
        self.writer = WorkerThread("commonbook-hermes")
        self._first_open = self.writer.put(self.opened)
        self._housekeeper: threading.Thread | None = None

    def opened(self) -> Book:
        """Return the book, and open it first if needed. Only the writer thread may call this."""
        if self.book is None:
            self.book = self._open_book()
        return self.book

    def require_open(self) -> Book:
        """Return the book; Busy if it is not open yet."""
        if self.book is None:
            raise Busy("the book is not open yet", fix="wait a moment")
        return self.book

    # --- the spill file

    def spill_client(self) -> Client:
        """Return the outbox of the spill file, opened if it is not."""
        with self._spill_lock:
            if self.spill is None:
                self.spill = self._open_spill(_BookTransport(self))
            return self.spill

    def flush_spill(self, seconds: float) -> None:
        """Store the messages of the spill file; raise Busy if that takes too long."""
        if self.spill is not None and not self.closed and not self.spill.flush(seconds):
            raise Busy("earlier messages are still in the spill file", fix="try again later")

    def append_spilled(self, session: str, messages: Sequence[NewMessage], context: SessionContext) -> None:
        """Store messages of the spill file in the book."""
        if self.book is None:
            self.writer.put(self.opened)
            raise Unreachable("the book is not open")
        with self.append_lock:
            append(self.book, context.space or None, session, messages, context)

    # --- users

    def start_housekeeper(self) -> None:
        """Start the thread that does what no provider waits for, if it does not run."""
        if self._housekeeper is None:
            self._housekeeper = threading.Thread(
                target=self._keep_house, name="commonbook-hermes-housekeeper", daemon=True
            )
            self._housekeeper.start()

    def release_later(self, release: Callable[[], None]) -> None:
        """Have the housekeeper release a provider that was dropped. This takes no lock: a finalizer calls it."""
        self._releases.put(release)

    def note_left(self, left: LeftSessions) -> None:
        """Note that sessions were left without an end: they are closed after a silence."""
        self._left.add(left)

    def note_use(self) -> None:
        """Note that the book is in use."""
        self._last_use = time.monotonic()

    def _keep_house(self) -> None:
        self._do_chores()
        while not self.closed:
            release: Callable[[], None] | None
            try:
                release = self._releases.get(timeout=min(CHORES_EVERY, LINGER_SECONDS))
            except Empty:
                release = self._tidy
            if release is not None:
                # An error of one provider must not end the thread that releases all others.
                with suppress(Exception):
                    release()
            del release
            if time.monotonic() - self._last_chores >= CHORES_EVERY:
                self._do_chores()

    def _do_chores(self) -> None:
        """Run jobs that are due, such as settling, and close sessions that have fallen silent."""
        self._last_chores = time.monotonic()
        wait_for_error(self._first_open, CHORES_EVERY)
        with self._chores_lock, suppress(CommonbookError):
            if self.book is None or self.closed:
                return
            self.book.work(seconds=_CHORES_SECONDS)
            for left in tuple(self._left):
                if not _close_silent(self.book, left):
                    self._left.discard(left)

    def _tidy(self) -> None:
        """Close the book if nobody has used it for a while."""
        shared_books.close_if_unused(self)

    @property
    def is_idle(self) -> bool:
        """Whether no provider has had it for a while, and all sessions that were left are closed."""
        return not self.users and not self._left and time.monotonic() - self._last_use >= LINGER_SECONDS

    def close(self, *, wait: float) -> bool:
        """Close the book and the spill file; work that hangs is left to end by itself."""
        self.closed = True
        self._releases.put(None)
        if self.spill is not None:
            with suppress(CommonbookError):
                self.spill.flush(min(wait, _LAST_FLUSH_SECONDS))
            self.spill.close()
        future = self.writer.put(self._close_book)
        self.writer.end()
        return wait_for_error(future, wait) is None

    def _close_book(self) -> None:
        # Jobs that are running end within their time; a recall or a job that hangs is not waited for.
        has_lock = self._chores_lock.acquire(timeout=_CHORES_SECONDS)
        try:
            if self.book is not None:
                self.book.close()
        finally:
            if has_lock:
                self._chores_lock.release()


def _close_silent(book: Book, left: LeftSessions) -> bool:
    """Close the sessions that have fallen silent; return whether others are open yet."""
    now, others = datetime.now(UTC), False
    for session in book.sessions(space=left.space, limit=_MAX_SESSIONS):
        if session.closed is None and set(left.tags) <= set(session.tags):
            if _silent(book, session, now):
                book.close_session(session.id, space=left.space)
            else:
                others = True
    return others


def _silent(book: Book, session: Session, now: datetime) -> bool:
    """Return whether the last message of a session is old enough for the session to be settled."""
    page = book.messages(session.id, space=session.space.name, after=max(0, session.last - 1), limit=1)
    return now - max([session.created, *(message.time for message in page.items)]) >= SILENCE


class SharedBooks:
    """All shared books of this process, by what they were opened with."""

    def __init__(self) -> None:
        """Start without books."""
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the books, at first and in a forked child, where their threads do not run."""
        self._lock = threading.RLock()
        self._books: dict[Hashable, SharedBook] = {}

    def acquire(self, key: Hashable, make: Callable[[], SharedBook]) -> SharedBook:
        """Return the book of this key, made if there is none, with one user more."""
        with self._lock:
            book = self._books.get(key)
            if book is None:
                book = self._books[key] = make()
            book.users += 1
            book.note_use()
            return book

    def release(self, book: SharedBook) -> bool:
        """Count one user less; return whether it was the last, who has to close the book."""
        with self._lock:
            book.users -= 1
            book.note_use()
            if book.users:
                return False
            self._forget(book)
            return True

    def let_go(self, book: SharedBook) -> None:
        """Count one user less; the book stays open for a while, since the next request may need it."""
        with self._lock:
            book.users -= 1
            book.note_use()

    def close_if_unused(self, book: SharedBook) -> None:
        """Close a book that no provider has had for a while."""
        with self._lock:
            if not book.is_idle:
                return
            self._forget(book)
        book.close(wait=_CHORES_SECONDS)

    def _forget(self, book: SharedBook) -> None:
        self._books = {key: other for key, other in self._books.items() if other is not book}


shared_books: Final = SharedBooks()


class _BookTransport:
    """Transport of the spill file: it sends into the book as if that were a server."""

    def __init__(self, shared: SharedBook) -> None:
        self._shared = shared

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
            self._shared.append_spilled(session, sent, context)
        except REFUSALS as error:
            raise Refused(error.message, fix=error.fix) from error
        except Unreachable:
            raise
        except CommonbookError as error:
            raise Unreachable(error.message, fix=error.fix) from error
        return dict.fromkeys((entry.client_id for entry in messages), True)


def append(
    book: Book, space: str | None, session: str, messages: Sequence[NewMessage], context: SessionContext
) -> None:
    """Append to a session; if it has another parent than the context says, without that."""
    try:
        book.append(session, messages, space=space, parent=context.parent, tags=context.tags)
    except KeyConflict:
        raise
    except Conflict:
        # Another process created the session with another parent. The messages matter more than the parent.
        book.append(session, messages, space=space)


class TimedOut(Busy):
    """The work was not done in time; it may still be done later."""


def wait_for_error(future: Future[Any], seconds: float) -> BaseException | None:
    """Wait, and return the error of the work or of the time limit; None if it succeeded."""
    try:
        return future.exception(timeout=seconds)
    except TimeoutError:
        return TimedOut(f"no answer within {seconds:g} seconds", fix="check the home with `commonbook status`")


# --- threads. They are daemons: a job that hangs does not keep Hermes from ending.


class WorkerThread:
    """Runs jobs in the order in which they were submitted."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, work: Callable[[], Result]) -> Future[Result]:
        """Submit a job."""
        future: Future[Result] = Future()
        self._jobs.put((future, work))
        return future

    def end(self) -> None:
        """End the thread after the jobs that are queued."""
        self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            _run_job(*job)
            # A thread that waits for the next job must keep nothing of the last one alive.
            del job


def run_aside(work: Callable[[], Result], name: str) -> Future[Result]:
    """Run a job at once in another thread; its error is Busy, without a thread, if too many are running."""
    future: Future[Result] = Future()
    if not _room.acquire(blocking=False):
        future.set_exception(Busy("too many recalls are running", fix="try again in a moment"))
        return future

    def run() -> None:
        try:
            _run_job(future, work)
        finally:
            _room.release()

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        _room.release()
        future.set_exception(Busy(f"no thread could be started: {error}", fix="try again in a moment"))
    return future


def _run_job(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
        future.set_exception(error)
