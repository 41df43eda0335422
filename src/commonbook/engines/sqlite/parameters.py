"""Parameters of SQL statements: named in the statements of this program, numbered as SQLite binds them.

A value that is bound by its number takes half the time of one by its name: Python asks SQLite for the name of each
parameter, one after the other, and looks it up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

_MAX_PADDED_LENGTH: Final = 16_384
"""SQLite takes 32,766 parameters: a longer list is not padded."""

_PARAMETER: Final = re.compile(r"'[^']*'|:([a-z_]+)")
_LIST: Final = re.compile(r" IN :([a-z_]+)")


class NumberedStatement(NamedTuple):
    """A statement with numbered parameters, and their names in the order of the numbers."""

    sql: str
    names: tuple[str, ...]
    lists: tuple[str, ...]
    """The names of sequences, which need as many parameters as they have values: `IN :ids`."""


@lru_cache(maxsize=512)
def numbered(sql: str) -> NumberedStatement:
    """Return a statement with numbered parameters; sequences are left to `bind`."""
    names = tuple(dict.fromkeys(name for name in _PARAMETER.findall(sql) if name))
    lists = tuple(dict.fromkeys(_LIST.findall(sql)))
    return NumberedStatement(_with_numbers(sql, names, (None,) * len(names)), names, lists)


def bind(sql: str, params: Mapping[str, object]) -> tuple[str, list[object]]:
    """Return a statement with numbered parameters, and the values of these."""
    statement = numbered(sql)
    if not statement.lists:
        return statement.sql, [params[name] for name in statement.names]
    values: list[object] = []
    sizes: list[int | None] = []
    for name in statement.names:
        value = params[name]
        if name in statement.lists and isinstance(value, (tuple, list)):
            size = _padded_length(len(value))
            values += value
            values += value[-1:] * (size - len(value))
            sizes.append(size)
        else:
            values.append(value)
            sizes.append(None)
    return _with_numbers(sql, statement.names, tuple(sizes)), values


@lru_cache(maxsize=512)
def _with_numbers(sql: str, names: tuple[str, ...], sizes: tuple[int | None, ...]) -> str:
    """Replace each name by its number, or by the numbers of as many parameters as a sequence has values."""
    placeholders: dict[str, str] = {}
    first = 1
    for name, size in zip(names, sizes, strict=True):
        numbers = [f"?{number}" for number in range(first, first + (1 if size is None else size))]
        placeholders[name] = numbers[0] if size is None else f"({', '.join(numbers)})"
        first += len(numbers)
    return _PARAMETER.sub(lambda match: placeholders[match[1]] if match[1] else match[0], sql)


def _padded_length(length: int) -> int:
    """Return the number of placeholders for so many values; the last value fills those that are left.

    Each number is a statement of its own, which each connection keeps compiled: some 10 KB, and more with a long list.
    """
    if length > _MAX_PADDED_LENGTH:
        return length
    power = 1 << max(length - 1, 0).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= length else power
