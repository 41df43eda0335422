"""Rows of tables that hardly ever change, kept in memory by the writer of SQLite from one transaction to the next."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from commonbook.ports.database import Row

_MAX_QUERIES: Final = 64
_READ_TABLE: Final = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_READS: Final = re.compile(r"\s*(?:SELECT|PRAGMA)\b")
_CHANGED_TABLE: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+(\w+)")
_ANY_TABLE: Final = "*"


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

    def note_statement(self, sql: str) -> None:
        """Drop the rows if a statement, which runs now, may change one of their tables."""
        table = _table_changed(sql)
        if table in self._tables or table == _ANY_TABLE:
            self.clear()

    def clear(self) -> None:
        """Drop all rows."""
        self._rows.clear()
        self._tables.clear()


def _key(sql: str, params: dict[str, object]) -> tuple[object, ...]:
    return (sql, *(tuple(value) if isinstance(value, list) else value for value in params.values()))


@lru_cache(maxsize=1024)
def _table_changed(sql: str) -> str:
    """Return the table that a statement changes; nothing for a query, `*` if that cannot be told."""
    if _READS.match(sql):
        return ""
    changed = _CHANGED_TABLE.match(sql)
    return changed[1] if changed else _ANY_TABLE
