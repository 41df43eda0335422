"""The threads in which requests use the book.

A thread has a queue of its own, and the one that became idle last is used first: so a server with few requests has few
threads, with warm caches. anyio's threads do the same by several locks and rounds of the event loop, for each of which
the loop has to wait for the interpreter's lock (GIL) while other threads rank.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from commonbook.interfaces.http.config import ServerConfig

_IDLE_SECONDS: Final = 10.0
"""How long a thread waits for work before it ends."""

_END_CHECK_SECONDS: Final = 0.01

_Result = TypeVar("_Result")


class _Job:
    """A function to run in a thread, and the future that gets its result, in the event loop that wants it."""

    __slots__ = ("_context", "_loop", "_work", "future", "is_over")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._loop = work, asyncio.get_running_loop()
        self._context = copy_context()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.is_over = False

    def run(self) -> tuple[object, BaseException | None]:
        """Run the function in this thread; return its result, or the error that it raised."""
        try:
            return self._context.run(self._work), None
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the caller gets it
            return None, raised

    def report(self, result: object, error: BaseException | None) -> None:
        """Give the caller the result or the error."""
        # A loop that is closed wants no result.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, result, error)

    def _finish(self, result: object, error: BaseException | None) -> None:
        self.is_over = True
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Threads:
    """A limited number of threads; further work waits until one of them is free."""

    def __init__(self, config: ServerConfig) -> None:
        """Start no thread yet."""
        self._size = config.threads
        self._lock = threading.Lock()
        self._number = 0
        self._idle: list[SimpleQueue[_Job]] = []
        self._waiting: deque[_Job] = deque()

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run a function in a thread; one who is cancelled waits for its end all the same."""
        job = _Job(work)
        self._start(job)
        try:
            result: _Result = await job.future
        except asyncio.CancelledError:
            # What the function uses must not be closed under it.
            while not job.is_over:
                await asyncio.sleep(_END_CHECK_SECONDS)
            raise
        return result

    def _start(self, job: _Job) -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(job)
                return
            if self._number == self._size:
                self._waiting.append(job)
                return
            self._number += 1
        threading.Thread(target=self._work, args=(job,), name="request", daemon=True).start()

    def _work(self, job: _Job | None) -> None:
        """Run one job after the other, in a thread of its own."""
        jobs: SimpleQueue[_Job] = SimpleQueue()
        while job is not None:
            outcome = job.run()
            following = self._take_waiting(jobs)
            # Reported when this thread is idle: a caller that calls again at once needs no other one.
            job.report(*outcome)
            # An idle thread keeps no request, and no result, alive.
            del job, outcome
            job = following or self._wait(jobs)

    def _take_waiting(self, jobs: SimpleQueue[_Job]) -> _Job | None:
        """Return a job that waits for a thread; if there is none, this thread is idle."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(jobs)
        return None

    def _wait(self, jobs: SimpleQueue[_Job]) -> _Job | None:
        """Return the next job of this idle thread, or None if it is to end."""
        try:
            return jobs.get(timeout=_IDLE_SECONDS)
        except Empty:
            with self._lock:
                if jobs in self._idle:
                    self._idle.remove(jobs)
                    self._number -= 1
                    return None
        # Somebody has given it a job at the last moment.
        return jobs.get()
