"""Limits of glibc's malloc: the threads of a server share two arenas.

By default each thread has an arena of its own, and arrays of several MB come from these arenas too. What is freed there
is rarely returned to the system. Two arenas are enough for threads that share one lock (the GIL).
"""

from __future__ import annotations

import ctypes
import platform
from typing import Final

_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3
_MAX_ARENAS: Final = 2
_MAPPED_BYTES: Final = 256 << 10
"""Larger blocks are mapped by themselves, and unmapped when they are freed."""


def limit_malloc() -> bool:
    """Limit the arenas of this process, before its threads start; False where malloc is not glibc's."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_ARENA_MAX, _MAX_ARENAS) and mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES))
