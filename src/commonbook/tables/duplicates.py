"""Duplicate look-up: memories with the same text, or nearly the same text, as a new one.

Equal texts are found by the column `digest` of `memory`. Near duplicates are found by MinHash: a row of the table
`memory_mark` is one fingerprint of one live memory, and memories that share half of the fingerprints are compared word
by word. The rows are derived, with the others of a memory, which they name by the bytes of its id. There is no index by
memory: the rows of a memory follow from its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from string import ascii_lowercase
from typing import Final

from commonbook.model.ids import id_bytes, id_of_bytes
from commonbook.model.memory import Memory
from commonbook.model.spaces import Space, SpaceScope
from commonbook.ports.database import Reading, Transaction
from commonbook.runtime.compressed_text import decompress
from commonbook.text.near_duplicates import are_near_duplicates, digest, fingerprints, words_of

_MAX_CANDIDATES: Final = 32
_MAX_NEAR: Final = 5


def add_fingerprints(tx: Transaction, memories: Iterable[Memory]) -> None:
    """Add the fingerprints of live memories."""
    if marks := [row for memory in memories for row in _rows(memory)]:
        tx.run_many(
            "INSERT INTO memory_mark (space, mark, memory) VALUES (:space, :mark, :memory) ON CONFLICT DO NOTHING",
            marks,
        )


def drop_fingerprints(tx: Transaction, memory: Memory) -> None:
    """Drop the fingerprints of a memory, which is given as it was when they were added."""
    if marks := _rows(memory):
        tx.run_many("DELETE FROM memory_mark WHERE space = :space AND mark = :mark AND memory = :memory", marks)


def clear_fingerprints(tx: Transaction, space: str) -> None:
    """Drop all fingerprints of a space."""
    tx.run("DELETE FROM memory_mark WHERE space = :space", space=space)


def _rows(memory: Memory) -> list[dict[str, object]]:
    # All notices are alike, and nobody writes one.
    found = () if memory.kind == "notice" else fingerprints(memory.text)
    space, id_ = memory.space.id, id_bytes(memory.id)
    return [{"space": space, "mark": mark, "memory": id_} for mark in found]


def find_same_text(tx: Reading, spaces: SpaceScope, text: str) -> str | None:
    """Return the oldest live memory of the given spaces with this text, or None; an empty text has no duplicate."""
    if not spaces or not text.strip():
        return None
    (oldest,) = tx.row(
        # Not ORDER BY with LIMIT: SQLite would then rather read all memories in the order of time.
        "SELECT min(created || ' ' || id) FROM memory WHERE space IN :spaces AND digest = :digest AND deleted IS NULL",
        spaces=tuple(spaces),
        digest=digest(text),
    ) or (None,)
    return str(oldest).rpartition(" ")[2] if oldest else None


@cache
def _newest_with_marks(marks: tuple[str, ...]) -> str:
    """Return the query for the newest memories that have each of some fingerprints: a row for each of these."""
    newest = "SELECT memory FROM memory_mark WHERE space = :space AND mark = :{} ORDER BY memory DESC LIMIT :limit"
    return " UNION ALL ".join(f"SELECT memory FROM ({newest.format(mark)}) AS with_{mark}" for mark in marks)


def find_near_texts(tx: Reading, space: Space, text: str) -> tuple[str, ...]:
    """Return the live memories of a space whose words are nearly those of a text, the newest first."""
    wanted = fingerprints(text)
    if not wanted:
        return ()
    marks = {f"mark_{letter}": mark for letter, mark in zip(ascii_lowercase, wanted, strict=False)}
    rows = tx.rows(_newest_with_marks(tuple(marks)), space=space.id, limit=_MAX_CANDIDATES, **marks)
    if not rows:
        return ()
    found = [stored for (stored,) in rows]
    enough = (len(wanted) + 1) // 2
    if enough > 1 and len(set(found)) == len(found):
        # Mostly no memory shares two fingerprints, and counting takes longer than telling that.
        return ()
    likely = [id_of_bytes(stored) for stored, count in Counter(found).items() if count >= enough]
    if not likely:
        return ()
    words = set(words_of(text))
    candidates = tx.rows(
        "SELECT id, text FROM memory WHERE space = :space AND id IN :ids AND deleted IS NULL",
        space=space.id,
        ids=tuple(likely[:_MAX_CANDIDATES]),
    )
    near = [id_ for id_, other in candidates if are_near_duplicates(words, set(words_of(decompress(other))))]
    return tuple(sorted(near, reverse=True)[:_MAX_NEAR])
