"""The job queue: expired leases, workers that come back too late, back-off, and failures that a person sees."""

from __future__ import annotations

import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from commonbook.compose.book import open_book as compose_book
from commonbook.core.access import permissions
from commonbook.core.tables import jobs, spaces
from commonbook.errors import NotAllowed, NotFound, TooMany
from commonbook.subjects.sessions import settle
from commonbook.values.session import NewMessage, WorkReport
from commonbook.values.spaces import Space
from tests.support import capture_child
from tests.support.capture_child import episodes_of, logs_of, wrong_with

KINDS = ("settle",)
SPACES = {"space": Space("space", "space", datetime(2026, 11, 15, tzinfo=UTC))}


class Clock:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 15, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def forward(self, **by: float) -> None:
        self.time += timedelta(**by)


class Queue:
    """The queue of a home, each step in a transaction of its own, as workers take them."""

    def __init__(self, db, clock):
        self.db, self.clock = db, clock

    def ask(self, subject, *, after=0.0):
        self.db.write(
            lambda tx: jobs.enqueue(
                tx, space="space", kind="settle", subject=subject, due=tx.now + timedelta(seconds=after)
            )
        )

    def take(self):
        return self.db.write(lambda tx: jobs.take(tx, SPACES, kinds=KINDS))

    def done(self, job):
        return self.db.write(lambda tx: jobs.finish(tx, job))

    def later(self, job, *, after):
        return self.db.write(lambda tx: jobs.reschedule(tx, job, tx.now + timedelta(seconds=after)))

    def failed(self, job, error="no"):
        return self.db.write(lambda tx: jobs.fail(tx, job, error))

    def retry(self, spaces=None):
        return self.db.write(lambda tx: jobs.retry(tx, SPACES if spaces is None else spaces))

    def listed(self, state):
        with self.db.reading() as tx:
            return jobs.in_state(tx, state=state)

    def next_due(self):
        """Return when there is something to take next, to the second."""
        with self.db.reading() as tx:
            for seconds in range(7200):
                now = self.clock.now() + timedelta(seconds=seconds)
                if jobs.is_due(tx, SPACES, kinds=KINDS, now=now):
                    return now
        return None

    def fail_for_good(self):
        """Fail the only job until it counts as failed; return after how many seconds each attempt came."""
        pauses, begun = [], self.clock.now()
        while job := self._next():
            pauses.append((self.clock.now() - begun).total_seconds())
            begun = self.clock.now()
            assert self.failed(job, f"attempt {job.attempts}")
        return pauses

    def _next(self):
        due = self.next_due()
        if due is None:
            return None
        self.clock.time = max(self.clock.time, due)
        return self.take()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def timed(chosen, clock):
    with closing(compose_book(chosen, clock=clock, create=True)) as book:
        yield book


@pytest.fixture
def queue(timed, clock):
    return Queue(timed._engines.db, clock)


# --- asking and taking


def test_a_job_is_taken_when_it_is_due_the_longest_due_first(queue, clock):
    queue.ask("late", after=20)
    queue.ask("soon", after=10)
    assert queue.take() is None
    assert queue.next_due() == clock.now() + timedelta(seconds=10)
    clock.forward(seconds=30)
    assert [queue.take().subject, queue.take().subject] == ["soon", "late"]
    assert queue.take() is None


def test_asking_again_makes_a_job_due_earlier_never_later_and_never_two(queue, clock):
    for after in (20, 10, 30):
        queue.ask("s", after=after)
    assert queue.next_due() == clock.now() + timedelta(seconds=10)
    assert len(queue.listed("waiting")) == 1


def test_what_is_asked_for_while_a_job_runs_is_not_lost(queue, clock):
    queue.ask("s")
    job = queue.take()
    queue.ask("s", after=5)
    assert queue.done(job)
    clock.forward(seconds=5)
    assert queue.take().subject == "s"


def test_a_job_put_back_for_later_comes_at_the_earlier_of_what_was_asked(queue, clock):
    queue.ask("s")
    job = queue.take()
    queue.ask("s", after=5)
    assert queue.later(job, after=60)
    assert queue.next_due() == clock.now() + timedelta(seconds=5)
    assert len(queue.listed("waiting")) == 1


def test_eight_workers_take_each_job_once(queue):
    for number in range(40):
        queue.ask(f"s{number}")
    taken: list[str] = []

    def work():
        while job := queue.take():
            taken.append(job.subject)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(taken) == sorted(f"s{number}" for number in range(40))


