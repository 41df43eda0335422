"""Links between memories, found from their target: what each memory itself names is in its row and its file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from commonbook.model.memory import RELATIONS, Link, Memory
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading, Transaction

_AT_A_TIME: Final = 1000


def incoming(
    tx: Reading, spaces: SpaceScope, targets: Sequence[str], *, relations: Sequence[str] = RELATIONS
) -> list[Link]:
    """Return the links that come in from memories of the given spaces, by these relations."""
    return incoming_deferred(tx, spaces, targets, relations=relations)()


def incoming_deferred(
    tx: Reading, spaces: SpaceScope, targets: Sequence[str], *, relations: Sequence[str] = RELATIONS
) -> Callable[[], list[Link]]:
    """Ask for the links that come `incoming`, and return what waits for them."""
    if not targets:
        return list
    # Of every space, and only then those that count: mostly there are few, and of spaces there may be hundreds.
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
    """Return the links that come in by these relations from any space, for what nobody is shown."""
    found: list[Link] = []
    for at in range(0, len(targets), _AT_A_TIME):
        rows = tx.rows(
            "SELECT source, relation, target, revision FROM link"
            " WHERE target IN :targets AND relation IN :relations ORDER BY target, relation, source",
            targets=tuple(targets[at : at + _AT_A_TIME]),
            relations=tuple(relations),
        )
        found += [Link(source, relation, target, revision) for source, relation, target, revision in rows]
    return found


def add(tx: Transaction, space: str, links: Iterable[Link]) -> None:
    """Add links that go out from memories of one space; one that is there keeps its revision."""
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
    """Let exactly the links that a memory names go out from it, and from its new space alone."""
    tx.run_many("DELETE FROM link WHERE space = :space AND source = :source", [{"space": space, "source": memory.id}])
    add(tx, memory.space.id, memory.links)


def derive(tx: Transaction, space: str, memories: Sequence[Memory], *, after: str, last: bool) -> None:
    """Make the links anew, for a run of a space's memories in the order of their ids."""
    tx.run(
        "DELETE FROM link WHERE space = :space AND source > :after AND source <= :upto",
        space=space,
        after=after,
        upto="\U0010ffff" if last else memories[-1].id,
    )
    add(tx, space, [link for memory in memories for link in memory.links])
