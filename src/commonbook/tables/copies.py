"""Copies: which memory is the copy of a root in a space, and which follow a source. Made from what memories say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from commonbook.errors import BadInput
from commonbook.model.memory import DETACHED, CopyInfo, Link, Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading, Transaction

_AT_A_TIME: Final = 1000


def of_root(tx: Reading, root: str, space: str) -> str | None:
    """Return the copy of a root in a space."""
    row = tx.row("SELECT memory FROM copy WHERE space = :space AND root = :root", space=space, root=root)
    (memory,) = row or (None,)
    return str(memory) if memory else None


def bind(tx: Transaction, memory: Memory) -> bool:
    """Let a memory be the copy of its root in its space; tell whether it is, or another was there before."""
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


def unbind(tx: Transaction, memory: Memory) -> None:
    """Let a memory no longer be anything's copy."""
    tx.run("DELETE FROM copy WHERE space = :space AND memory = :memory", space=memory.space.id, memory=memory.id)


def require(memory: Memory) -> tuple[CopyInfo, Link]:
    """Return what makes a memory a copy, and its link to the source, or refuse what is none."""
    if memory.shared is None or memory.source is None:
        raise BadInput(f"memory {memory.id} is no copy", fix="`commonbook lineage` shows what was copied from where")
    return memory.shared, memory.source


def is_bound(memory: Memory) -> bool:
    """Tell whether a memory is a live copy that still follows its source, however it does."""
    if memory.shared is None or memory.source is None:
        return False
    return memory.deleted is None and memory.shared.mode != DETACHED


def outdated_copies(
    tx: Reading, source: str, *, revision: int, modes: Sequence[str], after: str = "", limit: int
) -> list[str]:
    """Return the copies that follow a memory so and have not taken this revision over, in the order of their ids."""
    rows = tx.rows(
        "SELECT copy.memory FROM copy JOIN link ON link.space = copy.space AND link.source = copy.memory"
        " WHERE copy.source = :source AND copy.mode IN :modes AND copy.memory > :after"
        " AND link.relation = 'shared_from' AND link.target = copy.source AND COALESCE(link.revision, 0) < :revision"
        " ORDER BY copy.memory LIMIT :limit",
        source=source,
        modes=tuple(modes),
        after=after,
        revision=revision,
        limit=limit,
    )
    return [memory for (memory,) in rows]


def with_copies(tx: Reading, sources: Sequence[str], *, modes: Sequence[str]) -> frozenset[str]:
    """Return those of the memories that copies follow so."""
    found: set[str] = set()
    for at in range(0, len(sources), _AT_A_TIME):
        rows = tx.rows(
            "SELECT DISTINCT source FROM copy WHERE source IN :sources AND mode IN :modes",
            sources=tuple(sources[at : at + _AT_A_TIME]),
            modes=tuple(modes),
        )
        found.update(source for (source,) in rows)
    return frozenset(found)


def copies_of(tx: Reading, sources: Sequence[str], *, limit: int) -> dict[str, str]:
    """Return the copies of these memories that still follow them, each with its source, at most so many."""
    found: dict[str, str] = {}
    for at in range(0, len(sources), _AT_A_TIME):
        rows = tx.rows(
            "SELECT memory, source FROM copy WHERE source IN :sources ORDER BY memory LIMIT :limit",
            sources=tuple(sources[at : at + _AT_A_TIME]),
            limit=limit - len(found),
        )
        found |= dict(rows)
    return found


def count(tx: Reading, spaces: SpaceScope) -> int:
    """Return how many memories of these spaces follow a source."""
    (count,) = tx.row("SELECT count(*) FROM copy WHERE space IN :spaces", spaces=tuple(spaces)) or (0,)
    return int(count)


def derive(tx: Transaction, space: str, memories: Sequence[Memory], *, after: str, last: bool) -> None:
    """Make the ties anew, for a run of a space's memories in the order of their ids."""
    tx.run(
        "DELETE FROM copy WHERE space = :space AND memory > :after AND memory <= :upto",
        space=space,
        after=after,
        upto="\U0010ffff" if last else memories[-1].id,
    )
    bind_all(tx, memories)


def bind_all(tx: Transaction, memories: Iterable[Memory]) -> None:
    """Tie all that are copies; where two are of one root in one space, the first is."""
    for memory in memories:
        if is_bound(memory):
            bind(tx, memory)
