"""The deletions of a memory, and how it came back, as the signed log has them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from commonbook.log import chain
from commonbook.model.ids import parse_time
from commonbook.model.memory import Deletion, Revision
from commonbook.model.reports import LogEntry
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading


def with_deletions(
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
