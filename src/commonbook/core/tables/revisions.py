"""The table `revision`: a row is the title and text that a memory had before a later revision replaced them.

The current title and text are in the table `memory` alone. A past revision never changes. `written_in` is the space
that the memory was in when it had the title and text last: `subjects.memories.history` decides by it who may read them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.runtime import compress, decompress
from commonbook.values.ids import format_time, parse_time
from commonbook.values.memory import Revision
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredMemory


class _RevisionRow(NamedTuple):
    """The columns of the table `revision` that are read: the fields, in the order of the SELECT."""

    revision: int
    title: str
    text: str | bytes
    author: str
    at: str
    how: str
    written_in: str


_COLUMNS: Final = ", ".join(_RevisionRow._fields)


def archive(tx: Transaction, memory: StoredMemory) -> None:
    """Store the current title and text of a memory as a past revision, before they are replaced."""
    add(
        tx,
        memory,
        Revision(
            revision=memory.revision,
            title=memory.title,
            text=memory.text,
            author=memory.revised_by,
            at=memory.revised_at,
            how=memory.revised_how,
        ),
    )


def add(tx: Transaction, memory: StoredMemory, revision: Revision) -> None:
    """Store one past revision of a memory."""
    tx.run_many(
        "INSERT INTO revision (space, memory, revision, title, text, author, at, how, written_in)"
        " VALUES (:space, :memory, :revision, :title, :text, :author, :at, :how, :space)",
        [
            {
                "space": memory.space.id,
                "memory": memory.id,
                "revision": revision.revision,
                "title": revision.title,
                "text": compress(revision.text) if tx.compresses_texts else revision.text,
                "author": revision.author,
                "at": format_time(revision.at),
                "how": revision.how,
            }
        ],
    )


def past_revisions(tx: Reading, memory: StoredMemory) -> list[Revision]:
    """Return the past revisions of a memory, oldest first."""
    return [revision for revision, _ in past_revisions_by_space(tx, memory)]


def past_revisions_by_space(tx: Reading, memory: StoredMemory) -> list[tuple[Revision, str]]:
    """Return the past revisions of a memory, oldest first, each with the id of the space that it was written in."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM revision WHERE space = :space AND memory = :memory ORDER BY revision",
        space=memory.space.id,
        memory=memory.id,
    )
    return [(_revision(row), row.written_in) for row in map(_RevisionRow._make, rows)]


def count(tx: Reading, spaces: SpaceScope) -> int:
    """Return the number of past revisions of the memories in these spaces."""
    (number,) = tx.row("SELECT count(*) FROM revision WHERE space IN :spaces", spaces=tuple(spaces)) or (0,)
    return int(number)


def last_revisions(tx: Reading, memory: StoredMemory, *, limit: int) -> list[Revision]:
    """Return the last past revisions of a memory, oldest first."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM revision WHERE space = :space AND memory = :memory"
        " ORDER BY revision DESC LIMIT :limit",
        space=memory.space.id,
        memory=memory.id,
        limit=limit,
    )
    return [_revision(row) for row in map(_RevisionRow._make, rows)][::-1]


def find(tx: Reading, memory: StoredMemory, revision: int) -> Revision | None:
    """Return one past revision of a memory, or None."""
    row = tx.row(
        f"SELECT {_COLUMNS} FROM revision WHERE space = :space AND memory = :memory AND revision = :revision",
        space=memory.space.id,
        memory=memory.id,
        revision=revision,
    )
    return _revision(_RevisionRow._make(row)) if row else None


def _revision(row: _RevisionRow) -> Revision:
    return Revision(
        revision=row.revision,
        title=row.title,
        text=decompress(row.text),
        author=row.author,
        at=parse_time(row.at),
        how=row.how,
    )


def move(tx: Transaction, memory: StoredMemory, to: str) -> None:
    """Move the past revisions of a memory into another space."""
    tx.run(
        "INSERT INTO revision (space, memory, revision, title, text, author, at, how, written_in)"
        " SELECT :to, memory, revision, title, text, author, at, how, written_in FROM revision"
        " WHERE space = :space AND memory = :memory",
        to=to,
        space=memory.space.id,
        memory=memory.id,
    )
    tx.run("DELETE FROM revision WHERE space = :space AND memory = :memory", space=memory.space.id, memory=memory.id)
