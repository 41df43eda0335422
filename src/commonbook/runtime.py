"""Helpers that Python lacks: lazy modules, objects reset after a fork, back-off, batches, and compressed texts.

Lazy modules are imported at first use, and never while the process forks: a forked child inherits the import lock of a
module that another thread was importing, and would wait forever. Objects are reset in a forked child, where the threads
and the held locks of the parent do not exist. Long texts are compressed where the engine does not do so itself.
"""

from __future__ import annotations

# Their fork handlers must be registered first, to run after ours: a module that is being imported may need their locks.
import concurrent.futures.thread  # noqa: F401 - for its fork handler
import logging  # noqa: F401 - for its fork handler
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

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


_MAX_DOUBLINGS: Final = 20


def pause_seconds(failures: int, *, first: float, most: float, share: float | None = None) -> float:
    """Return the pause after some failures in a row: it begins at `first` and doubles up to `most`.

    Half of it is random, so that two that collided do not come back at the same moment. `share`, from 0 to 1, fixes the
    random part.
    """
    share = int.from_bytes(os.urandom(4)) / 2**32 if share is None else share
    return min(most, first * 2.0 ** min(failures, _MAX_DOUBLINGS)) * (1 + share) / 2


T = TypeVar("T")


def in_batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the values in order, at most `size` at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


_MIN_BYTES: Final = 256
"""Shorter texts hardly shrink, and can be read in the database as they are."""

CACHED_TEXTS: Final = 32
"""The number of texts for which derived results are cached: a write uses them again under the lock."""

_MAX_KEPT_TEXTS: Final = 128
_MAX_KEPT_CHARS: Final = 32_768
"""The number and length of texts that are kept after they were read: mostly about a megabyte together."""

_SMALL_BYTES: Final = 4096
_SMALL_WINDOW_BITS: Final = 12
_SMALL_MEMORY_LEVEL: Final = 5


@lru_cache(maxsize=CACHED_TEXTS)
def compress(text: str) -> str | bytes:
    """Return a text as it is to be stored."""
    data = text.encode()
    if len(data) < _MIN_BYTES:
        return text
    compressed = zlib.compress(data) if len(data) > _SMALL_BYTES else _compress_small(data)
    return compressed if len(compressed) < len(data) else text


def _compress_small(data: bytes) -> bytes:
    """Compress with a window that has room for all data: to clear one of full size takes most of the time."""
    compressor = zlib.compressobj(wbits=_SMALL_WINDOW_BITS, memLevel=_SMALL_MEMORY_LEVEL)
    return compressor.compress(data) + compressor.flush()


def decompress(stored: str | bytes) -> str:
    """Return the text that was stored."""
    if isinstance(stored, str):
        return stored
    if len(stored) > _MAX_KEPT_CHARS:
        return zlib.decompress(stored).decode()
    text = _KEPT.get(stored)
    if text is None:
        text = zlib.decompress(stored).decode()
        # A short one may have become very long.
        if len(text) <= _MAX_KEPT_CHARS:
            if len(_KEPT) >= _MAX_KEPT_TEXTS:
                _KEPT.clear()
            _KEPT[stored] = text
    return text


_KEPT: Final[dict[bytes, str]] = {}
"""Texts that were read lately: in a small home, every recall reads the same few conversations.

They are kept by the bytes that they are stored as, so that none can be out of date.
"""


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
