"""Decides whether an index belongs to the present state of the book; any other index is rebuilt, not searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.log import chain
from commonbook.tables import home

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.index import IndexState


def is_of_this_book(tx: Reading, state: IndexState, *, rules: str) -> bool:
    """Tell whether an index was made from this book, by these rules, and from no other past of it.

    An index of another past has applied log entries that the hash chains of this book do not contain: it was left over
    from before a restored backup, for example.
    """
    if (state.rules, state.home) != (rules, home.facts(tx)["id"]):
        return False
    heads = {space: (position.seq, position.hash) for space, position in state.applied.items() if position.seq}
    return chain.has(tx, heads)
