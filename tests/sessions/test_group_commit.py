"""Group commit: each request runs exactly once, gets its own outcome, and waits for no lock that it does not need."""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context, copy_context
from functools import partial

import pytest

from commonbook.errors import BadInput, Busy, DatabaseUnreachable
from commonbook.subjects.sessions.group_commit import GroupCommit, NotRun
from tests.support.crowds import until

pytestmark = pytest.mark.promise("sessions.group-commit")


class FakeOperation:
    """A batch operation that returns each request in capitals; while it is stopped, it waits to go on."""

    def __init__(self) -> None:
        self.batches: list[tuple[Sequence[str], bool | None]] = []
        """The requests of each batch, and whether it was patient; None for a request that ran alone."""
        self.space_locked: set[str] = set()
        """The requests whose space is locked."""
        self.session_locked: set[str] = set()
        """The requests whose session is locked, whatever its space."""
        self.errors: dict[str, BaseException] = {}
        self._open = threading.Event()
        self._open.set()
        self.stopped = threading.Semaphore(0)

    def stop(self) -> None:
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    def do(self, requests: Sequence[str], /, *, patient: bool) -> Sequence[str | NotRun]:
        self.batches.append((tuple(requests), patient))
        self._run(requests)
        locked = self.session_locked | (set() if patient else self.space_locked)
        return [NotRun.LOCKED if request in locked else request.upper() for request in requests]

    def do_alone(self, request: str) -> str:
        self.batches.append(((request,), None))
        self._run([request])
        return request.upper()

    def _run(self, requests: Sequence[str]) -> None:
        if not self._open.is_set():
            self.stopped.release()
            assert self._open.wait(60)
        for request in requests:
            if request in self.errors:
                raise self.errors[request]

    def submit_to(self, group_commit: GroupCommit, request: str, *, space: str = "here", size: int = 1) -> str:
        return group_commit.submit(space, request, self.do, partial(self.do_alone, request), size=size)


class Interruption(BaseException):
    """An exception raised in a thread from outside."""


def no_other_way() -> str:
    raise AssertionError("it runs in a batch")


