"""The composition root of `backup` and `restore`: decides what is refused, and checks a restored home.

`compose.home_copy` makes a copy of a home and puts it back.
"""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime

from commonbook.compose import home_copy
from commonbook.compose.book import open_book, require_usable
from commonbook.compose.new_home import refuse_nested
from commonbook.engines.disk.backup_format import is_archive
from commonbook.errors import Conflict, DatabaseUnfit
from commonbook.model.reports import BackupReport, Progress, RestoreReport, no_progress
from commonbook.settings.settings import Settings


def backup_home(
    settings: Settings, target: str | os.PathLike[str], *, progress: Progress = no_progress
) -> BackupReport:
    """Copy the home of these settings, which others may write to meanwhile, to a new tar file or a new folder.

    The copy is read again before it gets its name. Conflict if something is at the target, or if that is in the home.
    """
    path = _absolute(settings, target)
    home_copy.require_home(settings)
    archived = is_archive(path)
    _require_free(path, archived=archived)
    _require_outside(path, settings.home)
    listed = home_copy.copy_home(settings, path, progress=progress)
    size = os.path.getsize(path) if archived else sum(size for size, _ in listed.files.values())
    return BackupReport(settings.home, path, listed.made, len(listed.files), size, listed.left_out)


def restore_home(
    settings: Settings, backup: str | os.PathLike[str], *, progress: Progress = no_progress
) -> RestoreReport:
    """Make a home of a backup, where there is none, and check it: its index is built, and `doctor` looks at it.

    A damaged backup is refused with BadFile, and changes nothing.
    """
    if settings.database is not None:
        raise DatabaseUnfit(
            f"a backup of a home cannot be restored into PostgreSQL ({settings.database.place})",
            fix="name a new home with --home; `commonbook migrate` moves that into an empty database",
        )
    require_usable(settings)
    refuse_nested(settings.home)
    path = _absolute(settings, backup)
    listed = home_copy.restore_home(path, settings.home, progress=progress)
    with open_book(settings, progress=progress) as book:
        book.reindex(progress=progress)
        findings = book.doctor(progress=progress)
        memories = book.status().memories
    return RestoreReport(settings.home, path, listed.made, len(listed.files), memories, findings)


def _absolute(settings: Settings, path: str | os.PathLike[str]) -> str:
    return os.path.normpath(os.path.join(settings.cwd, os.path.expanduser(path)))


def _require_free(path: str, *, archived: bool) -> None:
    """Refuse to write over anything; for a folder that is there, propose a name in it."""
    if not os.path.lexists(path):
        return
    if archived or not os.path.isdir(path):
        raise Conflict(f"there is something at {path} already", fix="choose another name: nothing is overwritten")
    proposed = os.path.join(path, f"commonbook-{datetime.now(UTC):%Y-%m-%d}.tar")
    raise Conflict(
        f"{path} exists already, and a backup is a new folder or file",
        fix=f"choose a name in it: `commonbook backup {shlex.quote(proposed)}`",
    )


def _require_outside(path: str, home: str) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath([real, os.path.realpath(home)]) == os.path.realpath(home):
        raise Conflict(
            f"{path} is in the home itself, and would become a part of it", fix="choose a place outside of the home"
        )
