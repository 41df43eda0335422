"""Worker thread: runs jobs one after the other, so that a caller can stop waiting for a slow one.

The thread is a daemon: a job that hangs does not keep Hermes from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")
_Job = tuple[Future[Any], Callable[[], Any]]


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


def run_aside(work: Callable[[], Result], name: str) -> Future[Result]:
    """Run a job at once in a thread of its own."""
    future: Future[Result] = Future()
    threading.Thread(target=_run_job, args=(future, work), name=name, daemon=True).start()
    return future


def _run_job(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
        future.set_exception(error)
