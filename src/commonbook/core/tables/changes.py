"""The tables `change` and `change_count`: change numbers, by which an index updater finds what it has not seen yet.

A row of `change` is a subject (a memory, or another subject of the log) with the number of its newest change. A row of
`change_count` is the last number of a space. The numbers of a space only grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commonbook.ports.database import Reading, Transaction


def assign_numbers(tx: Transaction, space: str, subjects: Sequence[str]) -> None:
    """Give each subject the next number of its space; a subject has only its newest number.

    The caller has locked the log of the space, so that nobody else numbers changes at the same time. Of two
    transactions that number the first changes of a space, the second finds its number taken, and is tried again.
    """
    # The statement itself looks up the last number, which saves a round trip.
    tx.run_many(
        "INSERT INTO change (space, subject, number)"
        " VALUES (:space, :subject, coalesce((SELECT last FROM change_count WHERE space = :space), 0) + :at)"
        " ON CONFLICT (space, subject) DO UPDATE SET number = excluded.number",
        [{"space": space, "subject": subject, "at": at} for at, subject in enumerate(subjects, 1)],
    )
    tx.run_many(
        "INSERT INTO change_count (space, last) VALUES (:space, :more)"
        " ON CONFLICT (space) DO UPDATE SET last = change_count.last + excluded.last",
        [{"space": space, "more": len(subjects)}],
    )


def last_numbers(tx: Reading) -> dict[str, int]:
    """Return the last change number of each space."""
    return dict(tx.rows("SELECT space, last FROM change_count"))


def total(tx: Reading) -> int:
    """Return the number of changes in all spaces.

    Numbers only grow: while this sum stays the same, so does the number of each space, and no other row is read.
    """
    ((count,),) = tx.rows("SELECT CAST(coalesce(sum(last), 0) AS BIGINT) FROM change_count")
    return int(count)


def first_since(
    tx: Reading, seen: Mapping[str, int], now: Mapping[str, int], *, limit: int
) -> tuple[list[str], dict[str, int]]:
    """Return at most so many of the subjects that `since` returns, and the numbers up to which these are all.

    A space of which nothing was read yet has no number.
    """
    changed: dict[str, None] = {}
    reached = {space: number for space, number in seen.items() if space in now}
    # Rows are counted, not subjects: a memory that was moved has a row in both spaces.
    room = limit
    for space, last in sorted(now.items() - seen.items()):
        rows = tx.rows(
            "SELECT subject, number FROM change WHERE space = :space AND number > :number ORDER BY number LIMIT :limit",
            space=space,
            number=seen.get(space, 0),
            limit=room,
        )
        changed.update(dict.fromkeys(subject for subject, _ in rows))
        room -= len(rows)
        if room <= 0:
            reached[space] = max(number for _, number in rows)
            break
        reached[space] = last
    return list(changed), reached


def since(tx: Reading, seen: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return the subjects that changed after these numbers, space by space; all subjects of a space without a number.

    `now` has the last numbers, read by `last_numbers` in the same transaction.
    """
    changed: dict[str, None] = {}
    # Most spaces have not changed: only the others are read, which matters where there are hundreds.
    for space, last in sorted(now.items() - seen.items()):
        if last > seen.get(space, 0):
            rows = tx.rows(
                "SELECT subject FROM change WHERE space = :space AND number > :number ORDER BY number",
                space=space,
                number=seen.get(space, 0),
            )
            changed.update(dict.fromkeys(subject for (subject,) in rows))
    return list(changed)
