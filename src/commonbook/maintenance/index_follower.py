"""The index follower writes the changes of a burst into the index, in a background thread of the writing process.

So the first recall after very many writes finds most of them indexed, also where no worker runs. It works in slices, as
a worker does, and ends when few changes are pending. What it has not written when the book is closed, the next recall
writes.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from commonbook.errors import CommonbookError
from commonbook.runtime import reset_in_child

if TYPE_CHECKING:
    from commonbook.ports.engines import Engines, RecallService


class IndexFollower:
    """Runs at most one thread that catches up with the changes of a book."""

    def __init__(self, recall: RecallService) -> None:
        """Write the index by this service; no thread runs yet."""
        self._recall = recall
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Reset the state, at first and in a forked child, where the thread of the parent does not run."""
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, engines: Engines) -> None:
        """Start to write what is pending, unless that is being done already, or no thread can be started."""
        with self._guard, suppress(RuntimeError):
            if not self._stopped.is_set() and (self._thread is None or not self._thread.is_alive()):
                thread = threading.Thread(target=self._run, args=(engines,), name="commonbook-index", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self, engines: Engines) -> None:
        # The next recall meets the same error when it writes the index, and answers without the index.
        with suppress(CommonbookError):
            self._recall.catch_up(engines, self._stopped.is_set)

    def close(self) -> None:
        """Stop after the slice that is being written, and wait for that."""
        self._stopped.set()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join()
