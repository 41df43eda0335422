"""Threads that run a job now: a thread that waits for its next job has another name."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

PREFETCH = ("commonbook-prefetch",)


def wait_for_threads(names: Collection[str] = PREFETCH, seconds: float = 60) -> None:
    """Wait until no thread runs a job of these names."""
    end = time.monotonic() + seconds
    while any(thread.name in names for thread in threading.enumerate()):
        assert time.monotonic() < end, names
        time.sleep(0.002)
