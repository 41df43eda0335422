"""Finds the memories that a change of another one affects, since it may end at another time or supersede others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from commonbook.model.memory import Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import copies, memories, supersession

_NO_LIMIT: Final = 2**62


def affected_by(tx: Reading, spaces: SpaceScope, changed: Iterable[Memory]) -> set[str]:
    """Return the memories that these supersede, all copies of either, what those copies supersede, and so on.

    A memory may be given in two states, before and after a change. Those given are not returned themselves, unless they
    affect each other. All copies are found at once, however many: only their numbers of changes are written.
    """
    affected: set[str] = set()
    level = list(changed)
    while level:
        superseded = supersession.predecessors_of(tx, spaces, level)
        sources = {memory.id for memory in level} | superseded
        copied = set(copies.copies_of(tx, sorted(sources), limit=_NO_LIMIT)) - affected
        affected |= superseded | copied
        level = list(memories.get_headers_any_space(tx, spaces, sorted(copied)).values())
    return affected
