"""The table `prompt_use`: a row is a passage of a memory or of a message that was put into a turn of a session.

The row is in the space of the session. `seq` is the number of the message that the passage went with, and `item` the id
of the memory or message that it is from. Rows are only added: the book alone has them, no file does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.runtime import in_batches
from commonbook.values.ids import format_time, parse_time
from commonbook.values.session import PromptPassage, PromptUse, Session
from commonbook.values.spaces import SpaceScope

_ITEMS_PER_QUERY: Final = 500


class _UseRow(NamedTuple):
    """A row of the table `prompt_use`: the fields are the columns, in the order of every SELECT."""

    space: str
    session: str
    seq: int
    item: str
    hash: str
    revision: int | None
    at: str
    principal: str


_COLUMNS: Final = ", ".join(_UseRow._fields)


def add(tx: Transaction, session: Session, seq: int, passages: Iterable[PromptPassage], *, by: str) -> int:
    """Store the passages that went with a message; return how many are new."""
    added = 0
    for passage in passages:
        added += tx.run(
            f"INSERT INTO prompt_use ({_COLUMNS})"
            " VALUES (:space, :session, :seq, :item, :hash, :revision, :at, :principal) ON CONFLICT DO NOTHING",
            space=session.space.id,
            session=session.id,
            seq=seq,
            item=passage.id,
            hash=passage.hash,
            revision=passage.revision,
            at=format_time(tx.now),
            principal=by,
        )
    return added


def move(tx: Transaction, session: Session, to: str) -> None:
    """Move the uses in a session into another space, along with the session."""
    tx.run(
        "UPDATE prompt_use SET space = :to WHERE space = :space AND session = :session",
        to=to,
        space=session.space.id,
        session=session.id,
    )


def of_items(tx: Reading, spaces: SpaceScope, items: Sequence[str], *, limit: int) -> list[PromptUse]:
    """Return the newest uses of these memories and messages in sessions of the given spaces."""
    if not spaces:
        return []
    found: list[_UseRow] = []
    for batch in in_batches(items, _ITEMS_PER_QUERY):
        rows = tx.rows(
            f"SELECT {_COLUMNS} FROM prompt_use WHERE space IN :spaces AND item IN :items"
            " ORDER BY at DESC, session, seq DESC, item LIMIT :limit",
            spaces=tuple(spaces),
            items=batch,
            limit=limit,
        )
        found += map(_UseRow._make, rows)
    newest = sorted(found, key=lambda row: row.at, reverse=True)
    return [_use(row, spaces) for row in newest[:limit]]


def of_session(tx: Reading, session: Session, *, first: int, last: int) -> list[PromptUse]:
    """Return the uses in a session that went with the messages between two numbers, in order."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM prompt_use WHERE space = :space AND session = :session"
        " AND seq BETWEEN :first AND :last ORDER BY seq, at, item",
        space=session.space.id,
        session=session.id,
        first=first,
        last=last,
    )
    return [_use(row, {session.space.id: session.space}) for row in map(_UseRow._make, rows)]


def _use(row: _UseRow, spaces: SpaceScope) -> PromptUse:
    return PromptUse(
        session=row.session,
        space=spaces[row.space].name,
        seq=row.seq,
        id=row.item,
        hash=row.hash,
        revision=row.revision,
        at=parse_time(row.at),
        by=row.principal,
    )
