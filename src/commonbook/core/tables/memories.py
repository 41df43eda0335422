"""Memories: the tables `memory`, `place` and `memory_tag`.

A row of `memory` is the current state of a memory, deleted or not, keyed by its space and id. A row of `place` says in
which space an id is. `memory_tag` has the tags of live memories only; it is derived for search, like the column
`digest`; the columns `content_hash` and `copy_hash` compare what memories say. `derive` can make all of these again,
with the rows that `links` derives from texts.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook import runtime
from commonbook.core.markdown import obsidian
from commonbook.core.tables import links
from commonbook.core.text import content_hashes
from commonbook.core.text import metadata as metadata_text
from commonbook.ports.database import Reading, RetryTransaction, Row, Transaction
from commonbook.values.ids import format_optional_time, format_time, parse_optional_time, parse_time
from commonbook.values.invalidation import Decision, Notice, SupersedeReason
from commonbook.values.memory import NO_METADATA, Filter
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredCopyInfo, StoredLink, StoredMemory

if TYPE_CHECKING:
    from commonbook.ports.keys import Keys


class _MemoryRow(NamedTuple):
    """A row of the table `memory`, as it is stored: the fields are the columns, in the order of every SELECT."""

    space: str
    id: str
    kind: str
    title: str
    text: str | bytes
    tags: str
    links: str
    author: str
    created: str
    updated: str
    importance: float | None
    occurred: str | None
    valid_from: str | None
    valid_until: str | None
    expires: str | None
    revision: int
    version: int
    revised_by: str
    revised_at: str
    revised_how: str
    path: str
    layout: str
    deleted: str | None
    session: str | None
    shared: str | None
    judged: str | None
    session_space: str | None
    content_hash: str
    copy_hash: str | None
    metadata: str | None


_NAMES: Final = _MemoryRow._fields
_COLUMNS: Final = ", ".join(_NAMES)
_SPACE: Final = _NAMES.index("space")
COLUMNS: Final = (*_NAMES, "digest")
"""Every column of the table, those of its key (space, id) first."""
_QUALIFIED: Final = ", ".join(f"memory.{name}" for name in _NAMES)
_WITHOUT_TEXT: Final = _QUALIFIED.replace("memory.text", "''").replace("memory.layout", "''")
_INSERT: Final = f"INSERT INTO memory ({_COLUMNS}, digest) VALUES ({', '.join(':' + name for name in _NAMES)}, :digest)"
_UPDATE: Final = (
    f"UPDATE memory SET {', '.join(f'{name} = :{name}' for name in _NAMES[2:])}, digest = :digest"
    " WHERE space = :space AND id = :id"
)
_IDS_PER_QUERY: Final = 1000


# --- writing


def lock(tx: Transaction, ids: Iterable[str]) -> set[str]:
    """Lock the rows of these memories until the transaction ends, and return their spaces.

    Rows are locked in the order of their ids, so that no two transactions wait for each other.
    """
    wanted = sorted(set(ids))
    if not wanted:
        return set()
    rows = tx.lock_rows(
        "SELECT id, space FROM memory WHERE (space, id) IN (SELECT space, id FROM place WHERE id IN :ids) ORDER BY id",
        ids=wanted,
    )
    locked: dict[str, str] = dict(rows)
    # A memory that moved into another space while we waited is another row there.
    if spaces_of(tx, sorted(set(wanted) - locked.keys())):
        raise RetryTransaction
    return set(locked.values())


def add(tx: Transaction, keys: Keys, memories: Iterable[StoredMemory]) -> list[StoredMemory]:
    """Add new memories; return them with the hashes of what they say."""
    added = [content_hashes.with_hashes(keys, memory) for memory in memories]
    places = [{"id": memory.id, "space": memory.space.id} for memory in added]
    tx.run_many("INSERT INTO place (id, space) VALUES (:id, :space)", places)
    tx.run_many(_INSERT, [_values(tx, memory) for memory in added])
    _add_derived(tx, added)
    return added


def replace(tx: Transaction, keys: Keys, old: StoredMemory, new: StoredMemory) -> None:
    """Replace the row of a memory and its derived rows; `old` is the memory as it is stored, in the same space."""
    # `run_many` returns no row count, which on PostgreSQL would cost a round trip.
    tx.run_many(_UPDATE, [_values(tx, content_hashes.with_hashes(keys, new))])
    _drop_derived(tx, old)
    if new.deleted is None:
        _add_derived(tx, [new])


def move(tx: Transaction, keys: Keys, old: StoredMemory, new: StoredMemory) -> None:
    """Move a memory from one space into another."""
    _drop_derived(tx, old)
    tx.run("DELETE FROM memory WHERE space = :space AND id = :id", space=old.space.id, id=old.id)
    tx.run("UPDATE place SET space = :space WHERE id = :id", space=new.space.id, id=new.id)
    tx.run(_INSERT, **_values(tx, content_hashes.with_hashes(keys, new)))
    if new.deleted is None:
        _add_derived(tx, [new])


def relocate(tx: Transaction, memory: StoredMemory, path: str) -> None:
    """Record another path for the file of a memory; the memory itself does not change."""
    space = memory.space.id
    tx.run("UPDATE memory SET path = :path WHERE space = :space AND id = :id", path=path, space=space, id=memory.id)
    links.drop_mentions(tx, memory)
    links.add_mentions(tx, [memory._replace(path=path)])


def rename_session_space(tx: Transaction, spaces: SpaceScope, old: str, new: str) -> list[StoredMemory]:
    """Give the episodes whose sessions are in another space the new name of that space; return the live ones."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM memory WHERE session_space = :old", old=old)
    tx.run("UPDATE memory SET session_space = :new WHERE session_space = :old", old=old, new=new)
    renamed = [_memory(row, spaces)._replace(session_space=new) for row in rows]
    return [memory for memory in renamed if memory.deleted is None]


