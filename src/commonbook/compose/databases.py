"""The composition root of commands on databases: the move of a book, and the vector index of a space on PostgreSQL.

A move wires both books and hands on the keys. It refuses steps in a wrong order before anything is changed, and names
the next command. `subjects.transfer.migrate` moves the book.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from commonbook.compose.book import (
    open_book,
    postgres_database,
    prepare_home,
    sqlite_database,
    wire_home,
    wire_server,
)
from commonbook.core.settings.settings import DatabaseChoice, Settings, require_address
from commonbook.core.tables import home, spaces
from commonbook.engines.disk.durable_files import make_folders, sync_folder
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, holds_files, is_home
from commonbook.engines.process import SystemClock
from commonbook.errors import BadInput, CommonbookError, Conflict, HomeError, KeyMissing, NoHome, NotFound
from commonbook.values.reports import MigrationReport, Progress, no_progress

if TYPE_CHECKING:
    from commonbook.ports.database import Transaction
    from commonbook.ports.engines import Engines
    from commonbook.ports.keys import Clock

_HOME_NAMED: Final = "`commonbook --home FOLDER migrate TO`"
_KEYS_OUTSIDE: Final = (
    "choose a folder outside of the home: `export COMMONBOOK_KEYS=FOLDER`, then run `commonbook migrate` again: "
    "it copies the keys of the home there"
)


def make_keys(folder: str) -> str:
    """Create the keys of a book on a server, if the folder has none; return the id of the signing key."""
    from commonbook.engines.disk.signing_keys import KeyFiles

    keys = KeyFiles(folder)
    keys.load(create=True)
    return keys.key_id


def migrate_book(settings: Settings, to: str, *, progress: Progress = no_progress) -> MigrationReport:
    """Move the book that the settings name to a database server or into a home; the old one becomes read-only.

    Nobody writes to the book meanwhile. The keys of a home that moves to a server are copied into the folder
    `settings.keys`, before anything else is. At the end the new book is indexed, so that the first recall has nothing
    to do.
    """
    from commonbook.subjects.transfer import migrate

    clock = SystemClock()
    target = _target_settings(settings, to)
    place, keys = _place(target), _keys_folder(target)
    # A move that was killed starts again from the beginning.
    unlock_book(settings)
    with open_book(settings, progress=progress):
        # Opening applies the changes that people made to the files.
        pass
    with ExitStack() as opened:
        old = _wire(settings, clock, opened, create=False)
        _require_unused(old, target, clock)
        _copy_keys(_keys_folder(settings), target)
        new = _wire(target, clock, opened, create=True)
        report = migrate.migrate(old, new, to=place, keys=keys, progress=progress)
    return report._replace(indexed=_index(target, progress))


def unlock_book(settings: Settings) -> bool:
    """Let a book whose move was killed be written to again; return whether it was locked."""
    from commonbook.subjects.transfer import migrate

    if settings.database is None and not is_home(settings.home):
        raise NoHome(f"there is no home at {settings.home}", fix=f"name the home to move: {_HOME_NAMED}")
    with ExitStack() as opened:
        return migrate.unlock(_wire(settings, SystemClock(), opened, create=False).db)


def _wire(settings: Settings, clock: Clock, opened: ExitStack, *, create: bool) -> Engines:
    engines, _ = (wire_server if settings.database else wire_home)(settings, clock, create=create)
    opened.callback(engines.folder.close)
    opened.callback(engines.db.close)
    return engines


def _index(target: Settings, progress: Progress) -> bool:
    """Index the new book; it is complete without that, so a failure here does not fail the migration."""
    try:
        with open_book(target, progress=progress) as book:
            book.reindex(progress=progress)
    except CommonbookError:
        return False
    return True


# --- the places of both books


def _place(settings: Settings) -> str:
    return settings.database.place if settings.database else settings.home


def _target_settings(settings: Settings, to: str) -> Settings:
    """Return the settings of the new book; nothing is made yet."""
    if "://" not in to:
        folder = os.path.realpath(os.path.join(settings.cwd, os.path.expanduser(to)))
        if not is_home(folder) and holds_files(folder):
            raise Conflict(
                f"{folder} has files of its own, which would become memories of the book",
                fix="name a new or empty folder",
            )
        return settings._replace(home=folder, database=None)
    # An address that we do not support is not a folder either, and may hold a password.
    target = DatabaseChoice(require_address(to, "the address to move to"))
    if settings.database and settings.database.place == target.place:
        raise Conflict(f"the book is in {target.place} already", fix=f"to move a home there, name it: {_HOME_NAMED}")
    keys = settings.database.keys if settings.database else _require_keys_outside(settings)
    return settings._replace(database=target._replace(keys=keys))


def _require_keys_outside(settings: Settings) -> str:
    """Return the folder for the keys of a home that moves to a server: it must be named, and outlive the home."""
    if settings.keys is None:
        raise KeyMissing("COMMONBOOK_KEYS does not say where the keys of the new book will be", fix=_KEYS_OUTSIDE)
    if os.path.commonpath([settings.keys, settings.home]) == settings.home:
        raise BadInput(
            f"the folder {settings.keys} of COMMONBOOK_KEYS is in the home, which will be removed some day",
            fix=_KEYS_OUTSIDE,
        )
    return settings.keys


def _require_unused(old: Engines, target: Settings, clock: Clock) -> None:
    """Refuse a database or a home that has memories, before it gets keys.

    A database in which somebody made an empty book, with other keys, takes the keys of the old book.
    """
    from commonbook.subjects.transfer import migrate

    def take_over(tx: Transaction) -> None:
        if "id" in home.facts(tx):
            home.replace(tx, **old.keys.fingerprints())

    if target.database:
        with closing(postgres_database(target, clock, create=True)) as database:
            migrate.require_movable(old.db, database, to=_place(target))
            database.write(take_over)
    elif is_home(target.home):
        with closing(sqlite_database(target, clock, prepare_home(target.home))) as home_database:
            migrate.require_movable(old.db, home_database, to=_place(target))


# --- the keys


def _keys_folder(settings: Settings) -> str:
    """Return the folder of a book's keys; without one for a book on a server, opening that book is refused."""
    return (settings.database.keys or "") if settings.database else os.path.join(settings.home, HIDDEN_FOLDER, "keys")


