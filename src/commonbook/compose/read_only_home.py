"""A home that this user may only read: a copy of its database is opened in a temporary folder, and writes are refused.

The copy has what was stored when it was made. SQLite cannot read a database with a write-ahead log in a folder that it
may not write to.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Final, NoReturn, cast
from urllib.parse import quote

from commonbook.compose.book import book_over, recall_service, wire_folder
from commonbook.core.settings.settings import Settings
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER
from commonbook.engines.disk.no_files import ReadOnlyFolder
from commonbook.engines.process import SystemClock
from commonbook.errors import HomeError, HomeReadOnly

if TYPE_CHECKING:
    from commonbook.ports.database import Database, Reading, Result, Transaction
    from commonbook.service.book import Book

_PREFIX: Final = "commonbook-read-"
_COPIED_FOLDERS: Final = ("keys", "index")


def open_read_only(settings: Settings) -> Book:
    """Open a home to read and recall from it as it is now; every write raises HomeReadOnly."""
    clock = SystemClock()
    _remove_leftovers()
    hidden = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    try:
        _copy(os.path.join(settings.home, HIDDEN_FOLDER), hidden, settings.busy_seconds)
        engines = wire_folder(settings, clock, hidden, ReadOnlyFolder(settings.home))
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(hidden, ignore_errors=True)
        raise HomeError(f"{settings.home} cannot be read: {error}", fix="give this user access to the home") from error
    engines = engines._replace(db=cast("Database", _ReadOnlyDatabase(engines.db, settings.home, hidden)))
    book = book_over(engines, settings, clock, lambda: recall_service(settings, hidden))
    weakref.finalize(book, shutil.rmtree, hidden, ignore_errors=True)
    return book


class _ReadOnlyDatabase:
    """The Database port that refuses to write."""

    def __init__(self, database: Database, home: str, copy: str) -> None:
        self._database, self._home, self._copy = database, home, copy

    @property
    def schema(self) -> int:
        return self._database.schema

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def close(self) -> None:
        self._database.close()
        shutil.rmtree(self._copy, ignore_errors=True)

    def reading(self) -> AbstractContextManager[Reading]:
        return self._database.reading()

    def write(
        self, operation: Callable[[Transaction], Result], *, durable: bool = True, patient: bool = True
    ) -> NoReturn:
        del operation, durable, patient
        raise HomeReadOnly(f"{self._home} is read-only", fix="give this user write access to the home")


def _remove_leftovers() -> None:
    """Remove the copies of processes that were killed."""
    above = tempfile.gettempdir()
    for name in os.listdir(above):
        process = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(os.path.join(above, name), ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _copy(source: str, target: str, busy_seconds: float) -> None:
    for name in _COPIED_FOLDERS:
        if os.path.isdir(os.path.join(source, name)):
            shutil.copytree(os.path.join(source, name), os.path.join(target, name))
    os.makedirs(os.path.join(target, "out"), mode=0o700)
    database, copy = os.path.join(source, "state.db"), os.path.join(target, "state.db")
    if not os.path.exists(f"{database}-wal"):
        shutil.copyfile(database, copy)
        return
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(database)}?mode=ro", uri=True, timeout=busy_seconds)) as original,
            closing(sqlite3.connect(copy)) as new,
        ):
            original.backup(new)
    except sqlite3.OperationalError:
        # Without the shared memory of a log, SQLite does not read it in a folder like this.
        for suffix in ("", "-wal"):
            if os.path.exists(database + suffix):
                shutil.copyfile(database + suffix, copy + suffix)