def replace_hashes(tx: Transaction, keys: Keys, memories: Iterable[StoredMemory]) -> None:
    """Store the hashes of memories, their links and what makes them copies; nothing else changes."""
    rows = [_values(tx, content_hashes.with_hashes(keys, memory)) for memory in memories]
    names = ("links", "shared", "content_hash", "copy_hash")
    tx.run_many(
        f"UPDATE memory SET {', '.join(f'{name} = :{name}' for name in names)} WHERE space = :space AND id = :id",
        [{name: row[name] for name in ("space", "id", *names)} for row in rows],
    )


def derive(
    tx: Transaction, keys: Keys, space: str, memories: Sequence[StoredMemory], *, after: str, last: bool
) -> None:
    """Make all derived rows again for a batch of a space's memories, which come in the order of their ids."""
    upto = "\U0010ffff" if last else memories[-1].id
    where = "space = :space AND memory > :after AND memory <= :upto"
    tx.run(f"DELETE FROM memory_tag WHERE {where}", space=space, after=after, upto=upto)
    tx.run_many(
        "UPDATE memory SET digest = :digest WHERE space = :space AND id = :id",
        [{"digest": _digest(memory.text), "space": space, "id": memory.id} for memory in memories],
    )
    replace_hashes(tx, keys, memories)
    live = [memory for memory in memories if memory.deleted is None]
    _add_tags(tx, live)
    links.derive_mentions(tx, space, live, after=after, upto=upto)


def _drop_derived(tx: Transaction, memory: StoredMemory) -> None:
    row = {"space": memory.space.id, "memory": memory.id}
    tx.run_many("DELETE FROM memory_tag WHERE space = :space AND memory = :memory", [row])
    links.drop_mentions(tx, memory)


