"""The export of memories as a folder of Markdown or an archive, with the same paths and bytes as in the home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from commonbook.access import permissions, scope
from commonbook.errors import NotFound
from commonbook.markdown.memory_conversion import render_memory
from commonbook.model.memory import Memory
from commonbook.model.reports import Finding, Progress, TransferReport
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.tables import memories

_BATCH = 200


def export(engines: Engines, actor: Actor, target: str, *, space: str | None, progress: Progress) -> TransferReport:
    """Write the live memories of a space (with a final '/', also of all spaces below it), or of all spaces."""
    permissions.require_owner(actor, "write folders of this machine")
    outcomes: Counter[str] = Counter()
    foreign: list[Finding] = []
    ids: list[str] = []
    with engines.db.reading() as tx:
        chosen = scope.select(tx, actor, space)
        if space is not None and not chosen:
            raise NotFound(f"there is no space {space!r}", fix="`commonbook space list` shows the spaces")
        paths = _paths(tx, chosen)
        with engines.external_files.target(target) as out:
            for memory in _by_path(tx, chosen, paths):
                outcome = out.put(memory.path, render_memory(memory, engines), changed=memory.updated)
                outcomes[outcome] += 1
                if outcome == "foreign":
                    foreign.append(_foreign_finding(memory.path))
                else:
                    ids.append(memory.id)
                progress("exporting", outcomes.total(), len(paths))
    return TransferReport(
        done=outcomes["new"],
        updated=outcomes["changed"],
        unchanged=outcomes["same"],
        skipped=tuple(foreign),
        ids=tuple(ids),
    )


def _paths(tx: Reading, chosen: SpaceScope) -> list[tuple[str, str]]:
    """Return (path, id) of each live memory, sorted, so that equal states of a book give equal archives."""
    paths: list[tuple[str, str]] = []
    for space in chosen:
        after = ""
        while batch := memories.in_space(tx, chosen, space, after=after):
            after = batch[-1].id
            paths += [(memory.path, memory.id) for memory in batch if memory.deleted is None]
    return sorted(paths)


def _by_path(tx: Reading, chosen: SpaceScope, paths: Sequence[tuple[str, str]]) -> Iterator[Memory]:
    for at in range(0, len(paths), _BATCH):
        ids = [memory_id for _, memory_id in paths[at : at + _BATCH]]
        by_id = memories.get_many(tx, chosen, ids)
        yield from (by_id[memory_id] for memory_id in ids)


def _foreign_finding(path: str) -> Finding:
    return Finding(
        what="not exported",
        where=path,
        why="the file there was changed by others since the last export",
        fix="import it, or move it away, then export again",
    )
