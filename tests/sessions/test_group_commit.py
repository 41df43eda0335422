"""Callers that go together: each is done for exactly once, told its own outcome, and waits for nobody else's place."""

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

import pytest

from commonbook.errors import BadInput, Busy, DatabaseUnreachable
from commonbook.sessions.group_commit import DEFERRED, Deferred, GroupCommit, RetryAlone


class Workplace:
    """Does what is asked for by answering with it; where it is stopped, it waits to be let go on."""

    def __init__(self) -> None:
        self.parties: list[tuple[Sequence[str], bool]] = []
        self.taken: set[str] = set()
        """Whose place is taken."""
        self.held: set[str] = set()
        """What is taken itself, whatever place it is in."""
        self.spoilt: dict[str, BaseException] = {}
        self._open = threading.Event()
        self._open.set()
        self.stopped = threading.Semaphore(0)

    def stop(self) -> None:
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    def do(self, asked: Sequence[str], /, *, patient: bool, alone: bool) -> Sequence[str | Deferred]:
        self.parties.append((tuple(asked), patient))
        if not self._open.is_set():
            self.stopped.release()
            assert self._open.wait(60)
        for one in asked:
            if one in self.spoilt:
                raise self.spoilt[one]
        later = (set() if patient else self.taken) | (set() if alone else self.held)
        return [DEFERRED if one in later else one.upper() for one in asked]


class Interruption(BaseException):
    """What a thread is interrupted with from outside."""


