"""Changes are numbered in each space, so that whoever follows a space knows what it has not seen yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from commonbook.ports.database import Reading, Transaction


def assign_numbers(tx: Transaction, space: str, subjects: Sequence[str]) -> None:
    """Give each subject the next number of its space; a subject has only its newest number.

    Whoever numbers holds the log of the space, so that nobody else does. Of two who number the first changes of a space
    at once, the second finds its number taken, and begins anew.
    """
    # The last number is looked up by the statement itself: nobody has to ask for it first.
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
    """Return the last number of each space."""
    return dict(tx.rows("SELECT space, last FROM change_count"))


def total_deferred(tx: Reading) -> Callable[[], int]:
    """Ask how many changes there were in all, and return what waits for it.

    Numbers only grow: as long as this is the same, so is every space's, and one need not read the row of each.
    """
    rows = tx.defer("SELECT CAST(coalesce(sum(last), 0) AS BIGINT) FROM change_count")
    return lambda: next(int(count) for (count,) in rows())


def since(tx: Reading, seen: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Return what has changed after these numbers, space by space; of a space that is not named, everything.

    `now` are the last numbers, as `counts` tells them in the same reading.
    """
    found: dict[str, None] = {}
    # Most spaces stand where they stood: only what differs is looked at, which matters where there are hundreds.
    for space, last in sorted(now.items() - seen.items()):
        if last > seen.get(space, 0):
            rows = tx.rows(
                "SELECT subject FROM change WHERE space = :space AND number > :number ORDER BY number",
                space=space,
                number=seen.get(space, 0),
            )
            found.update(dict.fromkeys(subject for (subject,) in rows))
    return list(found)
