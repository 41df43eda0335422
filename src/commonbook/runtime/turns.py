"""Turns of recalls: so many threads rank at once, the others wait.

Ranking is Python with short calls into numpy, each of which lets go of the interpreter's lock (GIL) and has to wait for
it again. Two or three threads keep two processors busy; among 32, each recall takes three times the processor time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from commonbook.runtime.fork_reset import reset_in_child


class Turns:
    """Lets a limited number of threads in."""

    def __init__(self, at_once: int) -> None:
        """Let so many in at once."""
        self._at_once = at_once
        self.reset_after_fork()
        reset_in_child(self)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a turn, and keep it while the `with` block runs."""
        with self._free:
            yield

    def reset_after_fork(self) -> None:
        """Forget the turns of threads that a forked child does not have."""
        self._free = threading.BoundedSemaphore(self._at_once)
