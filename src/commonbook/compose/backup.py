"""Backups: copies of a whole home, as it is at one moment, and their way back.

While the files are copied, `files.lock` is held. So no file is newer than the database, which is copied by SQLite's
online backup. A file that a committed write has not written yet is in the journal, and is written when the copy is
opened. A copy is made in a working folder beside its place, is read again there, and is then renamed.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from typing import IO, Final, NamedTuple

from commonbook.compose.book import no_home_error, open_book, require_usable
from commonbook.compose.new_home import refuse_nested
from commonbook.core.settings.settings import Settings
from commonbook.engines.disk import machine_marker
from commonbook.engines.disk.backup_format import (
    BackupList,
    Entry,
    FolderWriter,
    ListedWriter,
    compress_if_named,
    is_archive,
    new_backup,
    read_backup,
)
from commonbook.engines.disk.durable_files import make_folders, rename_new, sync_folder
from commonbook.engines.disk.home_folder import HIDDEN_FOLDER, holds_files, is_home, read_settled
from commonbook.engines.process import FairLock
from commonbook.errors import Conflict, DatabaseUnfit, HomeDamaged, HomeError
from commonbook.values.ids import format_time
from commonbook.values.reports import BackupReport, Progress, RestoreReport, no_progress
from commonbook.version import __version__


def backup_home(
    settings: Settings, target: str | os.PathLike[str], *, progress: Progress = no_progress
) -> BackupReport:
    """Copy the home of these settings, which others may write to meanwhile, to a new tar file or a new folder.

    The copy is read again before it gets its name. Conflict if something is at the target, or if that is in the home.
    """
    path = _absolute(settings, target)
    require_home(settings)
    archived = is_archive(path)
    _require_free(path, archived=archived)
    _require_outside(path, settings.home)
    listed = copy_home(settings, path, progress=progress)
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
    listed = put_back(path, settings.home, progress=progress)
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


_DATABASES: Final = tuple(f"{HIDDEN_FOLDER}/{name}" for name in ("state.db", "outbox.db"))
"""These are copied by SQLite, which brings their write-ahead logs along."""
_LEFT_OUT: Final = tuple(database + suffix for database in _DATABASES for suffix in ("", "-wal", "-shm", "-journal"))
_INDEX: Final = f"{HIDDEN_FOLDER}/index"
_WORK_PREFIX: Final = ".commonbook-copy-"
_PATIENCE_SECONDS: Final = 5.0
"""How long to wait for a program that is saving a file."""
_MAX_BYTES_IN_MEMORY: Final = 64 << 20


class _Names(NamedTuple):
    """The paths of a home: those to copy, and those that are left out, with the reason."""

    copied: list[str]
    left_out: dict[str, str]


# --- making a copy


def copy_home(
    settings: Settings, target: str, *, replace: bool = False, progress: Progress = no_progress
) -> BackupList:
    """Copy the home of these settings to a tar file or into a folder, which nobody else may read, and return its list.

    The copy is read again before it gets its name. With `replace` it may take the place of another file. Raise Conflict
    if something is at the target, Busy if another process holds the files too long, HomeDamaged if the database is
    damaged, and HomeError if the copy cannot be written.
    """
    home = settings.home
    require_home(settings)
    archived = is_archive(target)
    try:
        make_folders(os.path.dirname(target), mode=0o700)
        with _working_folder(os.path.dirname(target)) as work:
            ready = os.path.join(work, "copy")
            with (
                new_backup(ready, archived=archived) as writer,
                FairLock(os.path.join(home, HIDDEN_FOLDER, "files.lock")).hold(settings.busy_seconds),
            ):
                left_out = _copy_everything(home, writer, work, settings.busy_seconds, progress)
                now = datetime.now(UTC)
                listed = writer.finish(
                    made=format_time(now), modified=now.timestamp(), version=__version__, left_out=left_out
                )
            ready = compress_if_named(ready, target) if archived else ready
            read_backup(ready, on_file=lambda count: progress("check", count, len(listed.files)))
            _put_in_place(ready, target, replace=replace)
    except (OSError, sqlite3.Error) as error:
        raise HomeError(f"the home {home} cannot be copied: {error}", fix="check the disk, and try again") from error
    return listed


def require_home(settings: Settings) -> None:
    """Raise the reason why there is no home to copy, with the way to back up a book that is elsewhere."""
    if settings.database is not None:
        raise DatabaseUnfit(
            f"the book is on PostgreSQL ({settings.database.place}), not in a home",
            fix="back up the database with pg_dump or your usual tool, and the folder COMMONBOOK_KEYS; "
            "docs/SCALING.md says how",
        )
    if not is_home(settings.home):
        raise no_home_error(settings)


def _copy_everything(
    home: str, writer: ListedWriter, work: str, busy_seconds: float, progress: Progress
) -> dict[str, str]:
    """Copy the databases and all files, and return what was left out."""
    names = _names(home)
    total = len(names.copied)
    # Folders come before what is in them, and the database before any file.
    _add(writer, os.path.join(home, HIDDEN_FOLDER), HIDDEN_FOLDER, work)
    for name in _DATABASES:
        if os.path.exists(os.path.join(home, name)):
            copy = os.path.join(work, os.path.basename(name))
            _copy_database(os.path.join(home, name), copy, busy_seconds)
            _add(writer, copy, name, work)
    for count, name in enumerate(names.copied, 1):
        # A file may be removed meanwhile, by a person.
        with suppress(FileNotFoundError):
            _add(writer, os.path.join(home, name), name, work)
        progress("copy", count, total)
    return names.left_out


def _names(home: str) -> _Names:
    """Return the paths of all folders and regular files of a home, without locks and databases."""
    names = _Names([], {})
    for folder, folders, files in os.walk(home, onerror=_raise):
        below = os.path.relpath(folder, home)
        folders.sort()
        for name in [*folders, *sorted(files)]:
            path = os.path.normpath(os.path.join(below, name))
            place = os.path.join(folder, name)
            if path == HIDDEN_FOLDER or path in _LEFT_OUT or (below == HIDDEN_FOLDER and ".lock" in name):
                continue
            if reason := _reason_to_leave_out(path, place):
                names.left_out[path] = reason
                if name in folders:
                    folders.remove(name)
            else:
                names.copied.append(path)
    return names


def _raise(error: OSError) -> None:
    raise error


def _reason_to_leave_out(path: str, place: str) -> str:
    if path == _INDEX:
        return "it is made anew"
    if os.path.islink(place):
        return "a link is not followed"
    if os.path.lexists(place) and not os.path.isdir(place) and not os.path.isfile(place):
        return "it is no file"
    return ""


def _add(writer: ListedWriter, place: str, name: str, work: str) -> None:
    """Add a file or folder as it is now: an editor may change it meanwhile."""
    status = os.lstat(place)
    if os.path.isdir(place):
        writer.add(Entry(name, is_folder=True, mode=status.st_mode & 0o777, modified=status.st_mtime), BytesIO())
        return
    with _settled_content(place, status.st_size, work) as (content, size):
        mode = status.st_mode & 0o777
        writer.add(Entry(name, is_folder=False, mode=mode, modified=status.st_mtime, size=size), content)


@contextmanager
def _settled_content(place: str, size: int, work: str) -> Iterator[tuple[IO[bytes], int]]:
    """Yield the content of a file with its size, neither of which can change any more."""
    if os.path.dirname(place) == work:
        with open(place, "rb") as file:
            yield file, size
    elif size <= _MAX_BYTES_IN_MEMORY:
        data = _read_unchanged(place)
        yield BytesIO(data), len(data)
    else:
        with tempfile.TemporaryFile(dir=work) as copy, open(place, "rb") as file:
            shutil.copyfileobj(file, copy, 1 << 20)
            length = copy.tell()
            copy.seek(0)
            yield copy, length


def _read_unchanged(place: str) -> bytes:
    """Read a file that nobody saves meanwhile; one that is saved all the time is taken as it is."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        before = os.stat(place, follow_symlinks=False)
        data = read_settled(place, patience=_PATIENCE_SECONDS)
        if data is None:
            raise FileNotFoundError(place)
        after = os.stat(place, follow_symlinks=False)
        same = (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
        if (same and len(data) == after.st_size) or time.monotonic() > deadline:
            return data


def _copy_database(source: str, target: str, busy_seconds: float) -> None:
    """Copy a database, and check the copy."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, os.stat(source).st_mode & 0o777))
    with closing(sqlite3.connect(source, timeout=busy_seconds)) as original, closing(sqlite3.connect(target)) as copy:
        original.backup(copy)
        (answer,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if answer != "ok":
        raise HomeDamaged(f"{source} is damaged: {answer}", fix="`commonbook doctor` says what can be done")


# --- the working folder


@contextmanager
def _working_folder(parent: str) -> Iterator[str]:
    """Make a folder for a copy that is not complete yet; it is removed at the end, or by the next copy made there."""
    _remove_leftovers(parent)
    work = tempfile.mkdtemp(dir=parent, prefix=_WORK_PREFIX)
    fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some network file systems lock no folders: there, nothing is taken for a leftover.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield work
    finally:
        os.close(fd)
        shutil.rmtree(work, ignore_errors=True)


def _remove_leftovers(parent: str) -> None:
    """Remove the working folders of processes that were killed: nobody holds their locks."""
    for name in os.listdir(parent):
        if name.startswith(_WORK_PREFIX):
            with suppress(OSError):
                fd = os.open(os.path.join(parent, name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
                finally:
                    os.close(fd)


def _put_in_place(ready: str, target: str, *, replace: bool) -> None:
    if replace:
        os.replace(ready, target)
    elif not _rename_new(ready, target):
        raise Conflict(f"there is something at {target} already", fix="choose another name")
    sync_folder(os.path.dirname(target))


def _rename_new(source: str, target: str) -> bool:
    if os.path.isfile(source):
        return rename_new(source, target)
    # A folder takes the place of an empty one at most.
    if os.path.lexists(target) and not os.path.isdir(target):
        return False
    os.rename(source, target)
    return True


# --- the way back


def put_back(copy: str, home: str, *, aside: str | None = None, progress: Progress = no_progress) -> BackupList:
    """Put a copy at the place of a home; a home that is there is moved to `aside`, or the call is refused.

    BadFile if the copy is none, or is damaged: then nothing is changed.
    """
    taken = not has_no_home(home)
    if taken and aside is None:
        raise Conflict(
            f"there is something at {home} already", fix="move it away, or choose another home with --home DIR"
        )
    parent = os.path.dirname(home)
    try:
        make_folders(parent, mode=0o777)
        with _working_folder(parent) as work:
            ready = os.path.join(work, "home")
            listed = read_backup(copy, FolderWriter(ready), on_file=lambda count: progress("restore", count, 0))
            _complete_hidden_folder(os.path.join(ready, HIDDEN_FOLDER))
            if taken and aside is not None:
                os.rename(home, aside)
            os.rename(ready, home)
        sync_folder(parent)
    except OSError as error:
        raise HomeError(f"{copy} cannot be put back to {home}: {error}", fix="check the disk, and try again") from error
    return listed


def _complete_hidden_folder(hidden: str) -> None:
    """Mark the home as one of this machine: who restores a backup knows where it comes from."""
    make_folders(os.path.join(hidden, "out"), mode=0o700)
    machine_marker.write_marker(hidden)


def has_no_home(home: str) -> bool:
    """Return whether nothing is at the place of a home, so that a copy may be put there."""
    return not is_home(home) and not holds_files(home) and not os.path.isfile(home)
