"""Renaming that says what to do about a file that is already there: exchange it, or leave it."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Final

_AT_FDCWD: Final = -100
_LINUX: Final = {"noreplace": 1, "exchange": 2}
_DARWIN: Final = {"noreplace": 4, "exchange": 2}
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})


def _find() -> Callable[[str, str, str], int] | None:
    """Return the system's own call, as (source, target, what) -> errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        call = getattr(libc, "renamex_np", None)
        return call and (lambda a, b, what: _result(call(os.fsencode(a), os.fsencode(b), _DARWIN[what])))
    call = getattr(libc, "renameat2", None)
    return call and (
        lambda a, b, what: _result(call(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _LINUX[what]))
    )


def _result(code: int) -> int:
    return 0 if code == 0 else ctypes.get_errno()


_system_rename = _find()


def rename_new(source: str, target: str) -> bool:
    """Rename unless something is at the target; tell whether it is done."""
    code = _system_rename(source, target, "noreplace") if _system_rename else errno.ENOSYS
    if code in _UNSUPPORTED:
        return _rename_by_link(source, target)
    if code == errno.EEXIST:
        return False
    _raise(code, source, target)
    return True


def _rename_by_link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Neither call: all that is left is to look first.
        if os.path.lexists(target):
            return False
        os.rename(source, target)
        return True
    os.unlink(source)
    return True


def exchange(source: str, target: str) -> bool:
    """Exchange two files in one step, so that what was at the target is not lost; False if there is no target."""
    code = _system_rename(source, target, "exchange") if _system_rename else errno.ENOSYS
    if code in _UNSUPPORTED:
        return _exchange_by_link(source, target)
    if code == errno.ENOENT and not os.path.lexists(target):
        return False
    _raise(code, source, target)
    return True


def _exchange_by_link(source: str, target: str) -> bool:
    """Keep what is at the target under a second name, then rename over it: the next best thing."""
    kept = source + ".kept"
    try:
        os.link(target, kept)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with open(target, "rb") as present, open(kept, "wb") as copy:
            copy.write(present.read())
    os.rename(source, target)
    os.rename(kept, source)
    return True


def _raise(code: int, source: str, target: str) -> None:
    if code:
        raise OSError(code, os.strerror(code), source, None, target)
