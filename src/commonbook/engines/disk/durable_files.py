"""Writes single files and folders; every write is synced (fsync) before the call returns.

Atomic renames by `renameat2` (Linux) and `renamex_np` (macOS): rename without replacing, and exchange two files.

Where the system has neither call, hard links come closest, and then a check before the rename.

Detects folders on network file systems, whose file locks cannot be trusted, from the mount table.
"""

from __future__ import annotations

import errno
import os
import re
import stat as modes
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from commonbook.ports.files import FileStat

if TYPE_CHECKING:
    import ctypes

MAX_SEQUENTIAL_FILES: Final = 4
"""For so few files the threads of `in_parallel` do not pay."""

# Our files get a slightly earlier modification time, so that any later save has another one, even with a coarse clock.
_MTIME_OFFSET_NS: Final = 50_000_000
# File systems batch concurrent fsync calls, so many files in parallel cost little more than one.
_THREADS: Final = 16

_Item = TypeVar("_Item")


def write_synced(place: str, data: bytes, *, like: str) -> FileStat:
    """Write and sync a new file, with the permissions of the file at `like`, which it will replace."""
    fd = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.fchmod(fd, modes.S_IMODE(os.lstat(like).st_mode))
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[os.write(fd, remaining) :]
        mtime_ns = time.time_ns() - _MTIME_OFFSET_NS
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        os.fsync(fd)
        status = os.fstat(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(place)
        raise
    finally:
        os.close(fd)
    return FileStat(status.st_size, status.st_mtime_ns)


def in_parallel(action: Callable[[_Item], object], items: Collection[_Item]) -> None:
    """Apply the action to each item, by several threads if there are many; raise the first error."""
    if len(items) <= MAX_SEQUENTIAL_FILES:
        for item in items:
            action(item)
        return
    waiting = list(items)

    def apply_to_some(first: int) -> None:
        for item in waiting[first::_THREADS]:
            action(item)

    # A task for each thread, not for each item: handing a task over costs more than some actions do.
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(apply_to_some, range(_THREADS)):
            pass


def sync_folder(folder: str) -> None:
    """Sync the entries of a folder, if it exists."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folders(folder: str, *, mode: int) -> None:
    """Create a folder and its missing parents; sync each new entry in its parent."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folders(parent, mode=0o777)
    with suppress(FileExistsError):
        os.mkdir(folder, mode)
        sync_folder(parent)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)


_AT_FDCWD: Final = -100
_LINUX_FLAGS: Final = {"noreplace": 1, "exchange": 2}
_DARWIN_FLAGS: Final = {"noreplace": 4, "exchange": 2}
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})


@cache
def _c_library() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _system_rename(source: str, target: str, mode: str) -> int:
    """Rename by the system call; return 0 or its errno, which is ENOSYS if the C library lacks the call."""
    import ctypes  # Imported late: most runs rename nothing.

    old, new = os.fsencode(source), os.fsencode(target)
    if sys.platform == "darwin":
        name, arguments = "renamex_np", (old, new, _DARWIN_FLAGS[mode])
    else:
        name, arguments = "renameat2", (_AT_FDCWD, old, _AT_FDCWD, new, _LINUX_FLAGS[mode])
    call = getattr(_c_library(), name, None)
    if call is None:
        return errno.ENOSYS
    return ctypes.get_errno() if call(*arguments) else 0


def rename_new(source: str, target: str) -> bool:
    """Rename unless the target exists; return whether the file was renamed."""
    code = _system_rename(source, target, "noreplace")
    if code in _UNSUPPORTED:
        return _rename_by_link(source, target)
    if code == errno.EEXIST:
        return False
    _raise_os_error(code, source, target)
    return True


def _rename_by_link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # Neither an atomic rename nor hard links: a check before the rename is all that is left.
        if os.path.lexists(target):
            return False
        os.rename(source, target)
        return True
    os.unlink(source)
    return True


def exchange(source: str, target: str) -> bool:
    """Exchange two files atomically, so that the old target is not lost; return False if there is no target."""
    code = _system_rename(source, target, "exchange")
    if code in _UNSUPPORTED:
        return _exchange_by_link(source, target)
    if code == errno.ENOENT and not os.path.lexists(target):
        return False
    _raise_os_error(code, source, target)
    return True


def _exchange_by_link(source: str, target: str) -> bool:
    """Link the target to a backup name, then rename over it: not atomic, but the old target is not lost."""
    backup = source + ".kept"
    try:
        os.link(target, backup)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        with open(target, "rb") as current, open(backup, "wb") as copy:
            copy.write(current.read())
    os.rename(source, target)
    os.rename(backup, source)
    return True


def _raise_os_error(code: int, source: str, target: str) -> None:
    if code:
        raise OSError(code, os.strerror(code), source, None, target)


NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "glusterfs", "lustre", "davfs", "beegfs"}
    | {"fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.gcsfuse", "fuse.davfs2", "fuse.cephfs"}
)
_OCTAL_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def network_file_system(folder: str, *, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """Return the type of the network file system that holds the folder; None if it is local or unknown."""
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return None
    real_path = os.path.realpath(folder)
    longest, kind = "", None
    for line in lines:
        before, _, after = line.partition(" - ")
        mount_point = _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split()[4])
        inside = real_path == mount_point or real_path.startswith(mount_point.rstrip("/") + "/")
        # A later line is mounted over an earlier one at the same mount point.
        if inside and len(mount_point) >= len(longest):
            longest, kind = mount_point, after.split()[0]
    return kind if kind in NETWORK_FILE_SYSTEMS else None
