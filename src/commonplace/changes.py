"""Changes are numbered in each space, so that whoever follows a space knows what it has not seen yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def hold(tx: Transaction, spaces: Sequence[str]) -> None:
    """Let nobody else's writing to these spaces be committed until the transaction ends: what is there is all."""
    if tx.locking and spaces:
        # A space to which nobody has written yet has nothing to hold.
        sql = "INSERT INTO change_count (space, last) VALUES (:space, 0) ON CONFLICT DO NOTHING"
        tx.run_many(sql, [{"space": space} for space in sorted(spaces)])
        tx.rows(
            f"SELECT 1 FROM change_count WHERE space IN :spaces ORDER BY space{tx.locking}",  # noqa: S608 - our own words
            spaces=sorted(spaces),
        )


def counts(tx: Reading) -> dict[str, int]:
    """Return the last number of each space."""
    return dict(tx.rows("SELECT space, last FROM change_count"))


def since(tx: Reading, seen: Mapping[str, int]) -> list[str]:
    """Return what has changed after these numbers, space by space; of a space that is not named, everything."""
    found: dict[str, None] = {}
    for space, last in counts(tx).items():
        if last > seen.get(space, 0):
            rows = tx.rows(
                "SELECT subject FROM change WHERE space = :space AND number > :number ORDER BY number",
                space=space,
                number=seen.get(space, 0),
            )
            found.update(dict.fromkeys(row[0] for row in rows))
    return list(found)
