"""Work to be done later: a queue in the database, with leases, retries and a state that says what failed.

A job is one piece of work on one subject; asking for it again while it waits only makes it due earlier. Who takes it
gets a lease: if it dies, the lease runs out and another takes over; who comes back after that cannot mark anything,
since its lease is no longer the job's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from commonbook.model.ids import format_time, new_id, parse_time
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading, Transaction

LEASE: Final = timedelta(seconds=60)
_LONGEST_LEASE: Final = LEASE + timedelta(minutes=5)
"""A lease that ends later was given before the clock went back; clocks of several machines may differ a little."""

ATTEMPTS: Final = 8
"""So often a job is tried before it counts as failed, and waits for a person."""

LONGEST_WAIT: Final = timedelta(days=1)
"""Nothing is asked for later than that."""

_FIRST_PAUSE: Final = timedelta(seconds=2)
_LONGEST_PAUSE: Final = timedelta(minutes=30)
# What ends much later than if it had begun now was begun before the clock went back: it holds no longer. What ends a
# little later was begun by another worker whose transaction has a later time, or on a machine with another clock.
_OVER: Final = "state = 'running' AND NOT leased_until BETWEEN :now AND :longest_lease"
_READY: Final = f"(state = 'waiting' AND NOT (due > :now AND due <= :longest_wait)) OR ({_OVER})"


class _JobRow(NamedTuple):
    """A row of the table `job`: the fields are the columns, in the order of every SELECT."""

    id: str
    space: str
    kind: str
    subject: str
    state: str
    due: str
    attempts: int
    lease: str | None
    error: str
    created: str


_COLUMNS: Final = ", ".join(_JobRow._fields)


class Job(NamedTuple):
    """A piece of work: what, on which subject, when it is due, and how it went so far."""

    id: str
    space: str
    kind: str
    subject: str
    state: str
    due: datetime
    attempts: int
    lease: str | None
    error: str
    created: datetime


def enqueue(tx: Transaction, *, space: str, kind: str, subject: str, due: datetime) -> None:
    """Ask for work on a subject; if it is asked for already, at the earlier of both times.

    What went wrong before keeps its pause, however often it is asked for meanwhile.
    """
    tx.run_many(
        "INSERT INTO job (id, space, kind, subject, state, due, attempts, error, created)"
        " SELECT :id, :space, :kind, :subject, 'waiting', :due, 0, '', :now WHERE NOT EXISTS ("
        " SELECT 1 FROM job WHERE space = :space AND kind = :kind AND subject = :subject AND state = 'waiting'"
        " AND (attempts > 0 OR due <= :due))"
        " ON CONFLICT (space, kind, subject) WHERE state = 'waiting' DO UPDATE"
        " SET due = CASE WHEN job.attempts = 0 AND excluded.due < job.due THEN excluded.due ELSE job.due END",
        [
            {
                "id": new_id(),
                "space": space,
                "kind": kind,
                "subject": subject,
                "due": format_time(due),
                "now": format_time(tx.now),
            }
        ],
    )


def take(tx: Transaction, spaces: SpaceScope, *, kinds: tuple[str, ...]) -> Job | None:
    """Take the job that is longest due in these spaces: one that waits, or one whose worker has lost its lease."""
    # What every worker died of is not tried for ever: it would take the next one along.
    tx.run(
        "UPDATE job SET state = 'failed', lease = NULL, leased_until = NULL, error = 'its worker died each time'"
        f" WHERE {_OVER} AND attempts >= :attempts",
        attempts=ATTEMPTS,
        now=format_time(tx.now),
        longest_lease=format_time(tx.now + _LONGEST_LEASE),
    )
    row = tx.row(
        f"SELECT {_COLUMNS} FROM job WHERE kind IN :kinds AND space IN :spaces AND ({_READY})"
        f" ORDER BY due, id LIMIT 1{tx.skip_locked}",
        kinds=kinds,
        spaces=tuple(spaces),
        **_times(tx.now),
    )
    if row is None:
        return None
    job = _job(_JobRow._make(row))
    lease = new_id()
    tx.run(
        "UPDATE job SET state = 'running', lease = :lease, leased_until = :until, attempts = attempts + 1"
        " WHERE id = :id",
        lease=lease,
        until=format_time(tx.now + LEASE),
        id=job.id,
    )
    return job._replace(state="running", lease=lease, attempts=job.attempts + 1)


def extend_lease(tx: Transaction, job: Job) -> bool:
    """Lengthen the lease of a job that goes on; False if it is another's by now."""
    until = format_time(tx.now + LEASE)
    sql = "UPDATE job SET leased_until = :until WHERE id = :id AND lease = :lease"
    return tx.run(sql, until=until, id=job.id, lease=job.lease) == 1


