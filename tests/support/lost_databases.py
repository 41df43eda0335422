"""Lose the database of a home, or put an older state of it back, as a person or a disk would: the files stay."""

from __future__ import annotations

import shutil
from pathlib import Path

_DATABASE_FILES = ("state.db", "state.db-wal", "state.db-shm")


def lose_database(home: Path) -> None:
    """Remove the database of a home that no process has open."""
    for name in _DATABASE_FILES:
        (home / ".commonbook" / name).unlink(missing_ok=True)


def keep_database(home: Path, to: Path) -> None:
    """Copy the database of a home, as a back-up would."""
    to.mkdir()
    for name in _DATABASE_FILES:
        if (home / ".commonbook" / name).exists():
            shutil.copy2(home / ".commonbook" / name, to / name)


def put_database_back(home: Path, kept: Path) -> None:
    """Put a copy of the database in the place of the present one."""
    lose_database(home)
    for file in kept.iterdir():
        shutil.copy2(file, home / ".commonbook" / file.name)