def _add_derived(tx: Transaction, memories: Sequence[StoredMemory]) -> None:
    """Add the tags, the names and the links in the texts of live memories."""
    _add_tags(tx, memories)
    links.add_mentions(tx, memories)


def _add_tags(tx: Transaction, memories: Iterable[StoredMemory]) -> None:
    tags = [
        {"space": memory.space.id, "tag": tag, "memory": memory.id}
        for memory in memories
        for tag in {*obsidian.tags_of(memory), *metadata_text.labels_of(memory.metadata)}
    ]
    if tags:
        tx.run_many("INSERT INTO memory_tag (space, tag, memory) VALUES (:space, :tag, :memory)", tags)


# --- reading


def find(tx: Reading, spaces: SpaceScope, memory_id: str) -> StoredMemory | None:
    """Return a memory of the given spaces, a deleted one too, or None."""
    (space,) = tx.row("SELECT space FROM place WHERE id = :id", id=memory_id) or (None,)
    if space is None or space not in spaces:
        return None
    row = tx.row(f"SELECT {_COLUMNS} FROM memory WHERE space = :space AND id = :id", space=space, id=memory_id)
    return _memory(row, spaces) if row else None


def find_same_text(tx: Reading, spaces: SpaceScope, text: str) -> str | None:
    """Return the oldest live memory of the given spaces with this text, or None; an empty text has no duplicate."""
    if not spaces or not text.strip():
        return None
    (oldest,) = tx.row(
        # Not ORDER BY with LIMIT: SQLite would then rather read all memories in the order of time.
        "SELECT min(created || ' ' || id) FROM memory WHERE space IN :spaces AND digest = :digest AND deleted IS NULL",
        spaces=tuple(spaces),
        digest=_digest(text),
    ) or (None,)
    return str(oldest).rpartition(" ")[2] if oldest else None


def _digest(text: str) -> str:
    """Return a hash of a text, without white space at its ends, by which equal texts are found."""
    return blake2b(text.strip().encode(), digest_size=16).hexdigest()


def exists(tx: Reading, memory_id: str) -> bool:
    """Tell whether the id is in use, by a deleted memory too, in any space."""
    return tx.row("SELECT 1 FROM place WHERE id = :id", id=memory_id) is not None


def spaces_of(tx: Reading, ids: Sequence[str]) -> dict[str, str]:
    """Return the space of each of these memories; unknown ids are left out."""
    return dict(tx.rows("SELECT id, space FROM place WHERE id IN :ids", ids=tuple(ids))) if ids else {}


