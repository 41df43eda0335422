"""Reads the history of a memory: its texts from the table of revisions, its deletions from the signed log.

A text belongs to the space that the memory was in when it had the text last: after a move, only those who may read that
space may read it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from commonbook.core.access import permissions
from commonbook.core.log import chain
from commonbook.core.tables import memories, revisions
from commonbook.core.text import validation
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.values.ids import parse_time
from commonbook.values.memory import Deletion, Revision
from commonbook.values.reports import LogEntry
from commonbook.values.spaces import Actor, SpaceScope
from commonbook.values.stored_memory import StoredMemory


def history(engines: Engines, actor: Actor, memory_id: str) -> tuple[Revision, ...]:
    """Return every title and text that a memory has had, oldest first; a deleted memory keeps its history.

    Those that it had in a space that the actor may not read are left out of their revisions. Each revision names the
    deletions of its time, and how the memory came back.
    """
    memory_id = validation.validate_memory_id(memory_id)
    with engines.db.reading() as tx:
        allowed = permissions.select(tx, actor)
        memory = memories.find(tx, allowed, memory_id)
        if memory is None:
            raise permissions.no_memory(memory_id)
        past = readable_past(tx, memory, allowed)
        present = Revision(
            revision=memory.revision,
            title=memory.title,
            text=memory.text,
            author=memory.revised_by,
            at=memory.revised_at,
            how=memory.revised_how,
            current=memory.deleted is None,
        )
        return _with_deletions(tx, allowed, memory_id, (*past, present))


def readable_past(tx: Reading, memory: StoredMemory, readable: SpaceScope) -> list[Revision]:
    """Return the past revisions of a memory, oldest first; past texts of other spaces have only a number and a time."""
    return [
        revision if space in readable else _redacted(revision)
        for revision, space in revisions.past_revisions_by_space(tx, memory)
    ]


def _redacted(revision: Revision) -> Revision:
    return revision._replace(title="", text="", author="", how="", readable=False)


def _with_deletions(
    tx: Reading, readable: SpaceScope, memory_id: str, revisions: Sequence[Revision]
) -> tuple[Revision, ...]:
    """Return revisions, oldest first, each with the deletions of the time when the memory had that text."""
    by_revision: dict[int, list[Deletion]] = {}
    last: tuple[int, Deletion] | None = None
    for entry in chain.deletions_of(tx, memory_id):
        if entry.action == "delete":
            number = json.loads(entry.payload)["revision"]
            last = number, _deletion(entry, readable)
            by_revision.setdefault(number, []).append(last[1])
        elif last is not None:
            number, deletion = last
            by_revision[number][-1] = _restored(deletion, entry, readable)
            last = None
    return tuple(one._replace(deletions=tuple(by_revision.get(one.revision, ()))) for one in revisions)


def _how(entry: LogEntry) -> str:
    """Return the verb by which a memory was deleted or came back: `file` for what happened to its file."""
    how = json.loads(entry.payload).get("how")
    return str(how or entry.action)


def _deletion(entry: LogEntry, readable: SpaceScope) -> Deletion:
    at = parse_time(entry.time)
    return Deletion(at, entry.actor, _how(entry)) if entry.space in readable else Deletion(at, "", "")


def _restored(deletion: Deletion, entry: LogEntry, readable: SpaceScope) -> Deletion:
    by, how = (entry.actor, _how(entry)) if entry.space in readable else ("", "")
    return deletion._replace(restored_at=parse_time(entry.time), restored_by=by, restored_how=how)
