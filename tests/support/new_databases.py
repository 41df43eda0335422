"""New databases of homes, copied from the first one: making all tables takes most of the time of a short test."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from commonbook.engines.sqlite import database

_FIRST: Final[dict[object, bytes]] = {}
"""The first database of each schema."""


@contextmanager
def copied() -> Iterator[None]:
    """Copy the databases that are made meanwhile from one that was made as always."""
    really: Any = database.make_database

    def make(path: str, fill: Callable[[sqlite3.Connection], None]) -> None:
        schema = fill.__self__._migrations  # type: ignore[attr-defined]
        if schema not in _FIRST:
            really(path, fill)
            _FIRST[schema] = Path(path).read_bytes()
        else:
            database._remove(*(path + suffix for suffix in database._SIDE_FILES))
            Path(path).write_bytes(_FIRST[schema])

    database.make_database = make
    try:
        yield
    finally:
        database.make_database = really
