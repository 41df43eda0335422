"""The Markdown side of a home on a real disk: changing files so that nothing is lost.

Every change goes through the hidden folder `out`: new text is written and synced there and then
exchanged with the present file, so what was there before comes out whole, whoever wrote it.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from commonbook.engines.disk.atomic_rename import exchange, rename_new
from commonbook.engines.disk.durable_files import FEW_FILES, in_parallel, read_settled, sync_folder, write_synced
from commonbook.engines.disk.markdown_tree import MarkdownTree
from commonbook.engines.process.fair_lock import FairLock
from commonbook.errors import Busy, DiskFull, FileInTheWay, HomeError, HomeReadOnly
from commonbook.ports.files import FileStat

HIDDEN: Final = ".commonbook"
_HALF: Final = "."
_TRIES: Final = 20
# How long to wait for a program that is just writing: a file in its place is looked at again, one that came out never.
_PATIENCE: Final = 0.1
_PATIENCE_FOR_THE_LAST: Final = 5.0


class HomeFolder:
    """The Folder port on the local file system."""

    def __init__(self, home: str) -> None:
        """Use the folder `home`, which exists."""
        self._home = home
        self._tree = MarkdownTree(home)
        self._out = os.path.join(home, HIDDEN, "out")
        self._identity = _identity(home)
        self._lock = FairLock(os.path.join(home, HIDDEN, "files.lock"))
        self._dirty: set[str] = set()
        self._safe: set[str] = set()
        self._anchored: set[str] = set()
        self._prepared: dict[tuple[str, bytes, str], tuple[str, FileStat]] = {}

    # --- looking

    @property
    def keeps_files(self) -> bool:
        """Memories are files here."""
        return True

    def walk(self) -> dict[str, tuple[int, int]]:
        """Return every Markdown file that is ours to look at: no hidden ones, no links, nothing ignored."""
        return self._tree.walk()

    def known_as(self, path: str) -> str:
        """Return how a walk would spell this path."""
        return self._tree.known_as(path)

    def is_ours(self, path: str) -> bool:
        """Tell whether a walk would return this path if it were a file."""
        return self._tree.is_ours(path)

    def odd(self) -> dict[str, str]:
        """Return what the last walk could not look at, and why."""
        return self._tree.odd()

    def _at(self, path: str) -> str:
        return self._tree.at(path)

    def stat(self, path: str) -> FileStat | None:
        """Look at one regular file, or None if there is none; OSError if that cannot be told."""
        try:
            status = os.lstat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not modes.S_ISREG(status.st_mode):
            return None
        return FileStat(status.st_size, status.st_mtime_ns)

    def read(self, path: str) -> bytes | None:
        """Return what a file holds, or None if there is none; a link is not followed."""
        return read_settled(self._at(path), patience=_PATIENCE)

    def exists(self, path: str) -> bool:
        """Tell whether anything is at the path, a placeholder of a cloud drive included."""
        there = self._at(path)
        folder, name = os.path.split(there)
        return _may_be_there(there) or _may_be_there(os.path.join(folder, f".{name}.icloud"))

    # --- changing

    @contextmanager
    def lock(self, *, wait: float) -> Iterator[bool]:
        """Take `files.lock`; yields False when it could not be had in time."""
        with ExitStack() as holding:
            try:
                holding.enter_context(self._lock.hold(wait))
            except Busy:
                yield False
                return
            self._dirty.clear()
            self._safe.clear()
            try:
                yield True
            finally:
                for name, _ in self._prepared.values():
                    self.drop_out(f"{_HALF}{name}")
                self._prepared.clear()

    def require_place(self, path: str) -> None:
        """Raise FileInTheWay unless the path can be written without leaving the home."""
        folder = os.path.dirname(self._at(path))
        while folder != self._home:
            try:
                if modes.S_ISDIR(os.lstat(folder).st_mode):
                    folder = os.path.dirname(folder)
                    continue
            except (FileNotFoundError, NotADirectoryError):
                folder = os.path.dirname(folder)
                continue
            raise self._in_the_way(folder)
        with suppress(FileNotFoundError, NotADirectoryError):
            if not modes.S_ISREG(os.lstat(self._at(path)).st_mode):
                raise self._in_the_way(self._at(path))

    def _in_the_way(self, place: str) -> FileInTheWay:
        return FileInTheWay(
            f"{os.path.relpath(place, self._home)} is a link or something else that a memory cannot be written to",
            fix="move it away: memories are only ever written inside the home",
        )

    def prepare(self, wanted: Collection[tuple[str, bytes, str]]) -> None:
        """Write and sync what is about to be put, all at the same time; what fails here is left to `put`."""
        if len(wanted) > FEW_FILES:
            in_parallel(self._prepare, wanted)

    def _prepare(self, one: tuple[str, bytes, str]) -> None:
        with suppress(OSError):
            self._prepared[one] = self._written(*one)

    def _written(self, path: str, data: bytes, owner: str) -> tuple[str, FileStat]:
        """Write what is to be put at a path, without its owner's name yet; return that name, and its stat."""
        name = f"{owner}.{os.urandom(6).hex()}"
        return name, write_synced(os.path.join(self._out, f"{_HALF}{name}"), data, like=self._at(path))

    def put(self, path: str, data: bytes, *, owner: str) -> tuple[FileStat, str | None]:
        """Put data at the path in one step; return its stat and the name of what came out, if anything did."""
        target = self._at(path)
        with _room(path):
            one = (path, data, owner)
            name, status = self._prepared.pop(one) if one in self._prepared else self._written(*one)
            ready = os.path.join(self._out, name)
            # Only what is whole gets the owner's name: half a file that a crash left is nobody's typing.
            os.rename(os.path.join(self._out, f"{_HALF}{name}"), ready)
            for _ in range(_TRIES):
                self._ensure_folder(os.path.dirname(target))
                self._dirty.add(os.path.dirname(target))
                try:
                    if rename_new(ready, target):
                        return status, None
                    if exchange(ready, target):
                        return status, name
                except FileNotFoundError:  # somebody removed the empty folder just now
                    self._safe.clear()
                    self._anchored.clear()
        raise HomeError(f"{path} could not be written", fix="look at what else changes this file all the time")

    def take(self, path: str, *, owner: str) -> str | None:
        """Take the file away in one step; return the name of what came out, if there was a file."""
        name = f"{owner}.{os.urandom(6).hex()}"
        try:
            os.rename(self._at(path), os.path.join(self._out, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        self._dirty.add(os.path.dirname(self._at(path)))
        return name

    def shift(self, old: str, new: str) -> bool:
        """Rename a file unless something is at the new path; tell whether it is done."""
        source, target = self._at(old), self._at(new)
        self._ensure_folder(os.path.dirname(target))
        try:
            done = rename_new(source, target)
        except FileNotFoundError:
            return False
        self._dirty |= {os.path.dirname(source), os.path.dirname(target)}
        return done

    def _ensure_folder(self, folder: str) -> None:
        """Make the folder, each part of it a real one inside the home.

        A folder that is there may be one that a process made which died before it made it durable: so the first
        time that this process uses a folder, the one above it is synced, whoever made it.
        """
        if folder in self._safe or folder == self._home:
            return
        above = os.path.dirname(folder)
        self._ensure_folder(above)
        try:
            found = os.lstat(folder)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(folder)
            self._anchored.discard(folder)
            found = os.lstat(folder)
        if not modes.S_ISDIR(found.st_mode):
            raise self._in_the_way(folder)
        if folder not in self._anchored:
            self._dirty.add(above)
        self._safe.add(folder)

    def secure(self, path: str) -> None:
        """Make durable, at the next flush, what is or is no longer at a path, whoever did it."""
        place = self._at(path)
        with suppress(OSError):
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        while place != self._home:
            place = os.path.dirname(place)
            self._dirty.add(place)

    def flush(self) -> None:
        """Make durable every put, take and shift since the lock was taken."""
        in_parallel(sync_folder, sorted(self._dirty))
        self._dirty.clear()
        self._anchored |= self._safe

    # --- what came out

    def came_out(self) -> list[tuple[str, str]]:
        """Return (name, owner) of everything that came out and was not dropped."""
        names = sorted(os.listdir(self._out))
        return [(name, name.partition(".")[0]) for name in names if not name.startswith(_HALF)]

    def is_tidy(self) -> bool:
        """Tell whether nothing is on its way in or out."""
        return not os.listdir(self._out)

    def sweep(self) -> None:
        """Remove what a crash left half written; only under the lock, where nobody is writing."""
        for name in os.listdir(self._out):
            if name.startswith(_HALF):
                self.drop_out(name)

    def read_out(self, name: str) -> bytes | None:
        """Return what came out."""
        return read_settled(os.path.join(self._out, name), patience=_PATIENCE_FOR_THE_LAST)

    def drop_out(self, name: str) -> None:
        """Throw away what came out."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._out, name))

    def put_back(self, name: str, path: str) -> None:
        """Put what came out at the path again, or beside it if that is taken."""
        place, ending = os.path.splitext(self._at(path))
        self._ensure_folder(os.path.dirname(place))
        for suffix in ("", *(f"-{number}" for number in range(2, _TRIES))):
            if rename_new(os.path.join(self._out, name), f"{place}{suffix}{ending}"):
                return

    def prune(self, path: str) -> None:
        """Remove the folders that became empty above a path that was left."""
        folder = os.path.dirname(self._at(path))
        while folder != self._home:
            try:
                os.rmdir(folder)
            except OSError:
                return
            self._safe.discard(folder)
            self._anchored.discard(folder)
            self._dirty.discard(folder)
            folder = os.path.dirname(folder)
            self._dirty.add(folder)

    # --- the disk

    def free_bytes(self) -> int:
        """Return the room left on the disk."""
        status = os.statvfs(self._home)
        return status.f_bavail * status.f_frsize

    def bytes_used(self) -> int:
        """Return the size of the database and its log."""
        total = 0
        for name in ("state.db", "state.db-wal"):
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(self._home, HIDDEN, name)).st_size
        return total

    def present(self) -> bool:
        """Tell whether the home is still there, as the folder it was when it was opened."""
        return _identity(self._home) == self._identity

    def close(self) -> None:
        """Close the lock's files."""
        self._lock.close()


def _may_be_there(place: str) -> bool:
    """Tell whether something is there, or might be: a folder that cannot be read is not an empty one."""
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(os.path.join(folder, HIDDEN))
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _room(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(f"there is no room left for {path}", fix="free some space and try again") from error
        if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
            raise HomeReadOnly(f"{path} cannot be written", fix="give this user write access to the home") from error
        raise
