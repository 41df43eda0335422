"""The tables `link`, `mention` and `memory_name`: links between memories, set by verbs or standing in their texts.

A row of `link` is a link from one memory to another, with a relation and the target's content hash. A row of `mention`
is a link in the text of a memory, `[[like this]]`: the name of a note, whether there is such a note or not. A row of
`memory_name` is a name by which such links find a memory of the same space. All are derived: the links that go out from
a memory are in its own row and its file, so that `derive` and `derive_mentions` can make the rows again. There is no
index of names by memory: the names follow from the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from commonbook.core.markdown import obsidian
from commonbook.ports.database import Reading, Transaction
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredLink, StoredMemory

_IDS_PER_QUERY: Final = 1000
_FIRST_SEARCH: Final = 64
"""A search from both ends reads so many memories on each side before it reads more."""
_SEARCH_GROWTH: Final = 4


def incoming(tx: Reading, spaces: SpaceScope, target: str) -> list[StoredLink]:
    """Return the links to a memory from memories of the given spaces, by any relation."""
    # Links of all spaces are read and then filtered: there are few of them, and there may be hundreds of spaces.
    rows = tx.rows(
        "SELECT space, source, relation, target, target_hash FROM link WHERE target = :target"
        " ORDER BY relation, source",
        target=target,
    )
    return [StoredLink(*link) for space, *link in rows if space in spaces]


def _by_relation(relations: Sequence[str] | None) -> str:
    return "" if relations is None else " AND relation IN :relations"


def incoming_any_space(tx: Reading, targets: Sequence[str], *, relations: Sequence[str] | None) -> list[StoredLink]:
    """Return the links to these targets from any space, by these relations or by any.

    Only for decisions that nobody is shown.
    """
    incoming: list[StoredLink] = []
    for at in range(0, len(targets), _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT source, relation, target, target_hash FROM link"
            f" WHERE target IN :targets{_by_relation(relations)} ORDER BY target, relation, source",
            targets=tuple(targets[at : at + _IDS_PER_QUERY]),
            **({} if relations is None else {"relations": tuple(relations)}),
        )
        incoming += [
            StoredLink(source, relation, target, target_hash) for source, relation, target, target_hash in rows
        ]
    return incoming


# CROSS JOIN fixes the order: from a memory to its place, and from there to its links. `coalesce` has all links of a
# memory read and then filtered: there are few of them, and one search is faster than one for each relation.
_TO_LINKS: Final = (
    " FROM reached CROSS JOIN place CROSS JOIN link WHERE place.id = reached.id"
    " AND link.space = place.space AND link.source = place.id AND coalesce(link.relation, '') IN :relations"
)


def reachable(tx: Reading, ids: Sequence[str], *, relations: Sequence[str]) -> list[str]:
    """Return these memories and the targets of all chains of links from them, also of unknown targets, in any space."""
    reached: dict[str, None] = dict.fromkeys(ids)
    for at in range(0, len(ids), _IDS_PER_QUERY):
        batch = tuple(ids[at : at + _IDS_PER_QUERY])
        rows = tx.rows(
            "WITH RECURSIVE reached (id) AS (SELECT id FROM place WHERE id IN :ids"
            f" UNION SELECT link.target {_TO_LINKS}) SELECT id FROM reached",
            ids=batch,
            relations=tuple(relations),
        )
        reached.update(dict.fromkeys(id_ for (id_,) in rows))
    return list(reached)


def may_reach(tx: Reading, ids: Sequence[str], target: str, *, relations: Sequence[str]) -> bool:
    """Tell whether a chain of these links leads from one of some memories to another, or is one of them.

    It is searched from both ends in turn, so that it costs as much as the smaller side: a new memory at the end of a
    long chain has nothing behind it.
    """
    limit = _FIRST_SEARCH
    while True:
        behind = _first_sources(tx, target, relations=relations, limit=limit)
        if len(behind) < limit or not behind.isdisjoint(ids):
            return not behind.isdisjoint(ids)
        ahead = _first_targets(tx, ids, relations=relations, limit=limit)
        if len(ahead) < limit or target in ahead:
            return target in ahead
        limit *= _SEARCH_GROWTH


def _first_sources(tx: Reading, target: str, *, relations: Sequence[str], limit: int) -> set[str]:
    """Return a memory and the sources of the chains of links that lead to it, at most `limit`."""
    rows = tx.rows(
        "WITH RECURSIVE reached (id) AS (SELECT target FROM link WHERE target = :target"
        " UNION SELECT link.source FROM reached CROSS JOIN link"
        " WHERE link.target = reached.id AND link.relation IN :relations) SELECT id FROM reached LIMIT :limit",
        target=target,
        relations=tuple(relations),
        limit=limit,
    )
    return {target, *(id_ for (id_,) in rows)}


def _first_targets(tx: Reading, ids: Sequence[str], *, relations: Sequence[str], limit: int) -> set[str]:
    """Return some memories and the targets of all chains of links from them, at most `limit` of these."""
    rows = tx.rows(
        "WITH RECURSIVE reached (id) AS (SELECT id FROM place WHERE id IN :ids"
        f" UNION SELECT link.target {_TO_LINKS}) SELECT id FROM reached LIMIT :limit",
        ids=tuple(ids),
        relations=tuple(relations),
        limit=limit,
    )
    return {*ids, *(id_ for (id_,) in rows)}


def has_chain_with(tx: Reading, ids: Sequence[str], *, counted: str, count: int, relations: Sequence[str]) -> bool:
    """Tell whether a chain of these links, from one of some memories, has so many links of the relation `counted`."""
    row = tx.row(
        "WITH RECURSIVE reached (id, depth) AS (SELECT id, 0 FROM place WHERE id IN :ids UNION SELECT link.target,"
        f" reached.depth + CASE WHEN link.relation = :counted THEN 1 ELSE 0 END {_TO_LINKS} AND reached.depth < :count)"
        " SELECT 1 FROM reached WHERE depth >= :count LIMIT 1",
        ids=tuple(ids),
        counted=counted,
        count=count,
        relations=tuple(relations),
    )
    return row is not None


def reaching(tx: Reading, ids: Sequence[str], *, relations: Sequence[str]) -> list[StoredLink]:
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
    return [StoredLink(source, relation, target, target_hash) for source, relation, target, target_hash in rows]


def add(tx: Transaction, space: str, links: Iterable[StoredLink]) -> None:
    """Add links from memories of one space; an existing link keeps its hash."""
    rows = [
        {
            "space": space,
            "source": link.source,
            "relation": link.relation,
            "target": link.target,
            "target_hash": link.target_hash,
        }
        for link in links
    ]
    if rows:
        tx.run_many(
            "INSERT INTO link (space, source, relation, target, target_hash)"
            " VALUES (:space, :source, :relation, :target, :target_hash) ON CONFLICT DO NOTHING",
            rows,
        )


def replace(tx: Transaction, space: str, memory: StoredMemory) -> None:
    """Replace the links of a memory, which was in this space, by those that it names now."""
    tx.run_many("DELETE FROM link WHERE space = :space AND source = :source", [{"space": space, "source": memory.id}])
    add(tx, memory.space.id, memory.links)


def derive(tx: Transaction, space: str, memories: Sequence[StoredMemory], *, after: str, last: bool) -> None:
    """Make the rows again for a batch of a space's memories, which come in the order of their ids."""
    tx.run(
        "DELETE FROM link WHERE space = :space AND source > :after AND source <= :upto",
        space=space,
        after=after,
        upto="\U0010ffff" if last else memories[-1].id,
    )
    add(tx, space, [link for memory in memories for link in memory.links])


