"""Copies of a whole home in one tar file, as it is at one moment, and their way back.

While the files are copied, `files.lock` is held. So no file is newer than the database, which is copied by SQLite's
online backup. A file that a committed write has not written yet is in the journal, and is written when the copy is
opened.
"""

from __future__ import annotations

import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from io import BytesIO
from typing import Final

from commonbook.engines.disk.durable_files import sync_folder
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, holds_files, is_home
from commonbook.engines.process.fair_lock import FairLock
from commonbook.errors import Conflict, HomeError, NoHome
from commonbook.settings.settings import Settings

_DATABASE: Final = f"{HIDDEN_FOLDER}/state.db"
_LEFT_OUT: Final = (f"{HIDDEN_FOLDER}/index", _DATABASE, f"{_DATABASE}-wal", f"{_DATABASE}-shm")
"""The index is made anew, and the database is copied by SQLite."""


def copy_home(settings: Settings, target: str) -> None:
    """Write a copy of the home of these settings to a tar file, which nobody else may read.

    Raise Busy if another process holds the files too long, and HomeError if the copy cannot be written.
    """
    home = settings.home
    if settings.database is not None or not is_home(home):
        raise NoHome(f"there is no home at {home}", fix="nothing is to be copied")
    hidden = os.path.join(home, HIDDEN_FOLDER)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    part = f"{target}.{os.getpid()}.part"
    try:
        with (
            tempfile.NamedTemporaryFile(dir=os.path.dirname(target), prefix="state.", suffix=".part") as database,
            open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file,
        ):
            with (
                FairLock(os.path.join(hidden, "files.lock")).hold(settings.busy_seconds),
                tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                _copy_database(os.path.join(home, _DATABASE), database.name, settings.busy_seconds)
                archive.add(database.name, _DATABASE)
                for name in _files(home):
                    with suppress(FileNotFoundError):
                        _add(archive, os.path.join(home, name), name)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except (OSError, sqlite3.Error) as error:
        raise HomeError(f"the home {home} cannot be copied: {error}", fix="check the disk, and try again") from error
    finally:
        with suppress(OSError):
            os.unlink(part)


def _add(archive: tarfile.TarFile, path: str, name: str) -> None:
    """Add a file as it is now: an editor may change it meanwhile."""
    member = archive.gettarinfo(path, name)
    if not member.isfile():
        archive.addfile(member)
        return
    with open(path, "rb") as file:
        data = file.read()
    member.size = len(data)
    archive.addfile(member, BytesIO(data))


def _copy_database(source: str, target: str, busy_seconds: float) -> None:
    with closing(sqlite3.connect(source, timeout=busy_seconds)) as original, closing(sqlite3.connect(target)) as copy:
        original.backup(copy)


def _files(home: str) -> Iterator[str]:
    """Yield the paths of all regular files of a home, except for locks and what is made anew."""
    for folder, names, files in os.walk(home):
        below = os.path.relpath(folder, home)
        for name in sorted([*names, *files]):
            path = os.path.normpath(os.path.join(below, name))
            place = os.path.join(folder, name)
            if path in _LEFT_OUT or (below == HIDDEN_FOLDER and ".lock" in name) or os.path.islink(place):
                if name in names:
                    names.remove(name)
            else:
                yield path


def restore_home(copy: str, home: str, *, aside: str | None = None) -> None:
    """Put a copy at the place of a home; a home that is there is moved to `aside`, or the call is refused."""
    taken = is_home(home) or holds_files(home)
    if taken and aside is None:
        raise Conflict(f"there is something at {home} already", fix="move it away, and try again")
    parent = os.path.dirname(home)
    try:
        os.makedirs(parent, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=".commonbook-restore-") as folder:
            ready = os.path.join(folder, "home")
            os.mkdir(ready, 0o700)
            with tarfile.open(copy) as archive:
                archive.extractall(ready, filter=_plain_member)  # noqa: S202 - the filter keeps them within the folder
            if taken and aside is not None:
                os.rename(home, aside)
            os.rename(ready, home)
        sync_folder(parent)
    except (OSError, tarfile.TarError) as error:
        raise HomeError(f"{copy} cannot be put back to {home}: {error}", fix="check the disk, and try again") from error


def _plain_member(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Return a member with its mode, within the folder; a copy has files and folders only."""
    return tarfile.tar_filter(member, folder) if member.isfile() or member.isdir() else None


def has_no_home(home: str) -> bool:
    """Tell whether nothing is at the place of a home, so that a copy may be put there."""
    return not is_home(home) and not holds_files(home)
