"""The composition root of a migration between a home and a database server: wires both books."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from commonbook.compose.book import open_book, prepare_home, wire_home, wire_server
from commonbook.engines.disk.durable_files import make_folders
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, holds_files, is_home
from commonbook.engines.process.clock import SystemClock
from commonbook.errors import Conflict
from commonbook.model.reports import MigrationReport, Progress, no_progress
from commonbook.settings.settings import DatabaseChoice, Settings, require_address

if TYPE_CHECKING:
    from commonbook.ports.engines import Engines, RecallService
    from commonbook.ports.keys import Clock


def make_keys(folder: str) -> str:
    """Create the keys of a book on a server, if the folder has none; return the id of the signing key."""
    from commonbook.engines.disk.signing_keys import KeyFiles

    keys = KeyFiles(folder)
    keys.load(create=True)
    return keys.key_id


def migrate_book(settings: Settings, to: str, *, progress: Progress = no_progress) -> MigrationReport:
    """Move the book that the settings name to a database server or into a home; the old one becomes read-only."""
    from commonbook.transfer import migrate

    clock = SystemClock()
    with open_book(settings, progress=progress):
        # Opening applies the changes that people made to the files.
        pass
    with ExitStack() as opened:
        old, _ = _wire(settings, clock, opened, create=False)
        target = _target_settings(settings, to)
        new, _ = _wire(target, clock, opened, create=True)
        place = target.database.place if target.database else target.home
        return migrate.migrate(old, new, to=place, progress=progress)


def _wire(
    settings: Settings, clock: Clock, opened: ExitStack, *, create: bool
) -> tuple[Engines, Callable[[], RecallService]]:
    wire = wire_server if settings.database else wire_home
    engines, make_recall = wire(settings, clock, create=create)
    opened.callback(engines.folder.close)
    opened.callback(engines.db.close)
    return engines, make_recall


def _target_settings(settings: Settings, to: str) -> Settings:
    """Return the settings of the new book, which has the keys of the old one."""
    keys = settings.database.keys if settings.database else os.path.join(settings.home, HIDDEN_FOLDER, "keys")
    if "://" in to:
        # An address that we do not support is no folder either, and may hold a password.
        return settings._replace(database=DatabaseChoice(require_address(to, "the address to move to"), keys))
    home = os.path.realpath(os.path.join(settings.cwd, os.path.expanduser(to)))
    if not is_home(home) and holds_files(home):
        raise Conflict(
            f"{home} has files of its own, which would become memories of the book", fix="name a new or empty folder"
        )
    if keys:
        _copy_keys(keys, os.path.join(prepare_home(home), "keys"))
    return settings._replace(home=home, database=None)


def _copy_keys(old: str, new: str) -> None:
    """Give a home the keys of a book, all of them or none, unless it has keys already."""
    if os.path.exists(new):
        return
    part = f"{new}.part"
    make_folders(part, mode=0o700)
    for name in sorted(os.listdir(old)):
        with open(os.path.join(old, name), "rb") as file:
            data = file.read()
        with open(os.open(os.path.join(part, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    os.rename(part, new)
