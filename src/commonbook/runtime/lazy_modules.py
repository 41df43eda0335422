"""Lazy modules: imported at first use, and never while the process forks.

A forked child inherits the import lock of a module that another thread was importing, and would wait forever.
"""

from __future__ import annotations

# Their fork handlers must be registered first, to run after ours: a module that is being imported may need their locks.
import concurrent.futures.thread  # noqa: F401 - for its fork handler
import logging  # noqa: F401 - for its fork handler
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

_FORK_WAIT_SECONDS: Final = 30.0


class LazyModule:
    """Stands in for a module, which is imported when one of its attributes is first read.

    From then on it has the dictionary of the module as its own: attributes are found in it as in the module itself,
    without a call of `__getattr__`, and one that is set there later is seen here.
    """

    __slots__ = ("__dict__", "_module_name")

    def __init__(self, name: str) -> None:
        """Import nothing yet."""
        self._module_name = name

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - any attribute of the module
        with loading():
            module = import_module(self._module_name)
        self.__dict__ = vars(module)
        return getattr(module, attribute)


class _LoadingLock:
    """Held by each thread that imports on first use, and by a thread that forks."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.RLock()
        self._acquired = False

    def acquire(self) -> None:
        self._acquired = self.lock.acquire(timeout=_FORK_WAIT_SECONDS)

    def release(self) -> None:
        if self._acquired:
            self.lock.release()


_LOADING: Final = _LoadingLock()
os.register_at_fork(before=_LOADING.acquire, after_in_parent=_LOADING.release, after_in_child=_LOADING.reset)


@contextmanager
def loading() -> Iterator[None]:
    """Import or construct something for the first time; forks wait meanwhile. Must not open a transaction."""
    with _LOADING.lock:
        yield
