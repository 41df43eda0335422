"""The table `link`: a row is a link from one memory to another, with a relation and the target's content hash.

The table answers which links come in to a memory. It is derived: the links that go out from a memory are in its own row
and its file, so `derive` can make the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from commonbook.model.memory import RELATIONS, Link, Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading, Transaction

_IDS_PER_QUERY: Final = 1000


def incoming(
    tx: Reading, spaces: SpaceScope, targets: Sequence[str], *, relations: Sequence[str] = RELATIONS
) -> list[Link]:
    """Return the links to these targets from memories of the given spaces, by these relations."""
    return incoming_deferred(tx, spaces, targets, relations=relations)()


def incoming_deferred(
    tx: Reading, spaces: SpaceScope | None, targets: Sequence[str], *, relations: Sequence[str] = RELATIONS
) -> Callable[[], list[Link]]:
    """Send the query of `incoming`, for any space if none is given; call the result to read the links."""
    if not targets:
        return list
    # Links of all spaces are read and then filtered: there are few of them, and there may be hundreds of spaces.
    rows = tx.defer(
        "SELECT space, source, relation, target, target_hash FROM link"
        " WHERE target IN :targets AND relation IN :relations ORDER BY target, relation, source",
        targets=targets,
        relations=tuple(relations),
    )
    return lambda: [
        Link(source, relation, target, target_hash)
        for space, source, relation, target, target_hash in rows()
        if spaces is None or space in spaces
    ]


def incoming_any_space(tx: Reading, targets: Sequence[str], *, relations: Sequence[str]) -> list[Link]:
    """Return the links to these targets from any space; only for decisions that nobody is shown."""
    incoming: list[Link] = []
    for at in range(0, len(targets), _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT source, relation, target, target_hash FROM link"
            " WHERE target IN :targets AND relation IN :relations ORDER BY target, relation, source",
            targets=tuple(targets[at : at + _IDS_PER_QUERY]),
            relations=tuple(relations),
        )
        incoming += [Link(source, relation, target, target_hash) for source, relation, target, target_hash in rows]
    return incoming


# CROSS JOIN fixes the order: from a memory to its place, and from there to its links.
_TARGETS: Final = (
    " UNION SELECT link.target FROM reached CROSS JOIN place CROSS JOIN link WHERE place.id = reached.id"
    " AND link.space = place.space AND link.source = place.id AND link.relation IN :relations)"
)


def reachable(tx: Reading, ids: Sequence[str], *, relations: Sequence[str]) -> list[str]:
    """Return these memories and the targets of all chains of links from them, also of unknown targets, in any space."""
    reached: dict[str, None] = dict.fromkeys(ids)
    for at in range(0, len(ids), _IDS_PER_QUERY):
        batch = tuple(ids[at : at + _IDS_PER_QUERY])
        rows = tx.rows(
            f"WITH RECURSIVE reached (id) AS (SELECT id FROM place WHERE id IN :ids {_TARGETS} SELECT id FROM reached",
            ids=batch,
            relations=tuple(relations),
        )
        reached.update(dict.fromkeys(id_ for (id_,) in rows))
    return list(reached)


def any_reachable_is_invalid(tx: Reading, ids: Sequence[str], *, relations: Sequence[str]) -> bool:
    """Tell whether one of the same memories is deleted or unknown, or has a link `supersedes` to it.

    The links to the given memories are stored already.
    """
    row = tx.row(
        f"WITH RECURSIVE reached (id) AS (SELECT target FROM link WHERE target IN :ids {_TARGETS}"
        " SELECT 1 FROM reached WHERE EXISTS (SELECT 1 FROM link WHERE link.target = reached.id"
        " AND link.relation = 'supersedes') OR NOT EXISTS (SELECT 1 FROM place CROSS JOIN memory"
        " WHERE place.id = reached.id AND memory.space = place.space AND memory.id = place.id"
        " AND memory.deleted IS NULL) LIMIT 1",
        ids=tuple(ids),
        relations=tuple(relations),
    )
    return row is not None


def reaching(tx: Reading, ids: Sequence[str], *, relations: Sequence[str]) -> list[Link]:
    """Return all links of these relations on the chains of links that lead to these memories, from any space."""
    rows = tx.rows(
        "WITH RECURSIVE reached (id) AS ("
        " SELECT target FROM link WHERE target IN :ids AND relation IN :relations"
        " UNION SELECT link.source FROM reached CROSS JOIN link"
        " WHERE link.target = reached.id AND link.relation IN :relations)"
        " SELECT link.source, link.relation, link.target, link.target_hash FROM reached CROSS JOIN link"
        " WHERE link.target = reached.id AND link.relation IN :relations"
        " ORDER BY link.target, link.relation, link.source",
        ids=tuple(ids),
        relations=tuple(relations),
    )
    return [Link(source, relation, target, target_hash) for source, relation, target, target_hash in rows]


def add(tx: Transaction, space: str, links: Iterable[Link]) -> None:
    """Add links from memories of one space; an existing link keeps its hash."""
    tx.run_many(
        "INSERT INTO link (space, source, relation, target, target_hash)"
        " VALUES (:space, :source, :relation, :target, :target_hash) ON CONFLICT DO NOTHING",
        [
            {
                "space": space,
                "source": link.source,
                "relation": link.relation,
                "target": link.target,
                "target_hash": link.target_hash,
            }
            for link in links
        ],
    )


def replace(tx: Transaction, space: str, memory: Memory) -> None:
    """Replace the links of a memory, which was in this space, by those that it names now."""
    tx.run_many("DELETE FROM link WHERE space = :space AND source = :source", [{"space": space, "source": memory.id}])
    add(tx, memory.space.id, memory.links)


def derive(tx: Transaction, space: str, memories: Sequence[Memory], *, after: str, last: bool) -> None:
    """Make the rows again for a batch of a space's memories, which come in the order of their ids."""
    tx.run(
        "DELETE FROM link WHERE space = :space AND source > :after AND source <= :upto",
        space=space,
        after=after,
        upto="\U0010ffff" if last else memories[-1].id,
    )
    add(tx, space, [link for memory in memories for link in memory.links])