# --- links in texts


def add_mentions(tx: Transaction, memories: Iterable[StoredMemory]) -> None:
    """Add the names of live memories, and the links in their texts."""
    names, mentions = [], []
    for memory in memories:
        names += _name_rows(memory)
        row = {"space": memory.space.id, "memory": memory.id}
        mentions += [{**row, "name": name.rpartition("/")[2], "target": name} for name in obsidian.mentions_of(memory)]
    if names:
        tx.run_many(
            # While they are derived again, another process may have added those of a memory that it changed.
            "INSERT INTO memory_name (space, name, memory) VALUES (:space, :name, :memory) ON CONFLICT DO NOTHING",
            names,
        )
    if mentions:
        tx.run_many(
            "INSERT INTO mention (space, name, target, memory) VALUES (:space, :name, :target, :memory)", mentions
        )


def drop_mentions(tx: Transaction, memory: StoredMemory) -> None:
    """Drop the names of a memory and the links in its text; it is given as it was when they were added."""
    if names := _name_rows(memory):
        tx.run_many("DELETE FROM memory_name WHERE space = :space AND name = :name AND memory = :memory", names)
    tx.run_many(
        "DELETE FROM mention WHERE space = :space AND memory = :memory",
        [{"space": memory.space.id, "memory": memory.id}],
    )