def get_many(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> dict[str, StoredMemory]:
    """Return those of the memories that are in the given spaces, by id."""
    return _get_many(tx, spaces, ids, _QUALIFIED)


def get_headers(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> dict[str, StoredMemory]:
    """Return the same without texts and layouts, which can be long."""
    return _get_many(tx, spaces, ids, _WITHOUT_TEXT)


def get_headers_any_space(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> dict[str, StoredMemory]:
    """Return the same for memories of any space; `spaces` has all spaces that the transaction knows.

    RetryTransaction if a memory is in a space that was made since `spaces` was read.
    """
    headers: dict[str, StoredMemory] = {}
    for at in range(0, len(ids), _IDS_PER_QUERY):
        batch = ids[at : at + _IDS_PER_QUERY]
        known = get_headers(tx, spaces, batch)
        others = spaces_of(tx, sorted(set(batch) - known.keys()))
        if not spaces.keys() >= set(others.values()):
            raise RetryTransaction
        headers |= known
    return headers


def get_notices(tx: Reading, ids: Sequence[str]) -> dict[str, Notice]:
    """Return the contents of those of the memories that are notices and not deleted, in any space, by id."""
    sql = (
        "SELECT memory.id, judged FROM place CROSS JOIN memory WHERE place.id IN :ids AND memory.space = place.space"
        " AND memory.id = place.id AND deleted IS NULL AND judged IS NOT NULL"
    )
    batches = (tuple(ids[at : at + _IDS_PER_QUERY]) for at in range(0, len(ids), _IDS_PER_QUERY))
    rows = (row for batch in batches for row in tx.rows(sql, ids=batch))
    return {id_: notice for id_, judged in rows if (notice := load_notice(judged)) is not None}


def _get_many(tx: Reading, spaces: SpaceScope, ids: Sequence[str], columns: str) -> dict[str, StoredMemory]:
    if not ids or not spaces:
        return {}
    # By `place` first, or each id might be looked up in each of many spaces; CROSS JOIN fixes that order.
    tables = "place CROSS JOIN memory WHERE place.id IN :ids AND memory.space = place.space AND memory.id = place.id"
    if len(spaces) == 1:
        tables = "memory WHERE space IN :spaces AND id IN :ids"
    rows = tx.rows(f"SELECT {columns} FROM {tables}", ids=tuple(ids), spaces=tuple(spaces))
    readable = (_memory(row, spaces) for row in rows if row[_SPACE] in spaces)
    return {memory.id: memory for memory in readable}


def page(
    tx: Reading,
    spaces: SpaceScope,
    chosen: Filter,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    after: tuple[str, str] | None = None,
    limit: int,
) -> list[StoredMemory]:
    """Return the newest memories of the given spaces that match the filter, after a cursor (created, id)."""
    sql, params = _page_query(chosen, since=since, until=until, after=after)
    # One query for each space, which its index answers in order; then the rows of the memories on the page alone.
    rows = tx.rows_many(sql, [{"space": space, "limit": limit, **params} for space in spaces])
    newest = list(islice(heapq.merge(*rows, reverse=True), limit))
    ids_by_space: dict[str, list[str]] = {}
    for _, memory_id, space in newest:
        ids_by_space.setdefault(space, []).append(memory_id)
    by_id: dict[str, StoredMemory] = {}
    for space, ids in ids_by_space.items():
        by_id |= get_many(tx, {space: spaces[space]}, ids)
    return [by_id[memory_id] for _, memory_id, _ in newest]


def _page_query(
    chosen: Filter, *, since: datetime | None, until: datetime | None, after: tuple[str, str] | None
) -> tuple[str, dict[str, object]]:
    """Return the query for (created, id, space) of the newest memories of one space, and its parameters."""
    tables = "memory"
    conditions = ["memory.space = :space", "deleted IS NOT NULL" if chosen.deleted else "deleted IS NULL"]
    params: dict[str, object] = {}
    if chosen.kinds:
        conditions.append("kind IN :kinds")
        params["kinds"] = chosen.kinds
    # The time of an event is the one that it names, else the one at which it was written down.
    if since is not None:
        conditions.append("coalesce(occurred, created) >= :since")
        params["since"] = format_time(since)
    if until is not None:
        conditions.append("coalesce(occurred, created) <= :until")
        params["until"] = format_time(until)
    if after is not None:
        conditions.append("(created, id) < (:created, :id)")
        params["created"], params["id"] = after
    for at, tag in enumerate(chosen.tags):
        name = "tag_" + "abcdefghijklmnopqrstuvwxyz"[at % 26] * (at // 26 + 1)
        params[name] = tag
        if chosen.deleted:
            # The tags of a deleted memory are in its row alone, as JSON: the search is for the tag as JSON.
            conditions.append(f"replace(memory.tags, :{name}, '') <> memory.tags")
            params[name] = json.dumps(tag, ensure_ascii=False)
        elif at == 0:
            # CROSS JOIN fixes the order: the tag leads to its memories, however many others there are.
            tables = "memory_tag CROSS JOIN memory"
            conditions += ["memory_tag.space = :space", f"memory_tag.tag = :{name}", "memory.id = memory_tag.memory"]
        else:
            conditions.append(f"id IN (SELECT memory FROM memory_tag WHERE space = :space AND tag = :{name})")
    sql = (
        f"SELECT created, id, memory.space FROM {tables} WHERE {' AND '.join(conditions)}"
        " ORDER BY created DESC, id DESC LIMIT :limit"
    )
    return sql, params


def find_by_digits(tx: Reading, spaces: SpaceScope, part: str, *, limit: int) -> list[str]:
    """Return ids of live memories that begin or end with these digits; if there are none, of deleted ones."""
    if not spaces:
        return []
    for state in ("deleted IS NULL", "deleted IS NOT NULL"):
        ids: set[str] = set()
        for condition in ("place.id >= :part AND place.id < :beyond", "place.id LIKE :tail"):
            rows = tx.rows(
                f"SELECT place.id FROM place CROSS JOIN memory WHERE {condition} AND place.space IN :spaces"
                f" AND memory.space = place.space AND memory.id = place.id AND {state} ORDER BY place.id LIMIT :limit",
                part=part,
                # `g` sorts after every hexadecimal digit.
                beyond=part + "g",
                tail="%" + part,
                spaces=tuple(spaces),
                limit=limit,
            )
            ids.update(memory_id for (memory_id,) in rows)
        if ids:
            return sorted(ids)[:limit]
    return []


def in_space(tx: Reading, spaces: SpaceScope, space: str, *, after: str = "", limit: int = 500) -> list[StoredMemory]:
    """Return the memories of one space, deleted ones too, in the order of their ids."""
    sql = f"SELECT {_COLUMNS} FROM memory WHERE space = :space AND id > :after ORDER BY id LIMIT :limit"
    return [_memory(row, spaces) for row in tx.rows(sql, space=space, after=after, limit=limit)]


def counts(tx: Reading, spaces: SpaceScope) -> tuple[dict[str, int], int, int]:
    """Return the number of live memories by kind, of deleted memories, and of links of live memories."""
    kinds: dict[str, int] = {}
    deleted = links = 0
    rows = tx.rows(
        # The column is a JSON list of lists, one for each link, and no value in them has a bracket.
        "SELECT kind, deleted IS NULL, count(*), sum(length(links) - length(replace(links, '[', '')) - 1) FROM memory"
        " WHERE space IN :spaces GROUP BY kind, deleted IS NULL ORDER BY kind",
        spaces=tuple(spaces),
    )
    for kind, live, count, link_count in rows:
        if live:
            kinds[kind], links = count, links + link_count
        else:
            deleted += count
    return kinds, deleted, links


def at_path(tx: Reading, path: str, *, is_deleted: bool = False) -> str | None:
    """Return the id of the memory whose file belongs at this path, or of the one that was deleted last; or None."""
    state = "deleted IS NOT NULL ORDER BY deleted DESC" if is_deleted else "deleted IS NULL"
    ids = tx.rows(f"SELECT id FROM memory WHERE path = :path AND {state}", path=path)
    return next((str(memory_id) for (memory_id,) in ids), None)


# --- rows and values


def _values(tx: Transaction, memory: StoredMemory) -> dict[str, object]:
    links_ = [(link.relation, link.target, link.target_hash) for link in memory.links]
    return {
        "space": memory.space.id,
        "id": memory.id,
        "kind": memory.kind,
        "title": memory.title,
        "text": runtime.compress(memory.text) if tx.compresses_texts else memory.text,
        "tags": json.dumps(memory.tags, ensure_ascii=False) if memory.tags else "[]",
        "links": json.dumps(links_) if links_ else "[]",
        "author": memory.author,
        "created": format_time(memory.created),
        "updated": format_time(memory.updated),
        "importance": memory.importance,
        "occurred": format_optional_time(memory.occurred),
        "valid_from": format_optional_time(memory.valid_from),
        "valid_until": format_optional_time(memory.valid_until),
        "expires": format_optional_time(memory.expires),
        "revision": memory.revision,
        "version": memory.version,
        "revised_by": memory.revised_by,
        "revised_at": format_time(memory.revised_at),
        "revised_how": memory.revised_how,
        "path": memory.path,
        "layout": memory.layout,
        "digest": _digest(memory.text),
        "deleted": format_optional_time(memory.deleted),
        "session": memory.session,
        "shared": memory.shared.serialize() if memory.shared else None,
        "judged": dump(memory),
        "session_space": memory.session_space,
        "content_hash": memory.content_hash,
        "copy_hash": memory.copy_hash,
        "metadata": metadata_text.dump(memory.metadata),
    }


def _memory(row: Row, spaces: SpaceScope) -> StoredMemory:
    # Unpacked into locals: thousands of rows are read at once, and a named tuple would cost a tenth more.
    # `make lint` checks that these are the fields of `_MemoryRow`, in its order.
    (
        space, id_, kind, title, text, tags, links, author, created, updated, importance, occurred, valid_from,
        valid_until, expires, revision, version, revised_by, revised_at, revised_how, path, layout, deleted,
        session, shared, judged, session_space, content_hash, copy_hash, metadata,
    ) = row  # fmt: skip
    memory = StoredMemory(
        space=spaces[space],
        id=id_,
        kind=kind,
        title=title,
        text=runtime.decompress(text),
        tags=() if tags == "[]" else tuple(json.loads(tags)),
        links=() if links == "[]" else tuple(StoredLink(id_, *link) for link in json.loads(links)),
        author=author,
        created=parse_time(created),
        updated=parse_time(updated),
        importance=importance,
        occurred=parse_optional_time(occurred),
        valid_from=parse_optional_time(valid_from),
        valid_until=parse_optional_time(valid_until),
        expires=parse_optional_time(expires),
        revision=revision,
        version=version,
        revised_by=revised_by,
        revised_at=parse_time(revised_at),
        revised_how=revised_how,
        path=path,
        layout=layout,
        deleted=parse_optional_time(deleted),
        session=session,
        session_space=session_space,
        shared=StoredCopyInfo.parse(shared) if shared else None,
        content_hash=content_hash,
        copy_hash=copy_hash,
        metadata=NO_METADATA if metadata is None else metadata_text.load(metadata),
    )
    return memory if judged is None else load(memory, judged)


def cursor_position(memory: StoredMemory) -> tuple[str, str]:
    """Return the cursor position (created, id) after a memory of a page."""
    return format_time(memory.created), memory.id


def dump(memory: StoredMemory) -> str | None:
    """Return these parts of a memory as JSON; None if it has none, as most do."""
    if memory.notice is None and not (memory.decisions or memory.supersede_reasons or memory.message_lines):
        return None
    notice = [*memory.notice[:3], format_time(memory.notice.at)] if memory.notice else None
    decisions = [(*decision[:4], format_time(decision.at), decision.note) for decision in memory.decisions]
    return json.dumps([notice, decisions, memory.supersede_reasons, memory.message_lines], ensure_ascii=False)


def load(memory: StoredMemory, judged: str) -> StoredMemory:
    """Return a memory with what `dump` returned."""
    notice, decisions, reasons, lines = json.loads(judged)
    return memory._replace(
        notice=_notice(notice),
        decisions=tuple(
            Decision(verdict, invalidated, invalidating, by, parse_time(at), note)
            for verdict, invalidated, invalidating, by, at, note in decisions
        ),
        supersede_reasons=tuple(SupersedeReason(*reason) for reason in reasons),
        message_lines=tuple(lines),
    )


def load_notice(judged: str) -> Notice | None:
    """Return only the notice of what `dump` returned."""
    notice, *_ = json.loads(judged)
    return _notice(notice)


def _notice(fields: list[str] | None) -> Notice | None:
    if not fields:
        return None
    dependent, invalidated, invalidating, at = fields
    return Notice(dependent, invalidated, invalidating, parse_time(at))
