"""Ids in calls: an id, some of its digits or a title becomes a full id, and near ids are found for a wrong one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from commonbook.errors import Ambiguous, CommonbookError, NotFound
from commonbook.model.ids import UUID_PATTERN

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.interfaces.mcp.tool import Arguments, Tool

_PIECES: Final = (slice(-12, None), slice(0, 18), slice(0, 13), slice(-6, None), slice(0, 8))
"""Parts of an id that a near one has too: a model that mistypes an id seldom mistypes all of it."""

_MAX_NEAR_IDS: Final = 3


def full_id(book: Book, part: str) -> str:
    """Return a full id for an id, some of its digits, or the title of a memory."""
    return part if re.fullmatch(UUID_PATTERN, part, re.IGNORECASE | re.ASCII) else book.find_id(part)


def near_ids(book: Book, tool: Tool, arguments: Arguments) -> list[str]:
    """Return ids of memories that are near to ids in a call which are those of none."""
    wrong = [each for name in tool.ids for each in _texts(arguments.get(name)) if not _exists(book, each)]
    return list(dict.fromkeys(near for each in wrong for near in _near(book, each)))[:_MAX_NEAR_IDS]


def _texts(value: object) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value if isinstance(value, list) else ()


def _exists(book: Book, memory_id: str) -> bool:
    try:
        book.find_id(memory_id)
    except NotFound:
        return False
    except CommonbookError:
        return True
    return True


def _near(book: Book, wrong: str) -> Iterator[str]:
    for piece in dict.fromkeys(wrong.strip().lower()[each].strip("-") for each in _PIECES):
        if not re.fullmatch("[0-9a-f-]{6,}", piece):
            continue
        try:
            yield book.find_id(piece)
        except Ambiguous as several:
            yield from re.findall(UUID_PATTERN, several.message)
        except NotFound:
            continue
