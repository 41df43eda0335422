"""Sharing rules: the tables `rule`, `rule_taken` and `rule_waiting`.

A row of `rule` says which memories of a source space are shared into a space, in the name of the rule's creator. A row
of `rule_taken` says that a rule has shared a root memory, or requested it: each rule does so once for each root. A row
of `rule_waiting` is a memory in the queue of those that no rule has been applied to yet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.values.ids import format_time, parse_time
from commonbook.values.memory import Refresh
from commonbook.values.sharing import SharingRule
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredMemory


class _RuleRow(NamedTuple):
    """A row of the table `rule`: the fields are the columns, in the order of every SELECT."""

    space: str
    id: str
    source: str
    maker: str
    kinds: str
    tags: str
    importance: float | None
    approval: int
    refresh: Refresh
    created: str


_COLUMNS: Final = ", ".join(_RuleRow._fields)


def add(tx: Transaction, rule: SharingRule) -> None:
    """Add a rule."""
    tx.run(
        f"INSERT INTO rule ({_COLUMNS}) VALUES (:space, :id, :source, :maker, :kinds, :tags, :importance, :approval,"
        " :refresh, :created)",
        space=rule.space.id,
        id=rule.id,
        source=rule.source.id,
        maker=rule.created_by,
        kinds=json.dumps(rule.kinds),
        tags=json.dumps(rule.tags, ensure_ascii=False),
        importance=rule.importance,
        approval=int(rule.approval),
        refresh=rule.refresh,
        created=format_time(rule.created),
    )


def remove(tx: Transaction, rule: SharingRule) -> bool:
    """Delete a rule and the record of what it has shared; tell whether it was there."""
    tx.run("DELETE FROM rule_taken WHERE space = :space AND rule = :rule", space=rule.space.id, rule=rule.id)
    return bool(tx.run("DELETE FROM rule WHERE space = :space AND id = :id", space=rule.space.id, id=rule.id))


def between(tx: Reading, spaces: SpaceScope) -> list[SharingRule]:
    """Return all rules, by the names of their spaces, then the oldest first; `spaces` has all spaces."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM rule ORDER BY id")
    rules = [_rule(row, spaces) for row in map(_RuleRow._make, rows)]
    return sorted(rules, key=lambda rule: (rule.space.name, rule.source.name, rule.id))


def find(tx: Reading, spaces: SpaceScope, rule_id: str) -> SharingRule | None:
    """Return a rule by its id, or None."""
    columns = tx.row(f"SELECT {_COLUMNS} FROM rule WHERE id = :id", id=rule_id)
    row = _RuleRow._make(columns) if columns else None
    return _rule(row, spaces) if row and row.space in spaces and row.source in spaces else None


def count(tx: Reading, space: str) -> int:
    """Return how many rules share into a space."""
    (count,) = tx.row("SELECT count(*) FROM rule WHERE space = :space", space=space) or (0,)
    return int(count)


def from_sources(tx: Reading, spaces: SpaceScope, sources: Collection[str]) -> list[SharingRule]:
    """Return the rules that share from these source spaces, the oldest first."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM rule WHERE source IN :sources ORDER BY id",
        sources=tuple(sorted(sources)),
    )
    return [_rule(row, spaces) for row in map(_RuleRow._make, rows) if row.space in spaces]


def matches(rule: SharingRule, memory: StoredMemory) -> bool:
    """Tell whether a rule applies to a memory, by its space, kind, importance and all of the rule's tags."""
    if memory.space.id != rule.source.id or memory.deleted is not None or memory.kind == "notice":
        return False
    if rule.kinds and memory.kind not in rule.kinds:
        return False
    if rule.importance is not None and (memory.importance is None or memory.importance < rule.importance):
        return False
    return set(rule.tags) <= set(memory.tags)


# --- what rules have shared


def has_applied(tx: Reading, rule: SharingRule, root: str) -> bool:
    """Tell whether a rule has shared this root, or requested it; it does so once, even if the copy is deleted."""
    row = tx.row(
        "SELECT 1 FROM rule_taken WHERE space = :space AND rule = :rule AND root = :root",
        space=rule.space.id,
        rule=rule.id,
        root=root,
    )
    return row is not None


def note_applied(tx: Transaction, rule: SharingRule, root: str) -> None:
    """Record that a rule has shared this root, or requested it."""
    tx.run(
        "INSERT INTO rule_taken (space, rule, root) VALUES (:space, :rule, :root) ON CONFLICT DO NOTHING",
        space=rule.space.id,
        rule=rule.id,
        root=root,
    )


# --- the queue of memories that no rule was applied to yet


def enqueue(tx: Transaction, space: str, written: Mapping[str, str]) -> None:
    """Queue memories, each with its writer, that were too many for the transaction that wrote them."""
    tx.run_many(
        "INSERT INTO rule_waiting (space, memory, asked_by) VALUES (:space, :memory, :asked_by)"
        " ON CONFLICT (space, memory) DO UPDATE SET asked_by = excluded.asked_by",
        [{"space": space, "memory": memory, "asked_by": asked_by} for memory, asked_by in sorted(written.items())],
    )


def dequeue(tx: Transaction, space: str, *, limit: int) -> dict[str, str]:
    """Remove up to `limit` memories from the queue, in the order of their ids, and return each with its writer."""
    rows = tx.lock_rows(
        "SELECT memory, asked_by FROM rule_waiting WHERE space = :space ORDER BY memory LIMIT :limit",
        space=space,
        limit=limit,
    )
    writers: dict[str, str] = dict(rows)
    if writers:
        tx.run(
            "DELETE FROM rule_waiting WHERE space = :space AND memory IN :memories",
            space=space,
            memories=tuple(writers),
        )
    return writers


def _rule(row: _RuleRow, spaces: SpaceScope) -> SharingRule:
    return SharingRule(
        space=spaces[row.space],
        id=row.id,
        source=spaces[row.source],
        created_by=row.maker,
        kinds=tuple(json.loads(row.kinds)),
        tags=tuple(json.loads(row.tags)),
        importance=row.importance,
        approval=bool(row.approval),
        refresh=row.refresh,
        created=parse_time(row.created),
    )
