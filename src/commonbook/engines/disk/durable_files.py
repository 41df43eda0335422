"""Writes single files and folders; every write is synced (fsync) before the call returns."""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from commonbook.ports.files import FileStat

MAX_SEQUENTIAL_FILES: Final = 4
"""For so few files the threads of `in_parallel` do not pay."""

# Our files get a slightly earlier modification time, so that any later save has another one, even with a coarse clock.
_MTIME_OFFSET_NS: Final = 50_000_000
# File systems batch concurrent fsync calls, so many files in parallel cost little more than one.
_THREADS: Final = 16

_Item = TypeVar("_Item")


def write_synced(place: str, data: bytes, *, like: str) -> FileStat:
    """Write and sync a new file, with the permissions of the file at `like`, which it will replace."""
    fd = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.fchmod(fd, modes.S_IMODE(os.lstat(like).st_mode))
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(fd, remaining) :]
        mtime_ns = time.time_ns() - _MTIME_OFFSET_NS
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        os.fsync(fd)
        status = os.fstat(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(place)
        raise
    finally:
        os.close(fd)
    return FileStat(status.st_size, status.st_mtime_ns)


def in_parallel(action: Callable[[_Item], object], items: Collection[_Item]) -> None:
    """Apply the action to each item, by several threads if there are many; raise the first error."""
    if len(items) <= MAX_SEQUENTIAL_FILES:
        for item in items:
            action(item)
        return
    waiting = list(items)

    def apply_to_some(first: int) -> None:
        for item in waiting[first::_THREADS]:
            action(item)

    # A task for each thread, not for each item: handing a task over costs more than some actions do.
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(apply_to_some, range(_THREADS)):
            pass


def sync_folder(folder: str) -> None:
    """Sync the entries of a folder, if it exists."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folders(folder: str, *, mode: int) -> None:
    """Create a folder and its missing parents; sync each new entry in its parent."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folders(parent, mode=0o777)
    with suppress(FileExistsError):
        os.mkdir(folder, mode)
        sync_folder(parent)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
