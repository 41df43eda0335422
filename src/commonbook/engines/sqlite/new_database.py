"""A new database file: made beside its place and renamed when it is complete and synced.

SQLite makes a database in place: a power cut can tear its first page, and the file is then no database at all.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from commonbook.engines.disk.durable_files import sync_folder
from commonbook.errors import DiskFull, HomeReadOnly

_SIDE_FILES: Final = ("-wal", "-shm", "-journal")


def make_database(path: str, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make the database at `path`, where there is none or an empty file; `fill` writes what a new one has.

    The caller holds the write lock, and no connection to `path` is open: it would go on with the replaced file.
    """
    part = path + ".new"
    try:
        _remove(part, *(part + suffix for suffix in _SIDE_FILES))
        _create_file(part, like=path)
        with closing(sqlite3.connect(part, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA fullfsync=ON")
            connection.execute("PRAGMA checkpoint_fullfsync=ON")
            fill(connection)
        # They are of a database that was removed. SQLite would apply them to the new one.
        _remove(*(path + suffix for suffix in _SIDE_FILES))
        os.replace(part, path)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise _not_made(path, error) from error


def _create_file(part: str, *, like: str) -> None:
    """Create an empty file with the permissions of the one that it will replace, if there is one."""
    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        with suppress(FileNotFoundError):
            os.fchmod(fd, stat.S_IMODE(os.stat(like).st_mode))
    finally:
        os.close(fd)


def _remove(*paths: str) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _not_made(path: str, error: OSError) -> DiskFull | HomeReadOnly:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull("there is no room left for the database", fix="free some space and try again")
    return HomeReadOnly(f"{path} cannot be written: {error}", fix="give this user write access to the home")
