"""The worker: every kind of job has a handler, settling comes first, failures stay apart, long jobs are continued."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from commonbook.compose.book import open_book as compose_book
from commonbook.core.tables import jobs
from commonbook.subjects.maintenance import health, worker
from commonbook.subjects.sessions import episode_boundaries
from commonbook.subjects.sharing import rules
from commonbook.values.ids import new_id
from commonbook.values.memory import Draft, Filter
from commonbook.values.session import NewMessage, SettleReport, WorkReport

KINDS = tuple(worker.JOB_KINDS)
OTHERS = tuple(kind for kind in KINDS if kind != jobs.SETTLE_JOB)


class Clock:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 15, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def forward(self, **by: float) -> None:
        self.time += timedelta(**by)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timed(chosen, clock):
    """A book whose clock the test sets, with one space, `lab`."""
    with closing(compose_book(chosen, clock=clock, create=True)) as book:
        book.create_space("lab")
        yield book


def enqueue(book, *kinds):
    """Request a job of each of these kinds, on a subject that does not exist."""
    with book._engines.db.reading() as tx:
        (space,) = (row[0] for row in tx.rows("SELECT id FROM space WHERE name = 'lab'"))
    for kind in kinds:
        book._engines.db.write(
            lambda tx, kind=kind: jobs.enqueue(tx, space=space, kind=kind, subject=new_id(), due=tx.now)
        )


def waiting(book):
    """Return the error of each waiting job, by its kind."""
    with book._engines.db.reading() as tx:
        return {job.kind: job.error for job in jobs.in_state(tx, state="waiting")}


@pytest.fixture
def handled_by(monkeypatch):
    """Put another handler into the table, with the priority that the kind has."""

    def replace(kind, handler):
        entry = worker.JOB_KINDS[kind]._replace(handler=handler)
        monkeypatch.setitem(worker.JOB_KINDS, kind, entry)

    return replace


# --- the table


def test_each_kind_of_job_has_a_handler_and_words_for_its_failure():
    assert set(worker.JOB_KINDS) == set(health._job_kinds())


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_whose_subject_is_gone_is_finished_without_an_error(timed, kind):
    enqueue(timed, kind)
    assert timed.work() == 1
    assert (timed.status().waiting_jobs, timed.status().failed_jobs) == (0, 0)


def test_a_kind_that_this_program_does_not_know_is_left_to_a_newer_one(timed):
    enqueue(timed, "a-kind-of-the-future", KINDS[-1])
    assert timed.work() == 1
    assert waiting(timed) == {"a-kind-of-the-future": ""}


def test_a_new_kind_needs_an_entry_and_a_handler_only(timed, monkeypatch):
    subjects = []

    def handler(_context, job):
        subjects.append(job.subject)
        return worker.FINISHED

    monkeypatch.setitem(worker.JOB_KINDS, "new", worker.JobKind(handler))
    enqueue(timed, "new")
    assert timed.work() == 1
    assert len(subjects) == 1
    assert timed.status().waiting_jobs == 0


# --- order and time


def test_settling_that_is_due_is_done_before_any_other_job(timed, clock, handled_by):
    ran = []

    def handler(_context, job):
        ran.append(job.kind)
        return worker.FINISHED

    for kind in KINDS:
        handled_by(kind, handler)
    enqueue(timed, *OTHERS)
    clock.forward(seconds=1)
    enqueue(timed, jobs.SETTLE_JOB, jobs.SETTLE_JOB)
    assert timed.work() == len(OTHERS) + 2
    assert ran[:2] == [jobs.SETTLE_JOB, jobs.SETTLE_JOB]
    assert sorted(ran[2:]) == sorted(OTHERS)


def test_no_job_is_taken_after_time_is_over(timed, clock, handled_by):
    def slow(_context, _job):
        clock.forward(seconds=10)
        return worker.FINISHED

    for kind in KINDS:
        handled_by(kind, slow)
    enqueue(timed, *KINDS)
    assert timed.work(seconds=0) == 0
    assert timed.work(seconds=5) == 1
    assert jobs.SETTLE_JOB not in waiting(timed)
    assert timed.work(seconds=15) == 2
    assert timed.work() == len(KINDS) - 3
    assert waiting(timed) == {}


def test_without_a_job_that_is_due_nothing_is_written(timed, monkeypatch):
    timed.append("s", ["the walrus sleeps"])
    monkeypatch.setattr(jobs, "take", None)
    assert timed.work() == 0


# --- outcomes


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_handler_of_one_kind_holds_up_no_other_kind(timed, clock, kind):
    def failing(_context, _job):
        raise RuntimeError("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(worker.JOB_KINDS, kind, worker.JOB_KINDS[kind]._replace(handler=failing))
        enqueue(timed, *KINDS)
        assert timed.work() == len(KINDS)
        assert waiting(timed) == {kind: "RuntimeError: no"}
        for _ in range(jobs.MAX_ATTEMPTS - 1):
            clock.forward(hours=1)
            assert timed.work() == 1
        assert (timed.status().waiting_jobs, timed.status().failed_jobs) == (0, 1)
        (finding,) = timed.status().findings
        assert "RuntimeError: no" in str(finding)
    assert timed.work() == 0
    assert timed.work(retry=True) == 1
    assert (timed.status().waiting_jobs, timed.status().failed_jobs) == (0, 0)


def test_a_job_that_continues_is_due_at_once_and_one_for_later_is_not(timed, clock, handled_by):
    outcomes = [worker.CONTINUE, worker.Outcome(again_after=timedelta(minutes=5)), worker.FINISHED]
    handled_by(KINDS[-1], lambda _context, _job: outcomes.pop(0))
    enqueue(timed, KINDS[-1])
    assert timed.work() == 2
    clock.forward(minutes=4)
    assert timed.work() == 0
    clock.forward(minutes=1)
    assert timed.work() == 1
    assert (waiting(timed), outcomes) == ({}, [])


def test_a_session_with_unsettled_messages_is_looked_at_again_after_the_longest_silence(timed, clock):
    timed.append("s", [NewMessage("said", role="assistant")])
    clock.forward(hours=2)
    timed.append("s", [NewMessage("and again", role="assistant")])
    with timed._engines.db.reading() as tx:
        (job,) = jobs.in_state(tx, state="waiting")
    timed._engines.db.write(
        lambda tx: jobs.enqueue(tx, space=job.space, kind=job.kind, subject=job.subject, due=tx.now)
    )
    reports: list[WorkReport] = []
    assert timed.work(noticed=reports.append) == 1
    assert [report.settled.unsettled for report in reports] == [1]
    with timed._engines.db.reading() as tx:
        (job,) = jobs.in_state(tx, state="waiting")
    assert job.due == clock.now() + episode_boundaries.LIMITS.gap + timedelta(seconds=1)


def test_each_attempt_to_settle_is_reported_and_nothing_else(timed, clock, handled_by):
    enqueue(timed, *KINDS)
    reports: list[WorkReport] = []
    assert timed.work(noticed=reports.append) == len(KINDS)
    assert [(report.settled.episodes, report.settled.unsettled, report.error) for report in reports] == [((), 0, "")]

    def failing(_context, _job):
        raise RuntimeError("no")

    handled_by(jobs.SETTLE_JOB, failing)
    timed.append("s", ["the walrus sleeps"])
    clock.forward(days=1)
    reports.clear()
    assert timed.work(noticed=reports.append) == 1
    assert reports == [WorkReport(SettleReport("s", (), 0, "personal"), error="RuntimeError: no")]


def test_a_long_job_that_runs_out_of_time_is_finished_by_the_next_worker(chosen, timed, clock, monkeypatch):
    monkeypatch.setattr(rules, "MAX_PER_WRITE", 5)
    timed.create_space("team")
    timed.add_rule("team", "lab")
    timed.remember_many([Draft(f"number {at}", space="lab") for at in range(20)])
    some = rules.apply_batch

    def slow(ctx, *, space):
        clock.forward(seconds=10)
        return some(ctx, space=space)

    monkeypatch.setattr(rules, "apply_batch", slow)
    counts = [_count(timed, "team")]
    with closing(compose_book(chosen, clock=clock, create=True)) as another:
        while waiting(timed):
            assert waiting(timed) == {jobs.APPLY_RULES_JOB: ""}
            assert len(counts) < 20
            # Time for one step of five in each turn.
            assert (timed, another)[len(counts) % 2].work(seconds=5) == 1
            counts.append(_count(timed, "team"))
    assert list(dict.fromkeys(counts)) == [5, 10, 15, 20]
    assert timed.status().failed_jobs == 0


def _count(book, space):
    return len(book.list(Filter(space=space), limit=100).items)
