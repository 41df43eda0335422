"""The export of memories as a bundle in the Open Knowledge Format, which other programs read.

A memory has the same path and body as in the home. Its front matter says besides what it was made from, by whom, who
confirmed it, and whether it still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from commonbook.markdown import file_format, okf
from commonbook.markdown.memory_conversion import dialect, render_memory
from commonbook.model.spaces import SpaceScope
from commonbook.model.stored_memory import StoredMemory
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.files import ExportTarget
from commonbook.tables import memories, spaces, supersession

Targets = Mapping[str, tuple[str, str]]
"""The path in the bundle and the title of each memory of it, by its id."""


def bundle_files(
    engines: Engines, tx: Reading, batch: Sequence[StoredMemory], targets: Targets
) -> list[tuple[StoredMemory, str, bytes]]:
    """Return the path and content in the bundle of each of these memories."""
    everywhere = spaces.get_all(tx)
    successors = supersession.successors_of(tx, everywhere, [memory.id for memory in batch])
    now = engines.clock.now()
    files: list[tuple[StoredMemory, str, bytes]] = []
    for memory in batch:
        ends, own = _end(memory), _own_fields(engines, memory)
        has_ended = ends is not None and ends <= now
        concept = okf.Concept(
            memory=memory,
            sources=[_source(link.target, targets) for link in memory.links if link.relation in okf.SOURCE_RELATIONS],
            # What an import took from one of these fields is not said again by the other.
            is_deprecated=bool(successors.standing(memory.id, now)) or (has_ended and own.ends != ends),
            stale_after=None if own.is_deprecated else ends,
        )
        data = file_format.add_fields(
            render_memory(memory, engines), okf.fields(concept, engines.zone), dialect(engines)
        )
        files.append((memory, okf.bundle_path(memory.path, memory.id), data))
    return files


def _own_fields(engines: Engines, memory: StoredMemory) -> okf.ForeignConcept:
    """Return what the front matter of a person says about the end of a memory."""
    if not any(name in memory.layout for name in ("status", "stale_after")):
        return okf.ForeignConcept()
    return okf.read_concept(memory.layout, dialect(engines))


def targets_of(tx: Reading, chosen: SpaceScope, paths: Iterable[tuple[str, str]]) -> Targets:
    """Return where each memory of an export lies in the bundle, and its title."""
    ids = [memory_id for _, memory_id in paths]
    return {
        header.id: (okf.bundle_path(header.path, header.id), header.title)
        for header in memories.get_headers(tx, chosen, ids).values()
    }


def _end(memory: StoredMemory) -> datetime | None:
    """Return the moment from which a memory does not hold any more, if it has one."""
    return min((moment for moment in (memory.expires, memory.valid_until) if moment is not None), default=None)


def _source(target: str, targets: Targets) -> tuple[str, str, str | None]:
    if target in targets:
        path, title = targets[target]
        return target, f"/{path}", title
    return target, f"urn:uuid:{target}", None


def write_indexes(out: ExportTarget, entries: Iterable[okf.Entry], *, changed: datetime) -> list[tuple[str, str]]:
    """Write the listing of every folder; return the path and the outcome of each."""
    return [(path, out.put(path, text.encode(), changed=changed)) for path, text in okf.indexes(entries).items()]