Submit = Callable[..., "Future[str]"]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no batch for stuck on a busy machine."""
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._STUCK_SECONDS", 60.0)


@pytest.fixture
def group_commit() -> GroupCommit:
    return GroupCommit(busy_seconds=60.0)


@pytest.fixture
def fake() -> Iterator[FakeOperation]:
    made = FakeOperation()
    yield made
    made.go_on()


@pytest.fixture
def submit(group_commit: GroupCommit, fake: FakeOperation) -> Iterator[Submit]:
    """Submit requests in threads, each when the one before runs or waits."""
    with ThreadPoolExecutor(50) as pool:

        def submit_in_thread(request: str, *, space: str = "here", size: int = 1) -> Future[str]:
            def state() -> tuple[int, int, int]:
                return group_commit.waiting(), group_commit.waiting(space), len(fake.batches)

            before = state()
            future = pool.submit(fake.submit_to, group_commit, request, space=space, size=size)
            until = time.monotonic() + 60
            while before == state() and not future.done():
                assert time.monotonic() < until
                time.sleep(0.001)
            return future

        yield submit_in_thread
        fake.go_on()


def keep_two_running(submit: Submit, fake: FakeOperation, *, space: str = "here") -> list[Future[str]]:
    """Keep as many requests running as may start at once: two."""
    fake.stop()
    futures = [submit(name, space=space) for name in ("first", "second")]
    for _ in futures:
        assert fake.stopped.acquire(timeout=60)
    return futures


def results(futures: Sequence[Future[str]]) -> list[str]:
    return [future.result(60) for future in futures]


def test_a_request_that_finds_the_queue_empty_starts_at_once_and_alone(submit, fake):
    assert results([submit("a"), submit("b")]) == ["A", "B"]
    assert fake.batches == [(("a",), False), (("b",), False)]


def test_two_do_not_wait_for_each_other(submit, fake):
    assert [future.done() for future in keep_two_running(submit, fake)] == [False, False]
    assert len(fake.batches) == 2


def test_those_who_wait_go_together_in_their_order(submit, fake):
    futures = keep_two_running(submit, fake) + [submit(name, space=f"space {name}") for name in "abcdef"]
    fake.go_on()
    assert results(futures) == ["FIRST", "SECOND", *"ABCDEF"]
    assert fake.batches[2:] == [(tuple("abcdef"), False)]


def test_one_waiter_starts_when_one_of_two_has_ended_and_several_when_both_have(group_commit):
    doors = {name: threading.Event() for name in ("first", "second", "a", "b", "c")}
    batches: list[Sequence[str]] = []

    def do(requests: Sequence[str], /, *, patient: bool) -> Sequence[str]:
        batches.append(tuple(requests))
        assert all(doors[name].wait(60) for name in requests if name in doors)
        return requests

    def seen(many: int, waiting: int) -> None:
        until = time.monotonic() + 60
        while (len(batches), group_commit.waiting()) != (many, waiting):
            assert time.monotonic() < until, (batches, group_commit.waiting())
            time.sleep(0.001)

    def let_all_go() -> None:
        for door in doors.values():
            door.set()

    with ThreadPoolExecutor(10) as pool, ExitStack() as ended:
        ended.callback(let_all_go)
        futures = []

        def come(name: str, many: int, waiting: int) -> None:
            futures.append(pool.submit(group_commit.submit, "here", name, do, no_other_way))
            seen(many, waiting)

        come("first", 1, 0)
        come("second", 2, 0)
        come("a", 2, 1)
        doors["first"].set()
        seen(3, 0)
        come("b", 3, 1)
        come("c", 3, 2)
        doors["second"].set()
        futures[1].result(60)
        # One is running and two wait: a request that comes now does not start before them.
        come("d", 3, 3)
        let_all_go()
        assert results(futures) == ["first", "second", "a", "b", "c", "d"]
    assert batches == [("first",), ("second",), ("a",), ("b", "c", "d")]


def test_a_batch_takes_several_of_one_key_in_their_order(submit, fake):
    futures = keep_two_running(submit, fake) + [submit(name) for name in ("a1", "b1", "a2", "a3", "c1")]
    fake.go_on()
    assert results(futures)[2:] == ["A1", "B1", "A2", "A3", "C1"]
    assert [batch for batch, _ in fake.batches[2:]] == [("a1", "b1", "a2", "a3", "c1")]


# --- announced requests


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for announced requests as long as it takes."""
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._ARRIVAL_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_request_waits_for_those_that_are_announced(group_commit, submit, fake):
    with group_commit.announce():
        announced = copy_context()
        with group_commit.announce():
            late = copy_context()
            futures = [submit("a"), submit("b")]
            assert fake.batches == []
            with ThreadPoolExecutor(1) as pool:
                futures.append(pool.submit(announced.run, fake.submit_to, group_commit, "c"))
                until(lambda: group_commit.waiting() == 3)
                assert fake.batches == []
                futures.append(submit_in(late, group_commit, fake, "d"))
                assert results(futures) == ["A", "B", "C", "D"]
    assert fake.batches == [(("a", "b", "c", "d"), False)]


@pytest.mark.usefixtures("patient")
def test_an_announced_request_that_does_not_come_is_no_longer_waited_for(group_commit, submit, fake):
    with group_commit.announce():
        future = submit("a")
        assert fake.batches == []
    assert results([future]) == ["A"]


@pytest.mark.usefixtures("patient")
def test_those_who_wait_behind_a_batch_wait_for_announced_requests_too(group_commit, submit, fake):
    futures = keep_two_running(submit, fake)
    with group_commit.announce():
        futures += [submit("a"), submit("b")]
        fake.go_on()
        results(futures[:2])
        assert [future.done() for future in futures[2:]] == [False, False]
        futures.append(submit_in(copy_context(), group_commit, fake, "c"))
        results(futures)
    assert fake.batches[2:] == [(("a", "b", "c"), False)]


