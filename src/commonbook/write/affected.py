"""Finds the memories that a change of another one affects, since it may end at another time or supersede others."""

from __future__ import annotations

from collections.abc import Iterable

from commonbook.model.spaces import SpaceScope
from commonbook.model.stored_memory import StoredMemory
from commonbook.ports.database import Reading
from commonbook.tables import copies, supersession


def affected_by(tx: Reading, spaces: SpaceScope, changed: Iterable[StoredMemory]) -> set[str]:
    """Return the memories that these supersede, all copies of either, what those copies supersede, and so on.

    A memory may be given in two states, before and after a change. Those given are not returned themselves, unless they
    affect each other. All copies are found at once, however many: only their numbers of changes are written. Deleted
    copies are among them, since the copies below a deleted one are tied through it.
    """
    affected: set[str] = set()
    level = list(changed)
    while level:
        superseded = supersession.predecessors_of(tx, spaces, level)
        sources = {memory.id for memory in level} | superseded
        copied = copies.tied_to(tx, spaces, sorted(sources))
        level = [copy for id_, copy in copied.items() if id_ not in affected]
        affected |= superseded | copied.keys()
    return affected
