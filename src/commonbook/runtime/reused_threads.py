"""Threads that run one job after the other, for work that is started often and must not wait for other work.

A new thread for each job makes a process grow: the C library gives it one of many memory arenas, and each arena keeps
the memory that the largest job in it ever needed. So the thread that became idle last gets the next job. After 200
requests a gateway of Hermes has 150 MB (147 to 153 in four runs), with new threads 155 (in both of two).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from commonbook.runtime.fork_reset import reset_in_child

IDLE_SECONDS: Final = 60.0
"""How long a thread waits for another job before it ends."""

IDLE_NAME: Final = "commonbook-idle"


class _Worker(NamedTuple):
    """A thread and the queue of its jobs."""

    thread: threading.Thread
    jobs: SimpleQueue[Callable[[], object]]


class ReusedThreads:
    """Daemon threads that are started when none is idle. The callers limit how many jobs run at the same time."""

    def __init__(self) -> None:
        """Start no thread yet."""
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the threads, at first and in a forked child, where they do not run."""
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []

    def start(self, job: Callable[[], object], name: str) -> None:
        """Run a job at once, in a thread with this name; RuntimeError if no thread can be started.

        A job handles its own errors: one that it raises ends the thread.
        """
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None:
            worker.thread.name = name
            worker.jobs.put(job)
            return
        jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        jobs.put(job)
        threading.Thread(target=self._work, args=(jobs,), name=name, daemon=True).start()

    def _work(self, jobs: SimpleQueue[Callable[[], object]]) -> None:
        worker = _Worker(threading.current_thread(), jobs)
        while (job := self._next(worker)) is not None:
            job()
            # An idle thread keeps nothing of its last job alive.
            del job
            worker.thread.name = IDLE_NAME
            with self._lock:
                self._idle.append(worker)

    def _next(self, worker: _Worker) -> Callable[[], object] | None:
        """Return the next job of a thread, or None if it is to end."""
        try:
            return worker.jobs.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                if worker in self._idle:
                    self._idle.remove(worker)
                    return None
        # Somebody has given it a job at the last moment.
        return worker.jobs.get()


reused_threads: Final = ReusedThreads()
