"""The Folder port on the local file system: changes the Markdown files of a home without losing a concurrent save.

Every change goes through the hidden folder `out`. New text is written and synced there and then atomically exchanged
with the current file. The displaced file stays in `out` until the caller has compared it, so a save that another
program made in between is never lost.

A home is watched by the file events of the operating system (watchfiles). Reads a file once its save is finished: a
program that still has it open for writing is waited for (on Linux). Finds the Markdown files of a home, and maps their
paths in composed Unicode (NFC) to the names on the disk.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import stat as modes
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import translate
from functools import partial
from glob import escape
from threading import Event
from typing import TYPE_CHECKING, Final, Literal

from commonbook.engines.disk import durable_files, git
from commonbook.engines.disk.durable_files import (
    MAX_SEQUENTIAL_FILES,
    in_parallel,
    sync_folder,
    write_synced,
)
from commonbook.engines.process import FairLock
from commonbook.errors import Busy, DiskFull, FileInTheWay, HomeError, HomeReadOnly
from commonbook.ports.files import FileStat
from commonbook.values.memory import MARKDOWN_ENDINGS
from commonbook.values.spaces import SPACE_FILE

if TYPE_CHECKING:
    from watchfiles import Change

HIDDEN_FOLDER: Final = ".commonbook"
MACHINE_FILE: Final = "machine"
"""The file in the hidden folder that tells on which machine the home was made."""
_SECRETS: Final = tuple(f"{HIDDEN_FOLDER}/{name}" for name in ("keys", "owner.key", "state.db", "outbox.db"))
_NOTICES_FOLDER: Final = "_invalidations"
_UNFINISHED: Final = "."
_ATTACHMENT: Final = "attachment"
_MAX_ATTEMPTS: Final = 20
# How long to wait for a program that is writing: a file in its place is scanned again, a displaced one is not.
_PATIENCE_SECONDS: Final = 0.1
_DISPLACED_PATIENCE_SECONDS: Final = 5.0


class HomeFolder:
    """The Folder port on the local file system."""

    def __init__(self, home: str) -> None:
        """Use the folder `home`, which exists."""
        self._home = home
        self._tree = MarkdownTree(home)
        self._out_folder = os.path.join(home, HIDDEN_FOLDER, "out")
        self._identity = _identity(home)
        self._lock = FairLock(os.path.join(home, HIDDEN_FOLDER, "files.lock"))
        self._unsynced_folders: set[str] = set()
        self._checked_folders: set[str] = set()
        self._durable_folders: set[str] = set()
        # Counts folders that were made or removed, so that a flush does not take a new one for a durable one.
        self._folder_changes = 0
        self._prepared: dict[tuple[str, bytes, str], tuple[str, FileStat]] = {}
        self._prepared_under_lock: list[tuple[str, bytes, str]] = []

    # --- reading

    @property
    def keeps_files(self) -> bool:
        """True: memories are files in this engine."""
        return True

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return size and time of every Markdown and space file, except other hidden and ignored files and links."""
        return self._tree.walk()

    def canonical_path(self, path: str) -> str:
        """Return the path as a walk would spell it."""
        return self._tree.canonical_path(path)

    def spelling(self, folder: str) -> str:
        """Return the path of a folder as it is spelled on the disk, if one is there that differs by case alone."""
        return self._tree.spelling(folder)

    def is_ours(self, path: str) -> bool:
        """Return whether a walk would include a file at this path."""
        return self._tree.is_ours(path)

    def our_paths(self) -> Callable[[str], bool]:
        """Return a function that answers `is_ours` for many paths, by the ignore file as it is now."""
        return self._tree.our_paths()

    def unreadable_paths(self) -> dict[str, str]:
        """Return the paths that the last walk could not read, with the reason."""
        return self._tree.unreadable_paths()

    def _place_of(self, path: str) -> str:
        return self._tree.at(path)

    def stat(self, path: str) -> FileStat | None:
        """Return size and time of a regular file, or None if there is none; raises OSError if that is unknown."""
        try:
            status = os.lstat(self._place_of(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not modes.S_ISREG(status.st_mode):
            return None
        return FileStat(status.st_size, status.st_mtime_ns)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if there is none; links are not followed."""
        return read_settled(self._place_of(path), patience=_PATIENCE_SECONDS)

    def exists(self, path: str) -> bool:
        """Return whether anything is at the path, including a placeholder of a cloud drive."""
        place = self._place_of(path)
        folder, name = os.path.split(place)
        return _may_exist(place) or _may_exist(os.path.join(folder, f".{name}.icloud"))

    # --- writing

    @contextmanager
    def lock(self, *, wait: float) -> Iterator[bool]:
        """Hold `files.lock`; yield False when it could not be acquired within `wait` seconds."""
        try:
            self._lock.acquire(wait)
        except Busy:
            yield False
            return
        try:
            self._unsynced_folders.clear()
            self._checked_folders.clear()
            yield True
        finally:
            try:
                self._drop_prepared(self._prepared_under_lock)
                self._prepared_under_lock.clear()
            finally:
                self._lock.release()

    def require_place(self, path: str, *, checked_folders: set[str] | None = None) -> None:
        """Raise FileInTheWay unless the path can be written without leaving the home."""
        place = self._place_of(path)
        folder = lowest = _parent(place)
        while folder != self._home and not (checked_folders and folder in checked_folders):
            if _kind_at(folder) not in {None, modes.S_IFDIR}:
                raise self._file_in_the_way(folder)
            folder = _parent(folder)
        if checked_folders is not None:
            checked_folders.add(lowest)
        if _kind_at(place) not in {None, modes.S_IFREG}:
            raise self._file_in_the_way(place)

    def _file_in_the_way(self, place: str) -> FileInTheWay:
        return FileInTheWay(
            f"{os.path.relpath(place, self._home)} is a link or something else that a memory cannot be written to",
            fix="move it away: memories are only ever written inside the home",
        )

    def prepare(self, wanted: Collection[tuple[str, bytes, str]]) -> None:
        """Write and sync files that will be put, in parallel; `put` repeats any that fail here."""
        if len(wanted) > MAX_SEQUENTIAL_FILES:
            self._prepared_under_lock += wanted
            in_parallel(self._prepare, wanted)

    @contextmanager
    def prepared(self, wanted: Collection[tuple[str, bytes, str]]) -> Iterator[None]:
        """Write and sync files that will be put, without the lock; at the end, drop those that were not put."""
        try:
            in_parallel(self._prepare, wanted)
            yield
        finally:
            self._drop_prepared(wanted)

    def _drop_prepared(self, wanted: Iterable[tuple[str, bytes, str]]) -> None:
        for request in wanted:
            if prepared := self._prepared.pop(request, None):
                self.drop_displaced(f"{_UNFINISHED}{prepared[0]}")

    def _prepare(self, request: tuple[str, bytes, str]) -> None:
        with suppress(OSError):
            self._prepared[request] = self._write_new(*request)

    def _write_new(self, path: str, data: bytes, owner: str) -> tuple[str, FileStat]:
        """Write the data to `out` under an unfinished name; return the final name there, and the stat."""
        name = f"{owner}.{os.urandom(6).hex()}"
        return name, write_synced(f"{self._out_folder}/{_UNFINISHED}{name}", data, like=self._place_of(path))

    def put(self, path: str, data: bytes, *, owner: str) -> tuple[FileStat, str | None]:
        """Put data at the path atomically; return its stat and the name of the displaced file, if there was one."""
        target = self._place_of(path)
        with _translated_errors(path):
            request = (path, data, owner)
            name, status = self._prepared.pop(request) if request in self._prepared else self._write_new(*request)
            if self._put_new(name, target):
                return status, None
            ready_place = os.path.join(self._out_folder, name)
            try:
                # Only a whole file gets its final name: half a file left by a crash is not taken for a user's save.
                os.rename(os.path.join(self._out_folder, f"{_UNFINISHED}{name}"), ready_place)
            except FileNotFoundError:  # another process took it for one that a crash had left
                name, status = self._write_new(*request)
                ready_place = os.path.join(self._out_folder, name)
                os.rename(os.path.join(self._out_folder, f"{_UNFINISHED}{name}"), ready_place)
            for _ in range(_MAX_ATTEMPTS):
                self._ensure_folder(os.path.dirname(target))
                self._unsynced_folders.add(os.path.dirname(target))
                try:
                    if durable_files.rename_new(ready_place, target):
                        return status, None
                    if durable_files.exchange(ready_place, target):
                        return status, name
                except FileNotFoundError:  # another process removed the empty folder
                    self._forget_folders()
        raise HomeError(f"{path} could not be written", fix="find the program that keeps changing this file")

    def _put_new(self, name: str, target: str) -> bool:
        """Move an unfinished file, which is whole, to a target where there is none; return whether that was done."""
        folder = _parent(target)
        self._ensure_folder(folder)
        self._unsynced_folders.add(folder)
        try:
            return durable_files.rename_new(f"{self._out_folder}/{_UNFINISHED}{name}", target)
        except FileNotFoundError:  # another process removed the empty folder, or the file
            self._forget_folders()
            return False

    def _forget_folders(self) -> None:
        self._checked_folders.clear()
        self._durable_folders.clear()
        self._folder_changes += 1

    def take(self, path: str, *, owner: str) -> str | None:
        """Remove the file atomically; return the name of the displaced file, if there was one."""
        name = f"{owner}.{os.urandom(6).hex()}"
        try:
            os.rename(self._place_of(path), os.path.join(self._out_folder, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        self._unsynced_folders.add(os.path.dirname(self._place_of(path)))
        return name

    def rename_if_free(self, old: str, new: str) -> bool:
        """Rename a file unless the new path is taken; return whether it was renamed."""
        source, target = self._place_of(old), self._place_of(new)
        self._ensure_folder(os.path.dirname(target))
        try:
            done = durable_files.rename_new(source, target)
        except FileNotFoundError:
            return False
        self._unsynced_folders |= {os.path.dirname(source), os.path.dirname(target)}
        return done

    def add_file(
        self, path: str, data: bytes, *, mtime_ns: int, dry_run: bool = False
    ) -> Literal["new", "same", "taken"]:
        """Add a file that is not a memory, unless something is at the path; return how the two compare."""
        self.require_place(path)
        if self.exists(path):
            return "same" if self.read(path) == data else "taken"
        if dry_run:
            return "new"
        target = self._place_of(path)
        with _translated_errors(path):
            name, _ = self._write_new(path, data, _ATTACHMENT)
            unfinished = os.path.join(self._out_folder, f"{_UNFINISHED}{name}")
            os.utime(unfinished, ns=(mtime_ns, mtime_ns))
            self._ensure_folder(os.path.dirname(target))
            self._unsynced_folders.add(os.path.dirname(target))
            if durable_files.rename_new(unfinished, target):
                return "new"
            os.unlink(unfinished)
        return "taken"

    def _ensure_folder(self, folder: str) -> None:
        """Create the folder and its parents; none of them may be a link.

        An existing folder may come from a process that died before the folder was durable. So its parent is synced
        the first time that this process uses the folder.
        """
        if folder in self._checked_folders or folder == self._home:
            return
        parent = _parent(folder)
        self._ensure_folder(parent)
        try:
            status = os.lstat(folder)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(folder)
            self._durable_folders.discard(folder)
            self._folder_changes += 1
            status = os.lstat(folder)
        if not modes.S_ISDIR(status.st_mode):
            raise self._file_in_the_way(folder)
        if folder not in self._durable_folders:
            self._unsynced_folders.add(parent)
        self._checked_folders.add(folder)
        if folder.endswith(f"/{_NOTICES_FOLDER}"):
            # Notices come and go with the state of this home: they are no part of what people version.
            git.ignore_folder(folder)

    def sync_later(self, path: str) -> None:
        """Sync the file at a path, whichever program changed it, and mark its folders for the next flush."""
        place = self._place_of(path)
        with suppress(OSError):
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        while place != self._home:
            place = os.path.dirname(place)
            self._unsynced_folders.add(place)

    def flush(self) -> None:
        """Sync the folders of every `put`, `take` and `rename_if_free` since the lock was acquired."""
        self.flush_later()()

    def flush_later(self) -> Callable[[], None]:
        """Return a function that does what `flush` would do now; it needs no lock."""
        folders, checked = sorted(self._unsynced_folders), frozenset(self._checked_folders)
        self._unsynced_folders.clear()
        return partial(self._sync_folders, folders, checked, self._folder_changes)

    def _sync_folders(self, folders: Collection[str], checked: frozenset[str], changes: int) -> None:
        in_parallel(sync_folder, folders)
        if self._folder_changes == changes:
            self._durable_folders |= checked

    # --- displaced files

    def displaced_files(self) -> list[tuple[str, str]]:
        """Return (name, owner) of every displaced file that was not dropped."""
        names = sorted(os.listdir(self._out_folder))
        return [(name, name.partition(".")[0]) for name in names if not name.startswith(_UNFINISHED)]

    def has_no_leftovers(self) -> bool:
        """Return whether the folder `out` is empty."""
        return not os.listdir(self._out_folder)

    def remove_unfinished(self) -> None:
        """Remove unfinished files left by a crash; only under the lock, when no write is in progress."""
        for name in os.listdir(self._out_folder):
            if name.startswith(_UNFINISHED):
                self.drop_displaced(name)

    def read_displaced(self, name: str) -> bytes | None:
        """Return the content of a displaced file."""
        return read_settled(os.path.join(self._out_folder, name), patience=_DISPLACED_PATIENCE_SECONDS)

    def drop_displaced(self, name: str) -> None:
        """Delete a displaced file."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._out_folder, name))

    def restore_displaced(self, name: str, path: str) -> None:
        """Put a displaced file back at its path, or beside it with a number if the path is taken."""
        place, ending = os.path.splitext(self._place_of(path))
        self._ensure_folder(os.path.dirname(place))
        for suffix in ("", *(f"-{number}" for number in range(2, _MAX_ATTEMPTS))):
            if durable_files.rename_new(os.path.join(self._out_folder, name), f"{place}{suffix}{ending}"):
                return

    def prune(self, path: str) -> None:
        """Remove the folders above a former path that became empty."""
        folder = os.path.dirname(self._place_of(path))
        while folder != self._home:
            if os.path.basename(folder) == _NOTICES_FOLDER:
                git.remove_lone_ignore_file(folder)
            try:
                os.rmdir(folder)
            except OSError:
                return
            self._checked_folders.discard(folder)
            self._durable_folders.discard(folder)
            self._folder_changes += 1
            self._unsynced_folders.discard(folder)
            folder = os.path.dirname(folder)
            self._unsynced_folders.add(folder)

    # --- the disk

    def free_bytes(self) -> int:
        """Return the free space on the disk."""
        status = os.statvfs(self._home)
        return status.f_bavail * status.f_frsize

    def bytes_used(self) -> int:
        """Return the size of the database and its log."""
        total = 0
        for name in ("state.db", "state.db-wal"):
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(self._home, HIDDEN_FOLDER, name)).st_size
        return total

    def committed_secrets(self) -> list[str]:
        """Return which of keys, database and outbox are in a git repository, though nobody else should have them."""
        return git.committed(self._home, *_SECRETS)

    def is_between_branches(self) -> bool:
        """Return whether git is on no branch here, or is changing files just now."""
        return git.is_between_branches(self._home)

    def is_present(self) -> bool:
        """Return whether the home is still the folder that was opened (same device and inode)."""
        return _identity(self._home) == self._identity

    def close(self) -> None:
        """Close the lock's files."""
        self._lock.close()


def is_home(folder: str) -> bool:
    """Return whether a folder is a home: whether a database, keys or the marker of a machine are in its hidden folder.

    A hidden folder alone is none: it may hold only a configuration, or the outbox of a client.
    """
    hidden = os.path.join(folder, HIDDEN_FOLDER)
    return any(_may_exist(os.path.join(hidden, name)) for name in ("state.db", "keys", MACHINE_FILE))


def holds_files(folder: str) -> bool:
    """Return whether a folder has anything in it that is not hidden."""
    try:
        with os.scandir(folder) as entries:
            return any(not entry.name.startswith(".") for entry in entries)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _parent(place: str) -> str:
    """Return the folder of an absolute path, which has no `/` at its end."""
    return place[: place.rfind("/")] or "/"


def _kind_at(place: str) -> int | None:
    """Return the kind of file that is at a place, as `stat.S_IFMT` does; None if there is none."""
    try:
        return modes.S_IFMT(os.lstat(place).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _may_exist(place: str) -> bool:
    """Return whether something is or may be there: a folder that cannot be read is not an empty one."""
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(os.path.join(folder, HIDDEN_FOLDER))
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    """Translate errors on writing a file into ours, each with its fix."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(f"there is no room left for {path}", fix="free some space and try again") from error
        if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
            raise HomeReadOnly(f"{path} cannot be written", fix="give this user write access to the home") from error
        raise


def read_settled(place: str, *, patience: float) -> bytes | None:
    """Return the content of a file once no program has it open for writing, or after `patience` seconds.

    None if there is no regular file at the place.
    """
    try:
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    with os.fdopen(fd, "rb") as file:
        deadline = time.monotonic() + patience
        while _open_for_writing(fd) and time.monotonic() < deadline:
            time.sleep(0.002)
        return file.read() if modes.S_ISREG(os.fstat(fd).st_mode) else None


def _open_for_writing(fd: int) -> bool:
    """Return whether a program has this file open for writing; False where the system cannot tell.

    Linux grants a read lease only while no program has the file open for writing. The lease is released at once. If a
    program opens the file in that instant, the kernel sends a signal that is ignored by default.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class HomeWatcher:
    """The Watcher port on the package watchfiles."""

    def __init__(self, home: str) -> None:
        """Watch this folder and everything below it."""
        self._home = home

    def changes(self, stop: Event) -> Iterator[set[str]]:
        """Yield sets of changed paths, and an empty set after each time-out, until `stop` is set."""
        from watchfiles import watch  # Imported late: few processes watch.

        changed = watch(
            self._home,
            watch_filter=self._is_relevant,
            debounce=400,
            step=50,
            stop_event=stop,
            rust_timeout=300,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        for batch in changed:
            yield {os.path.relpath(path, self._home).replace(os.sep, "/") for _, path in batch}

    def _is_relevant(self, change: Change, path: str) -> bool:
        """Exclude hidden paths other than space files, and folders of which only the entries changed."""
        parts = os.path.relpath(path, self._home).split(os.sep)
        if any(part.startswith(".") for part in (parts[:-1] if parts[-1] == SPACE_FILE else parts)):
            return False
        return not (change.name == "modified" and os.path.isdir(path))


_IGNORE_FILE: Final = ".commonbookignore"
_VAULT_SETTINGS: Final = ".obsidian/templates.json"
_OUR_ENDINGS: Final = (*MARKDOWN_ENDINGS, SPACE_FILE)
_NOT_UTF8: Final = "its name is not UTF-8"


class MarkdownTree:
    """The folders of a home and their Markdown files; paths are in composed Unicode (NFC)."""

    def __init__(self, home: str) -> None:
        """Use the folder `home`, which exists."""
        self._home = home
        self._prefix = os.path.join(home, "")
        self._disk_spelling: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return size and time of every Markdown and space file, except other hidden and ignored files and links."""
        files: dict[str, tuple[int, int]] = {}
        ignored = self._read_ignore_file()
        self._unreadable.clear()
        folders = [(self._home, "")]
        while folders:
            folder, prefix = folders.pop()
            try:
                subfolders = self._list_folder(folder, prefix, files)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._unreadable[prefix] = f"the folder cannot be read: {error.strerror}"
                continue
            folders += [(os.path.join(folder, name), f"{prefix}{name}/") for name in subfolders]
            if ignored:
                folders = [place for place in folders if not ignored.folder(place[1][:-1])]
        if ignored:
            files = {path: status for path, status in files.items() if not ignored.file(path)}
        return files

    def _list_folder(self, folder: str, prefix: str, files: dict[str, tuple[int, int]]) -> list[str]:
        """Add the Markdown files and the space file of one folder to `files`; return the names of its subfolders."""
        subfolders = []
        # Relative to a descriptor the kernel resolves one name for each file, not a whole path.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = entry.name
                    if name[0] == "." and name != SPACE_FILE:
                        continue
                    if not name.isascii() and not _is_utf8(name):
                        self._unreadable[prefix + os.fsencode(name).decode("utf-8", "backslashreplace")] = _NOT_UTF8
                        continue
                    if name.endswith(_OUR_ENDINGS) and entry.is_file(follow_symlinks=False):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        path = prefix + name
                        files[path if path.isascii() else self._compose(path)] = (
                            status.st_size,
                            status.st_mtime_ns,
                        )
                    elif entry.is_dir(follow_symlinks=False):
                        subfolders.append(name)
        finally:
            os.close(descriptor)
        return subfolders

    def _read_ignore_file(self) -> IgnorePatterns | None:
        """Return the patterns of the ignore file, and of the folder of Obsidian's templates; None if there are none."""
        lines = [self._read_or_empty(_IGNORE_FILE).decode("utf-8", "replace")]
        if templates := template_folder(self._read_or_empty(_VAULT_SETTINGS)):
            lines.append(folder_pattern(templates))
        return IgnorePatterns("\n".join(lines)) if any(lines) else None

    def _read_or_empty(self, path: str) -> bytes:
        try:
            with open(os.path.join(self._home, path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
            return b""

    def _compose(self, path: str) -> str:
        """Return the path in NFC and remember its spelling on the disk."""
        if path.isascii():
            return path
        composed = unicodedata.normalize("NFC", path)
        if composed == path:
            return path
        composed_place, own_place = os.path.join(self._home, composed), os.path.join(self._home, path)
        if not os.path.lexists(composed_place):
            self._disk_spelling[composed] = path
            return composed
        # On a disk that normalises names, both spellings are one file; on any other they are two.
        return composed if os.path.lexists(own_place) and os.path.samefile(composed_place, own_place) else path

    def canonical_path(self, path: str) -> str:
        """Return the path as a walk would spell it."""
        return path if path.isascii() else self._compose(path)

    def spelling(self, folder: str) -> str:
        """Return the path of a folder as it is spelled on the disk, if one is there that differs by case alone."""
        spelled = ""
        for part in folder.split("/"):
            names = self._subfolders(spelled)
            similar = [name for name in names if name.lower() == part.lower()]
            spelled += (part if part in names else min(similar, default=part)) + "/"
        return spelled[:-1]

    def _subfolders(self, prefix: str) -> list[str]:
        try:
            with os.scandir(self.at(prefix[:-1]) if prefix else self._home) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def at(self, path: str) -> str:
        """Return the absolute path, spelled as on the disk."""
        spelled = self._disk_spelling.get(path, path)
        return os.path.join(self._home, spelled) if spelled.startswith("/") else self._prefix + spelled

    def is_ours(self, path: str) -> bool:
        """Return whether a walk would include a file at this path."""
        return self.our_paths()(path)

    def our_paths(self) -> Callable[[str], bool]:
        """Return a function that answers `is_ours` for many paths, by the ignore file as it is now."""
        ignored = self._read_ignore_file()
        right_folders: set[str] = {""}

        def is_ours(path: str) -> bool:
            folder, _, name = path.rpartition("/")
            is_hidden = path[:1] == "/" or (name[:1] == "." and name != SPACE_FILE)
            if is_hidden or not path.endswith(_OUR_ENDINGS) or (ignored and ignored.file(path)):
                return False
            return is_right(folder) and not os.path.islink(self.at(path))

        def is_right(folder: str) -> bool:
            """Return whether a walk would enter a folder, and those above it."""
            if folder in right_folders:
                return True
            above, _, name = folder.rpartition("/")
            if not name or name[0] == "." or (ignored and ignored.folder(folder)) or os.path.islink(self.at(folder)):
                return False
            if not is_right(above):
                return False
            right_folders.add(folder)
            return True

        return is_ours

    def unreadable_paths(self) -> dict[str, str]:
        """Return the paths that the last walk could not read, with the reason."""
        return dict(self._unreadable)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class IgnorePatterns:
    """The patterns of an ignore file, one a line; `#` begins a comment, a final `/` matches only folders.

    A pattern without another `/` matches a name at any depth; one with it matches from the root of the home.
    """

    def __init__(self, text: str) -> None:
        """Parse the patterns."""
        lines = [line.strip() for line in text.splitlines()]
        patterns = [line for line in lines if line and not line.startswith("#")]
        self._folders = _matcher([pattern.rstrip("/") for pattern in patterns])
        self._files = _matcher([pattern for pattern in patterns if not pattern.endswith("/")])

    def folder(self, path: str) -> bool:
        """Return whether a folder, and so everything in it, is ignored."""
        return self._folders.match(path) is not None

    def file(self, path: str) -> bool:
        """Return whether a file is ignored."""
        return self._files.match(path) is not None


def template_folder(settings: bytes) -> str:
    """Return the folder of templates that the settings of an Obsidian vault name; "" if they name none."""
    if not settings:
        return ""
    try:
        values = json.loads(settings)
    except ValueError:
        return ""
    folder = values.get("folder") if isinstance(values, dict) else None
    return unicodedata.normalize("NFC", folder).strip("/") if isinstance(folder, str) else ""


def folder_pattern(folder: str) -> str:
    """Return the line of an ignore file that matches a folder of the home, with any characters in its name."""
    return f"/{escape(folder)}/"


def _matcher(patterns: list[str]) -> re.Pattern[str]:
    alternatives = [translate(pattern.lstrip("/")) for pattern in patterns if "/" in pattern]
    alternatives += [f"(?:.*/)?{translate(pattern)}" for pattern in patterns if "/" not in pattern]
    return re.compile("|".join(alternatives) or r"(?!)")
