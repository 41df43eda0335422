"""Memories as their rows have them, with the hashes that no interface hands out."""

from __future__ import annotations

from commonbook import Book
from commonbook.core.tables import memories, spaces
from commonbook.values.stored_memory import StoredMemory


def stored(book: Book, memory_id: str) -> StoredMemory:
    """Return a memory as its row has it."""
    with book._engines.db.reading() as tx:
        memory = memories.find(tx, spaces.get_all(tx), memory_id)
    assert memory is not None
    return memory
