"""Group commit: concurrent appends of one process share a transaction; the first waiter of a batch is its leader.

Each request concerns a session in one space; a batch may have several of one session, in their order. The leader runs
the operation for its whole batch and hands each waiter its own result. A request starts at once if none is running and
none is announced, and also beside one other.

A server announces the requests that it has received. Until these have joined, a batch does not start, for a short time
only: without that, each of them would find the queue empty and begin a transaction of its own.

There are two kinds of queues:
1. The quick queue mixes spaces and waits for no lock. A request whose space or session is locked leaves it undone.
2. The queue of its space waits for the lock of that space, but for no session. A request whose session is locked leaves
   it undone, pauses, and joins it again.

So a locked space or session delays only the requests that need it. Of those, one at a time occupies a database
connection for each locked space, and none for a locked session. A request whose batch failed runs alone, outside.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from commonbook.errors import Busy, CommonbookError, HomeError
from commonbook.runtime import pause_seconds, reset_in_child

Request = TypeVar("Request")
Response = TypeVar("Response")
Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)
Error = TypeVar("Error", bound=CommonbookError)

_QUICK_QUEUE: Final = ""
_MAX_BATCH_REQUESTS: Final = 32
_MAX_BATCH_SIZE: Final = 200
_ARRIVAL_SECONDS: Final = 0.02
"""How long the first waiter of a batch waits for announced requests."""
_STUCK_SECONDS: Final = 1.0
"""A quick batch that runs for longer is not waited for any more: its connection may be stuck."""
_CONTENDED_SECONDS: Final = 1.0
"""For so long after a space was found locked, requests for it skip the quick queue."""
_MAX_CONTENDED_SPACES: Final = 10_000
_FIRST_PAUSE_SECONDS: Final = 0.005
_MAX_PAUSE_SECONDS: Final = 0.1
"""The pause before a request for a locked session is tried again."""


class NotRun(Enum):
    """The outcome of a request for which nothing was done."""

    LOCKED = "it needs a row that another transaction has locked"
    MUST_RUN_ALONE = "it cannot run with others, or its batch failed"


Outcome: TypeAlias = Response | NotRun | CommonbookError


class BatchOperation(Protocol[Request_contra, Response_co]):
    """Runs several requests in one transaction and returns an outcome for each; an error that it raises is for all.

    It leaves out requests whose session is locked. With `patient`, it waits for the lock of the space.
    """

    def __call__(
        self, requests: Sequence[Request_contra], /, *, patient: bool
    ) -> Sequence[Response_co | NotRun | CommonbookError]:
        """Run the requests."""


_BatchCall: TypeAlias = Callable[[Sequence[Request]], Sequence[Response | NotRun | CommonbookError]]


class GroupCommit:
    """Batches the concurrent requests of one process."""

    def __init__(self, *, busy_seconds: float) -> None:
        """Begin with empty queues; a request waits for its session for `busy_seconds`."""
        self._busy_seconds = busy_seconds
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Empty the queues: in a forked child, only the thread that forked exists."""
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._contended_until: dict[str, float] = {}
        self._announced: set[_Announcement] = set()

    @contextmanager
    def announce(self) -> Iterator[None]:
        """Announce a request that this context, or a thread that runs in a copy of it, is going to submit.

        The announcement ends when the request joins a queue, and at the latest with the `with` block.
        """
        announcement = _Announcement()
        token = _current_announcement.set(announcement)
        with self._lock:
            self._announced.add(announcement)
        try:
            yield
        finally:
            _current_announcement.reset(token)
            self._withdraw(announcement)

    def submit(
        self,
        space: str,
        request: Request,
        operation: BatchOperation[Request, Response],
        run_alone: Callable[[], Response],
        *,
        size: int = 1,
    ) -> Response:
        """Run a request, in a batch with others that wait, or by `run_alone`, which waits for every lock.

        A batch is limited in the number of its requests and in the sum of their `size`. A request that is larger by
        itself runs alone, so that no other waits for it. So does a request of the main thread: a signal may interrupt
        that thread, and must not interrupt the requests of others.
        """
        if size > _MAX_BATCH_SIZE or threading.current_thread() is threading.main_thread():
            self._withdraw(_current_announcement.get())
            return run_alone()
        outcome: Response | NotRun = NotRun.LOCKED
        if self._is_contended(space):
            self._withdraw(_current_announcement.get())
        else:
            outcome = self._join(_QUICK_QUEUE, _Waiter(request, size), partial(operation, patient=False))
            if outcome is NotRun.LOCKED:
                self._mark_contended(space)
        until, failures = time.monotonic() + self._busy_seconds, 0
        while outcome is NotRun.LOCKED:
            if failures:
                time.sleep(pause_seconds(failures, first=_FIRST_PAUSE_SECONDS, most=_MAX_PAUSE_SECONDS))
            outcome = self._join(space, _Waiter(request, size), partial(operation, patient=True))
            failures += 1
            if outcome is NotRun.LOCKED and time.monotonic() >= until:
                raise Busy(
                    "another writer has held the session for too long",
                    fix="try again; find out which transaction holds the lock",
                )
        return run_alone() if outcome is NotRun.MUST_RUN_ALONE else outcome

    def waiting(self, space: str = _QUICK_QUEUE) -> int:
        """Return how many requests wait in the queue of a space, or in the quick queue."""
        with self._lock:
            return len(self._queues[space].waiting) if space in self._queues else 0

    # --- contended spaces

    def _is_contended(self, space: str) -> bool:
        until = self._contended_until.get(space)
        return until is not None and time.monotonic() < until

    def _mark_contended(self, space: str) -> None:
        if len(self._contended_until) >= _MAX_CONTENDED_SPACES:
            self._contended_until.clear()
        self._contended_until[space] = time.monotonic() + _CONTENDED_SECONDS

    # --- announced requests

    def _withdraw(self, announcement: _Announcement | None) -> None:
        """End an announcement, and start the batch that waits for it."""
        with self._lock:
            self._announced.discard(announcement)
            leader = self._start_batch(_QUICK_QUEUE)
        if leader:
            leader.wake()

    # --- batches

    def _join(
        self, name: str, waiter: _Waiter[Request, Response], operation: _BatchCall[Request, Response]
    ) -> Response | NotRun:
        """Start at once if the queue allows it; otherwise wait for a leader's outcome, or to become a leader."""
        try:
            with self._lock:
                if name == _QUICK_QUEUE:
                    self._announced.discard(_current_announcement.get())
                queue = self._queues.get(name)
                if queue is None:
                    queue = self._queues[name] = _Queue(name)
                queue.waiting.append(waiter)
                leader = self._start_batch(name)
            if leader and leader is not waiter:
                leader.wake()
            seconds = _ARRIVAL_SECONDS
            while not waiter.batch and not waiter.wait(seconds):
                self._bypass_stuck_batches(name)
                seconds = _STUCK_SECONDS
            if waiter.batch:
                self._run_batch(name, waiter, operation)
                # It contains the waiter itself: the memory of a cycle is freed late.
                waiter.batch = ()
        except BaseException:
            self._abandon(name, waiter)
            raise
        if isinstance(waiter.outcome, BaseException):
            raise waiter.outcome
        return waiter.outcome

    def _run_batch(
        self, name: str, leader: _Waiter[Request, Response], operation: _BatchCall[Request, Response]
    ) -> None:
        """Run the operation for a batch, start the next batch, and hand each waiter its outcome."""
        batch = leader.batch
        outcomes: Sequence[Response | NotRun | BaseException] = [_interrupted() for _ in batch]
        began = time.monotonic()
        early_outcome: _EarlyOutcome = _keep_waiting
        try:
            leader.began = True
            outcomes = operation([waiter.request for waiter in batch])
        except Busy as error:
            # It concerns the whole batch. A waiter that has waited about as long for the same lock fails with it.
            outcomes = error_for_each(error, len(batch))
            early_outcome = partial(_fail_if_older, error, (began + time.monotonic()) / 2)
        except HomeError as error:
            # It concerns the whole batch, and perhaps those who wait: each of them finds out by its own attempt.
            outcomes = error_for_each(error, len(batch))
            early_outcome = _run_alone
        except Exception as error:  # noqa: BLE001 - raised in the thread that caused it, which tries again alone
            outcomes = [error] if len(batch) == 1 else [NotRun.MUST_RUN_ALONE] * len(batch)
        finally:
            self._finish(name, leader, outcomes, early_outcome)

    def _abandon(self, name: str, waiter: _Waiter[Any, Any]) -> None:
        """Withdraw a thread that was interrupted at any point, so that no other waits for it for ever."""
        with self._lock:
            queue = self._queues.get(name)
            if queue is not None and waiter in queue.waiting:
                queue.waiting.remove(waiter)
        self._finish(
            name,
            waiter,
            [_interrupted() if waiter.began else NotRun.MUST_RUN_ALONE for _ in waiter.batch],
            _keep_waiting,
        )

    def _finish(
        self, name: str, leader: _Waiter[Any, Any], outcomes: Sequence[object], early_outcome: _EarlyOutcome
    ) -> None:
        """Start the next batch and hand each waiter of this one its outcome, unless that was done already."""
        if leader.batch and leader.to_wake is None:
            self._start_next(name, leader, early_outcome)
        for waiter in leader.to_wake or ():
            waiter.wake()
        for waiter, outcome in zip(leader.batch, outcomes, strict=True):
            if not waiter.answered:
                waiter.outcome = outcome
                if waiter is not leader:
                    waiter.wake()
                waiter.answered = True

    def _start_next(self, name: str, leader: _Waiter[Any, Any], early_outcome: _EarlyOutcome) -> None:
        """Remove a batch that has ended, give waiters their early outcomes, and start the next batch of the rest."""
        with self._lock:
            queue = self._queues[name]
            queue.running.remove(leader)
            to_wake = leader.to_wake = queue.remove_early(early_outcome)
            if not self._waits_for_announced(queue) and (batch := queue.next_batch()):
                to_wake += batch[:1]
                queue.start(batch)
            if not queue.running and not queue.waiting:
                del self._queues[name]

    def _start_batch(self, name: str) -> _Waiter[Any, Any] | None:
        """Start a batch of those who wait, if the queue allows it, and return its leader; the lock must be held."""
        queue = self._queues.get(name)
        if queue is None or not queue.can_start_now() or self._waits_for_announced(queue):
            return None
        batch = queue.next_batch()
        queue.start(batch)
        return batch[0]

    def _waits_for_announced(self, queue: _Queue) -> bool:
        return bool(self._announced) and queue.may_wait_for_others()

    def _bypass_stuck_batches(self, name: str) -> None:
        """Start the next batch if all running ones have run for too long to be waited for, or none is running."""
        with self._lock:
            queue = self._queues.get(name)
            batch = queue.next_batch() if queue is not None and not queue.responsive_leaders() else []
            if queue is not None and batch:
                queue.start(batch)
        for leader in batch[:1]:
            leader.wake()


