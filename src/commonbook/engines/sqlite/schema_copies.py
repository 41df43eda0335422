"""Copies of a database that are made before its schema is migrated, so that the former state can be put back.

The copy of `state.db` before the migration to schema 4 is `state.db.before-4`, in the same folder.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from typing import Final

from commonbook.engines.disk.durable_files import sync_folder
from commonbook.errors import DiskFull, HomeError

_RESERVE_BYTES: Final = 2 * 1024 * 1024
_PART_SUFFIX: Final = ".part"


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
        raise _no_copy(error) from error
    finally:
        with suppress(OSError):
            os.unlink(part)
    return copy


def _no_copy(error: OSError) -> HomeError:
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