Going = Callable[..., "Future[str]"]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine nothing that a test waits for is stuck."""
    monkeypatch.setattr("commonbook.sessions.group_commit._LONG", 60.0)


@pytest.fixture
def together() -> GroupCommit:
    return GroupCommit()


@pytest.fixture
def ctx() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.go_on()


@pytest.fixture
def going(together: GroupCommit, ctx: Workplace) -> Iterator[Going]:
    """Let threads go, each when the one before has come to wait."""
    with ThreadPoolExecutor(50) as pool:

        def go(asked: str, *, place: str = "here", key: str | None = None, size: int = 1) -> Future[str]:
            before = together.waiting(), together.waiting(place), len(ctx.parties)
            future = pool.submit(together.go, place, asked, ctx.do, key=key or asked, size=size)
            until = time.monotonic() + 60
            while before == (together.waiting(), together.waiting(place), len(ctx.parties)) and not future.done():
                assert time.monotonic() < until
                time.sleep(0.001)
            return future

        yield go
        ctx.go_on()


def held(going: Going, ctx: Workplace, *, place: str = "here") -> list[Future[str]]:
    """Keep as many at it as go at once: two."""
    ctx.stop()
    futures = [going(name, place=place) for name in ("first", "second")]
    for _ in futures:
        assert ctx.stopped.acquire(timeout=60)
    return futures


def told(futures: Sequence[Future[str]]) -> list[str]:
    return [future.result(60) for future in futures]


def test_whoever_finds_nobody_goes_at_once_and_alone(going, ctx):
    assert told([going("a"), going("b")]) == ["A", "B"]
    assert ctx.parties == [(("a",), False), (("b",), False)]


def test_two_do_not_wait_for_each_other(going, ctx):
    assert [future.done() for future in held(going, ctx)] == [False, False]
    assert len(ctx.parties) == 2


def test_those_who_wait_go_together_in_their_order(going, ctx):
    futures = held(going, ctx) + [going(name, place=f"place {name}") for name in "abcdef"]
    ctx.go_on()
    assert told(futures) == ["FIRST", "SECOND", *"ABCDEF"]
    assert ctx.parties[2:] == [(tuple("abcdef"), False)]


def test_one_that_waits_goes_when_one_of_two_has_gone_and_several_when_both_have(together):
    doors = {name: threading.Event() for name in ("first", "second", "a", "b", "c")}
    parties: list[Sequence[str]] = []

    def do(asked: Sequence[str], /, *, patient: bool, alone: bool) -> Sequence[str]:
        parties.append(tuple(asked))
        assert all(doors[name].wait(60) for name in asked if name in doors)
        return asked

    def seen(many: int, waiting: int) -> None:
        until = time.monotonic() + 20
        while (len(parties), together.waiting()) != (many, waiting):
            assert time.monotonic() < until, (parties, together.waiting())
            time.sleep(0.001)

    def let_all_go() -> None:
        for door in doors.values():
            door.set()

    with ThreadPoolExecutor(10) as pool, ExitStack() as ended:
        ended.callback(let_all_go)
        futures = []

        def come(name: str, many: int, waiting: int) -> None:
            futures.append(pool.submit(together.go, "here", name, do, key=name))
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
        # One is at it and two wait: whoever comes now is not let in before them.
        come("d", 3, 3)
        let_all_go()
        assert told(futures) == ["first", "second", "a", "b", "c", "d"]
    assert parties == [("first",), ("second",), ("a",), ("b", "c", "d")]


def test_of_one_key_one_goes_at_a_time(going, ctx):
    futures = held(going, ctx) + [going(name, key=name[0]) for name in ("a1", "b1", "a2", "a3", "c1")]
    ctx.go_on()
    assert told(futures)[2:] == ["A1", "B1", "A2", "A3", "C1"]
    assert [party for party, _ in ctx.parties[2:]] == [("a1", "b1", "c1"), ("a2",), ("a3",)]


def test_a_party_is_limited(going, ctx):
    futures = held(going, ctx) + [going(f"{number:02}") for number in range(40)]
    ctx.go_on()
    told(futures)
    assert [len(party) for party, _ in ctx.parties[2:]] == [32, 8]


def test_a_party_is_limited_in_size(going, ctx):
    sizes = (("a", 100), ("b", 100), ("c", 1), ("large", 200), ("d", 1))
    futures = held(going, ctx) + [going(name, size=size) for name, size in sizes]
    ctx.go_on()
    assert told(futures)[2:] == ["A", "B", "C", "LARGE", "D"]
    assert [party for party, _ in ctx.parties[2:]] == [("a", "b"), ("c",), ("large",), ("d",)]


def test_nobody_waits_for_one_that_is_too_large_to_go_with_others(together, going, ctx):
    ctx.stop()
    huge = [going(name, size=201) for name in ("huge", "vast")]
    assert ctx.parties == [(("huge",), True), (("vast",), True)]
    futures = [going(name) for name in ("first", "second")]
    assert len(ctx.parties) == 4
    assert together.waiting() == together.waiting("here") == 0
    ctx.go_on()
    assert told([*huge, *futures]) == ["HUGE", "VAST", "FIRST", "SECOND"]


def test_the_main_thread_goes_alone_whoever_is_at_it(together, going, ctx):
    futures = held(going, ctx)
    waiting = going("waits")
    ctx.go_on()
    assert together.go("here", "main", ctx.do, key="main") == "MAIN"
    assert told([*futures, waiting]) == ["FIRST", "SECOND", "WAITS"]
    assert (("main",), True) in ctx.parties


def test_whose_place_is_taken_waits_for_it_with_others_and_nobody_else_does(going, ctx):
    ctx.taken |= {"first", "second", "a", "b"}
    futures = held(going, ctx)
    futures += [going("a"), going("free", place="elsewhere"), going("b")]
    ctx.go_on()
    assert told(futures) == ["FIRST", "SECOND", "A", "FREE", "B"]
    assert (("a", "free", "b"), False) in ctx.parties
    patient = [party for party, patient in ctx.parties if patient]
    assert sorted(one for party in patient for one in party) == ["a", "b", "first", "second"]


def test_a_place_that_was_taken_is_waited_for_at_once_for_a_while(going, ctx, monkeypatch):
    ctx.taken = {"a"}
    assert told([going("a")]) == ["A"]
    assert told([going("b")]) == ["B"]
    assert told([going("c", place="elsewhere")]) == ["C"]
    monkeypatch.setattr("commonbook.sessions.group_commit._CROWDED", 0.0)
    ctx.taken = {"e"}
    assert told([going("e", place="third")]) == ["E"]
    assert told([going("f", place="third")]) == ["F"]
    asked = [(party[0], patient) for party, patient in ctx.parties]
    assert asked == [("a", False), ("a", True), ("b", True), ("c", False), ("e", False), ("e", True), ("f", False)]


def test_what_one_asks_wrongly_is_told_to_it_alone(going, ctx):
    ctx.spoilt["bad"] = BadInput("no", fix="yes")
    futures = held(going, ctx) + [going(name, place=name) for name in ("a", "bad", "b")]
    ctx.go_on()
    assert told(futures[:3]) == ["FIRST", "SECOND", "A"]
    assert told(futures[4:]) == ["B"]
    with pytest.raises(BadInput):
        futures[3].result(60)


def test_a_bug_is_told_to_whom_it_concerns(going, ctx):
    ctx.spoilt["bad"] = ZeroDivisionError()
    futures = held(going, ctx) + [going(name) for name in ("a", "bad", "b")]
    ctx.go_on()
    assert told([*futures[:3], futures[4]]) == ["FIRST", "SECOND", "A", "B"]
    with pytest.raises(ZeroDivisionError):
        futures[3].result(60)


@pytest.mark.parametrize("error", [ZeroDivisionError(), BadInput("no", fix="yes"), RetryAlone()])
def test_who_comes_behind_those_who_come_later_still_goes_with_others(going, ctx, error):
    ctx.spoilt["bad"] = error
    asked = {"a1": "a", "bad": "b", "a2": "a", "b2": "b", "a3": "a"}
    futures = held(going, ctx) + [going(name, key=key, place=name) for name, key in asked.items()]
    ctx.go_on()
    assert told([*futures[:3], *futures[4:]]) == ["FIRST", "SECOND", "A1", "A2", "B2", "A3"]
    assert isinstance(futures[3].exception(60), type(error))
    assert [party for party, patient in ctx.parties[2:] if not patient] == [("a1", "bad"), ("a2", "b2"), ("a3",)]


def test_what_one_asks_wrongly_by_itself_is_not_tried_again(going, ctx):
    ctx.spoilt["bad"] = BadInput("no", fix="yes")
    assert going("bad").exception(60) is ctx.spoilt["bad"]
    assert ctx.parties == [(("bad",), False)]


def test_who_is_alone_and_patient_must_be_told_something(together):
    with pytest.raises(TypeError, match="must be told something"):
        together.go("here", "a", lambda asked, *, patient, alone: [DEFERRED for _ in asked], key="a")


def test_of_places_that_were_taken_not_more_are_remembered_than_is_good(together, going, ctx, monkeypatch):
    monkeypatch.setattr("commonbook.sessions.group_commit._MOST_CROWDED", 3)
    ctx.taken = set("abcdefgh")
    for name in "abcdefgh":
        assert told([going(name, place=name)]) == [name.upper()]
        assert len(together._crowded) <= 3


def test_apart_lets_each_come_later(going, ctx):
    ctx.spoilt["never with others"] = RetryAlone()
    futures = held(going, ctx) + [going(name) for name in ("a", "b")]
    bad = going("never with others")
    ctx.go_on()
    assert told(futures) == ["FIRST", "SECOND", "A", "B"]
    with pytest.raises(RetryAlone):
        bad.result(60)


@pytest.mark.parametrize("kind", [DatabaseUnreachable, Busy])
def test_what_concerns_all_is_told_to_all_and_nothing_is_done_again(going, ctx, kind):
    ctx.spoilt["b"] = kind("gone", fix="wait")
    futures = held(going, ctx) + [going(name) for name in ("a", "b", "c")]
    ctx.go_on()
    told(futures[:2])
    errors = [future.exception(60) for future in futures[2:]]
    assert [(type(error), error.message, error.fix) for error in errors] == [(kind, "gone", "wait")] * 3
    assert len({id(error) for error in errors}) == 3
    assert [error.__cause__ for error in errors] == [None, errors[0], errors[0]]
    assert [party for party, _ in ctx.parties[2:]] == [("a", "b", "c")]


def test_who_waits_behind_what_failed_goes_by_itself(going, ctx):
    ctx.spoilt["first"] = DatabaseUnreachable("gone", fix="wait")
    first, second = held(going, ctx)
    rest = [going(name, place=name) for name in "abc"]
    ctx.go_on()
    assert first.exception(60) is ctx.spoilt["first"]
    assert told([second, *rest]) == ["SECOND", "A", "B", "C"]
    assert sorted(ctx.parties[2:]) == [(("a",), True), (("b",), True), (("c",), True)]


def test_who_waits_for_what_is_taken_itself_keeps_nobody_from_the_same_place(together, going, ctx):
    place: Workplace = ctx
    ctx.held.add("stuck")
    reached, go_on = threading.Event(), threading.Event()

    def do(asked: Sequence[str], /, *, patient: bool, alone: bool) -> Sequence[str | Deferred]:
        if alone:
            reached.set()
            assert go_on.wait(60)
        return place.do(asked, patient=patient, alone=alone)

    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(together.go, "here", "stuck", do, key="stuck")
        assert reached.wait(60)
        # The place is free, and so are other things in it.
        assert told([going("other")]) == ["OTHER"]
        go_on.set()
        assert told([stuck]) == ["STUCK"]
    assert ctx.parties == [(("stuck",), False), (("stuck",), True), (("other",), True), (("stuck",), True)]


def test_who_has_waited_as_long_for_what_is_busy_is_told_so_and_who_came_late_goes_next(together, ctx, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("commonbook.sessions.group_commit.time.monotonic", lambda: now[0])
    together._note_crowd("here")
    began, go_on = threading.Semaphore(0), threading.Event()
    parties: list[Sequence[str]] = []

    def do(asked: Sequence[str], /, *, patient: bool, alone: bool) -> Sequence[str | Deferred]:
        parties.append(tuple(asked))
        if "first" in asked:
            began.release()
            assert go_on.wait(60)
            now[0] = 0.9
            raise Busy("too long", fix="again")
        return [one.upper() for one in asked]

    def waits(name: str, number: int) -> Future[str]:
        future = pool.submit(together.go, "here", name, do, key=name)
        while together.waiting("here") < number:
            threading.Event().wait(0.001)
        return future

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(together.go, "here", "first", do, key="first")
        assert began.acquire(timeout=60)
        early = [waits("a", 1), waits("b", 2)]
        now[0] = 0.8
        late = [waits("c", 3), waits("d", 4)]
        go_on.set()
        errors = [future.exception(60) for future in (first, *early)]
        assert [str(error) for error in errors] == ["too long"] * 3
        assert told(late) == ["C", "D"]
    assert parties == [("first",), ("c", "d")]


def test_nobody_is_left_waiting_by_a_leader_that_was_interrupted(going, ctx):
    ctx.spoilt["a"] = KeyboardInterrupt()
    futures = held(going, ctx) + [going(name) for name in ("a", "b")]
    ctx.go_on()
    told(futures[:2])
    assert isinstance(futures[2].exception(60), KeyboardInterrupt)
    with pytest.raises(Busy, match="may have been made or not"):
        futures[3].result(60)
    ctx.spoilt.clear()
    assert told([going("later")]) == ["LATER"]


def test_a_thread_that_is_interrupted_when_it_is_to_lead_leaves_nobody_waiting(together, going, ctx):
    idents: list[int] = []

    def interrupted() -> None:
        idents.append(threading.get_ident())
        together.go("here", "hit", ctx.do, key="hit")

    with ThreadPoolExecutor(1) as pool:
        futures = held(going, ctx)
        hit = pool.submit(interrupted)
        while not together.waiting():
            time.sleep(0.001)
        rest = [going(name) for name in "ab"]
        # It is told when it wakes up, and that is when it is to lead the others.
        raising = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert raising(ctypes.c_ulong(idents[0]), ctypes.py_object(Interruption)) == 1
        ctx.go_on()
        assert told([*futures, *rest]) == ["FIRST", "SECOND", "A", "B"]
        with pytest.raises(Interruption):
            hit.result(60)
    assert together._queues == {}


def test_nobody_waits_for_a_quick_party_that_is_stuck(together, going, ctx, monkeypatch):
    monkeypatch.setattr("commonbook.sessions.group_commit._LONG", 0.05)
    stuck = held(going, ctx)
    rest = [going(name, place=name) for name in "ab"]
    # They go when they have waited for a while, though nobody has let them.
    assert ctx.stopped.acquire(timeout=60)
    assert (("a", "b"), False) in ctx.parties
    assert not any(future.done() for future in stuck)
    ctx.go_on()
    assert told([*stuck, *rest]) == ["FIRST", "SECOND", "A", "B"]
    assert together._queues == {}


def test_nobody_hurries_those_who_are_patient(together, going, ctx, monkeypatch):
    monkeypatch.setattr("commonbook.sessions.group_commit._LONG", 0.02)
    ctx.taken = set("abc")
    monkeypatch.setattr(together, "_is_crowded", lambda place: True)
    ctx.stop()
    futures = [going(name) for name in "abc"]
    assert ctx.stopped.acquire(timeout=60)
    time.sleep(0.2)
    assert ctx.parties == [(("a",), True)]
    ctx.go_on()
    assert told(futures) == ["A", "B", "C"]
    assert ctx.parties[1:] == [(("b", "c"), True)]


def test_nothing_is_left_when_everybody_has_gone(together, going, ctx):
    futures = held(going, ctx) + [going(name, place=name) for name in "abc"]
    ctx.go_on()
    told(futures)
    assert together.waiting() == together.waiting("a") == 0
    assert together._queues == {}


def test_a_forked_child_waits_for_nobody(together, going, ctx):
    futures = held(going, ctx)
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            ctx.go_on()
            done = ThreadPoolExecutor(1).submit(together.go, "here", "child", ctx.do, key="child")
            os._exit(0 if done.result(30) == "CHILD" else 1)
        finally:
            # However it goes, the child is no second test run.
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    ctx.go_on()
    assert told(futures) == ["FIRST", "SECOND"]


class Luck:
    """Does what is asked for, unless it happens to find a place taken, to be in the way or to be lost."""

    def __init__(self, seed: int) -> None:
        self._chance, self.lock = random.Random(seed), threading.Lock()
        self.done, self._at_it = Counter[str](), Counter[str]()
        self.wrong: list[str] = []

    def do(self, asked: Sequence[tuple[str, str]], /, *, patient: bool, alone: bool) -> Sequence[str | Deferred]:
        assert patient or not alone
        must = alone
        with self.lock:
            self._at_it.update(key for key, _ in asked)
            self.wrong += [f"two of {key} at once" for key, _ in asked if self._at_it[key] > 1]
            luck = self._chance.random()
        time.sleep(luck / 500)
        with self.lock:
            self._at_it.subtract(key for key, _ in asked)
            if luck < 0.1 and not must:
                raise RetryAlone
            if luck > 0.97:
                raise DatabaseUnreachable("gone")
            outcomes = [name if must or self._chance.random() < 0.7 else DEFERRED for _, name in asked]
            self.done.update(one for one in outcomes if isinstance(one, str))
        return outcomes


@pytest.mark.parametrize("seed", range(5))
def test_at_random_each_is_done_once_and_never_two_of_a_key_at_once(seed):
    together, luck = GroupCommit(), Luck(seed)
    answered, lost = Counter[str](), Counter[str]()

    def caller(number: int) -> None:
        for name in (f"{number}:{at}" for at in range(60)):
            try:
                told = together.go(f"place {name[-1]}", (str(number), name), luck.do, key=str(number))
            except DatabaseUnreachable:
                lost[name] += 1
            else:
                answered[told] += 1
                assert told == name

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(caller, range(12)))
    assert luck.wrong == []
    assert luck.done == answered
    assert len(answered) + len(lost) == 12 * 60
    assert {*answered.values(), *lost.values()} == {1}
    assert together._queues == {}
