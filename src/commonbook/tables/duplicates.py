"""Look-up of memories that say the same or nearly the same as a text."""

from __future__ import annotations

from collections import Counter
from typing import Final

from commonbook.model.spaces import Space, SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables.memories import digest
from commonbook.text.near_duplicates import are_near, fingerprints, words_of

_LOOKED_AT: Final = 32
_NEAR: Final = 5


def same_text(tx: Reading, spaces: SpaceScope, text: str) -> str | None:
    """Return the oldest live memory of the given spaces with this text, or None; having no text is no likeness."""
    if not spaces or not text.strip():
        return None
    (memory_id,) = tx.row(
        "SELECT id FROM memory WHERE space IN :spaces AND digest = :digest AND deleted IS NULL"
        " ORDER BY created, id LIMIT 1",
        spaces=tuple(spaces),
        digest=digest(text),
    ) or (None,)
    return str(memory_id) if memory_id else None


def near_text(tx: Reading, space: Space, text: str) -> tuple[str, ...]:
    """Return live memories of a space that say nearly the same as a text in nearly the same words, the newest first."""
    wanted = fingerprints(text)
    shared: Counter[str] = Counter()
    asked = [
        tx.defer(
            "SELECT memory FROM memory_mark WHERE space = :space AND mark = :mark ORDER BY memory DESC LIMIT :few",
            space=space.id,
            mark=mark,
            few=_LOOKED_AT,
        )
        for mark in wanted
    ]
    for rows in asked:
        shared.update(memory_id for (memory_id,) in rows())
    likely = [memory for memory, count in shared.items() if 2 * count >= len(wanted)]
    if not likely:
        return ()
    words = words_of(text)
    there = tx.rows(
        "SELECT id, text FROM memory WHERE space = :space AND id IN :ids",
        space=space.id,
        ids=tuple(likely[:_LOOKED_AT]),
    )
    found = [id_ for id_, said in there if are_near(words, words_of(said))]
    return tuple(sorted(found, reverse=True)[:_NEAR])
