"""Decides whether a person's save becomes the newest revision of its memory, or an earlier one in the history."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from commonbook.text.nearness import nearest

if TYPE_CHECKING:
    from commonbook.tables.file_journal import JournalEntry


MIN_SIMILARITY: Final = 0.5
"""A save that has less in common with a text is not based on it."""


class SaveOrder(Enum):
    """The place of a person's save in the history of its memory."""

    NEWER = "newer"
    EARLIER = "earlier"


def place_in_history(*, row_version: int, journal: JournalEntry | None) -> SaveOrder:
    """Decide where a person's save belongs in the history of its memory.

    The save is newer than the row if no write was pending, or if we were only writing back an earlier save of a person.
    Otherwise it belongs before what we wrote meanwhile.
    """
    if journal is None or (journal.is_write_back and journal.version == row_version):
        return SaveOrder.NEWER
    return SaveOrder.EARLIER


def is_based_on_present(text: str, *, present: str, before: str) -> bool:
    """Tell whether a save was made over the text of a pending write: whether it has clearly more in common with it."""
    return nearest(text, [before, present], at_least=MIN_SIMILARITY) == 1
