"""The write-ahead log of a SQLite database as a file that this program syncs itself.

SQLite would sync it inside the commit, while all other writers wait for the lock. Its frames carry a running checksum,
so a sync makes durable whatever was appended before it, by this process or by others.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import Final

from commonbook.errors import DiskFull, HomeError

_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS only: `fsync` there does not wait for the disk."""


class WalFile:
    """The open write-ahead log of a database; it is closed when nobody uses it any more.

    SQLite removes it only when the last connection of any process is closed, so it stays the same file while a
    connection of this process is open. SQLite has no lock on it, which closing it would drop.
    """

    __slots__ = ("_fd", "_path")

    def __init__(self, database: str) -> None:
        """Open the log of the database at this path; it exists as soon as a transaction has begun."""
        self._path = f"{database}-wal"
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _typed_error(self._path, error) from error

    def sync(self) -> None:
        """Make durable what was committed before."""
        try:
            if _FULL_SYNC is None:
                os.fdatasync(self._fd)
            else:
                fcntl.fcntl(self._fd, _FULL_SYNC)
        except OSError as error:
            raise _typed_error(self._path, error) from error

    def __del__(self) -> None:
        """Close the file."""
        with suppress(AttributeError, OSError):
            os.close(self._fd)


def _typed_error(path: str, error: OSError) -> HomeError:
    """Return the error for a change that is committed, but may be lost when the power fails."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull("there is no room left for the database", fix="free some space and try again")
    message = f"{path} cannot be synced: {error.strerror}"
    return HomeError(message, fix="check the disk, then look whether the change was stored")
