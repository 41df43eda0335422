"""Resets objects in a forked child, where the threads and the held locks of the parent do not exist."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class ForkResettable(Protocol):
    """An object with state that must not be inherited by a forked child: threads, locks, open files."""

    def reset_after_fork(self) -> None:
        """Discard the state of the parent. Use no other object: it may not have been reset yet."""


_RESETTABLES: Final[WeakSet[ForkResettable]] = WeakSet()


def reset_in_child(resettable: ForkResettable) -> None:
    """Call `reset_after_fork` of an object in each child that this process forks, for as long as the object lives."""
    _RESETTABLES.add(resettable)


def _reset_all() -> None:
    for resettable in list(_RESETTABLES):
        resettable.reset_after_fork()


os.register_at_fork(after_in_child=_reset_all)
