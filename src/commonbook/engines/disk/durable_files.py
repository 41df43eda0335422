"""Reads and writes single files and folders: whole, and durable when a call returns."""

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

FEW_FILES: Final = 4
"""Up to so many files are not worth the threads of `in_parallel`."""

# A file of ours is dated a little back, so that any later save has another time, however coarse the clock's ticks.
_DATED_BACK_NS: Final = 50_000_000
# A file system makes durable together what several ask for at the same moment, so many files cost little more than one.
_THREADS: Final = 8

_Thing = TypeVar("_Thing")


def read_settled(place: str, *, patience: float) -> bytes | None:
    """Return what a file holds once nobody is writing to it any more, or after some patience."""
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
    """Tell whether some program is in the middle of writing to this file, where the system can say.

    Linux grants a read lease only while nobody has the file open for writing. It is given back at once; should
    somebody open the file in that instant, we are told by a signal that is ignored by default.
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
    """Write and sync a new file, with the rights of the one it will stand in for."""
    fd = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.fchmod(fd, modes.S_IMODE(os.lstat(like).st_mode))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        stamp = time.time_ns() - _DATED_BACK_NS
        os.utime(fd, ns=(stamp, stamp))
        os.fsync(fd)
        status = os.fstat(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(place)
        raise
    finally:
        os.close(fd)
    return FileStat(status.st_size, status.st_mtime_ns)


def in_parallel(act: Callable[[_Thing], object], things: Collection[_Thing]) -> None:
    """Do something to each, to several at the same time if they are many; raise what went wrong first."""
    if len(things) <= FEW_FILES:
        for thing in things:
            act(thing)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(act, things):
            pass


def sync_folder(folder: str) -> None:
    """Make the entries of a folder durable, if it is there."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folders(folder: str, *, mode: int) -> None:
    """Make a folder and those above it where they are missing, each durable in the one that holds it."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    make_folders(above, mode=0o777)
    with suppress(FileExistsError):
        os.mkdir(folder, mode)
        sync_folder(above)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
