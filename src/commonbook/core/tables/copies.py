"""The table `copy`: a row binds the one copy of a root memory in a space to the source that it follows.

The key (space, root) makes sure that a space has at most one copy of a root. The rows are derived from the memories, so
`derive` can make them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from commonbook.core.tables import links, memories
from commonbook.errors import BadInput
from commonbook.ports.database import Reading, Transaction
from commonbook.values.memory import DETACHED
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import SOURCE_ENDS, StoredCopyInfo, StoredLink, StoredMemory, missing_memory

_IDS_PER_QUERY: Final = 1000
_MAX_MEMBERS: Final = 10_000
"""At most so many copies of the roots of one recall are looked at."""


def of_root(tx: Reading, root: str, space: str) -> str | None:
    """Return the id of the copy of a root in a space, or None."""
    row = tx.row("SELECT memory FROM copy WHERE space = :space AND root = :root", space=space, root=root)
    (memory,) = row or (None,)
    return str(memory) if memory else None


def bind(tx: Transaction, memory: StoredMemory) -> bool:
    """Bind a memory as the copy of its root in its space; return False if another copy is bound already."""
    if memory.shared is None or memory.source is None:
        return False
    tx.run(
        "INSERT INTO copy (space, root, memory, source, mode) VALUES (:space, :root, :memory, :source, :mode)"
        " ON CONFLICT (space, root) DO NOTHING",
        space=memory.space.id,
        root=memory.shared.root,
        memory=memory.id,
        source=memory.source.target,
        mode=memory.shared.mode,
    )
    return of_root(tx, memory.shared.root, memory.space.id) == memory.id


def claimed(tx: Reading, spaces: SpaceScope) -> list[str]:
    """Return the ids of the claimed copies in these spaces that are bound to a source, in their order."""
    rows = tx.rows(
        "SELECT copy.memory FROM copy JOIN memory ON memory.space = copy.space AND memory.id = copy.memory"
        " WHERE copy.space IN :spaces AND memory.shared LIKE '%claimed' ORDER BY copy.memory",
        spaces=tuple(spaces),
    )
    return [memory for (memory,) in rows] if spaces else []


def unbind(tx: Transaction, memory: StoredMemory) -> None:
    """Remove the binding of a copy."""
    tx.run("DELETE FROM copy WHERE space = :space AND memory = :memory", space=memory.space.id, memory=memory.id)


def require_copy(memory: StoredMemory) -> tuple[StoredCopyInfo, StoredLink]:
    """Return the copy information of a memory and its link to the source; BadInput if it is not a copy."""
    if memory.shared is None or memory.source is None:
        raise BadInput(f"memory {memory.id} is no copy", fix="`commonbook lineage` shows what was copied from where")
    return memory.shared, memory.source


def is_bound(memory: StoredMemory) -> bool:
    """Tell whether a memory is a live copy that still follows its source, in any mode."""
    if memory.shared is None or memory.source is None:
        return False
    return memory.deleted is None and memory.shared.mode != DETACHED


def copied_from(memory: StoredMemory) -> str | None:
    """Return the source of a copy, unless it is detached."""
    if memory.shared is None or memory.shared.mode == DETACHED:
        return None
    return memory.source.target if memory.source else None


def end_of(source: StoredMemory) -> datetime | None:
    """Return when a memory ends, by itself or, if it is a copy, with a source that was deleted."""
    of_source = source.shared.source_ends if source.shared and copied_from(source) else None
    return min(filter(None, (source.expires, source.valid_until, of_source)), default=None)


def sources_of(tx: Reading, spaces: SpaceScope, candidates: Iterable[StoredMemory]) -> dict[str, StoredMemory]:
    """Return the sources along the ties of the copies among these memories, deleted ones too, without their texts.

    A source that the book does not know, since its database was lost, is a tombstone without links: what supersedes it
    is known by the links of others. `spaces` are all spaces that the transaction knows.
    """
    sources: dict[str, StoredMemory] = {}
    level = list(candidates)
    while wanted := {id_: copy for copy in level if (id_ := copied_from(copy)) and id_ not in sources}:
        found = memories.get_headers_any_space(tx, spaces, sorted(wanted))
        sources |= {id_: _with_end(found.get(id_) or missing_memory(id_), copy) for id_, copy in wanted.items()}
        level = list(found.values())
    return sources


def _with_end(source: StoredMemory, copy: StoredMemory) -> StoredMemory:
    """Return a source that, if it was deleted, ends when its copy says so: the database may be older than that."""
    ends = copy.shared.source_ends if copy.shared else None
    if source.deleted is None or ends is None:
        return source
    return source._replace(expires=min(ends, source.expires or ends))


def tied_to(tx: Reading, spaces: SpaceScope, sources: Sequence[str]) -> dict[str, StoredMemory]:
    """Return the copies with a tie to one of these memories, deleted ones too, by their ids, without their texts.

    It is the reverse of `sources_of`. The table `copy` has no rows of deleted copies, so the links are read.
    """
    candidates = {link.source for link in links.incoming_any_space(tx, sources, relations=("shared_from",))}
    headers = memories.get_headers_any_space(tx, spaces, sorted(candidates))
    wanted = frozenset(sources)
    return {id_: memory for id_, memory in headers.items() if copied_from(memory) in wanted}


def chain_of(memory: StoredMemory, sources: Mapping[str, StoredMemory]) -> list[StoredMemory]:
    """Return a memory, the memory that it is a copy of, and so on, the nearest first."""
    chain = [memory]
    while (source := sources.get(copied_from(chain[-1]) or "")) is not None and source not in chain:
        chain.append(source)
    return chain


def outdated_copies(
    tx: Reading, source: str, *, content_hash: str, modes: Sequence[str], after: str = "", limit: int
) -> list[str]:
    """Return the copies of a live memory that are behind it, in the order of their ids.

    These are the copies in these modes that took over other words than these, and all that still note its end, since it
    was deleted before.
    """
    rows = tx.rows(
        "SELECT copy.memory FROM copy JOIN link ON link.space = copy.space AND link.source = copy.memory"
        " JOIN memory ON memory.space = copy.space AND memory.id = copy.memory"
        " WHERE copy.source = :source AND copy.memory > :after"
        " AND link.relation = 'shared_from' AND link.target = copy.source"
        " AND (copy.mode IN :modes AND COALESCE(link.target_hash, '') <> :hash OR memory.shared LIKE :with_end)"
        " ORDER BY copy.memory LIMIT :limit",
        source=source,
        modes=tuple(modes),
        after=after,
        hash=content_hash,
        with_end=f"% {SOURCE_ENDS}%",
        limit=limit,
    )
    return [memory for (memory,) in rows]


def with_copies(tx: Reading, sources: Sequence[str], *, modes: Sequence[str]) -> frozenset[str]:
    """Return those of the memories that have copies in these modes."""
    sources_with_copies: set[str] = set()
    for at in range(0, len(sources), _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT DISTINCT source FROM copy WHERE source IN :sources AND mode IN :modes",
            sources=tuple(sources[at : at + _IDS_PER_QUERY]),
            modes=tuple(modes),
        )
        sources_with_copies.update(source for (source,) in rows)
    return frozenset(sources_with_copies)


def copies_of(tx: Reading, sources: Sequence[str], *, limit: int) -> dict[str, str]:
    """Return the bound copies of these memories, each with its source, at most `limit`."""
    source_of_copy: dict[str, str] = {}
    for at in range(0, len(sources), _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT memory, source FROM copy WHERE source IN :sources ORDER BY memory LIMIT :limit",
            sources=tuple(sources[at : at + _IDS_PER_QUERY]),
            limit=limit - len(source_of_copy),
        )
        source_of_copy |= dict(rows)
    return source_of_copy


def tied_copies(tx: Reading, source: str, *, after: str = "", limit: int) -> list[str]:
    """Return the bound copies of a memory in any mode, in the order of their ids."""
    rows = tx.rows(
        "SELECT memory FROM copy WHERE source = :source AND memory > :after ORDER BY memory LIMIT :limit",
        source=source,
        after=after,
        limit=limit,
    )
    return [memory for (memory,) in rows]


def members(tx: Reading, roots: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (root, space, memory) of each bound copy of these roots, by memory."""
    rows = tx.rows(
        "SELECT root, space, memory FROM copy WHERE root IN :roots ORDER BY root, memory LIMIT :limit",
        roots=tuple(roots),
        limit=_MAX_MEMBERS,
    )
    return [(root, space, memory) for root, space, memory in rows]


