"""Work that is done one after the other in a thread of its own, so that nobody waits for it longer than he likes.

The thread is a daemon: work that hangs does not keep Hermes from ending.
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
    """Does what it is given in the order in which it was given."""

    def __init__(self, name: str) -> None:
        """Begin with nothing to do."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, work: Callable[[], Result]) -> Future[Result]:
        """Do this after everything before it."""
        future: Future[Result] = Future()
        self._jobs.put((future, work))
        return future

    def end(self) -> None:
        """Do what is there, and then no more."""
        self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            _do(*job)


def run_aside(work: Callable[[], Result], name: str) -> Future[Result]:
    """Do this now, beside everything else."""
    future: Future[Result] = Future()
    threading.Thread(target=_do, args=(future, work), name=name, daemon=True).start()
    return future


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it, and decides
        future.set_exception(error)
