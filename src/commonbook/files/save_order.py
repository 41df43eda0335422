"""Decides whether a person's save becomes the newest revision of its memory, or an earlier one in the history."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from commonbook.tables.file_journal import JournalEntry


class SaveOrder(Enum):
    """The place of a person's save in the history of its memory."""

    NEWER = "newer"
    EARLIER = "earlier"


def place_in_history(*, version: int | None, row_version: int, journal: JournalEntry | None) -> SaveOrder:
    """Decide where a person's save belongs in the history of its memory.

    The save is newer than the row if no write was pending; or if its front matter has the version of the row, so that
    the person had seen our text; or if we were only writing out an earlier save of the same person. Otherwise it
    belongs before what we wrote meanwhile.
    """
    if journal is None or version == row_version:
        return SaveOrder.NEWER
    if journal.seen is not None and version == journal.seen and journal.version == row_version:
        return SaveOrder.NEWER
    return SaveOrder.EARLIER
