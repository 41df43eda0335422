"""Lazy proxies: stand in for engines and services that are made at their first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from commonbook.runtime.fork_reset import reset_in_child
from commonbook.runtime.lazy_modules import LazyModule, loading

if TYPE_CHECKING:
    from commonbook.maintenance import index_follower
    from commonbook.ports.engines import Engines, RecallService
else:
    # Few processes write so much.
    index_follower = LazyModule("commonbook.maintenance.index_follower")

CHANGES_BEFORE_INDEXING: Final = 1_000
"""After so many changes of this process, they are indexed in the background: a recall would do it in under a second."""


class Lazy:
    """A proxy that makes its engine at the first access to an attribute, once for all threads; methods are cached.

    A forked child keeps the engine of its parent, since a fork waits until the engine is made.
    """

    def __init__(self, make: Callable[[], object]) -> None:
        """Make nothing yet."""
        self._make = make
        self._instance: object | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the engine has under that name
        if self._instance is None:
            with loading():
                if self._instance is None:
                    self._instance = self._make()
        value = getattr(self._instance, name)
        setattr(self, name, value) if callable(value) else None
        return value


class LazyRecall:
    """A proxy that makes the recall service at its first use, once for all threads.

    It also counts the changes that this process commits. After many of them they are indexed in the background.
    """

    def __init__(self, make: Callable[[], RecallService]) -> None:
        """Make nothing yet."""
        self._make = make
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the service and the lock: in a forked child, the thread that held the lock does not exist."""
        self._changes = 0
        self._follower: index_follower.IndexFollower | None = None
        self._service: RecallService | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever recall has under that name
        with self._lock:
            if self._service is None:
                with loading():
                    self._service = self._make()
        return getattr(self._service, name)

    def note_changes(self, engines: Engines, count: int) -> None:
        """Count committed changes; index them in the background when they are many."""
        self._changes += count
        if self._changes < CHANGES_BEFORE_INDEXING:
            return
        self._changes = 0
        with self._lock:
            if self._follower is None:
                with loading():
                    self._follower = index_follower.IndexFollower(cast("RecallService", self))
        self._follower.follow(engines)

    def close(self) -> None:
        """Close the recall service, if it was made."""
        if self._follower is not None:
            self._follower.close()
        if self._service is not None:
            self._service.close()