def count(tx: Reading, spaces: SpaceScope) -> int:
    """Return how many copies of these spaces follow a source."""
    (count,) = tx.row("SELECT count(*) FROM copy WHERE space IN :spaces", spaces=tuple(spaces)) or (0,)
    return int(count)


def count_outdated(tx: Reading) -> int:
    """Return how many copies follow a source that says something else than they took over."""
    (count,) = tx.row(
        "SELECT count(*) FROM copy JOIN link ON link.space = copy.space AND link.source = copy.memory"
        " JOIN place ON place.id = copy.source"
        " JOIN memory ON memory.space = place.space AND memory.id = copy.source"
        " WHERE copy.mode <> 'detached' AND link.relation = 'shared_from' AND link.target = copy.source"
        " AND memory.deleted IS NULL AND COALESCE(link.target_hash, '') <> memory.content_hash"
    ) or (0,)
    return int(count)


def derive(tx: Transaction, space: str, of_space: Sequence[StoredMemory], *, after: str, last: bool) -> None:
    """Make the rows again for a batch of a space's memories, which come in the order of their ids."""
    tx.run(
        "DELETE FROM copy WHERE space = :space AND memory > :after AND memory <= :upto",
        space=space,
        after=after,
        upto="\U0010ffff" if last else of_space[-1].id,
    )
    bind_all(tx, of_space)


def bind_all(tx: Transaction, candidates: Iterable[StoredMemory]) -> None:
    """Bind all copies among these memories; of two copies of one root in one space, the first."""
    for memory in candidates:
        if is_bound(memory):
            bind(tx, memory)
