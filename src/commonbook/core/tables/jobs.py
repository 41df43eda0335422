"""The table `job`: a work queue in the database, with leases, retries with back-off, and a state for failed jobs.

A row is one piece of work of a kind on a subject, in the state `waiting`, `running` or `failed`. To enqueue a job that
waits already only makes it due earlier. The worker that takes a job gets a lease with an id of its own, which is also a
fencing token: if the worker dies, the lease runs out and another worker takes the job over, and a worker that comes
back after that cannot record anything, because the lease of the job is no longer its own.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.runtime import pause_seconds
from commonbook.values.ids import format_time, new_id, parse_time
from commonbook.values.spaces import SpaceScope

# The kinds of jobs. Some values predate their names: they are stored in existing books.
SETTLE_JOB: Final = "settle"
"""Settles a session, which is its subject."""

PROPAGATE_JOB: Final = "refresh"
"""Refreshes the copies that exceeded the limit of one transaction; its subject is the source."""

REFRESH_JOB: Final = "renew"
"""Refreshes one copy: a lazy one that was served stale, or a live one that failed; its subject is the copy."""

APPLY_RULES_JOB: Final = "rules"
"""Applies rules to the memories that exceeded the limit of one transaction; its subject is the space written to."""

RETRY_RULE_JOB: Final = "rule"
"""Applies rules again after a conflict; its subject is the memory."""

NOTIFY_JOB: Final = "notify"
"""Creates the notices for a change that is older than notices; its subject is the superseded or deleted memory."""

ENDING_JOB: Final = "ending"
"""Creates the notices about memories whose successor has expired; its subject is the successor."""

ALL_JOBS: Final = frozenset(
    {SETTLE_JOB, PROPAGATE_JOB, REFRESH_JOB, APPLY_RULES_JOB, RETRY_RULE_JOB, NOTIFY_JOB, ENDING_JOB}
)
OWN_SPACE_JOBS: Final = frozenset({SETTLE_JOB, REFRESH_JOB})
"""The kinds of jobs that reach no other space than their own. The others tell of spaces that its members may not read:
where copies, dependents and the targets of rules are."""

LEASE_DURATION: Final = timedelta(seconds=60)
_MAX_LEASE: Final = LEASE_DURATION + timedelta(minutes=5)
"""A lease that ends later was given before the clock went back; clocks of several machines may differ a little."""

MAX_ATTEMPTS: Final = 8
"""The number of attempts after which a job has failed and waits for a person."""

MAX_WAIT: Final = timedelta(days=1)
"""No job is enqueued for a later time than this from now."""

_MIN_BACKOFF: Final = timedelta(seconds=2)
_MAX_BACKOFF: Final = timedelta(minutes=30)
# A lease that ends much later than one given now was given before the clock went back, and counts as expired. One that
# ends a little later was given in a transaction with a later time, or on a machine with another clock, and counts.
_EXPIRED: Final = "state = 'running' AND NOT leased_until BETWEEN :now AND :max_lease_end"
_READY: Final = f"(state = 'waiting' AND NOT (due > :now AND due <= :max_due)) OR ({_EXPIRED})"


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
    """A piece of work of a kind on a subject, with the time when it is due and its attempts so far."""

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
    """Enqueue work on a subject; a job that waits for it already becomes due at the earlier of both times.

    A job that has failed before keeps its back-off, however often it is enqueued meanwhile.
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
    """Lease the job that is longest due in these spaces: one that waits, or one whose lease has expired."""
    # A job that killed its worker in every attempt has failed: it would kill the next worker too.
    tx.run(
        "UPDATE job SET state = 'failed', lease = NULL, leased_until = NULL, error = 'its worker died each time'"
        f" WHERE {_EXPIRED} AND attempts >= :attempts",
        attempts=MAX_ATTEMPTS,
        now=format_time(tx.now),
        max_lease_end=format_time(tx.now + _MAX_LEASE),
    )
    rows = tx.lock_rows(
        f"SELECT {_COLUMNS} FROM job WHERE kind IN :kinds AND space IN :spaces AND ({_READY}) ORDER BY due, id LIMIT 1",
        if_free=True,
        kinds=kinds,
        spaces=tuple(spaces),
        **_time_bounds(tx.now),
    )
    if not rows:
        return None
    (row,) = rows
    job = _job(_JobRow._make(row))
    lease = new_id()
    tx.run(
        "UPDATE job SET state = 'running', lease = :lease, leased_until = :until, attempts = attempts + 1"
        " WHERE id = :id",
        lease=lease,
        until=format_time(tx.now + LEASE_DURATION),
        id=job.id,
    )
    return job._replace(state="running", lease=lease, attempts=job.attempts + 1)


def extend_lease(tx: Transaction, job: Job) -> bool:
    """Extend the lease of a running job; return False if another worker has taken the job over."""
    until = format_time(tx.now + LEASE_DURATION)
    sql = "UPDATE job SET leased_until = :until WHERE id = :id AND lease = :lease"
    return tx.run(sql, until=until, id=job.id, lease=job.lease) == 1


def finish(tx: Transaction, job: Job) -> bool:
    """Delete a finished job and earlier failures on its subject; return False if another worker has taken it over."""
    if not _delete_leased(tx, job):
        return False
    _delete_failures(tx, job)
    return True


