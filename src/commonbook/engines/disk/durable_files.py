"""Reads and writes single files and folders; every write is synced (fsync) before the call returns."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
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
_THREADS: Final = 8

_Item = TypeVar("_Item")


def read_settled(place: str, *, patience: float) -> bytes | None:
    """Return the content of a file once no program has it open for writing, or after `patience` seconds.

    None if there is no regular file at the place.
    """
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    with os.fdopen(fd, "rb") as file:
        deadline = time.monotonic() + patience
        while _open_for_writing(fd) and time.monotonic() < deadline:
            time.sleep(0.002)
        return file.read() if modes.S_ISREG(os.fstat(fd).st_mode) else None


def _open_for_writing(fd: int) -> bool:
    """Return whether a program has this file open for writing; False where the system cannot tell.

    Linux grants a read lease only while no program has the file open for writing. The lease is released at once. If a
    program opens the file in that instant, the kernel sends a signal that is ignored by default.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


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
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(action, items):
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
