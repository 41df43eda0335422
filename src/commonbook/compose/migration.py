"""The composition root of a migration between a home and a database server: wires both books, and hands on the keys.

`transfer.migration_order` decides what is refused, `transfer.migrate` moves the book.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from commonbook.compose.book import (
    KEYS_CHECK_TEXT,
    open_book,
    postgres_database,
    prepare_home,
    sqlite_database,
    wire_home,
    wire_server,
)
from commonbook.engines.disk.durable_files import make_folders, sync_folder
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, holds_files, is_home
from commonbook.engines.process.clock import SystemClock
from commonbook.errors import CommonbookError, HomeError
from commonbook.model.reports import MigrationReport, Progress, no_progress
from commonbook.settings.settings import DatabaseChoice, Settings, require_address
from commonbook.tables import home
from commonbook.transfer import migration_order as order

if TYPE_CHECKING:
    from commonbook.ports.database import Transaction
    from commonbook.ports.engines import Engines, RecallService
    from commonbook.ports.keys import Clock


def make_keys(folder: str) -> str:
    """Create the keys of a book on a server, if the folder has none; return the id of the signing key."""
    from commonbook.engines.disk.signing_keys import KeyFiles

    keys = KeyFiles(folder)
    keys.load(create=True)
    return keys.key_id


def migrate_book(settings: Settings, to: str, *, progress: Progress = no_progress) -> MigrationReport:
    """Move the book that the settings name to a database server or into a home; the old one becomes read-only.

    The keys of a home that moves to a server are copied into the folder `settings.keys`, before anything else is. At
    the end the new book is indexed, so that the first recall has nothing to do.
    """
    from commonbook.transfer import migrate

    clock = SystemClock()
    target = _target_settings(settings, to)
    place, keys = _place(target), _keys_folder(target)
    if settings.database is None:
        order.require_home(settings.home, exists=is_home(settings.home))
    with open_book(settings, progress=progress):
        # Opening applies the changes that people made to the files.
        pass
    with ExitStack() as opened:
        old, _ = _wire(settings, clock, opened, create=False)
        _require_unused(old, target, clock)
        _copy_keys(_keys_folder(settings), target)
        new, _ = _wire(target, clock, opened, create=True)
        report = migrate.migrate(old, new, to=place, keys=keys, progress=progress)
    return report._replace(indexed=_index(target, progress))


def _wire(
    settings: Settings, clock: Clock, opened: ExitStack, *, create: bool
) -> tuple[Engines, Callable[[], RecallService]]:
    wire = wire_server if settings.database else wire_home
    engines, make_recall = wire(settings, clock, create=create)
    opened.callback(engines.folder.close)
    opened.callback(engines.db.close)
    return engines, make_recall


def _index(target: Settings, progress: Progress) -> bool:
    """Index the new book; it is complete without that, so a failure here is no failure of the migration."""
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
        order.require_own_folder(folder, has_other_files=not is_home(folder) and holds_files(folder))
        return settings._replace(home=folder, database=None)
    # An address that we do not support is no folder either, and may hold a password.
    target = DatabaseChoice(require_address(to, "the address to move to"))
    order.require_other_server(settings.database.place if settings.database else None, target.place)
    keys = settings.database.keys if settings.database else order.require_keys_outside(settings.keys, settings.home)
    return settings._replace(database=target._replace(keys=keys))


def _require_unused(old: Engines, target: Settings, clock: Clock) -> None:
    """Refuse a database or a home that has memories, before it gets keys.

    A database in which somebody made an empty book, with other keys, takes those of the old book.
    """
    from commonbook.transfer import migrate

    check = old.keys.keyed_hash(KEYS_CHECK_TEXT)

    def take_over(tx: Transaction) -> None:
        if "id" in home.facts(tx):
            home.replace(tx, keys=check)

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
    to_server = target.database is not None
    wanted = _read_files(old)
    existing = _read_files(new) if os.path.isdir(new) else {}
    order.require_no_other_keys(new, wanted, existing, to_server=to_server)
    if not to_server:
        prepare_home(target.home)
    try:
        make_folders(new, mode=0o700)
        for name in sorted(wanted.keys() - existing.keys()):
            _write_key(os.path.join(new, name), wanted[name])
        sync_folder(new)
    except OSError as error:
        raise HomeError(
            f"the keys cannot be copied to {new}: {error.strerror}",
            fix=f"choose a folder that you may write to: {order.command_with_other_keys(to_server=to_server)}",
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
