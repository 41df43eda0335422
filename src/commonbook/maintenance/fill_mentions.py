"""Derives the tags and links in the texts of a book that an earlier program wrote: once, after the migration.

The fact `mentions` of the home says that it is done. It is one transaction, so a kill leaves it undone or done.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from commonbook.log import chain
from commonbook.markdown import obsidian
from commonbook.ports.database import Transaction
from commonbook.ports.engines import Engines
from commonbook.tables import changes, home, memories, spaces

_BATCH: Final = 500


def fill_mentions(engines: Engines) -> None:
    """Derive the rows of all memories, unless another process did."""
    engines.db.write(partial(_fill, engines=engines))


def _fill(tx: Transaction, engines: Engines) -> None:
    # Of two processes that open the book, the second waits here and finds it done.
    spaces.lock(tx)
    if home.facts(tx).get("mentions") == home.MENTIONS_IN_ROWS:
        return
    all_spaces = spaces.get_all(tx)
    for space in all_spaces:
        chain.lock(tx, [space])
        after = ""
        while batch := memories.in_space(tx, all_spaces, space, after=after, limit=_BATCH):
            last = len(batch) < _BATCH
            memories.derive(tx, engines.keys, space, batch, after=after, last=last)
            # The index has the tags of the front matter alone.
            tagged = [memory.id for memory in batch if obsidian.tags_of(memory) != memory.tags]
            if tagged:
                changes.assign_numbers(tx, space, tagged)
            after = batch[-1].id
    home.replace(tx, mentions=home.MENTIONS_IN_ROWS)
