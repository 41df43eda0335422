"""Rows of tables that hardly ever change, kept in memory by the writer of SQLite from one transaction to the next."""

from __future__ import annotations

import re
from typing import Final

from commonbook.engines.sqlite.statements import ANY_TABLE
from commonbook.ports.database import Row

_MAX_QUERIES: Final = 64
_READ_TABLE: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")


class KeptRows:
    """Rows of tables that hardly ever change, kept by the writer from one transaction to the next.

    They are dropped when another connection has committed, which SQLite tells by a number (`PRAGMA data_version`), and
    when a statement of the writer itself changes one of their tables.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._rows: dict[tuple[object, ...], list[Row]] = {}
        self._tables: set[str] = set()

    def find(self, sql: str, params: dict[str, object]) -> list[Row] | None:
        """Return the rows that were kept for a query, or None."""
        return self._rows.get(_key(sql, params)) if self._rows else None

    def keep(self, sql: str, params: dict[str, object], rows: list[Row]) -> None:
        """Keep the rows of a query, which nobody changes."""
        if len(self._rows) >= _MAX_QUERIES:
            self.clear()
        self._rows[_key(sql, params)] = rows
        self._tables.update(_READ_TABLE.findall(sql))

    def note_change(self, table: str) -> None:
        """Drop the rows if a statement, which runs now, may change one of their tables: this one, or any."""
        if table in self._tables or table == ANY_TABLE:
            self.clear()

    def clear(self) -> None:
        """Drop all rows."""
        self._rows.clear()
        self._tables.clear()


def _key(sql: str, params: dict[str, object]) -> tuple[object, ...]:
    return (sql, *(tuple(value) if isinstance(value, list) else value for value in params.values()))
