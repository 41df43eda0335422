"""Threads of the provider: one that runs jobs one after the other, and a bounded number that run one job each.

A caller can stop waiting for a slow job. The threads are daemons: a job that hangs does not keep Hermes from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from commonbook.errors import Busy

Result = TypeVar("Result")
_Job = tuple[Future[Any], Callable[[], Any]]

MAX_ASIDE: Final = 24
"""At most so many jobs run in threads of their own at the same time, in the whole process."""

_room: Final = threading.BoundedSemaphore(MAX_ASIDE)


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
    """Run a job at once in a thread of its own; its error is Busy, without a thread, if too many are running."""
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
