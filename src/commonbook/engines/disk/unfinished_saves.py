"""Reads a file once its save is finished: a program that still has it open for writing is waited for (on Linux)."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat as modes
import time


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
