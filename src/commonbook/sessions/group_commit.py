"""Group commit: concurrent appends of one process share a transaction; the first waiter of a batch is its leader.

Each request concerns one key (a session) in one space. The leader runs the operation for its whole batch and hands each
waiter its own result. No request waits for others to arrive: it starts at once if at most one other is running.

A request passes through up to three queues:
1. The quick queue mixes spaces and waits for no lock. A request whose space or session is locked is deferred.
2. The queue of its space waits for the lock of that space, but for no session. A request whose session is locked is
   deferred again.
3. The queue of its session waits for every lock that it needs, one request at a time.

So a locked space or session delays only the requests that need it, and of those, one at a time occupies a database
connection.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from commonbook.errors import Busy, CommonbookError, HomeError
from commonbook.runtime.fork_reset import reset_in_child

Request = TypeVar("Request")
Response = TypeVar("Response")
Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)
Error = TypeVar("Error", bound=CommonbookError)

_QUICK_QUEUE: Final = ""
_MAX_BATCH_REQUESTS: Final = 32
_MAX_BATCH_SIZE: Final = 200
_STUCK_SECONDS: Final = 1.0
"""A quick batch that runs for longer is not waited for any more: its connection may be stuck."""
_CONTENDED_SECONDS: Final = 1.0
"""For so long after a space was found locked, requests for it skip the quick queue."""
_MAX_CONTENDED_SPACES: Final = 10_000


class Deferred:
    """The outcome of a request for which nothing was done, since it needs a locked row or failed with its batch."""


DEFERRED: Final = Deferred()


class RetryAlone(Exception):
    """Nothing was done for any request of the batch: each is to be tried in its next queue, in the end by itself."""


class BatchOperation(Protocol[Request_contra, Response_co]):
    """Runs several requests in one transaction and returns an outcome for each; an error that it raises is for all.

    With `patient`, it waits for the lock of the space. With `alone`, it has one request, waits for every lock that it
    needs, and does not defer it.
    """

    def __call__(
        self, requests: Sequence[Request_contra], /, *, patient: bool, alone: bool
    ) -> Sequence[Response_co | Deferred | CommonbookError]:
        """Run the requests."""


_BatchCall: TypeAlias = Callable[[Sequence[Request]], Sequence[Response | Deferred | CommonbookError]]


class GroupCommit:
    """Batches the concurrent requests of one process."""

    def __init__(self) -> None:
        """Begin with empty queues."""
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Empty the queues: in a forked child, only the thread that forked exists."""
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._contended_until: dict[str, float] = {}

    def submit(
        self, space: str, request: Request, operation: BatchOperation[Request, Response], *, key: str, size: int = 1
    ) -> Response:
        """Run a request, in a batch with others that wait; of requests with the same `key`, one at a time.

        A batch is limited in the number of its requests and in the sum of their `size`. A request that is larger by
        itself runs alone, so that no other waits for it. So does a request of the main thread: a signal may interrupt
        that thread, and must not interrupt the requests of others.
        """
        if size <= _MAX_BATCH_SIZE and threading.current_thread() is not threading.main_thread():
            queues = ((_QUICK_QUEUE, False, False), (space, True, False), (f"{space} {key}", True, True))
            for queue, patient, alone in queues:
                if not patient and self._is_contended(space):
                    continue
                waiter: _Waiter[Request, Response] = _Waiter(request, key, size)
                outcome = self._join(queue, waiter, partial(operation, patient=patient, alone=alone))
                if not isinstance(outcome, Deferred):
                    return outcome
                self._mark_contended(space)
        (response,) = operation((request,), patient=True, alone=True)
        if isinstance(response, CommonbookError):
            raise response
        if isinstance(response, Deferred):
            raise TypeError("an operation that runs alone must return a result")
        return response

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

    # --- batches

    def _join(
        self, name: str, waiter: _Waiter[Request, Response], operation: _BatchCall[Request, Response]
    ) -> Response | Deferred:
        """Start at once if the queue allows it; otherwise wait for a leader's outcome, or to become a leader."""
        try:
            with self._lock:
                queue = self._queues.setdefault(name, _Queue(quick=name == _QUICK_QUEUE))
                if queue.can_start_now():
                    queue.start([waiter])
                else:
                    queue.waiting.append(waiter)
            while not waiter.batch and not waiter.wait(_STUCK_SECONDS):
                self._bypass_stuck_batches(name)
            if waiter.batch:
                self._run_batch(name, waiter, operation)
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
        outcomes: Sequence[Response | Deferred | BaseException] = [_interrupted() for _ in batch]
        began = time.monotonic()
        early_outcome: _EarlyOutcome = _keep_waiting
        try:
            leader.began = True
            outcomes = operation([waiter.request for waiter in batch])
        except RetryAlone:
            outcomes = [DEFERRED] * len(batch)
        except Busy as error:
            # It concerns the whole batch. A waiter that has waited about as long for the same lock fails with it.
            outcomes = error_for_each(error, len(batch))
            early_outcome = partial(_fail_if_older, error, (began + time.monotonic()) / 2)
        except HomeError as error:
            # It concerns the whole batch, and perhaps those who wait: each of them finds out by its own attempt.
            outcomes = error_for_each(error, len(batch))
            early_outcome = _defer
        except Exception as error:  # noqa: BLE001 - raised in the thread that caused it, which tries again alone
            outcomes = [error] if len(batch) == 1 else [DEFERRED] * len(batch)
        finally:
            self._finish(name, leader, outcomes, early_outcome)

    def _abandon(self, name: str, waiter: _Waiter[Any, Any]) -> None:
        """Withdraw a thread that was interrupted at any point, so that no other waits for it for ever."""
        with self._lock:
            queue = self._queues.get(name)
            if queue is not None and waiter in queue.waiting:
                queue.waiting.remove(waiter)
        self._finish(name, waiter, [_interrupted() if waiter.began else DEFERRED for _ in waiter.batch], _keep_waiting)

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
            if batch := queue.next_batch():
                to_wake += batch[:1]
                queue.start(batch)
            if not queue.running:
                del self._queues[name]

    def _bypass_stuck_batches(self, name: str) -> None:
        """Start the next batch if all running ones have run for too long to be waited for."""
        with self._lock:
            queue = self._queues.get(name)
            batch = queue.next_batch() if queue is not None and not queue.responsive_leaders() else []
            if queue is not None and batch:
                queue.start(batch)
        for leader in batch[:1]:
            leader.wake()


