"""Field collapsing: memories of one root that say the same are one hit, which names the other searched spaces.

The index has already dropped most copies with the same words; those of an episode are dropped here. A memory with other
words is a hit of its own: an older version never stands for the present one, whatever it scores, and which memories are
hits does not depend on how many are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from commonbook.markdown import keyed_hashes
from commonbook.model.memory import Memory
from commonbook.model.recall import CopyPlace
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.keys import Keys
from commonbook.recall.indexed_passages import root_of
from commonbook.tables import copies, memories

MAX_PLACES: Final = 100
"""At most so many other places are named with a hit."""

Members = Callable[[], list[tuple[str, str, str]]]
"""Returns root, space and id of the copies that were requested."""


def collapse(rows: Sequence[int], memory_of: Callable[[int], Memory | None]) -> list[int]:
    """Return the rows without those of further memories of a root with the same words, in the same order: best first.

    All rows of the memory that comes first are kept: each message of an episode is a hit by itself.
    """
    kept: list[int] = []
    first_with_words: dict[tuple[str, str, str], str] = {}
    for row in rows:
        memory = memory_of(row)
        if memory is None or first_with_words.setdefault(_wording(memory), memory.id) == memory.id:
            kept.append(row)
    return kept


def _wording(memory: Memory) -> tuple[str, str, str]:
    return root_of(memory), memory.title, memory.text


def request_members(tx: Reading, roots: Sequence[str]) -> Members:
    """Send the query for the copies of these roots."""
    return copies.request_members(tx, roots)


def other_places(
    tx: Reading, keys: Keys, searched: SpaceScope, hits: Sequence[Memory], members: Members, alive_at: datetime | None
) -> Mapping[str, tuple[CopyPlace, ...]]:
    """Return the places of the other memories of the same root that say the same, for each of these that has any.

    `members` is the request for the copies of these memories; of a hit that is a copy, the root's are read here.
    Memories that expire before `alive_at` are not named.
    """
    further = {root_of(memory) for memory in hits} - {memory.id for memory in hits}
    rows = members() + (copies.request_members(tx, sorted(further))() if further else [])
    if not rows:
        return {}
    ids_of_root: dict[str, set[str]] = {}
    for root, space, memory in rows:
        ids_of_root.setdefault(root, {root}).update([memory] if space in searched else [])
    others = {id_ for hit in hits for id_ in ids_of_root.get(root_of(hit), ())} - {hit.id for hit in hits}
    living = {
        id_: memory
        for id_, memory in memories.get_headers(tx, searched, sorted(others)).items()
        if memory.deleted is None and not (alive_at and memory.expires and memory.expires <= alive_at)
    }
    candidates = {hit.id: [living[id_] for id_ in ids_of_root.get(root_of(hit), ()) if id_ in living] for hit in hits}
    return {hit.id: places for hit in hits if (places := _same_words(keys, hit, candidates[hit.id]))}


def _same_words(keys: Keys, hit: Memory, candidates: Iterable[Memory]) -> tuple[CopyPlace, ...]:
    """Return the other spaces that have the root of a hit in the same words; candidates have no texts."""
    same = (
        CopyPlace(memory.space.name, memory.id)
        for memory in candidates
        if root_of(memory) == root_of(hit)
        and memory.space.id != hit.space.id
        and memory.content_hash == keyed_hashes.content_hash(keys, memory.id, hit.title, hit.text)
    )
    return tuple(sorted(same))[:MAX_PLACES]