def _name_rows(memory: StoredMemory) -> list[dict[str, object]]:
    return [{"space": memory.space.id, "name": name, "memory": memory.id} for name in obsidian.names_of(memory)]


def derive_mentions(tx: Transaction, space: str, memories: Iterable[StoredMemory], *, after: str, upto: str) -> None:
    """Make the same rows again for a batch of a space's live memories, whose ids are in this range.

    The first batch drops the names of all.
    """
    if not after:
        tx.run("DELETE FROM memory_name WHERE space = :space", space=space)
    tx.run(
        "DELETE FROM mention WHERE space = :space AND memory > :after AND memory <= :upto",
        space=space,
        after=after,
        upto=upto,
    )
    add_mentions(tx, memories)


def mentioned_by(tx: Reading, memory: StoredMemory) -> list[str]:
    """Return the memories of the same space that the text of a memory links to, in the order of the text."""
    targets = obsidian.mentions_of(memory)
    found = _resolve(tx, memory.space.id, [(target, memory.path) for target in targets])
    ids = (found.get((target, memory.path)) for target in targets)
    return list(dict.fromkeys(id_ for id_ in ids if id_ not in (None, memory.id)))


def mentioning(tx: Reading, memory: StoredMemory) -> list[str]:
    """Return the live memories of the same space whose texts link to a memory."""
    names = {*obsidian.names_of(memory), obsidian.fold(obsidian.file_stem(memory.path))}
    rows = tx.rows(
        "SELECT DISTINCT mention.target, memory.path, memory.id FROM mention"
        " JOIN memory ON memory.space = mention.space AND memory.id = mention.memory"
        " WHERE mention.space = :space AND mention.name IN :names ORDER BY memory.id",
        space=memory.space.id,
        names=tuple(sorted({name.rpartition("/")[2] for name in names})),
    )
    found = _resolve(tx, memory.space.id, [(target, path) for target, path, _ in rows])
    ids = (id_ for target, path, id_ in rows if found.get((target, path)) == memory.id)
    return [id_ for id_ in dict.fromkeys(ids) if id_ != memory.id]


def count_linking(
    tx: Reading, spaces: Collection[str], targets: Sequence[StoredMemory], *, relations: Sequence[str]
) -> dict[str, int]:
    """Return how many live memories of these spaces link to each of these, by these relations or in their texts.

    Notices do not count. A name in a text counts for one of the memories that have it, without a look at their paths.
    """
    names = {(memory.space.id, name): memory.id for memory in targets for name in obsidian.names_of(memory)}
    rows = tx.rows(
        "SELECT link.space, link.target AS name, link.source, 1 AS by_id FROM link"
        " JOIN memory ON memory.space = link.space AND memory.id = link.source"
        " WHERE link.space IN :spaces AND link.target IN :targets AND link.relation IN :relations"
        " AND memory.kind <> 'notice' AND memory.deleted IS NULL"
        " UNION ALL"
        " SELECT space, name, memory, 0 FROM mention WHERE space IN :named AND name IN :names",
        spaces=tuple(sorted(spaces)),
        targets=tuple(memory.id for memory in targets),
        relations=tuple(relations),
        named=tuple(sorted({space for space, _ in names})),
        names=tuple(sorted({name for _, name in names})),
    )
    pairs = {
        (target, source)
        for space, name, source, by_id in rows
        if (target := name if by_id else names.get((space, name))) is not None
    }
    return Counter(target for target, source in pairs if target != source)


