"""Atomic renames by `renameat2` (Linux) and `renamex_np` (macOS): rename without replacing, and exchange two files.

Where the system has neither call, hard links come closest, and then a check before the rename.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Final

_AT_FDCWD: Final = -100
_LINUX_FLAGS: Final = {"noreplace": 1, "exchange": 2}
_DARWIN_FLAGS: Final = {"noreplace": 4, "exchange": 2}
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})


def _find_system_call() -> Callable[[str, str, str], int] | None:
    """Return the system call as (source, target, mode) -> errno, or None if the C library lacks it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        call = getattr(libc, "renamex_np", None)
        return call and (lambda a, b, mode: _errno_of(call(os.fsencode(a), os.fsencode(b), _DARWIN_FLAGS[mode])))
    call = getattr(libc, "renameat2", None)
    return call and (
        lambda a, b, mode: _errno_of(call(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _LINUX_FLAGS[mode]))
    )


def _errno_of(code: int) -> int:
    return 0 if code == 0 else ctypes.get_errno()


_system_rename = _find_system_call()


def rename_new(source: str, target: str) -> bool:
    """Rename unless the target exists; return whether the file was renamed."""
    code = _system_rename(source, target, "noreplace") if _system_rename else errno.ENOSYS
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
    code = _system_rename(source, target, "exchange") if _system_rename else errno.ENOSYS
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