class _Announcement:
    """Stands for a request that a server has received and that has not joined a queue yet."""


_current_announcement: Final[ContextVar[_Announcement | None]] = ContextVar("announcement", default=None)


class _Waiter(Generic[Request, Response]):
    """A thread with a request, which waits until it gets an outcome or becomes the leader of a batch."""

    def __init__(self, request: Request, size: int) -> None:
        self.request, self.size = request, size
        self.batch: Sequence[_Waiter[Request, Response]] = ()
        """The batch that it leads, itself first; empty if it leads none."""
        self.outcome: Response | NotRun | BaseException = NotRun.LOCKED
        self.joined_at = time.monotonic()
        self.started_at = 0.0
        self.began = self.answered = False
        self.to_wake: list[_Waiter[Any, Any]] | None = None
        """The waiters to wake when its batch has ended; None until then."""
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    def wait(self, seconds: float) -> bool:
        return self._wakeup.acquire(timeout=seconds)

    def wake(self) -> None:
        # Waking it a second time is harmless.
        with suppress(RuntimeError):
            self._wakeup.release()


_EarlyOutcome: TypeAlias = Callable[[_Waiter[Any, Any]], NotRun | Busy | None]
"""Returns the outcome of a waiter whose request need not be tried after a failed batch; None if it goes on waiting."""