def _resolve(tx: Reading, space: str, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the memory that each link means, by its target and the path of the file that has it."""
    if not wanted:
        return {}
    named = _named(tx, space, {name for target, _ in wanted for name in (target, target.rpartition("/")[2])})
    resolved: dict[tuple[str, str], str] = {}
    for target, origin in wanted:
        by_path = named.get(target.rpartition("/")[2], {})
        path = obsidian.nearest(target, origin=origin, paths=by_path)
        if path is None and "/" in target:
            # Not the path of a file, but a name with slashes, such as a permalink.
            by_path = named.get(target, {})
            path = obsidian.closest(by_path, origin=origin)
        if path is not None:
            resolved[target, origin] = by_path[path]
    return resolved


def _named(tx: Reading, space: str, names: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the memories that have each name, by path.

    A file's own name counts before a title, and a title before an alias, as in Obsidian.
    """
    by_rank: dict[str, dict[int, dict[str, str]]] = {}
    rows = tx.rows(
        "SELECT memory_name.name, memory.title, memory.path, memory.id FROM memory_name"
        " JOIN memory ON memory.space = memory_name.space AND memory.id = memory_name.memory"
        " WHERE memory_name.space = :space AND memory_name.name IN :names",
        space=space,
        names=tuple(sorted(names)),
    )
    for name, title, path, id_ in rows:
        ranked = (obsidian.fold(obsidian.file_stem(path)), obsidian.fold(title), name)
        by_rank.setdefault(name, {}).setdefault(ranked.index(name), {})[path] = id_
    for name in names:
        ending = obsidian.id_digits(name)
        if ending is not None:
            by_rank.setdefault(name, {}).setdefault(0, {}).update(_with_digits(tx, space, ending))
    return {name: ranks[min(ranks)] for name, ranks in by_rank.items()}


def named_in_spaces(tx: Reading, spaces: Iterable[str], name: str) -> dict[str, str]:
    """Return the memories of these spaces that a name means, by path: one of a file, with folders or not, or a title.

    In all spaces together, a file's own name counts before a title, and a title before an alias.
    """
    wanted = obsidian.fold(name.strip().strip("/").removesuffix(".md"))
    last = wanted.rpartition("/")[2]
    rows = tx.rows(
        "SELECT memory_name.name, memory.title, memory.path, memory.id FROM memory_name"
        " JOIN memory ON memory.space = memory_name.space AND memory.id = memory_name.memory"
        " WHERE memory_name.space IN :spaces AND memory_name.name IN :names",
        spaces=tuple(spaces),
        names=tuple(sorted({wanted, last})),
    )
    by_rank: dict[int, dict[str, str]] = {}
    for found, title, path, id_ in rows:
        place = obsidian.fold(path).removesuffix(".md")
        if found == wanted or f"/{place}".endswith(f"/{wanted}"):
            ranked = (obsidian.fold(obsidian.file_stem(path)), obsidian.fold(title), found)
            by_rank.setdefault(ranked.index(found), {})[path] = id_
    return by_rank[min(by_rank)] if by_rank else {}


def _with_digits(tx: Reading, space: str, ending: str) -> dict[str, str]:
    """Return the live memories of a space whose ids end in these digits, by path."""
    rows = tx.rows(
        "SELECT path, id FROM memory WHERE space = :space AND id LIKE :ending AND deleted IS NULL",
        space=space,
        ending=f"%{ending}",
    )
    return dict(rows)