# --- leases


def test_a_lease_runs_out_and_another_worker_takes_over(queue, clock):
    queue.ask("s")
    first = queue.take()
    clock.forward(seconds=jobs.LEASE_DURATION.total_seconds())
    assert queue.take() is None
    assert queue.next_due() == clock.now() + timedelta(seconds=1)
    clock.forward(seconds=1)
    second = queue.take()
    assert (second.id, second.attempts) == (first.id, 2)
    assert second.lease != first.lease


def test_a_lease_given_before_the_clock_went_back_holds_no_longer(queue, clock):
    queue.ask("s")
    first = queue.take()
    clock.forward(days=-30)
    assert queue.next_due() == clock.now()
    second = queue.take()
    assert (second.id, second.attempts) == (first.id, 2)
    assert not queue.done(first)
    assert queue.take() is None
    assert queue.done(second)


def test_a_lease_of_a_machine_whose_clock_is_a_little_ahead_holds(queue, clock):
    queue.ask("s")
    assert queue.take()
    clock.forward(seconds=-30)
    assert queue.take() is None


def test_what_was_asked_for_before_the_clock_went_back_is_not_waited_for_so_long(queue, clock):
    queue.ask("s", after=3600)
    clock.forward(hours=-10)
    assert queue.take() is None
    clock.forward(days=-30)
    assert queue.take().subject == "s"


@pytest.mark.parametrize("end", ["done", "failed", "later"])
def test_who_comes_back_after_its_lease_ran_out_can_mark_nothing(queue, clock, end):
    queue.ask("s")
    first = queue.take()
    clock.forward(seconds=61)
    second = queue.take()
    marks = {"done": queue.done, "failed": queue.failed, "later": lambda job: queue.later(job, after=1)}
    assert marks[end](first) is False
    assert [job.id for job in queue.listed("running")] == [second.id]
    assert marks[end](second) is True
    assert queue.listed("running") == []
    assert marks[end](first) is False
    assert len(queue.listed("waiting")) == (0 if end == "done" else 1)


def test_a_job_that_every_worker_dies_of_is_not_tried_for_ever(queue, clock):
    queue.ask("s")
    attempts = 0
    while queue.take():
        attempts += 1
        assert attempts < 50
        clock.forward(seconds=61)
    assert attempts == jobs.MAX_ATTEMPTS
    (job,) = queue.listed("failed")
    assert job.error
    assert queue.retry() == 1
    assert queue.take().attempts == 1


# --- failing


def test_each_pause_is_twice_as_long_as_the_one_before_up_to_a_limit(queue, clock):
    queue.ask("s")
    pauses = queue.fail_for_good()
    assert len(pauses) == jobs.MAX_ATTEMPTS
    assert pauses[:4] == [0, 2, 4, 8]
    assert all(later == 2 * earlier for earlier, later in pairwise(pauses[1:]))
    assert max(pauses) <= 1800


def test_after_the_last_attempt_a_job_is_shown_as_failed_with_its_reason(queue, clock):
    queue.ask("s")
    queue.fail_for_good()
    (job,) = queue.listed("failed")
    assert (job.subject, job.attempts, job.error) == ("s", jobs.MAX_ATTEMPTS, f"attempt {jobs.MAX_ATTEMPTS}")
    clock.forward(days=30)
    assert queue.take() is None
    assert queue.next_due() is None


def test_what_failed_is_tried_again_when_a_person_says_so(queue, clock):
    queue.ask("s")
    queue.fail_for_good()
    assert queue.retry(spaces={}) == 0
    assert queue.retry() == 1
    job = queue.take()
    assert (job.subject, job.attempts) == ("s", 1)
    assert queue.done(job)
    assert queue.retry() == 0


def test_asking_again_does_not_cut_a_pause_short(queue, clock):
    queue.ask("s")
    queue.failed(queue.take())
    clock.forward(seconds=2)
    queue.failed(queue.take())
    due = queue.next_due()
    queue.ask("s")
    assert queue.next_due() == due
    assert queue.take() is None


def test_asking_while_a_job_fails_does_not_make_it_begin_anew(queue, clock):
    queue.ask("s")
    attempts = 0
    while attempts < 50:
        job = queue._next()
        if job is None:
            break
        attempts += 1
        queue.ask("s")
        queue.failed(job)
    assert attempts == jobs.MAX_ATTEMPTS
    assert len(queue.listed("failed")) == 1


