"""Keeps the times of a retracted memory, whatever its file says: only `reinstate` takes a retraction back.

The line of the decision has the time of the retraction. A file with that line and without the end that it gave the
memory was edited by hand, in its home or in an export.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.model.invalidation import RETRACT

if TYPE_CHECKING:
    from datetime import datetime

    from commonbook.markdown.front_matter import Document
    from commonbook.model.stored_memory import StoredMemory


def with_times_kept(memory: StoredMemory, edited: StoredMemory) -> StoredMemory:
    """Return a memory as its file edits it; if it was retracted, with the times that it has."""
    times = _retraction_times(memory)
    if times and memory.expires is not None and memory.expires <= max(times):
        return edited._replace(expires=memory.expires, valid_until=memory.valid_until)
    return edited


def with_times_of_decisions(memory: StoredMemory, edited: StoredMemory, document: Document) -> StoredMemory:
    """Return a memory with the decisions that its file brings; if they bring or end a retraction, with its times too.

    This home has written these decisions, though its database does not know them.
    """
    if _retraction_times(edited) == _retraction_times(memory):
        return edited
    return with_times_restored(edited._replace(expires=document.expires, valid_until=document.valid_until))


def with_times_restored(memory: StoredMemory) -> StoredMemory:
    """Return a memory from a file with the end that its decision to retract gave it, if its times say less."""
    times = _retraction_times(memory)
    if not times:
        return memory
    end = max(times)
    expires, until = memory.expires, memory.valid_until
    has_begun = memory.valid_from is None or memory.valid_from < end
    return memory._replace(
        expires=end if expires is None else min(expires, end),
        valid_until=until if not has_begun else end if until is None else min(until, end),
    )


def _retraction_times(memory: StoredMemory) -> list[datetime]:
    return sorted(decision.at for decision in memory.decisions if decision.verdict == RETRACT)
