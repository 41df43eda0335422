"""Limits of glibc's malloc: the threads of a server share two arenas, which keep the memory that each recall needs.

By default each thread has an arena of its own, and arrays of up to 32 MB come from these arenas too. What is freed
there is rarely returned to the system. Two arenas are enough for threads that share one lock (the GIL).

A recall allocates about a megabyte in arrays. Memory that is returned to the system after each recall costs several
hundred page faults in the next one, more than the whole of HTTP.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_MAX_ARENAS: Final = 2
_MAPPED_BYTES: Final = 1 << 20
"""Larger blocks are mapped by themselves, and unmapped when they are freed."""

_KEPT_BYTES: Final = 4 << 20
"""How much free memory an arena keeps at its end. Once another limit is set, glibc would keep 128 KB only."""


def limit_malloc() -> bool:
    """Limit the arenas of this process, before its threads start; False where malloc is not glibc's."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    limits = {_ARENA_MAX: _MAX_ARENAS, _MMAP_THRESHOLD: _MAPPED_BYTES, _TRIM_THRESHOLD: _KEPT_BYTES}
    return all(mallopt(name, value) for name, value in limits.items())
