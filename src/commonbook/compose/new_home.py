"""The composition root of `init`: shows what making a folder a home will change, and makes it one."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Final

from commonbook.compose.book import open_book, prepare_home, require_folder, wire_folder
from commonbook.engines.disk import machine_marker
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, is_home
from commonbook.engines.disk.read_only_folder import ReadOnlyFolder
from commonbook.engines.process.clock import SystemClock
from commonbook.errors import Conflict, ForeignHome
from commonbook.files.preview import preview
from commonbook.model.reports import HomePlan, Progress, no_progress
from commonbook.settings.settings import Settings

_NOT_COPIED: Final = ("index", "out", "*.lock*", "outbox.db*", "state.db.before-*")


def is_home_already(settings: Settings) -> bool:
    """Tell whether the folder is a home that was made, or was trusted, on this machine."""
    return is_home(settings.home) and machine_marker.is_marked(settings.home)


def plan_home(settings: Settings, *, trust: bool = False, progress: Progress = no_progress) -> HomePlan:
    """Return what making a folder a home will change; nothing in the folder is written.

    A `.commonbook/` of another machine raises ForeignHome, unless `trust` is set. A folder inside a home raises
    Conflict: its files would belong to two books.
    """
    require_folder(settings.home)
    _refuse_nested(settings.home)
    brings = machine_marker.brings_hidden_folder(settings.home) and not machine_marker.is_marked(settings.home)
    if brings and not trust:
        raise ForeignHome(
            f"{settings.home} brings a {HIDDEN_FOLDER}/ that was not made on this machine: its keys, database and "
            "settings are those of its maker",
            fix=f"remove {HIDDEN_FOLDER}/ to begin with the notes alone; or, if you know where it comes from, use "
            "`commonbook init --trust` (a home of your own that you put there opens without `init`)",
        )
    if not os.path.isdir(settings.home):
        return HomePlan(settings.home)
    return _preview(settings, progress)._replace(trusts=brings)


def _refuse_nested(folder: str) -> None:
    above = os.path.dirname(folder)
    while above != os.path.dirname(above):
        if is_home(above):
            raise Conflict(
                f"{folder} lies in the home {above}", fix=f"its notes are memories of that home: --home {above}"
            )
        above = os.path.dirname(above)


def _preview(settings: Settings, progress: Progress) -> HomePlan:
    """Scan the folder with a database and keys in a temporary folder: new ones, or copies of those that it brings."""
    with TemporaryDirectory(prefix="commonbook-init-") as hidden, ExitStack() as opened:
        brought = os.path.join(settings.home, HIDDEN_FOLDER)
        if os.path.isdir(brought):
            ignore = shutil.ignore_patterns(*_NOT_COPIED)
            shutil.copytree(brought, hidden, ignore=ignore, dirs_exist_ok=True)
        engines = wire_folder(settings, SystemClock(), hidden, ReadOnlyFolder(settings.home))
        opened.callback(engines.folder.close)
        opened.callback(engines.db.close)
        return preview(engines, settings.home, progress=progress)


def make_home(settings: Settings, *, trust: bool = False, progress: Progress = no_progress) -> None:
    """Make the folder a home, and its Markdown files memories; or make the book of a database."""
    if trust and settings.database is None:
        machine_marker.write_marker(prepare_home(settings.home))
    open_book(settings, create=True, progress=progress).close()