class _Queue:
    """The waiters of one queue in order of arrival, and the leaders of its running batches."""

    def __init__(self, name: str) -> None:
        self._quick = name == _QUICK_QUEUE
        self.waiting: deque[_Waiter[Any, Any]] = deque()
        self.running: list[_Waiter[Any, Any]] = []

    def can_start_now(self) -> bool:
        """Tell whether those who wait may start now; two concurrent requests do not wait for each other."""
        sizes = [len(leader.batch) for leader in self.responsive_leaders()]
        return bool(self.waiting) and (not sizes or (self._quick and sizes == [1] and len(self.waiting) == 1))

    def may_wait_for_others(self) -> bool:
        """Tell whether a batch may wait for others: it is quick and not full, and its first waiter came just now."""
        if not self._quick or not 0 < len(self.waiting) < _MAX_BATCH_REQUESTS:
            return False
        return time.monotonic() - self.waiting[0].joined_at < _ARRIVAL_SECONDS

    def responsive_leaders(self) -> list[_Waiter[Any, Any]]:
        """Return the leaders worth waiting for: a quick batch that takes long is stuck, a patient one never is."""
        if not self._quick:
            return self.running
        since = time.monotonic() - _STUCK_SECONDS
        return [leader for leader in self.running if leader.started_at > since]

    def start(self, batch: list[_Waiter[Any, Any]]) -> None:
        """Make the first waiter of a batch its leader."""
        self.running.append(batch[0])
        batch[0].started_at = time.monotonic()
        batch[0].batch = batch

    def remove_early(self, early_outcome: _EarlyOutcome) -> list[_Waiter[Any, Any]]:
        """Give waiters their early outcomes; remove these waiters and return them."""
        outcomes = [(waiter, outcome) for waiter in self.waiting if (outcome := early_outcome(waiter)) is not None]
        for waiter, outcome in outcomes:
            waiter.outcome = outcome
            self.waiting.remove(waiter)
        return [waiter for waiter, _ in outcomes]

    def next_batch(self) -> list[_Waiter[Any, Any]]:
        """Remove the waiters of the next batch, in order of arrival, and return them."""
        if self.responsive_leaders() and len(self.waiting) > 1:
            # The larger the batch the better: the leader that is still running starts it.
            return []
        batch: list[_Waiter[Any, Any]] = []
        size = 0
        while self.waiting and len(batch) < _MAX_BATCH_REQUESTS:
            size += self.waiting[0].size
            if batch and size > _MAX_BATCH_SIZE:
                break
            batch.append(self.waiting.popleft())
        return batch


def _keep_waiting(_: _Waiter[Any, Any]) -> None:
    return None


def _run_alone(_: _Waiter[Any, Any]) -> NotRun:
    return NotRun.MUST_RUN_ALONE


def _fail_if_older(error: Busy, than: float, waiter: _Waiter[Any, Any]) -> Busy | None:
    return _copy_error(error) if waiter.joined_at <= than else None


def error_for_each(error: Error, count: int) -> list[Error]:
    """Return an error object for each of several threads to raise."""
    return [error, *(_copy_error(error) for _ in range(count - 1))]


def _copy_error(error: Error) -> Error:
    """Return a copy of an error for another thread to raise: each copy gets its own traceback."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy


def _interrupted() -> Busy:
    return Busy(
        "the thread that wrote this batch was interrupted, so this may have been made or not",
        fix="send the same again with its key, or look whether it is there",
    )