def test_one_subject_is_shown_as_failed_once_and_no_longer_when_it_goes_well(queue, clock):
    for _ in range(2):
        queue.ask("s")
        queue.fail_for_good()
        assert len(queue.listed("failed")) == 1
    queue.ask("other")
    queue.fail_for_good()
    queue.ask("s")
    assert queue.done(queue.take())
    assert [job.subject for job in queue.listed("failed")] == ["other"]


def test_a_very_long_reason_is_cut(queue):
    queue.ask("s")
    queue.failed(queue.take(), "x" * 100_000)
    assert len(queue.listed("waiting")[0].error) < 1000


# --- with sessions


def test_a_worker_killed_in_the_middle_is_followed_by_another(timed, clock, monkeypatch):
    """The first worker holds the lease and never comes back; the second takes over, and there is one episode."""
    timed.append("s", [NewMessage("said", role="assistant")])
    clock.forward(hours=2)
    assert timed._engines.db.write(lambda tx: jobs.take(tx, spaces.get_all(tx), kinds=KINDS))
    assert timed.work() == 0
    clock.forward(seconds=61)
    assert timed.work() == 1
    assert len(episodes_of(timed)) == 1
    assert timed.status().waiting_jobs == 0


def test_a_worker_whose_lease_ran_out_while_it_settled_makes_no_second_episode(place, timed, clock, monkeypatch):
    timed.append("s", [NewMessage("said", role="assistant")])
    clock.forward(hours=2)
    plan = settle._plan
    slept: list[int] = []

    def slow(*args, **named):
        made = plan(*args, **named)
        if not slept:
            slept.append(1)
            clock.forward(seconds=61)
            assert timed.work() == 1
        return made

    monkeypatch.setattr(settle, "_plan", slow)
    assert timed.work() == 1
    assert len(episodes_of(timed)) == 1
    assert timed.status().waiting_jobs == 0
    assert timed.status().failed_jobs == 0
    timed.close()
    assert wrong_with(place) == []


@pytest.mark.slow
def test_a_worker_process_killed_with_minus_nine_is_followed_by_another(place, open_book):
    book = open_book()
    workers = [capture_child.start("worker", place) for _ in range(2)]
    try:
        assert [capture_child.answer(worker) for worker in workers] == ["ready", "ready"]
        for number in range(12):
            book.append(f"s{number}", [f"message {at}" for at in range(70)])
            if number == 4:
                workers[0].kill()
        for _ in range(6000):
            left = [log.session.unsettled for log in logs_of(book).values()]
            # The killed one may hold one lease, for a minute.
            if sum(one == 70 for one in left) <= 1:
                break
            threading.Event().wait(0.02)
        assert sum(one == 70 for one in left) <= 1
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    capture_child.after_a_kill(place)
    book.close()
    assert wrong_with(place) == []


# --- who may do it


@pytest.mark.promise("sessions.failures")
def test_who_may_not_write_leaves_the_work_to_those_who_may(timed, clock):
    timed.append("s", ["the walrus sleeps"])
    clock.forward(days=1)
    stranger = timed.acting_as("agent:stranger")
    assert stranger.work(retry=True) == 0
    assert (timed.status().waiting_jobs, timed.status().unsettled) == (1, 1)
    assert timed.work() == 1
    assert (timed.status().waiting_jobs, timed.status().unsettled) == (0, 0)


def test_a_right_that_is_lost_in_the_middle_fails_the_job_and_a_person_sees_it(timed, clock, monkeypatch):
    timed.append("s", ["the walrus sleeps"])
    take = jobs.take

    def lost(tx, spaces, *, kinds):
        monkeypatch.setattr(permissions.PermissionSnapshot, "with_role", lambda held, role, spaces: {})
        return take(tx, spaces, kinds=kinds)

    worked: list[WorkReport] = []
    for _ in range(jobs.MAX_ATTEMPTS):
        clock.forward(days=1)
        monkeypatch.setattr(jobs, "take", lost)
        assert timed.work(seconds=0.001, noticed=worked.append) == 1
        monkeypatch.undo()
        clock.forward(seconds=1)
    assert all("may not use the space 'personal'" in one.error for one in worked)
    assert (timed.status().waiting_jobs, timed.status().failed_jobs, timed.status().unsettled) == (0, 1, 1)
    assert timed.work(retry=True) == 1
    assert (timed.status().failed_jobs, timed.status().unsettled) == (0, 0)