def _copy_keys(old: str, target: Settings) -> None:
    """Give the new book the keys of the old one, unless it has them already; refuse a folder with other keys."""
    new = _keys_folder(target)
    if old == new:
        return
    again = (
        "`commonbook migrate` again, after `export COMMONBOOK_KEYS=FOLDER`"
        if target.database
        else "`commonbook migrate FOLDER`"
    )
    wanted = _read_files(old)
    existing = _read_files(new) if os.path.isdir(new) else {}
    if any(existing[name] != data for name, data in wanted.items() if name in existing):
        raise Conflict(
            f"the folder {new} has the keys of another book",
            fix=f"choose a folder that does not exist yet, which gets the keys of this book: {again}",
        )
    if not target.database:
        prepare_home(target.home)
    try:
        make_folders(new, mode=0o700)
        for name in sorted(wanted.keys() - existing.keys()):
            _write_key(os.path.join(new, name), wanted[name])
        sync_folder(new)
    except OSError as error:
        raise HomeError(
            f"the keys cannot be copied to {new}: {error.strerror}",
            fix=f"choose a folder that you may write to: {again}",
        ) from error


def _read_files(folder: str) -> dict[str, bytes]:
    contents = {}
    for name in sorted(os.listdir(folder)):
        if not name.startswith("."):
            with open(os.path.join(folder, name), "rb") as file:
                contents[name] = file.read()
    return contents


def _write_key(path: str, data: bytes) -> None:
    """Write a key file, whole and durable; only its owner may read it."""
    part = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(part, path)


def make_vector_index(settings: Settings, space: str, progress: Progress) -> None:
    """Make the vector index of a space, by its name; others read and write meanwhile."""
    _change(settings, space, progress)


def drop_vector_index(settings: Settings, space: str) -> None:
    """Drop the vector index of a space, by its name: all its vectors are compared again."""
    _change(settings, space, None)


def _change(settings: Settings, name: str, progress: Progress | None) -> None:
    """Make the index, or drop it where there is no progress to show."""
    if settings.database is None:
        raise BadInput(
            "only a book on PostgreSQL has vector indexes; a home compares all vectors",
            fix="name the database in COMMONBOOK_DATABASE",
        )
    with closing(postgres_database(settings, SystemClock(), create=False)) as database:
        # The driver is there, so this can be imported.
        from commonbook.engines.postgres.index import PostgresIndex

        with database.reading() as tx:
            space = spaces.find_by_name(tx, name)
        if space is None:
            raise NotFound(f"there is no space {name}", fix="`commonbook space list` shows them")
        index = PostgresIndex(database.connection, cache_bytes=0)
        if progress is None:
            index.drop_vector_index(space.id)
        else:
            index.make_vector_index(space.id, progress)
