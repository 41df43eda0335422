"""Validity: when a memory ends and what supersedes it, read through the tie of a copy to its sources.

A copy keeps its own times. But it is no better than its source: it has ended, is superseded or is in doubt whenever
its source is, along the whole chain of copies. A detached copy has no tie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from commonbook.model.spaces import SpaceScope
from commonbook.model.stored_memory import StoredMemory
from commonbook.ports.database import Reading
from commonbook.tables import copies, supersession
from commonbook.tables.supersession import Successors


class Validity(NamedTuple):
    """The times at which a memory ends, and between which it is superseded; None stands for never."""

    expires: datetime | None
    valid_until: datetime | None
    superseded_since: datetime | None
    superseded_until: datetime | None


def validities_of(tx: Reading, spaces: SpaceScope, live: Sequence[StoredMemory]) -> dict[str, Validity]:
    """Return the validity of each of these memories; `spaces` are all spaces of the book.

    Successors of any space count: the index has one time for a passage, regardless of the reader.
    """
    sources = copies.sources_of(tx, spaces, live)
    ids = sorted({*(memory.id for memory in live), *sources})
    successors = supersession.successors_of(tx, spaces, ids)
    return {memory.id: validity_of(memory, sources, successors) for memory in live}


def validity_of(memory: StoredMemory, sources: Mapping[str, StoredMemory], successors: Successors) -> Validity:
    """Return the validity of a memory, whose sources along the tie and their successors were read before."""
    chain = copies.chain_of(memory, sources)
    lasting = supersession.in_place_of_others(chain, [successors.lasting(member.id) for member in chain])
    superseding = [successor for found in lasting for successor in found]
    return Validity(
        expires=_earliest(member.expires for member in chain),
        valid_until=_earliest(member.valid_until for member in chain),
        superseded_since=_earliest(map(valid_since, superseding)),
        superseded_until=_latest([successor.expires for successor in superseding]),
    )


def valid_since(memory: StoredMemory) -> datetime:
    """Return the time from which a memory is valid: as it states, else since it occurred or was created."""
    return memory.valid_from or min(memory.created, memory.occurred or memory.created)


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min(filter(None, times), default=None)


def _latest(times: Sequence[datetime | None]) -> datetime | None:
    """Return the latest of some times, where None is later than any other."""
    return None if None in times else max(filter(None, times), default=None)
