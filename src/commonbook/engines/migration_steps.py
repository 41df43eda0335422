"""The table of numbered migrations that a database is brought up to date with, and the fingerprint of those it has had.

A database keeps the number of its schema and the fingerprint of the steps that made it, so that a schema with the same
number but another definition is recognised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from commonbook.errors import HomeOfAnotherBuild

_COMMENT: Final = re.compile(r"--.*")
_SIGNED_BITS: Final = 0x7FFF_FFFF
"""SQLite stores the fingerprint as a signed number of 32 bits."""


def fingerprint(migrations: Sequence[str]) -> int:
    """Return a checksum of what migrations define, without their comments and line breaks."""
    return crc32(";".join(" ".join(statement.split()) for statement in statements(migrations)).encode()) & _SIGNED_BITS


def statements(migrations: Sequence[str]) -> list[str]:
    """Return the single statements of migrations; a semicolon may stand in a comment, but not in a string."""
    return [one for one in _COMMENT.sub("", ";".join(migrations)).split(";") if one.strip()]


def remaining(migrations: Sequence[str], version: int, stored: int | None, *, place: str) -> Sequence[str]:
    """Return the migrations that a database still needs; raise HomeOfAnotherBuild if other ones have made it.

    `version` and `stored` are the number and the fingerprint in the database, which `place` names: home or database.
    """
    if version > len(migrations) or (version and stored != fingerprint(migrations[:version])):
        raise another_build(version, len(migrations), place=place)
    return migrations[version:]


def another_build(version: int, known: int, *, place: str) -> HomeOfAnotherBuild:
    """Return the error for a home or database with a schema that this program does not know."""
    return HomeOfAnotherBuild(
        f"the {place} has schema {version} of another build of Commonbook, this one knows its own schema {known}",
        fix="use the build that wrote it, or take the memories over: `commonbook export FOLDER` with that build, and"
        " `commonbook import FOLDER` with this one into a new home; nothing was changed",
    )