def test_an_announced_request_is_waited_for_a_short_time_only(group_commit, submit):
    with group_commit.announce():
        assert results([submit("a"), submit("b")]) == ["A", "B"]


@pytest.mark.usefixtures("patient")
def test_a_full_batch_does_not_wait_for_announced_requests(group_commit, submit, fake):
    with group_commit.announce():
        futures = [submit(f"{number:02}") for number in range(32)]
        results(futures)
    assert [len(batch) for batch, _ in fake.batches] == [32]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("reason", ["too large", "main thread", "contended"])
def test_an_announced_request_that_goes_another_way_is_no_longer_waited_for(
    group_commit, submit, fake, reason, monkeypatch
):
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._CONTENDED_SECONDS", 60.0)
    if reason == "contended":
        fake.space_locked = {"locked"}
        results([submit("locked", space="there")])
    with group_commit.announce():
        future = submit("a")
        if reason == "main thread":
            fake.submit_to(group_commit, "other")
        else:
            size, space = (201, "here") if reason == "too large" else (1, "there")
            other = submit_in(copy_context(), group_commit, fake, "other", space=space, size=size)
            results([other])
        assert results([future]) == ["A"]


def submit_in(
    context: Context,
    group_commit: GroupCommit,
    fake: FakeOperation,
    request: str,
    *,
    space: str = "here",
    size: int = 1,
) -> Future[str]:
    """Submit a request in a thread that runs in a context, and return when it is answered."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(context.run, partial(fake.submit_to, group_commit, request, space=space, size=size))


def test_a_batch_is_limited(submit, fake):
    futures = keep_two_running(submit, fake) + [submit(f"{number:02}") for number in range(40)]
    fake.go_on()
    results(futures)
    assert [len(batch) for batch, _ in fake.batches[2:]] == [32, 8]


def test_a_batch_is_limited_in_size(submit, fake):
    sizes = (("a", 100), ("b", 100), ("c", 1), ("large", 200), ("d", 1))
    futures = keep_two_running(submit, fake) + [submit(name, size=size) for name, size in sizes]
    fake.go_on()
    assert results(futures)[2:] == ["A", "B", "C", "LARGE", "D"]
    assert [batch for batch, _ in fake.batches[2:]] == [("a", "b"), ("c",), ("large",), ("d",)]


def test_nobody_waits_for_one_that_is_too_large_to_go_with_others(group_commit, submit, fake):
    fake.stop()
    huge = [submit(name, size=201) for name in ("huge", "vast")]
    assert fake.batches == [(("huge",), None), (("vast",), None)]
    futures = [submit(name) for name in ("first", "second")]
    assert len(fake.batches) == 4
    assert group_commit.waiting() == group_commit.waiting("here") == 0
    fake.go_on()
    assert results([*huge, *futures]) == ["HUGE", "VAST", "FIRST", "SECOND"]


def test_a_request_of_the_main_thread_runs_alone_though_others_run(group_commit, submit, fake):
    futures = keep_two_running(submit, fake)
    waiting = submit("waits")
    fake.go_on()
    assert fake.submit_to(group_commit, "main") == "MAIN"
    assert results([*futures, waiting]) == ["FIRST", "SECOND", "WAITS"]
    assert (("main",), None) in fake.batches


def test_requests_for_a_locked_space_wait_for_it_in_one_batch_and_no_others_do(submit, fake):
    fake.space_locked |= {"first", "second", "a", "b"}
    futures = keep_two_running(submit, fake)
    futures += [submit("a"), submit("free", space="elsewhere"), submit("b")]
    fake.go_on()
    assert results(futures) == ["FIRST", "SECOND", "A", "FREE", "B"]
    assert (("a", "free", "b"), False) in fake.batches
    patient = [batch for batch, patient in fake.batches if patient]
    assert sorted(request for batch in patient for request in batch) == ["a", "b", "first", "second"]


def test_requests_for_a_contended_space_skip_the_quick_queue_for_a_while(submit, fake, monkeypatch):
    fake.space_locked = {"a"}
    assert results([submit("a")]) == ["A"]
    assert results([submit("b")]) == ["B"]
    assert results([submit("c", space="elsewhere")]) == ["C"]
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._CONTENDED_SECONDS", 0.0)
    fake.space_locked = {"e"}
    assert results([submit("e", space="third")]) == ["E"]
    assert results([submit("f", space="third")]) == ["F"]
    attempts = [(batch[0], patient) for batch, patient in fake.batches]
    assert attempts == [("a", False), ("a", True), ("b", True), ("c", False), ("e", False), ("e", True), ("f", False)]


def test_an_error_of_one_request_is_raised_for_it_alone(submit, fake):
    fake.errors["bad"] = BadInput("no", fix="yes")
    futures = keep_two_running(submit, fake) + [submit(name, space=name) for name in ("a", "bad", "b")]
    fake.go_on()
    assert results(futures[:3]) == ["FIRST", "SECOND", "A"]
    assert results(futures[4:]) == ["B"]
    with pytest.raises(BadInput):
        futures[3].result(60)


def test_a_bug_is_raised_for_the_request_that_caused_it(submit, fake):
    fake.errors["bad"] = ZeroDivisionError()
    futures = keep_two_running(submit, fake) + [submit(name) for name in ("a", "bad", "b")]
    fake.go_on()
    assert results([*futures[:3], futures[4]]) == ["FIRST", "SECOND", "A", "B"]
    with pytest.raises(ZeroDivisionError):
        futures[3].result(60)


@pytest.mark.parametrize("error", [ZeroDivisionError(), BadInput("no", fix="yes")])
def test_those_who_wait_behind_a_batch_that_failed_still_run_in_one_batch(submit, fake, error):
    fake.errors["bad"] = error
    names = ("a1", "bad", "a2", "b2", "a3")
    # Two of this size are a full batch.
    futures = keep_two_running(submit, fake) + [submit(name, size=100, space=name) for name in names]
    fake.go_on()
    assert results([*futures[:3], *futures[4:]]) == ["FIRST", "SECOND", "A1", "A2", "B2", "A3"]
    assert isinstance(futures[3].exception(60), type(error))
    assert [batch for batch, patient in fake.batches[2:] if patient is False] == [("a1", "bad"), ("a2", "b2"), ("a3",)]


def test_an_error_of_a_request_by_itself_is_not_tried_again(submit, fake):
    fake.errors["bad"] = BadInput("no", fix="yes")
    assert submit("bad").exception(60) is fake.errors["bad"]
    assert fake.batches == [(("bad",), False)]


def test_the_number_of_contended_spaces_that_are_remembered_is_limited(group_commit, submit, fake, monkeypatch):
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._MAX_CONTENDED_SPACES", 3)
    fake.space_locked = set("abcdefgh")
    for name in "abcdefgh":
        assert results([submit(name, space=name)]) == [name.upper()]
        assert len(group_commit._contended_until) <= 3


@pytest.mark.parametrize("kind", [DatabaseUnreachable, Busy])
def test_an_error_of_the_home_is_raised_for_all_and_nothing_is_tried_again(submit, fake, kind):
    fake.errors["b"] = kind("gone", fix="wait")
    futures = keep_two_running(submit, fake) + [submit(name) for name in ("a", "b", "c")]
    fake.go_on()
    results(futures[:2])
    errors = [future.exception(60) for future in futures[2:]]
    assert [(type(error), error.message, error.fix) for error in errors] == [(kind, "gone", "wait")] * 3
    assert len({id(error) for error in errors}) == 3
    assert [error.__cause__ for error in errors] == [None, errors[0], errors[0]]
    assert [batch for batch, _ in fake.batches[2:]] == [("a", "b", "c")]


def test_those_who_wait_behind_a_failed_batch_run_by_themselves(submit, fake):
    fake.errors["first"] = DatabaseUnreachable("gone", fix="wait")
    first, second = keep_two_running(submit, fake)
    rest = [submit(name, space=name) for name in "abc"]
    fake.go_on()
    assert first.exception(60) is fake.errors["first"]
    assert results([second, *rest]) == ["SECOND", "A", "B", "C"]
    assert sorted(fake.batches[2:]) == [(("a",), None), (("b",), None), (("c",), None)]


def test_a_request_for_a_locked_session_delays_no_other_session_of_its_space(submit, fake: FakeOperation):
    fake.session_locked.add("stuck")
    stuck = submit("stuck")
    until(lambda: (("stuck",), True) in fake.batches)
    # The space is free, and so are other sessions in it.
    assert results([submit("other")]) == ["OTHER"]
    assert (("other",), True) in fake.batches
    assert not stuck.done()
    fake.session_locked.clear()
    assert results([stuck]) == ["STUCK"]


def test_a_session_that_stays_locked_is_busy(submit, group_commit, fake):
    fake.session_locked.add("stuck")
    group_commit._busy_seconds = 0.0
    with pytest.raises(Busy, match="the session"):
        submit("stuck").result(60)
    assert fake.batches == [(("stuck",), False), (("stuck",), True)]


def test_a_waiter_fails_with_a_busy_batch_if_it_has_waited_as_long_and_else_runs_next(group_commit, fake, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit.time.monotonic", lambda: now[0])
    group_commit._mark_contended("here")
    began, go_on = threading.Semaphore(0), threading.Event()
    batches: list[Sequence[str]] = []

    def do(requests: Sequence[str], /, *, patient: bool) -> Sequence[str]:
        batches.append(tuple(requests))
        if "first" in requests:
            began.release()
            assert go_on.wait(60)
            now[0] = 0.9
            raise Busy("too long", fix="again")
        return [request.upper() for request in requests]

    def waits(name: str, number: int) -> Future[str]:
        future = pool.submit(group_commit.submit, "here", name, do, no_other_way)
        while group_commit.waiting("here") < number:
            threading.Event().wait(0.001)
        return future

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(group_commit.submit, "here", "first", do, no_other_way)
        assert began.acquire(timeout=60)
        early = [waits("a", 1), waits("b", 2)]
        now[0] = 0.8
        late = [waits("c", 3), waits("d", 4)]
        go_on.set()
        errors = [future.exception(60) for future in (first, *early)]
        assert [str(error) for error in errors] == ["too long"] * 3
        assert results(late) == ["C", "D"]
    assert batches == [("first",), ("c", "d")]


def test_nobody_is_left_waiting_by_a_leader_that_was_interrupted(submit, fake):
    fake.errors["a"] = KeyboardInterrupt()
    futures = keep_two_running(submit, fake) + [submit(name) for name in ("a", "b")]
    fake.go_on()
    results(futures[:2])
    assert isinstance(futures[2].exception(60), KeyboardInterrupt)
    with pytest.raises(Busy, match="may have been made or not"):
        futures[3].result(60)
    fake.errors.clear()
    assert results([submit("later")]) == ["LATER"]


def test_a_thread_that_is_interrupted_when_it_is_to_lead_leaves_nobody_waiting(group_commit, submit, fake):
    idents: list[int] = []

    def interrupted() -> None:
        idents.append(threading.get_ident())
        fake.submit_to(group_commit, "hit")

    with ThreadPoolExecutor(1) as pool:
        futures = keep_two_running(submit, fake)
        hit = pool.submit(interrupted)
        while not group_commit.waiting():
            time.sleep(0.001)
        rest = [submit(name) for name in "ab"]
        # The exception is raised when it wakes up, and that is when it is to lead the others.
        raising = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert raising(ctypes.c_ulong(idents[0]), ctypes.py_object(Interruption)) == 1
        fake.go_on()
        assert results([*futures, *rest]) == ["FIRST", "SECOND", "A", "B"]
        with pytest.raises(Interruption):
            hit.result(60)
    assert group_commit._queues == {}


def test_nobody_waits_for_a_quick_batch_that_is_stuck(group_commit, submit, fake, monkeypatch):
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._STUCK_SECONDS", 0.05)
    stuck = keep_two_running(submit, fake)
    rest = [submit(name, space=name) for name in "ab"]
    # They start when they have waited for a while, though no leader has started them.
    assert fake.stopped.acquire(timeout=60)
    assert (("a", "b"), False) in fake.batches
    assert not any(future.done() for future in stuck)
    fake.go_on()
    assert results([*stuck, *rest]) == ["FIRST", "SECOND", "A", "B"]
    assert group_commit._queues == {}


def test_a_patient_batch_is_never_taken_for_stuck(group_commit, submit, fake, monkeypatch):
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._STUCK_SECONDS", 0.02)
    fake.space_locked = set("abc")
    monkeypatch.setattr(group_commit, "_is_contended", lambda space: True)
    fake.stop()
    futures = [submit(name) for name in "abc"]
    assert fake.stopped.acquire(timeout=60)
    time.sleep(0.2)
    assert fake.batches == [(("a",), True)]
    fake.go_on()
    assert results(futures) == ["A", "B", "C"]
    assert fake.batches[1:] == [(("b", "c"), True)]


def test_nothing_is_left_when_everybody_has_gone(group_commit, submit, fake):
    futures = keep_two_running(submit, fake) + [submit(name, space=name) for name in "abc"]
    fake.go_on()
    results(futures)
    assert group_commit.waiting() == group_commit.waiting("a") == 0
    assert group_commit._queues == {}


def test_a_forked_child_waits_for_nobody(group_commit, submit, fake):
    futures = keep_two_running(submit, fake)
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            fake.go_on()
            done = ThreadPoolExecutor(1).submit(fake.submit_to, group_commit, "child")
            os._exit(0 if done.result(60) == "CHILD" else 1)
        finally:
            # However it goes, the child is no second test run.
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    fake.go_on()
    assert results(futures) == ["FIRST", "SECOND"]


class Luck:
    """Runs requests, unless it happens to find a lock taken, to fail as a whole or to lose its database."""

    def __init__(self, seed: int) -> None:
        self._chance, self.lock = random.Random(seed), threading.Lock()
        self.done = Counter[str]()

    def do(self, requests: Sequence[str], /, *, patient: bool) -> Sequence[str | NotRun]:
        with self.lock:
            luck = self._chance.random()
        time.sleep(luck / 500)
        with self.lock:
            if luck < 0.1 and len(requests) > 1:
                raise ZeroDivisionError
            if luck > 0.97:
                raise DatabaseUnreachable("gone")
            outcomes = [name if self._chance.random() < 0.7 else NotRun.LOCKED for name in requests]
            self.done.update(outcome for outcome in outcomes if isinstance(outcome, str))
        return outcomes

    def do_alone(self, request: str) -> str:
        with self.lock:
            self.done[request] += 1
        return request


@pytest.mark.parametrize("seed", range(5))
def test_at_random_each_is_done_once(seed):
    group_commit, luck = GroupCommit(busy_seconds=60.0), Luck(seed)
    answered, lost = Counter[str](), Counter[str]()

    def caller(number: int) -> None:
        for name in (f"{number}:{at}" for at in range(60)):
            try:
                outcome = group_commit.submit(f"space {name[-1]}", name, luck.do, partial(luck.do_alone, name))
            except DatabaseUnreachable:
                lost[name] += 1
            else:
                answered[outcome] += 1
                assert outcome == name

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(caller, range(12)))
    assert luck.done == answered
    assert len(answered) + len(lost) == 12 * 60
    assert {*answered.values(), *lost.values()} == {1}
    assert group_commit._queues == {}
