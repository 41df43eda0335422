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
from commonbook.engines.disk.no_files import ReadOnlyFolder
from commonbook.engines.process import SystemClock
from commonbook.errors import BadFile, Conflict, ForeignHome
from commonbook.files.preview import preview
from commonbook.markdown import space_file
from commonbook.model.ids import new_id
from commonbook.model.reports import HomePlan, Progress, no_progress
from commonbook.model.request import OWNER_CONTEXT
from commonbook.model.spaces import PERSONAL, SPACE_FILE, Space
from commonbook.settings.settings import Settings
from commonbook.text import space_names
from commonbook.write.transaction import write

_NOT_COPIED: Final = ("index", "out", "*.lock*", "outbox.db*", "state.db.before-*")


def is_home_already(settings: Settings) -> bool:
    """Return whether the folder is a home that was made, or was trusted, on this machine."""
    return is_home(settings.home) and machine_marker.is_marked(settings.home)


def plan_home(
    settings: Settings, *, space: str | None = None, trust: bool = False, progress: Progress = no_progress
) -> HomePlan:
    """Return what making a folder a home will change; nothing in the folder is written.

    The folder becomes the space of that name, in place of `personal`. A `.commonbook/` of another machine raises
    ForeignHome, unless `trust` is set. A folder inside a home raises Conflict: its files would belong to two books.
    """
    require_folder(settings.home)
    refuse_nested(settings.home)
    brings = machine_marker.brings_hidden_folder(settings.home) and not machine_marker.is_marked(settings.home)
    if brings and not trust:
        raise ForeignHome(
            f"{settings.home} brings a {HIDDEN_FOLDER}/ that was not made on this machine: its keys, database and "
            "settings are those of its maker",
            fix=f"remove {HIDDEN_FOLDER}/ to begin with the notes alone; or, if you know where it comes from, use "
            "`commonbook init --trust` (a home of your own that you put there opens without `init`)",
        )
    space = _require_space(settings.home, space, brings=brings)
    if not os.path.isdir(settings.home):
        return HomePlan(settings.home, new_files=(SPACE_FILE,) if space else ())
    return _preview(settings, space, progress)._replace(trusts=brings)


def _require_space(folder: str, name: str | None, *, brings: bool) -> str | None:
    """Return the name of the space that a folder is still to become, or None; Conflict if it is another one."""
    if name is None or space_names.require_new_name(name) == PERSONAL:
        return None
    if brings:
        raise Conflict(
            f"the {HIDDEN_FOLDER}/ that {folder} brings says which spaces there are",
            fix="leave --space out; `commonbook space rename` gives a space another name",
        )
    stated = _space_at_top(folder)
    if stated is not None and stated != name:
        raise Conflict(
            f"{folder} is the space {stated}, by its {SPACE_FILE}", fix=f"leave --space out, or remove {SPACE_FILE}"
        )
    return None if stated else name


def _space_at_top(folder: str) -> str | None:
    """Return the name of the space that a folder says it is; None if it does not."""
    try:
        with open(os.path.join(folder, SPACE_FILE), "rb") as file:
            return space_file.parse(file.read()).name
    except (OSError, BadFile):
        return None


def refuse_nested(folder: str) -> None:
    """Raise Conflict if a folder lies in a home: its files would belong to two books."""
    above = os.path.dirname(folder)
    while above != os.path.dirname(above):
        if is_home(above):
            raise Conflict(
                f"{folder} lies in the home {above}", fix=f"its notes are memories of that home: --home {above}"
            )
        above = os.path.dirname(above)


def _preview(settings: Settings, space: str | None, progress: Progress) -> HomePlan:
    """Scan the folder with a database and keys in a temporary folder: new ones, or copies of those that it brings."""
    with TemporaryDirectory(prefix="commonbook-init-") as hidden, ExitStack() as opened:
        brought = os.path.join(settings.home, HIDDEN_FOLDER)
        if os.path.isdir(brought):
            ignore = shutil.ignore_patterns(*_NOT_COPIED)
            shutil.copytree(brought, hidden, ignore=ignore, dirs_exist_ok=True)
        engines = wire_folder(settings, SystemClock(), hidden, ReadOnlyFolder(settings.home))
        opened.callback(engines.folder.close)
        opened.callback(engines.db.close)
        if space is not None:
            write(engines, OWNER_CONTEXT, lambda ctx: ctx.add_space(space, "", origin="new"))
        return preview(engines, settings.home, progress=progress)


def make_home(
    settings: Settings, *, space: str | None = None, trust: bool = False, progress: Progress = no_progress
) -> None:
    """Make the folder a home, and its Markdown files memories of a space; or make the book of a database."""
    if settings.database is None and (name := _require_space(settings.home, space, brings=trust)):
        _write_space_file(settings.home, name)
    if trust and settings.database is None:
        machine_marker.write_marker(prepare_home(settings.home))
    open_book(settings, create=True, progress=progress).close()


def _write_space_file(folder: str, name: str) -> None:
    """Write the file that makes a folder a space, which the first scan applies."""
    prepare_home(folder)
    clock = SystemClock()
    data = space_file.render(Space(new_id(), name, clock.now()))
    with open(os.path.join(folder, SPACE_FILE), "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
