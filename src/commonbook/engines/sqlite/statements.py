"""SQL statements as SQLite gets them: with numbered parameters, and with the table that they change.

The statements of this program name their parameters. A value that is bound by its number takes half the time of one by
its name: Python asks SQLite for the name of each parameter, one after the other, and looks it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

ANY_TABLE: Final = "*"
"""Stands for the table of a statement that does not tell which one it changes."""

_MAX_PADDED_LENGTH: Final = 16_384
"""SQLite takes 32,766 parameters: a longer list is not padded."""

_MAX_UNPADDED_LENGTH: Final = 4
"""Up to this length each list has a statement of its own: `_padded_length` returns the length itself."""

_PARAMETER: Final = re.compile(r"'[^']*'|:([a-z_]+)")
_LIST: Final = re.compile(r" IN :([a-z_]+)")


class Statement(NamedTuple):
    """A statement with numbered parameters."""

    sql: str
    names: tuple[str, ...]
    """The names of the parameters in the order of their numbers."""
    lists: tuple[str, ...]
    """The names of sequences, which need as many parameters as they have values: `IN :ids`."""
    values: Callable[[Mapping[str, object]], Sequence[object]]
    """Returns the values of the parameters, if none is a sequence."""
    changed_table: str
    """The table that it changes; nothing for a query."""


@lru_cache(maxsize=512)
def parse(sql: str) -> Statement:
    """Return a statement with its parameters numbered, for values that are no sequences."""
    names = _names(sql)
    lists = tuple(dict.fromkeys(_LIST.findall(sql)))
    text = _with_numbers(sql, (None,) * len(names))
    return Statement(text, names, lists, _getter(names), _changed_table(sql))


def _names(sql: str) -> tuple[str, ...]:
    """Return the names of the parameters, each once, in the order of their numbers."""
    return tuple(dict.fromkeys(name for name in _PARAMETER.findall(sql) if name))


def bind(sql: str, params: Mapping[str, object]) -> tuple[str, Sequence[object]]:
    """Return a statement with numbered parameters, and the values of these."""
    statement = parse(sql)
    if not statement.lists:
        return statement.sql, statement.values(params)
    values: list[object] = []
    sizes: list[int | None] = []
    for name in statement.names:
        value = params[name]
        if name in statement.lists and isinstance(value, (tuple, list)):
            length = size = len(value)
            values += value
            if length > _MAX_UNPADDED_LENGTH:
                size = _padded_length(length)
                values += value[-1:] * (size - length)
            sizes.append(size)
        else:
            values.append(value)
            sizes.append(None)
    return _with_numbers(sql, tuple(sizes)), values


def _getter(names: tuple[str, ...]) -> Callable[[Mapping[str, object]], Sequence[object]]:
    # Of one name, it would return the value itself.
    return itemgetter(*names) if len(names) > 1 else lambda params: [params[name] for name in names]


@lru_cache(maxsize=512)
def _with_numbers(sql: str, sizes: tuple[int | None, ...]) -> str:
    """Replace each name by its number, or by the numbers of as many parameters as a sequence has values."""
    placeholders: dict[str, str] = {}
    first = 1
    for name, size in zip(_names(sql), sizes, strict=True):
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


def _changed_table(sql: str) -> str:
    # Without a pattern, which every process would compile, also one that only reads.
    match sql.split(maxsplit=3):
        case ["SELECT" | "PRAGMA", *_]:
            return ""
        case ["UPDATE", table, *_] | ["INSERT", "INTO", table, *_] | ["DELETE", "FROM", table, *_]:
            return table.partition("(")[0]
    return ANY_TABLE
