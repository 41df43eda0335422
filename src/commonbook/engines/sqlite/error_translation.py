"""Translates the errors of SQLite into ours, each with its fix; loaded when there is one."""

from __future__ import annotations

import sqlite3

from commonbook.errors import Busy, CommonbookError, DiskFull, HomeDamaged, HomeError, HomeReadOnly


def translate(error: sqlite3.DatabaseError, path: str) -> CommonbookError:
    """Return our error for one of SQLite, with its fix."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_FULL"):
        return DiskFull("there is no room left for the database", fix="free some space and try again")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return HomeReadOnly(f"{path} cannot be written: {error}", fix="give this user write access to the home")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Busy(f"the database is locked by another program: {error}", fix="close that program")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return HomeDamaged(
            f"{path} is damaged: {error}",
            fix="restore a back-up, or move state.db away and open the home again: the Markdown is all there",
        )
    if name.startswith("SQLITE_IOERR"):
        return HomeError(f"{path} cannot be read or written: {error}", fix="check the disk, then try again")
    return HomeDamaged(f"the database refused a statement: {error}", fix="run `commonbook doctor` and report this")
