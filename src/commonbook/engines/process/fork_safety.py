"""Fork handlers: a gate closes resources before the process forks, and both sides reopen them after it.

SQLite keeps its locks and its shared memory in tables of the process. A forked child inherits the tables but not
the locks, and would read and write pages that are no longer valid. So no connection may be open during a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from commonbook.errors import HomeError

# Its fork handler must be registered first, to run after the gates' handlers: a thread inside a gate may still import.
from commonbook.runtime import lazy_modules  # noqa: F401 - for its fork handler

_DRAIN_SECONDS: Final = 30.0


class ForkGate:
    """Lets any number of threads use a resource, and shuts while the process forks."""

    def __init__(self, release: Callable[[], None]) -> None:
        """Call `release` before each fork, when no thread is inside."""
        self._release = release
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._entries: dict[int, int] = {}
        self._is_shut = False
        self._forked_inside = False
        _GATES.add(self)

    def __enter__(self) -> None:
        """Enter the gate; meanwhile no other thread can fork."""
        if self._forked_inside:
            raise HomeError(
                "this process was forked in the middle of a transaction, and cannot use the book",
                fix="fork outside of transactions, or start processes with the method `spawn`",
            )
        thread_id = threading.get_ident()
        # The lock itself is entered and left without a call of Python's, the condition is not.
        with self._lock:
            if self._is_shut:
                self._changed.wait_for(lambda: not self._is_shut or thread_id in self._entries)
            self._entries[thread_id] = self._entries.get(thread_id, 0) + 1

    def __exit__(self, *_: object) -> None:
        """Leave the gate."""
        thread_id = threading.get_ident()
        with self._lock:
            # A child that was forked inside begins without entries.
            if (entered := self._entries.get(thread_id, 0)) > 1:
                self._entries[thread_id] = entered - 1
            else:
                self._entries.pop(thread_id, None)
            if self._is_shut:
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until no other thread is inside, then release; not if the forking thread is inside itself."""
        thread_id = threading.get_ident()
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: not self._entries.keys() - {thread_id}, timeout=_DRAIN_SECONDS)
            if not self._entries:
                self._release()

    def open_again(self) -> None:
        """Let threads in again, in the parent after the fork."""
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()

    def open_in_child(self) -> None:
        """Start over in the child, which has only the thread that forked."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._forked_inside = bool(self._entries)
        self._entries = {}
        self._is_shut = False


_GATES: Final[WeakSet[ForkGate]] = WeakSet()


def _for_each_gate(action: Callable[[ForkGate], None]) -> Callable[[], None]:
    def handler() -> None:
        for gate in list(_GATES):
            action(gate)

    return handler


os.register_at_fork(
    before=_for_each_gate(ForkGate.shut),
    after_in_parent=_for_each_gate(ForkGate.open_again),
    after_in_child=_for_each_gate(ForkGate.open_in_child),
)
