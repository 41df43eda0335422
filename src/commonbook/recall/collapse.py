"""Field collapsing: a root and its copies are one hit, which names the other searched spaces that have it.

The index has already dropped copies with the same words. Here, older versions and copies of an episode are collapsed,
too: that takes the freshness of each copy. A copy that was edited, or detached, says something else, and is a hit of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from commonbook.model.memory import Memory
from commonbook.model.recall import CopyPlace
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading
from commonbook.recall.indexed_passages import follows_source
from commonbook.sharing import freshness
from commonbook.tables import copies, memories

MAX_PLACES: Final = 100
"""At most so many other places are named with a hit."""

Members = Callable[[], list[tuple[str, str, str]]]
"""Returns root, space and id of the copies that `copies.request_members` was asked for."""


def collapse(rows: Sequence[int], memory_of: Callable[[int], Memory | None]) -> list[int]:
    """Return the rows without those of further copies of a root, in the same order, which is best first.

    All rows of the memory that comes first are kept: each message of an episode is a hit by itself.
    """
    kept: list[int] = []
    first_of_root: dict[str, list[Memory]] = {}
    for row in rows:
        memory = memory_of(row)
        if memory is not None:
            firsts = first_of_root.setdefault(_root_of(memory), [])
            first = next((other for other in firsts if _is_same(other, memory)), None)
            if first is None:
                firsts.append(memory)
            elif first.id != memory.id:
                continue
        kept.append(row)
    return kept


def _root_of(memory: Memory) -> str:
    """Return the root that a memory stands for: its own id, unless it is a copy that was not edited here."""
    return memory.root if follows_source(memory) and not freshness.was_edited(memory) else memory.id


def _is_same(memory: Memory, other: Memory) -> bool:
    """Tell whether two memories of one root are one hit.

    Two that are up to date and say different things are not: between them is a copy that was edited.
    """
    if memory.id == other.id or not (_is_current(memory) and _is_current(other)):
        return True
    return (memory.title, memory.text) == (other.title, other.text)


def _is_current(memory: Memory) -> bool:
    return memory.freshness is None or memory.freshness == freshness.FRESH


def other_places(
    tx: Reading, searched: SpaceScope, hits: Iterable[Memory], members: Members, alive_at: datetime | None
) -> Mapping[str, tuple[CopyPlace, ...]]:
    """Return the places of the other copies, and of the root, for each of these memories that has any.

    `members` is the request for the copies of these memories; of a hit that is a copy, the root's are read here.
    Memories that expire before `alive_at` are not named.
    """
    root_of_hit = {memory.id: _root_of(memory) for memory in hits}
    further = {root for root in root_of_hit.values() if root not in root_of_hit}
    rows = members() + (copies.request_members(tx, sorted(further))() if further else [])
    if not rows:
        return {}
    ids_of_root: dict[str, list[str]] = {root: [root] for root in sorted(further)}
    for root, space, memory in rows:
        if space in searched:
            ids_of_root.setdefault(root, [root]).append(memory)
    ids = {id_ for root in root_of_hit.values() for id_ in ids_of_root.get(root, ())} - root_of_hit.keys()
    named = {
        id_: memory
        for id_, memory in memories.get_headers(tx, searched, sorted(ids)).items()
        if memory.deleted is None and not (alive_at and memory.expires and memory.expires <= alive_at)
    }
    return {
        hit: tuple(sorted(places))[:MAX_PLACES]
        for hit, root in root_of_hit.items()
        if (places := [_place(named[id_]) for id_ in ids_of_root.get(root, ()) if _is_named(named, id_, root)])
    }


def _is_named(named: Mapping[str, Memory], id_: str, root: str) -> bool:
    return id_ in named and _root_of(named[id_]) == root


def _place(memory: Memory) -> CopyPlace:
    return CopyPlace(memory.space.name, memory.id)
