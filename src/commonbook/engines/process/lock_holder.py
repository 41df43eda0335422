"""The holder of a lock file: a process writes its name into the file that it has locked, so that `Busy` can name it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import lru_cache
from typing import Final

from commonbook.errors import Busy

_HOLDER_BYTES: Final = 200


def record_holder(lock_fd: int) -> None:
    """Write the name of this process, which holds the lock, into the lock file, unless it is there already.

    A file that was only read need not be written to the disk.
    """
    description = _description(os.getpid(), sys.argv[0] if sys.argv else "")
    if os.pread(lock_fd, _HOLDER_BYTES, 0) != description:
        os.pwrite(lock_fd, description, 0)


@lru_cache(maxsize=8)
def _description(process: int, program: str) -> bytes:
    """Return the name of a process, padded to its full length; each write of a process records the same one."""
    named = f"process {process} ({os.path.basename(program) or 'python'})"
    return named.encode("utf-8", "replace")[:_HOLDER_BYTES].ljust(_HOLDER_BYTES)


def busy_error(path: str, wait: float) -> Busy:
    """Return the error for a lock that could not be acquired within `wait` seconds; it names the holder."""
    holder = "another process"
    with suppress(OSError), open(path, "rb") as file:
        holder = file.read(_HOLDER_BYTES).decode("utf-8", "replace").strip() or holder
    return Busy(
        f"{os.path.basename(path)} was held for {wait:.0f} s by {holder}",
        fix="wait for that process or end it; COMMONBOOK_BUSY_SECONDS sets how long to wait",
    )
