"""Where tests keep their files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

_ROOM: Final = 4 << 30
"""So many bytes must be free in memory before files of tests are put there."""


def in_memory() -> Path | None:
    """The folder whose files are in memory, if there is one with room: what need not be synced is made faster there."""
    place = Path("/dev/shm")
    return place if place.is_dir() and shutil.disk_usage(place).free > _ROOM else None
