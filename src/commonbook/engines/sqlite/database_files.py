"""The files of a database: a new one, and the copies that are made before its schema is migrated.

A new database is made beside its place, and renamed when it is complete and synced: SQLite makes it in place, and a
power cut can tear its first page. The copy of `state.db` before the migration to schema 4 is `state.db.before-4`, in
the same folder: with it, the former state can be put back.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from commonbook.engines.disk.durable_files import sync_folder
from commonbook.errors import DiskFull, HomeError, HomeReadOnly

_RESERVE_BYTES: Final = 2 * 1024 * 1024
_PART_SUFFIX: Final = ".part"
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")


# --- new databases


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


# --- copies before migrations


def copy_before_migration(path: str, schema: int, *, busy_seconds: float) -> str:
    """Copy the committed state of a database beside it, synced, and return the path of the copy.

    The caller holds the write transaction, so nothing changes meanwhile. SQLite's backup reads the write-ahead log too.
    The copy gets its name when it is complete; one of the same name is from a migration that was not finished.
    """
    copy = f"{path}.before-{schema}"
    part = copy + _PART_SUFFIX
    _require_room(path)
    try:
        _back_up(path, part, busy_seconds)
        os.replace(part, copy)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise _not_copied(error) from error
    finally:
        with suppress(OSError):
            os.unlink(part)
    return copy


def _not_copied(error: OSError) -> HomeError:
    message = f"the database cannot be copied before its schema is migrated: {error.strerror}"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFull(message, fix="free some space and open the home again; nothing was changed")
    return HomeError(message, fix="check the disk and the rights of the home, then open it again; nothing was changed")


def find_copies(path: str) -> list[str]:
    """Return the copies that were made before migrations of this database, oldest first."""
    pattern = re.compile(re.escape(os.path.basename(path)) + r"\.before-([0-9]+)")
    numbers = sorted(int(match[1]) for match in map(pattern.fullmatch, os.listdir(os.path.dirname(path))) if match)
    return [f"{path}.before-{number}" for number in numbers]


def remove_copies(path: str) -> None:
    """Remove the copies; a copy that another process has removed meanwhile is fine."""
    for copy in find_copies(path):
        with suppress(FileNotFoundError):
            os.unlink(copy)


def _back_up(path: str, part: str, busy_seconds: float) -> None:
    with suppress(FileNotFoundError):
        os.unlink(part)
    # The copy has the texts of all memories: nobody else may read it.
    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with closing(sqlite3.connect(path, timeout=busy_seconds)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
        os.fsync(fd)
    finally:
        os.close(fd)


def _require_room(path: str) -> None:
    """Raise DiskFull unless there is room for a copy of the database and its write-ahead log."""
    size = sum(os.path.getsize(file) for file in (path, path + "-wal") if os.path.exists(file))
    needed = size + _RESERVE_BYTES
    if shutil.disk_usage(os.path.dirname(path)).free < needed:
        raise DiskFull(
            "there is no room for the copy of the database that is made before its schema is migrated",
            fix=f"free at least {needed:,} bytes and open the home again; nothing was changed",
        )
