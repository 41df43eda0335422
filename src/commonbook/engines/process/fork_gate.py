"""What must not cross a fork is let go before it, and made anew on both sides after it.

SQLite keeps its locks and its shared memory in tables of the process. A forked child inherits the tables but not
the locks, and would read and write what others have long thrown away: so nothing may be open at that moment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet

from commonbook.errors import HomeError

# Its fork handler must be registered first, to run after those of the gates: a thread may import before it leaves one.
from commonbook.runtime import lazy_modules  # noqa: F401

_PATIENCE: Final = 30.0


class Gate:
    """Lets any number of threads use something, and shuts while the process forks."""

    def __init__(self, let_go: Callable[[], None]) -> None:
        """Call `let_go` before each fork, when nobody is inside."""
        self._let_go = let_go
        self._changed = threading.Condition()
        self._inside: dict[int, int] = {}
        self._shut = False
        self._spoilt = False
        _GATES.add(self)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Use it; no fork happens meanwhile, unless this very thread forks."""
        if self._spoilt:
            raise HomeError(
                "this process was forked in the middle of a transaction, and cannot use the book",
                fix="fork outside of transactions, or start processes with the method `spawn`",
            )
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._shut or me in self._inside)
            self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until nobody else is inside, and let go; a thread that forks while it is inside cannot."""
        me = threading.get_ident()
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: not self._inside.keys() - {me}, timeout=_PATIENCE)
            if not self._inside:
                self._let_go()

    def open_again(self) -> None:
        """Let everybody in, after the fork, in the parent."""
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def open_in_child(self) -> None:
        """Begin anew: of all threads only the one that forked is here."""
        self._changed = threading.Condition()
        self._spoilt = bool(self._inside)
        self._inside = {}
        self._shut = False


_GATES: Final[WeakSet[Gate]] = WeakSet()


def _each(what: Callable[[Gate], None]) -> Callable[[], None]:
    def for_all() -> None:
        for gate in list(_GATES):
            what(gate)

    return for_all


os.register_at_fork(
    before=_each(Gate.shut), after_in_parent=_each(Gate.open_again), after_in_child=_each(Gate.open_in_child)
)