@pytest.mark.promise("limits.jobs")
def test_a_right_that_a_worker_loses_leaves_the_job_to_others(timed, clock, monkeypatch):
    timed.grant("agent:worker", "personal", "writer")
    worker = timed.acting_as("agent:worker")
    timed.append("s", ["the walrus sleeps"])
    clock.forward(days=1)
    take = jobs.take

    def lost(tx, spaces, *, kinds):
        monkeypatch.setattr(permissions.PermissionSnapshot, "with_role", lambda held, role, spaces: {})
        return take(tx, spaces, kinds=kinds)

    for _ in range(jobs.MAX_ATTEMPTS + 2):
        monkeypatch.setattr(jobs, "take", lost)
        assert worker.work() == 1
        monkeypatch.undo()
        assert worker.work() == 0, "others come first"
        clock.forward(seconds=3)
    assert (timed.status().waiting_jobs, timed.status().failed_jobs) == (1, 0)
    assert timed.work() == 1
    assert (timed.status().waiting_jobs, timed.status().unsettled) == (0, 0)


@pytest.mark.promise("limits.jobs")
def test_what_a_job_writes_counts_against_no_limit_of_its_worker(timed, clock):
    timed.grant("agent:worker", "personal", "writer")
    timed.grant("agent:worker", "team", "writer")
    worker = timed.acting_as("agent:worker")
    old = timed.remember("the walrus sleeps")
    successor = timed.remember("the walrus swims", replaces=old.id, expires=clock.now() + timedelta(hours=1))
    copy = timed.share(timed.remember("the seal sleeps").id, "team", refresh="lazy").id
    timed.edit(timed.get(copy).shared.source, text="the seal swims")
    timed.append("s", ["the walrus sleeps"])
    timed.set_limit("write", 1, principal="agent:worker")
    clock.forward(days=1)
    timed.recall("seal", spaces=["team"])
    # The third job, about an expired successor, reaches other spaces: only the owner learns of it.
    assert worker.work() == 2
    assert (timed.status().waiting_jobs, timed.status().failed_jobs, timed.status().unsettled) == (0, 0, 0)
    assert timed.get(old.id).marks == ("successor_ended",), successor
    assert {one.id: one.text for one in timed.list().items}[copy] == "the seal swims"
    assert worker.remember("the one write of this minute", space="personal").new
    with pytest.raises(TooMany):
        worker.remember("one too many", space="personal")


def test_who_may_only_read_a_session_is_told_so_and_a_stranger_finds_none(book):
    book.append("s", ["the walrus sleeps"])
    book.grant("agent:reader", "personal", "reader")
    reader, stranger = book.acting_as("agent:reader"), book.acting_as("agent:stranger")
    for who, error in ((reader, NotAllowed), (stranger, NotFound)):
        for verb in (
            lambda who: who.rewind("s", 0),
            lambda who: who.settle("s"),
            lambda who: who.close_session("s"),
        ):
            with pytest.raises(error):
                verb(who)
        # These would begin a session in the default space, whether there is one or not.
        for verb in (lambda who: who.append("s", ["x"]), lambda who: who.switch("s", "t")):
            with pytest.raises(NotAllowed):
                verb(who)
    assert [one.text for one in reader.messages("s").items] == ["the walrus sleeps"]
    assert [(one.id, one.closed, one.unsettled) for one in book.sessions()] == [("s", None, 1)]


def test_a_failed_attempt_in_one_space_leaves_the_job_of_the_same_subject_in_another(queue, clock):
    def enqueue(space):
        queue.db.write(lambda tx: jobs.enqueue(tx, space=space, kind="settle", subject="s", due=tx.now))

    enqueue("space")
    job = queue.take()
    enqueue("other")
    assert queue.failed(job)
    assert {(one.space, one.attempts) for one in queue.listed("waiting")} == {("space", 1), ("other", 0)}
    queue.fail_for_good()
    assert [one.space for one in queue.listed("failed")] == ["space"]
    assert [one.space for one in queue.listed("waiting")] == ["other"]
    other = queue.db.write(
        lambda tx: jobs.take(tx, {"other": Space("other", "other", clock.now())}, kinds=KINDS), durable=False
    )
    assert queue.done(other)
    assert [one.space for one in queue.listed("failed")] == ["space"], "the failure of another space stays"
