"""Changes are numbered in each space, so that whoever follows a space knows what it has not seen yet."""

from __future__ import annotations

from collections.abc import Sequence

from commonplace.ports import Reading, Transaction


def number(tx: Transaction, space: str, subjects: Sequence[str]) -> int:
    """Give each subject the next number of its space; a subject has only its newest number. Return the last."""
    row = tx.row(
        "INSERT INTO change_count (space, last) VALUES (:space, :n)"
        " ON CONFLICT (space) DO UPDATE SET last = change_count.last + :n RETURNING last",
        space=space,
        n=len(subjects),
    )
    last = int(row[0]) if row else 0
    first = last - len(subjects) + 1
    tx.run_many(
        "INSERT INTO change (space, subject, number) VALUES (:space, :subject, :number)"
        " ON CONFLICT (space, subject) DO UPDATE SET number = :number",
        [{"space": space, "subject": subject, "number": first + at} for at, subject in enumerate(subjects)],
    )
    return last


def last(tx: Reading, space: str) -> int:
    """Return the newest number of a space."""
    row = tx.row("SELECT last FROM change_count WHERE space = :space", space=space)
    return int(row[0]) if row else 0


def since(tx: Reading, space: str, seen: int, *, limit: int = 500) -> list[tuple[int, str]]:
    """Return (number, subject) of what changed after a number, in order."""
    return [
        (row[0], row[1])
        for row in tx.rows(
            "SELECT number, subject FROM change WHERE space = :space AND number > :seen ORDER BY number LIMIT :limit",
            space=space,
            seen=seen,
            limit=limit,
        )
    ]