def finish(tx: Transaction, job: Job) -> bool:
    """Strike a job off, and what had failed on its subject; False if the lease is another's by now."""
    if not _strike(tx, job):
        return False
    _forget_failures(tx, job)
    return True


def reschedule(tx: Transaction, job: Job, due: datetime) -> bool:
    """Put a job back that went well and is to be looked at again; what was asked for meanwhile stands."""
    if not finish(tx, job):
        return False
    enqueue(tx, space=job.space, kind=job.kind, subject=job.subject, due=due)
    return True


def fail(tx: Transaction, job: Job, error: str) -> bool:
    """Put a job back that went wrong, for a later time; after the last attempt, aside."""
    if not _strike(tx, job):
        return False
    # What was asked for meanwhile is the same work: it takes over how often that was tried.
    tx.run(
        "DELETE FROM job WHERE kind = :kind AND subject = :subject AND state = 'waiting'",
        kind=job.kind,
        subject=job.subject,
    )
    state = "waiting" if job.attempts < ATTEMPTS else "failed"
    if state == "failed":
        _forget_failures(tx, job)
    pause = min(_FIRST_PAUSE * 2 ** (job.attempts - 1), _LONGEST_PAUSE)
    tx.run(
        "INSERT INTO job (id, space, kind, subject, state, due, attempts, error, created)"
        " VALUES (:id, :space, :kind, :subject, :state, :due, :attempts, :error, :created)",
        id=job.id,
        space=job.space,
        kind=job.kind,
        subject=job.subject,
        state=state,
        due=format_time(tx.now + pause),
        attempts=job.attempts,
        error=error[:500],
        created=format_time(job.created),
    )
    return True


def _strike(tx: Transaction, job: Job) -> bool:
    return tx.run("DELETE FROM job WHERE id = :id AND lease = :lease", id=job.id, lease=job.lease) == 1


def _forget_failures(tx: Transaction, job: Job) -> None:
    tx.run(
        "DELETE FROM job WHERE kind = :kind AND subject = :subject AND state = 'failed'",
        kind=job.kind,
        subject=job.subject,
    )


def retry(tx: Transaction, spaces: SpaceScope) -> int:
    """Let everything that failed in these spaces be tried again, now."""
    again = [job for job in in_state(tx, state="failed") if job.space in spaces]
    for job in again:
        tx.run("DELETE FROM job WHERE id = :id", id=job.id)
        enqueue(tx, space=job.space, kind=job.kind, subject=job.subject, due=tx.now)
    return len(again)


def counts(tx: Reading, spaces: SpaceScope) -> tuple[int, int]:
    """Return how many jobs in the given spaces wait or are under way, and how many failed."""
    rows = tx.rows("SELECT space, state, count(*) FROM job GROUP BY space, state")
    found = [(state, count) for space, state, count in rows if space in spaces]
    failures = sum(count for state, count in found if state == "failed")
    return sum(count for _, count in found) - failures, failures


def in_state(tx: Reading, *, state: str) -> list[Job]:
    """Return the jobs in a state, the longest due first."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM job WHERE state = :state ORDER BY due, id", state=state)
    return [_job(row) for row in map(_JobRow._make, rows)]


def already_queued(tx: Reading, kind: str, subjects: Sequence[str]) -> frozenset[str]:
    """Return those of the subjects on which such work is asked for already."""
    rows = tx.rows(
        "SELECT subject FROM job WHERE state = 'waiting' AND kind = :kind AND subject IN :subjects",
        kind=kind,
        subjects=tuple(subjects),
    )
    return frozenset(subject for (subject,) in rows)


def is_due(tx: Reading, spaces: SpaceScope, *, kinds: tuple[str, ...], now: datetime) -> bool:
    """Tell whether there is a job to take in these spaces."""
    row = tx.row(
        f"SELECT 1 FROM job WHERE kind IN :kinds AND space IN :spaces AND ({_READY}) LIMIT 1",
        kinds=kinds,
        spaces=tuple(spaces),
        **_times(now),
    )
    return row is not None


def _times(now: datetime) -> dict[str, str]:
    return {
        "now": format_time(now),
        "longest_lease": format_time(now + _LONGEST_LEASE),
        "longest_wait": format_time(now + LONGEST_WAIT),
    }


def _job(row: _JobRow) -> Job:
    return Job(
        id=row.id,
        space=row.space,
        kind=row.kind,
        subject=row.subject,
        state=row.state,
        due=parse_time(row.due),
        attempts=row.attempts,
        lease=row.lease,
        error=row.error,
        created=parse_time(row.created),
    )
