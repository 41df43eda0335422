"""Translation of the SQL of the operations into the dialect of PostgreSQL and its driver.

Parameters are rewritten, lists become arrays, and several statements whose results nobody reads are sent as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

# Quoted text and casts are left alone. A list is compared as an array, so that lists of any length share one prepared
# statement.
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|::|%| IN :([a-z_]+)|:([a-z_]+)")


@lru_cache(maxsize=1024)
def translate(sql: str) -> str:
    """Return the statement with parameters in the notation of psycopg."""
    return _TOKEN.sub(_replace_token, sql)


def _replace_token(match: re.Match[str]) -> str:
    if match[1]:
        return f" = ANY(%({match[1]})s)"
    if match[2]:
        return f"%({match[2]})s"
    return match[0].replace("%", "%%")


# --- several statements as one

_TABLE: Final = re.compile(r"\b(?:INTO|FROM|JOIN|(?<!DO )UPDATE)\s+([a-z_]+)")
_CHANGED_TABLE: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+([a-z_]+)")


class _Tables(NamedTuple):
    """The tables that a statement mentions, and the one that it changes, if it begins with a change."""

    mentioned: frozenset[str]
    changed: str | None


@lru_cache(maxsize=1024)
def _tables_of(sql: str) -> _Tables:
    changing = _CHANGED_TABLE.match(sql)
    return _Tables(frozenset(_TABLE.findall(sql)), changing[1] if changing else None)


class PendingStatements:
    """Statements whose results nobody reads, collected to be sent as one statement with common table expressions.

    The parts of one statement do not see each other's changes. So a statement is added only if it mentions no table
    that an earlier one changes. It may read a table that a later one changes: it sees it unchanged in both cases.
    """

    def __init__(self) -> None:
        """Begin with no statements."""
        self.statements: list[tuple[str, Mapping[str, object]]] = []
        self._changed: set[str] = set()

    def takes(self, sql: str) -> bool:
        """Tell whether a statement can be combined with the ones collected so far."""
        if not self.statements:
            return True
        tables = _tables_of(sql)
        if tables.changed is None or not self._changed:
            return False
        return self._changed.isdisjoint(tables.mentioned)

    def add(self, sql: str, params: Mapping[str, object]) -> None:
        """Collect a statement."""
        tables = _tables_of(sql)
        self.statements.append((sql, params))
        if tables.changed is not None:
            self._changed.add(tables.changed)

    def combined(self) -> tuple[str, list[object]]:
        """Return all as one statement, with its parameters in the order in which it names them."""
        combined = _combine(tuple([sql for sql, _ in self.statements]))
        return combined.sql, [self.statements[index][1][name] for index, name in combined.params]


class _CombinedStatement(NamedTuple):
    """A combined statement; for each of its parameters, the index of the original statement and the name there."""

    sql: str
    params: tuple[tuple[int, str], ...]


@lru_cache(maxsize=1024)
def _combine(statements: tuple[str, ...]) -> _CombinedStatement:
    *others, last = (
        re.sub(r"%\(([a-z_]+)\)s", rf"%(\1_{index})s", translate(sql)) for index, sql in enumerate(statements)
    )
    named = ", ".join(f"done_{index} AS ({sql})" for index, sql in enumerate(others))
    sql = f"WITH {named} {last}" if named else last
    names = (name.rpartition("_") for name in dict.fromkeys(re.findall(r"%\(([a-z_0-9]+)\)s", sql)))
    return _CombinedStatement(sql, tuple((int(index), name) for name, _, index in names))
