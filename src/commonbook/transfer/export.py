"""Exporting memories as a folder of Markdown or an archive: the same paths and the same bytes as in the home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from commonbook.access import permissions, scope
from commonbook.errors import NotFound
from commonbook.markdown.memory_file import render_memory
from commonbook.model.memory import Memory
from commonbook.model.reports import Finding, Progress, TransferReport
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.tables import memories

_BATCH = 200


def export(engines: Engines, actor: Actor, target: str, *, space: str | None, progress: Progress) -> TransferReport:
    """Write the live memories of a space, with a final '/' of all below it too, or of all spaces."""
    permissions.require_owner(actor, "write folders of this machine")
    outcomes: Counter[str] = Counter()
    foreign: list[Finding] = []
    ids: list[str] = []
    with engines.db.reading() as tx:
        chosen = scope.readable(tx, actor, space)
        if space is not None and not chosen:
            raise NotFound(f"there is no space {space!r}", fix="`commonbook space list` shows the spaces")
        places = _places(tx, chosen)
        with engines.outside.target(target) as out:
            for memory in _by_path(tx, chosen, places):
                outcome = out.put(memory.path, render_memory(memory, engines), changed=memory.updated)
                outcomes[outcome] += 1
                if outcome == "foreign":
                    foreign.append(_foreign(memory.path))
                else:
                    ids.append(memory.id)
                progress("exporting", outcomes.total(), len(places))
    return TransferReport(
        done=outcomes["new"],
        updated=outcomes["changed"],
        unchanged=outcomes["same"],
        skipped=tuple(foreign),
        ids=tuple(ids),
    )


def _places(tx: Reading, chosen: SpaceScope) -> list[tuple[str, str]]:
    """Return (path, id) of every live memory, by path, so that one state of the book always gives one archive."""
    places: list[tuple[str, str]] = []
    for space in chosen:
        after = ""
        while found := memories.in_space(tx, chosen, space, after=after):
            after = found[-1].id
            places += [(memory.path, memory.id) for memory in found if memory.deleted is None]
    return sorted(places)


def _by_path(tx: Reading, chosen: SpaceScope, places: Sequence[tuple[str, str]]) -> Iterator[Memory]:
    for at in range(0, len(places), _BATCH):
        ids = [memory_id for _, memory_id in places[at : at + _BATCH]]
        found = memories.get_many(tx, chosen, ids)
        yield from (found[memory_id] for memory_id in ids)


def _foreign(path: str) -> Finding:
    return Finding(
        what="not exported",
        where=path,
        why="the file there was changed by others since the last export",
        fix="import it, or move it away, then export again",
    )