def reschedule(tx: Transaction, job: Job, due: datetime) -> bool:
    """Finish a job and enqueue it again for a later time; a request for it that came meanwhile stays."""
    if not finish(tx, job):
        return False
    enqueue(tx, space=job.space, kind=job.kind, subject=job.subject, due=due)
    return True


def fail(tx: Transaction, job: Job, error: str) -> bool:
    """Put a job back with a back-off and its error; after the last attempt, set it to `failed`."""
    state = "waiting" if job.attempts < MAX_ATTEMPTS else "failed"
    pause = pause_seconds(
        job.attempts - 1, first=_MIN_BACKOFF.total_seconds(), most=_MAX_BACKOFF.total_seconds(), share=1.0
    )
    return _put_back(tx, job._replace(state=state, due=tx.now + timedelta(seconds=pause), error=error))


def release(tx: Transaction, job: Job, error: str) -> bool:
    """Put a job back that its worker was not allowed to run: the attempt does not count, and others can take it."""
    return _put_back(
        tx, job._replace(state="waiting", due=tx.now + _MIN_BACKOFF, attempts=job.attempts - 1, error=error)
    )


def _put_back(tx: Transaction, job: Job) -> bool:
    """Replace a leased job by the same one without a lease; return False if another worker has taken it over."""
    if not _delete_leased(tx, job):
        return False
    # A job that was enqueued meanwhile is the same work: this one replaces it and keeps the count of attempts.
    tx.run(
        "DELETE FROM job WHERE space = :space AND kind = :kind AND subject = :subject AND state = 'waiting'",
        space=job.space,
        kind=job.kind,
        subject=job.subject,
    )
    if job.state == "failed":
        _delete_failures(tx, job)
    tx.run(
        "INSERT INTO job (id, space, kind, subject, state, due, attempts, error, created)"
        " VALUES (:id, :space, :kind, :subject, :state, :due, :attempts, :error, :created)",
        id=job.id,
        space=job.space,
        kind=job.kind,
        subject=job.subject,
        state=job.state,
        due=format_time(job.due),
        attempts=job.attempts,
        error=job.error[:500],
        created=format_time(job.created),
    )
    return True


def _delete_leased(tx: Transaction, job: Job) -> bool:
    return tx.run("DELETE FROM job WHERE id = :id AND lease = :lease", id=job.id, lease=job.lease) == 1


def _delete_failures(tx: Transaction, job: Job) -> None:
    tx.run(
        "DELETE FROM job WHERE space = :space AND kind = :kind AND subject = :subject AND state = 'failed'",
        space=job.space,
        kind=job.kind,
        subject=job.subject,
    )


def retry(tx: Transaction, spaces: SpaceScope) -> int:
    """Enqueue all failed jobs of these spaces again, due now; return how many."""
    failed = [job for job in in_state(tx, state="failed") if job.space in spaces]
    for job in failed:
        tx.run("DELETE FROM job WHERE id = :id", id=job.id)
        enqueue(tx, space=job.space, kind=job.kind, subject=job.subject, due=tx.now)
    return len(failed)


def counts(tx: Reading, spaces: SpaceScope, *, kinds: Container[str] = ALL_JOBS) -> tuple[int, int]:
    """Return how many jobs of the given spaces and kinds wait or run, and how many have failed."""
    rows = tx.rows("SELECT space, kind, state, count(*) FROM job GROUP BY space, kind, state")
    per_state = [(state, count) for space, kind, state, count in rows if space in spaces and kind in kinds]
    failed = sum(count for state, count in per_state if state == "failed")
    return sum(count for _, count in per_state) - failed, failed


def in_state(tx: Reading, *, state: str) -> list[Job]:
    """Return the jobs in a state, the longest due first."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM job WHERE state = :state ORDER BY due, id", state=state)
    return [_job(row) for row in map(_JobRow._make, rows)]


def already_queued(tx: Reading, kind: str, subjects: Sequence[str]) -> frozenset[str]:
    """Return those of the subjects for which a job of this kind waits already."""
    rows = tx.rows(
        "SELECT subject FROM job WHERE state = 'waiting' AND kind = :kind AND subject IN :subjects",
        kind=kind,
        subjects=tuple(subjects),
    )
    return frozenset(subject for (subject,) in rows)


def is_due(tx: Reading, spaces: SpaceScope, *, kinds: tuple[str, ...], now: datetime) -> bool:
    """Tell whether a job of these kinds can be taken in these spaces."""
    row = tx.row(
        f"SELECT 1 FROM job WHERE kind IN :kinds AND space IN :spaces AND ({_READY}) LIMIT 1",
        kinds=kinds,
        spaces=tuple(spaces),
        **_time_bounds(now),
    )
    return row is not None


def due_since(tx: Reading, now: datetime) -> datetime | None:
    """Return the time at which the oldest waiting job became due, or None if none is due."""
    (due,) = tx.row("SELECT min(due) FROM job WHERE state = 'waiting' AND due <= :now", now=format_time(now)) or (None,)
    return parse_time(due) if due else None


def _time_bounds(now: datetime) -> dict[str, str]:
    return {
        "now": format_time(now),
        "max_lease_end": format_time(now + _MAX_LEASE),
        "max_due": format_time(now + MAX_WAIT),
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
