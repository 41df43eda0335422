"""Loaded by Python itself: on SIGUSR2 a process collects its garbage, and gives free memory back to the system.

Hermes leaves an agent with its TLS certificates, a megabyte, to the garbage collector after each request. So what a
process has at a moment says little about what it needs.

COMMONBOOK_RELEASED   the file that is made when this is done
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from pathlib import Path
from types import FrameType


def _release(_number: int, _frame: FrameType | None) -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path(os.environ["COMMONBOOK_RELEASED"]).touch()


if "COMMONBOOK_RELEASED" in os.environ:
    signal.signal(signal.SIGUSR2, _release)
