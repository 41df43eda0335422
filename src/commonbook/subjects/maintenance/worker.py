"""The background worker: it leases due jobs from the queue, by priority, and runs the handler of their kind.

The index follower writes the changes of a burst into the index, in a background thread of the writing process.

So the first recall after very many writes finds most of them indexed, also where no worker runs. It works in slices, as
a worker does, and ends when few changes are pending. What it has not written when the book is closed, the next recall
writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from commonbook.core.access import permissions
from commonbook.core.tables import jobs, spaces
from commonbook.core.tables.jobs import Job
from commonbook.errors import CommonbookError, NotAllowed, TooMany
from commonbook.ports.database import Reading, Result, Transaction, retry_read
from commonbook.runtime import reset_in_child
from commonbook.values.request import RequestContext
from commonbook.values.session import SettleReport, WorkReport

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext
    from commonbook.ports.embedding import Similarity
    from commonbook.ports.engines import Engines, RecallService
    from commonbook.subjects.sharing import propagate
    from commonbook.values.spaces import Actor, SpaceScope

_SETTLE_MARGIN: Final = timedelta(seconds=1)


class WorkContext(NamedTuple):
    """The dependencies of handlers, the same for all jobs of one call of `work`."""

    engines: Engines
    actor: Actor
    similarity: Similarity
    out_of_time: Callable[[], bool]
    """A handler of long jobs asks this between steps; it must make progress before it stops."""


class Outcome(NamedTuple):
    """The result of one attempt at a job: finished, unless it is to run again or has failed.

    A handler reports failure by an exception, which becomes the `error`. `is_refused` says that it is about the actor,
    not about the job.
    """

    again_after: timedelta | None = None
    settled: SettleReport | None = None
    error: str = ""
    is_refused: bool = False


FINISHED: Final = Outcome()
CONTINUE: Final = Outcome(again_after=timedelta())
"""Time ran out: the job goes back into the queue, due now, and the next worker continues it."""

Handler: TypeAlias = Callable[[WorkContext, Job], Outcome]


class JobKind(NamedTuple):
    """An entry in the table of kinds; a lower number is a higher priority."""

    handler: Handler
    priority: int = 1


def work(
    engines: Engines,
    actor: Actor,
    *,
    similarity: Similarity,
    until: datetime | None = None,
    noticed: Callable[[WorkReport], None] | None = None,
) -> int:
    """Run the jobs that are due, by priority, until none is left or time is over; return how many were run.

    Jobs that reach other spaces are counted for the owner only.
    A failed job is recorded with its error and tried again later; it does not stop the others. One that the actor is
    not allowed to run is left to other workers. A long job that runs
    out of time is put back, and keeps the progress that it has made. `noticed` is called after each attempt to settle a
    session, whether it failed or not.
    """

    def out_of_time() -> bool:
        return until is not None and engines.clock.now() >= until

    context, count = WorkContext(engines, actor, similarity, out_of_time), 0
    for kinds in _by_priority():
        # In most calls no job is due: this check does not need the write lock, taking a job does.
        if not _is_due(engines, actor, kinds):
            continue
        while not out_of_time() and (job := _take(engines, actor, kinds)) is not None:
            outcome = _run(context, job)
            # Who may not read all spaces learns nothing of jobs that reach others.
            count += job.kind in jobs.OWN_SPACE_JOBS or permissions.is_owner(actor)
            if noticed is not None and job.kind == jobs.SETTLE_JOB:
                noticed(WorkReport(outcome.settled or _not_settled(context, job), error=outcome.error))
    return count


def retry(engines: Engines, actor: Actor) -> int:
    """Put all failed jobs back into the queue, due now; return how many these are."""
    return engines.db.write(lambda tx: jobs.retry(tx, _writable(tx, actor)), durable=False)


def _by_priority() -> list[tuple[str, ...]]:
    """Return the names of all kinds, grouped by priority, the highest first."""
    levels = sorted({kind.priority for kind in JOB_KINDS.values()})
    return [tuple(name for name, kind in JOB_KINDS.items() if kind.priority == level) for level in levels]


@retry_read
def _is_due(engines: Engines, actor: Actor, kinds: tuple[str, ...]) -> bool:
    with engines.db.reading() as tx:
        return jobs.is_due(tx, _writable(tx, actor), kinds=kinds, now=engines.clock.now())


def _take(engines: Engines, actor: Actor, kinds: tuple[str, ...]) -> Job | None:
    return engines.db.write(lambda tx: jobs.take(tx, _writable(tx, actor), kinds=kinds), durable=False)


def _writable(tx: Reading, actor: Actor) -> SpaceScope:
    """Return the spaces whose jobs an actor may run; jobs of other spaces wait for another worker."""
    return permissions.writable(tx, actor.recording(), spaces.get_all(tx))


def _run(context: WorkContext, job: Job) -> Outcome:
    """Run a job and record the outcome in the queue."""
    try:
        outcome = JOB_KINDS[job.kind].handler(context, job)
    except Exception as error:  # noqa: BLE001 - any error is recorded with the job, tried again, and shown
        outcome = Outcome(error=f"{type(error).__name__}: {error}", is_refused=_is_about_actor(context, error))
    context.engines.db.write(partial(_record, job=job, outcome=outcome), durable=False)
    return outcome


def _is_about_actor(context: WorkContext, error: Exception) -> bool:
    """Return whether another worker may succeed where this actor was refused; nobody may more than the owner."""
    return isinstance(error, (NotAllowed, TooMany)) and not permissions.is_owner(context.actor)


def _record(tx: Transaction, job: Job, outcome: Outcome) -> None:
    if outcome.is_refused:
        jobs.release(tx, job, outcome.error)
    elif outcome.error:
        jobs.fail(tx, job, outcome.error)
    elif outcome.again_after is not None:
        jobs.reschedule(tx, job, tx.now + outcome.again_after)
    else:
        jobs.finish(tx, job)


# --- handlers: each imports the modules of its own subject, since in most calls no job is due


def _write(context: WorkContext, operation: Callable[[WriteContext], Result]) -> Result:
    """Run an operation of a job: it is work for others, and does not count against the limits of the actor."""
    from commonbook.core.write.transaction import write

    return write(context.engines, RequestContext(context.actor), operation, counted=False)


def _settle_session(context: WorkContext, job: Job) -> Outcome:
    from commonbook.subjects.sessions.episode_boundaries import SILENCE
    from commonbook.subjects.sessions.settle import settle

    key = (job.space, job.subject)
    settled = settle(
        context.engines,
        RequestContext(context.actor),
        key,
        flush=False,
        similarity=context.similarity,
        counted=False,
    )
    again_after = SILENCE + _SETTLE_MARGIN if settled.unsettled else None
    return Outcome(again_after, settled)


@retry_read
def _not_settled(context: WorkContext, job: Job) -> SettleReport:
    """Return the report on a session that could not be settled."""
    with context.engines.db.reading() as tx:
        space = spaces.get_all(tx).get(job.space)
    return SettleReport(job.subject, (), 0, space.name if space else "")


def _refresh_copies(context: WorkContext, job: Job) -> Outcome:
    from commonbook.subjects.sharing.propagate import PropagationProgress

    step: PropagationProgress | None = PropagationProgress("", changed=False)
    while step is not None:
        # The next worker begins with the first stale copy again: stopping before any has changed would be no progress.
        if step.changed and context.out_of_time():
            return CONTINUE
        step = _write(context, partial(_refresh_batch, job=job, after=step.last))
    return FINISHED


def _refresh_batch(ctx: WriteContext, *, job: Job, after: str) -> propagate.PropagationProgress | None:
    """Refresh a batch of copies; return nothing at the end, or if another worker has taken the job over."""
    from commonbook.subjects.sharing.propagate import propagate_batch

    return propagate_batch(ctx, source_id=job.subject, after=after) if jobs.extend_lease(ctx.tx, job) else None


def _refresh_copy(context: WorkContext, job: Job) -> Outcome:
    from commonbook.subjects.sharing.propagate import refresh_now

    refresh_now(context.engines, job.subject)
    return FINISHED


def _apply_rules(context: WorkContext, job: Job) -> Outcome:
    from commonbook.subjects.sharing.rules import apply_batch

    while _write(context, partial(apply_batch, space=job.subject)):
        if context.out_of_time():
            return CONTINUE
    return FINISHED


def _retry_rules(context: WorkContext, job: Job) -> Outcome:
    from commonbook.subjects.sharing.rules import retry_rules

    _write(context, partial(retry_rules, memory_id=job.subject))
    return FINISHED


def _notify_dependents(context: WorkContext, job: Job) -> Outcome:
    from commonbook.subjects.reasoning.notices import notify

    _write(context, partial(notify, memory_id=job.subject))
    return FINISHED


def _notify_ended(context: WorkContext, job: Job) -> Outcome:
    from commonbook.subjects.reasoning import notices

    notify_ended = partial(notices.notify_ended, memory_id=job.subject)
    return Outcome(_write(context, notify_ended))


JOB_KINDS: Final[Mapping[str, JobKind]] = {
    jobs.SETTLE_JOB: JobKind(_settle_session, priority=0),
    jobs.PROPAGATE_JOB: JobKind(_refresh_copies),
    jobs.REFRESH_JOB: JobKind(_refresh_copy),
    jobs.APPLY_RULES_JOB: JobKind(_apply_rules),
    jobs.RETRY_RULE_JOB: JobKind(_retry_rules),
    jobs.NOTIFY_JOB: JobKind(_notify_dependents),
    jobs.ENDING_JOB: JobKind(_notify_ended),
}


class IndexFollower:
    """Runs at most one thread that catches up with the changes of a book."""

    def __init__(self, recall: RecallService) -> None:
        """Write the index by this service; no thread runs yet."""
        self._recall = recall
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Reset the state, at first and in a forked child, where the thread of the parent does not run."""
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, engines: Engines) -> None:
        """Start to write what is pending, unless that is being done already, or no thread can be started."""
        with self._guard, suppress(RuntimeError):
            if not self._stopped.is_set() and (self._thread is None or not self._thread.is_alive()):
                thread = threading.Thread(target=self._run, args=(engines,), name="commonbook-index", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self, engines: Engines) -> None:
        # The next recall meets the same error when it writes the index, and answers without the index.
        with suppress(CommonbookError):
            self._recall.catch_up(engines, self._stopped.is_set)

    def close(self) -> None:
        """Stop after the slice that is being written, and wait for that."""
        self._stopped.set()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join()
