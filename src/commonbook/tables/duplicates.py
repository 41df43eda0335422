"""Duplicate look-up: memories with the same text, or nearly the same text, as a new one.

Equal texts are found by the column `digest` of `memory`. Near duplicates are found by MinHash: a row of the table
`memory_mark` is one fingerprint of one live memory, and memories that share half of the fingerprints are compared word
by word. The rows are derived, with the others of a memory. The column `mark` has a hash of the space in its upper half,
and the fingerprint in its lower half: one key finds both, and a row is short. There is no index by memory: the rows of
a memory follow from its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from commonbook.model.memory import Memory
from commonbook.model.spaces import Space, SpaceScope
from commonbook.ports.database import Reading, Transaction
from commonbook.text.near_duplicates import are_near_duplicates, digest, fingerprints, words_of

_FINGERPRINT_BITS: Final = 32
_MAX_FINGERPRINT: Final = (1 << _FINGERPRINT_BITS) - 1
_MAX_CANDIDATES: Final = 32
_MAX_NEAR: Final = 5


def add_fingerprints(tx: Transaction, memories: Iterable[Memory]) -> None:
    """Add the fingerprints of live memories."""
    marks = [{"mark": mark, "memory": memory.id} for memory in memories for mark in _marks(memory)]
    if marks:
        tx.run_many("INSERT INTO memory_mark (mark, memory) VALUES (:mark, :memory) ON CONFLICT DO NOTHING", marks)


def drop_fingerprints(tx: Transaction, memory: Memory) -> None:
    """Drop the fingerprints of a memory, which is given as it was when they were added."""
    marks = [{"mark": mark, "memory": memory.id} for mark in _marks(memory)]
    if marks:
        tx.run_many("DELETE FROM memory_mark WHERE mark = :mark AND memory = :memory", marks)


def clear_fingerprints(tx: Transaction, space: str) -> None:
    """Drop all fingerprints of a space."""
    first = _mark(space, 0)
    tx.run("DELETE FROM memory_mark WHERE mark >= :first AND mark <= :last", first=first, last=first + _MAX_FINGERPRINT)


def _marks(memory: Memory) -> tuple[int, ...]:
    # All notices are alike, and nobody writes one.
    found = () if memory.kind == "notice" else fingerprints(memory.text)
    return tuple(_mark(memory.space.id, fingerprint) for fingerprint in found)


def _mark(space: str, fingerprint: int) -> int:
    """Return the key of a fingerprint in a space: 63 bits, since the columns of databases are signed."""
    return (crc32(space.encode()) >> 1) << _FINGERPRINT_BITS | fingerprint


def find_same_text(tx: Reading, spaces: SpaceScope, text: str) -> str | None:
    """Return the oldest live memory of the given spaces with this text, or None; an empty text has no duplicate."""
    if not spaces or not text.strip():
        return None
    (memory_id,) = tx.row(
        "SELECT id FROM memory WHERE space IN :spaces AND digest = :digest AND deleted IS NULL"
        " ORDER BY created, id LIMIT 1",
        spaces=tuple(spaces),
        digest=digest(text),
    ) or (None,)
    return str(memory_id) if memory_id else None


def find_near_texts(tx: Reading, space: Space, text: str) -> tuple[str, ...]:
    """Return the live memories of a space whose words are nearly those of a text, the newest first."""
    wanted = fingerprints(text)
    shared: Counter[str] = Counter()
    queries = [
        tx.defer(
            "SELECT memory FROM memory_mark WHERE mark = :mark ORDER BY memory DESC LIMIT :limit",
            mark=_mark(space.id, fingerprint),
            limit=_MAX_CANDIDATES,
        )
        for fingerprint in wanted
    ]
    for rows in queries:
        shared.update(memory_id for (memory_id,) in rows())
    likely = [memory for memory, count in shared.items() if 2 * count >= len(wanted)]
    if not likely:
        return ()
    words = words_of(text)
    candidates = tx.rows(
        "SELECT id, text FROM memory WHERE space = :space AND id IN :ids AND deleted IS NULL",
        space=space.id,
        ids=tuple(likely[:_MAX_CANDIDATES]),
    )
    near = [memory_id for memory_id, other in candidates if are_near_duplicates(words, words_of(other))]
    return tuple(sorted(near, reverse=True)[:_MAX_NEAR])
