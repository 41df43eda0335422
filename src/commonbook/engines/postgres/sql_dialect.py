"""Statements as the flows write them, made into what PostgreSQL takes: parameters and lists, and several as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

# What is in quotes and what is a cast stays as it is; a list is compared as an array, so that lists of any length
# share one prepared statement.
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|::|%| IN :([a-z_]+)|:([a-z_]+)")


@lru_cache(maxsize=1024)
def translate(sql: str) -> str:
    """Return the statement with parameters as psycopg writes them."""
    return _TOKEN.sub(_token, sql)


def _token(match: re.Match[str]) -> str:
    if match[1]:
        return f" = ANY(%({match[1]})s)"
    if match[2]:
        return f"%({match[2]})s"
    return match[0].replace("%", "%%")


# --- several as one

_TABLE: Final = re.compile(r"\b(?:INTO|FROM|JOIN|(?<!DO )UPDATE)\s+([a-z_]+)")
_CHANGES: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM)\s+([a-z_]+)")


class _Tables(NamedTuple):
    """Which tables a statement mentions, and which of them it changes, if it begins with that."""

    mentioned: frozenset[str]
    changed: str | None


@lru_cache(maxsize=1024)
def _tables(sql: str) -> _Tables:
    changing = _CHANGES.match(sql)
    return _Tables(frozenset(_TABLE.findall(sql)), changing[1] if changing else None)


class PendingStatements:
    """Statements that nobody waits for, kept until somebody waits for something.

    Those of one statement do not see what the others in it do, so only such are taken that mention no table which one
    before them changes. One that looks at what a later one changes sees it as it was, here as there.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.statements: list[tuple[str, Mapping[str, object]]] = []
        self._changed: set[str] = set()

    def takes(self, sql: str) -> bool:
        """Tell whether a statement can go together with those that are here."""
        if not self.statements:
            return True
        tables = _tables(sql)
        if tables.changed is None or not self._changed:
            return False
        return self._changed.isdisjoint(tables.mentioned)

    def add(self, sql: str, params: Mapping[str, object]) -> None:
        """Keep a statement."""
        tables = _tables(sql)
        self.statements.append((sql, params))
        if tables.changed is not None:
            self._changed.add(tables.changed)

    def joined(self) -> tuple[str, list[object]]:
        """Return all as one statement, with its parameters in the order in which it names them."""
        joined = _joined(tuple([sql for sql, _ in self.statements]))
        return joined.sql, [self.statements[at][1][name] for at, name in joined.params]


class _Joined(NamedTuple):
    """Several statements as one, and which parameter of which of them each of its parameters is."""

    sql: str
    params: tuple[tuple[int, str], ...]


@lru_cache(maxsize=1024)
def _joined(statements: tuple[str, ...]) -> _Joined:
    *others, last = (re.sub(r"%\(([a-z_]+)\)s", rf"%(\1_{at})s", translate(sql)) for at, sql in enumerate(statements))
    named = ", ".join(f"done_{at} AS ({sql})" for at, sql in enumerate(others))
    sql = f"WITH {named} {last}" if named else last
    names = (name.rpartition("_") for name in dict.fromkeys(re.findall(r"%\(([a-z_0-9]+)\)s", sql)))
    return _Joined(sql, tuple((int(at), name) for name, _, at in names))
