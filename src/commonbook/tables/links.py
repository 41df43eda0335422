"""The table `link`: a row is a link from one memory to another, with a relation and the target's revision.

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
    tx: Reading, spaces: SpaceScope, targets: Sequence[str], *, relations: Sequence[str] = RELATIONS
) -> Callable[[], list[Link]]:
    """Send the query of `incoming`; call the result to read the links."""
    if not targets:
        return list
    # Links of all spaces are read and then filtered: there are few of them, and there may be hundreds of spaces.
    rows = tx.defer(
        "SELECT space, source, relation, target, revision FROM link"
        " WHERE target IN :targets AND relation IN :relations ORDER BY target, relation, source",
        targets=targets,
        relations=tuple(relations),
    )
    return lambda: [
        Link(source, relation, target, revision)
        for space, source, relation, target, revision in rows()
        if space in spaces
    ]


def incoming_any_space(tx: Reading, targets: Sequence[str], *, relations: Sequence[str]) -> list[Link]:
    """Return the links to these targets from any space; only for decisions that nobody is shown."""
    incoming: list[Link] = []
    for at in range(0, len(targets), _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT source, relation, target, revision FROM link"
            " WHERE target IN :targets AND relation IN :relations ORDER BY target, relation, source",
            targets=tuple(targets[at : at + _IDS_PER_QUERY]),
            relations=tuple(relations),
        )
        incoming += [Link(source, relation, target, revision) for source, relation, target, revision in rows]
    return incoming


def add(tx: Transaction, space: str, links: Iterable[Link]) -> None:
    """Add links from memories of one space; an existing link keeps its revision."""
    tx.run_many(
        "INSERT INTO link (space, source, relation, target, revision)"
        " VALUES (:space, :source, :relation, :target, :revision) ON CONFLICT DO NOTHING",
        [
            {
                "space": space,
                "source": link.source,
                "relation": link.relation,
                "target": link.target,
                "revision": link.revision,
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
