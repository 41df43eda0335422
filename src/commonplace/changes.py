"""Changes are numbered in each space, so that whoever follows a space knows what it has not seen yet."""

from __future__ import annotations

from collections.abc import Sequence

from commonplace.ports import Transaction


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