class _Waiter(Generic[Request, Response]):
    """A thread with a request, which waits until it gets an outcome or becomes the leader of a batch."""

    def __init__(self, request: Request, key: str, size: int) -> None:
        self.request, self.key, self.size = request, key, size
        self.batch: Sequence[_Waiter[Request, Response]] = ()
        """The batch that it leads, itself first; empty if it leads none."""
        self.outcome: Response | Deferred | BaseException = DEFERRED
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


_EarlyOutcome: TypeAlias = Callable[[_Waiter[Any, Any]], Deferred | Busy | None]
"""Returns the outcome of a waiter whose request need not be tried after a failed batch; None if it goes on waiting."""


class _Queue:
    """The waiters of one queue in order of arrival, and the leaders of its running batches."""

    def __init__(self, *, quick: bool) -> None:
        self._quick = quick
        self.waiting: deque[_Waiter[Any, Any]] = deque()
        self.running: list[_Waiter[Any, Any]] = []

    def can_start_now(self) -> bool:
        """Tell whether a new request may start at once; two quick requests do not wait for each other."""
        sizes = [len(leader.batch) for leader in self.responsive_leaders()]
        return not sizes or (self._quick and sizes == [1] and not self.waiting)

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
        """Remove the waiters of the next batch, in order of arrival and one of each key, and return them."""
        if self.responsive_leaders() and len(self.waiting) > 1:
            # The larger the batch the better: the leader that is still running starts it.
            return []
        batch: list[_Waiter[Any, Any]] = []
        keys: set[str] = set()
        size = 0
        for waiter in list(self.waiting):
            if waiter.key in keys:
                continue
            size += waiter.size
            if batch and (len(batch) == _MAX_BATCH_REQUESTS or size > _MAX_BATCH_SIZE):
                break
            keys.add(waiter.key)
            batch.append(waiter)
        for waiter in batch:
            self.waiting.remove(waiter)
        return batch


def _keep_waiting(_: _Waiter[Any, Any]) -> None:
    return None


def _defer(_: _Waiter[Any, Any]) -> Deferred:
    return DEFERRED


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
