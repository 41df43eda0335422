"""Loaded by Python itself: on SIGUSR2 a process releases what it does not need, and tells what it has then.

Hermes leaves an agent with its TLS certificates, a megabyte, to the garbage collector after each request. So what a
process has at a moment says little about what it needs. It is told at once, before the process goes on.

COMMONBOOK_RELEASED   the file that gets the kilobytes of the process
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType

_INTERNED = 120_000
"""More strings than Hermes has names."""


def _release(_number: int, _frame: FrameType | None) -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("Private_Dirty"))
    path = Path(os.environ["COMMONBOOK_RELEASED"])
    path.with_suffix(".new").write_text(kilobytes, encoding="ascii")
    path.with_suffix(".new").rename(path)


def _grow_table_of_names() -> None:
    """Make Python's table of interned strings as large as it will be: it never shrinks.

    It is doubled once in the life of a gateway, by two megabytes, at a request that depends on the modules loaded.
    """
    kept = [sys.intern(f"name {number}") for number in range(_INTERNED)]
    del kept


if "COMMONBOOK_RELEASED" in os.environ:
    _grow_table_of_names()
    signal.signal(signal.SIGUSR2, _release)
