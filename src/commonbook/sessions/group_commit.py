"""Callers that come while others are at it go together: one of them does it for all who wait.

What each asks for is about one thing, its key, in one place, which only one may be at. A quick party is about any
places, and waits for none of them: whoever finds its place taken is told to come later. Then it goes with those who
wait for the same place, and for nothing else: whose own thing is taken waits for that by itself, behind those who want
the same. So whatever is the matter with a place or with one thing in it, nobody waits for it who does not ask for it,
and of those who do, one at a time asks the database. And nobody waits for others to come: whoever finds few at it goes
at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from commonbook.errors import Busy, CommonbookError, HomeError
from commonbook.runtime.fork_safety import renewed_in_child

Asked = TypeVar("Asked")
Told = TypeVar("Told")
Asked_contra = TypeVar("Asked_contra", contravariant=True)
Told_co = TypeVar("Told_co", covariant=True)
Failed = TypeVar("Failed", bound=CommonbookError)

_QUICK: Final = ""
_MOST: Final = 32
_LARGEST: Final = 200
_LONG: Final = 1.0
"""After so many seconds nobody waits for a quick party any more: its connection may be stuck."""
_CROWDED: Final = 1.0
"""For so many seconds whoever asks for a place that was taken joins those who wait for it at once."""
_MOST_CROWDED: Final = 10_000


class Deferred:
    """What somebody is told whose place is taken, or who cannot do it with the others: nothing was done for it."""


DEFERRED: Final = Deferred()


class RetryAlone(Exception):
    """Nothing was done for anybody: each is to come later, by itself if need be."""


class BatchOperation(Protocol[Asked_contra, Told_co]):
    """Does what several ask for at once, and says what each is told; what is raised is told to all of them.

    Who is `patient` waits for its place. Who is `alone` waits for whatever it needs, and is told something.
    """

    def __call__(
        self, asked: Sequence[Asked_contra], /, *, patient: bool, alone: bool
    ) -> Sequence[Told_co | Deferred | CommonbookError]:
        """Do it."""


_Does: TypeAlias = Callable[[Sequence[Asked]], Sequence[Told | Deferred | CommonbookError]]


class GroupCommit:
    """Where the callers of one process wait for each other."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.begin_anew()
        renewed_in_child(self)

    def begin_anew(self) -> None:
        """Forget everybody: of all threads only the one that forked is here."""
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}
        self._crowded: dict[str, float] = {}

    def go(self, place: str, asked: Asked, do: BatchOperation[Asked, Told], *, key: str, size: int = 1) -> Told:
        """Do it, with others who wait; of those with the same `key`, one at a time.

        A party is limited in number, and in the `size` of all of them. Who is larger by itself goes alone, so that
        nobody waits for it. So does the main thread: a signal may interrupt it, and nobody is to be interrupted with
        it.
        """
        if size <= _LARGEST and threading.current_thread() is not threading.main_thread():
            for queue, patient, alone in ((_QUICK, False, False), (place, True, False), (f"{place} {key}", True, True)):
                if not patient and self._is_crowded(place):
                    continue
                joined = self._join(queue, _Waiter(asked, key, size), partial(do, patient=patient, alone=alone))
                if not isinstance(joined, Deferred):
                    return joined
                self._note_crowd(place)
        (told,) = do((asked,), patient=True, alone=True)
        if isinstance(told, CommonbookError):
            raise told
        if isinstance(told, Deferred):
            raise TypeError("who is alone must be told something")
        return told

    def waiting(self, place: str = _QUICK) -> int:
        """Return how many wait for a place, or to go with a quick party."""
        with self._lock:
            return len(self._queues[place].waiting) if place in self._queues else 0

    # --- places

    def _is_crowded(self, place: str) -> bool:
        until = self._crowded.get(place)
        return until is not None and time.monotonic() < until

    def _note_crowd(self, place: str) -> None:
        if len(self._crowded) >= _MOST_CROWDED:
            self._crowded.clear()
        self._crowded[place] = time.monotonic() + _CROWDED

    # --- parties

    def _join(self, name: str, seat: _Waiter[Asked, Told], do: _Does[Asked, Told]) -> Told | Deferred:
        """Go at once if few are at it, else with those who wait."""
        try:
            with self._lock:
                queue = self._queues.setdefault(name, _Queue(quick=name == _QUICK))
                if queue.has_room():
                    queue.let_go([seat])
                else:
                    queue.waiting.append(seat)
            while not seat.party and not seat.wait(_LONG):
                self._look_after(name)
            if seat.party:
                self._lead(name, seat, do)
        except BaseException:
            self._quit(name, seat)
            raise
        if isinstance(seat.outcome, BaseException):
            raise seat.outcome
        return seat.outcome

    def _lead(self, name: str, leader: _Waiter[Asked, Told], do: _Does[Asked, Told]) -> None:
        """Do it for a party, let the next go, and tell each what came of it."""
        party = leader.party
        outcomes: Sequence[Told | Deferred | BaseException] = [_interrupted() for _ in party]
        began = time.monotonic()
        dismissed: _Dismissed = _nobody
        try:
            leader.began = True
            outcomes = do([seat.asked for seat in party])
        except RetryAlone:
            outcomes = [DEFERRED] * len(party)
        except Busy as error:
            # It concerns all of them; and whoever has waited for the same about as long does not wait for it again.
            outcomes = one_error_each(error, len(party))
            dismissed = partial(_too_late, error, (began + time.monotonic()) / 2)
        except HomeError as error:
            # It concerns all of them, and perhaps those who wait: each finds out for itself.
            outcomes = one_error_each(error, len(party))
            dismissed = _later
        except Exception as error:  # noqa: BLE001 - raised by the one whom it concerns, who does it again alone
            outcomes = [error] if len(party) == 1 else [DEFERRED] * len(party)
        finally:
            self._end(name, leader, outcomes, dismissed)

    def _quit(self, name: str, seat: _Waiter[Any, Any]) -> None:
        """Leave no gap where a thread is interrupted from outside, wherever that was: others count on it."""
        with self._lock:
            queue = self._queues.get(name)
            if queue is not None and seat in queue.waiting:
                queue.waiting.remove(seat)
        self._end(name, seat, [_interrupted() if seat.began else DEFERRED for _ in seat.party], _nobody)

    def _end(self, name: str, leader: _Waiter[Any, Any], outcomes: Sequence[object], dismissed: _Dismissed) -> None:
        """Let the next go, and tell each of a party what came of it, unless that was done already."""
        if leader.party and leader.next is None:
            self._leave(name, leader, dismissed)
        for seat in leader.next or ():
            seat.call()
        for seat, outcome in zip(leader.party, outcomes, strict=True):
            if not seat.told:
                seat.outcome = outcome
                if seat is not leader:
                    seat.call()
                seat.told = True

    def _leave(self, name: str, leader: _Waiter[Any, Any], dismissed: _Dismissed) -> None:
        """Let a party go; of those who wait, tell some what they are told, and let the next of the others lead."""
        with self._lock:
            queue = self._queues[name]
            queue.under_way.remove(leader)
            called = leader.next = queue.dismiss(dismissed)
            if party := queue.next_party():
                called += party[:1]
                queue.let_go(party)
            if not queue.under_way:
                del self._queues[name]

    def _look_after(self, name: str) -> None:
        """Let the next go where those who are at it have been so for too long to be waited for."""
        with self._lock:
            queue = self._queues.get(name)
            party = queue.next_party() if queue is not None and not queue.soon_done() else []
            if queue is not None and party:
                queue.let_go(party)
        for seat in party[:1]:
            seat.call()


class _Waiter(Generic[Asked, Told]):
    """Somebody who waits, until it is told something or is to lead a party."""

    def __init__(self, asked: Asked, key: str, size: int) -> None:
        self.asked, self.key, self.size = asked, key, size
        self.party: Sequence[_Waiter[Asked, Told]] = ()
        self.outcome: Told | Deferred | BaseException = DEFERRED
        self.since = time.monotonic()
        self.went = 0.0
        self.began = self.told = False
        self.next: list[_Waiter[Any, Any]] | None = None
        """Whom it has let go, if it led a party that has gone."""
        self._called = threading.Lock()
        self._called.acquire()

    def wait(self, seconds: float) -> bool:
        return self._called.acquire(timeout=seconds)

    def call(self) -> None:
        # Called a second time it goes on as well.
        with suppress(RuntimeError):
            self._called.release()


_Dismissed: TypeAlias = Callable[[_Waiter[Any, Any]], Deferred | Busy | None]
"""Says what somebody is told who waits behind what has failed; nothing to whoever goes on waiting."""


class _Queue:
    """Those who wait, and the leaders of the parties that are under way."""

    def __init__(self, *, quick: bool) -> None:
        self._quick = quick
        self.waiting: deque[_Waiter[Any, Any]] = deque()
        self.under_way: list[_Waiter[Any, Any]] = []

    def has_room(self) -> bool:
        """Tell whether another may go at once: where two come now and then, they do not wait for each other."""
        sizes = [len(leader.party) for leader in self.soon_done()]
        return not sizes or (self._quick and sizes == [1] and not self.waiting)

    def soon_done(self) -> list[_Waiter[Any, Any]]:
        """Return the leaders who are worth waiting for: a quick party that takes long is stuck, and nobody else is."""
        if not self._quick:
            return self.under_way
        since = time.monotonic() - _LONG
        return [leader for leader in self.under_way if leader.went > since]

    def let_go(self, party: list[_Waiter[Any, Any]]) -> None:
        """Let the first of a party lead it."""
        self.under_way.append(party[0])
        party[0].went = time.monotonic()
        party[0].party = party

    def dismiss(self, dismissed: _Dismissed) -> list[_Waiter[Any, Any]]:
        """Take those off who are told something now, and return them."""
        told = [(seat, outcome) for seat in self.waiting if (outcome := dismissed(seat)) is not None]
        for seat, outcome in told:
            seat.outcome = outcome
            self.waiting.remove(seat)
        return [seat for seat, _ in told]

    def next_party(self) -> list[_Waiter[Any, Any]]:
        """Take those off who go together next, in the order in which they came."""
        if self.soon_done() and len(self.waiting) > 1:
            # The more go together the better: whoever is still at it lets them go.
            return []
        party: list[_Waiter[Any, Any]] = []
        keys: set[str] = set()
        size = 0
        for seat in list(self.waiting):
            if seat.key in keys:
                continue
            size += seat.size
            if party and (len(party) == _MOST or size > _LARGEST):
                break
            keys.add(seat.key)
            party.append(seat)
        for seat in party:
            self.waiting.remove(seat)
        return party


def _nobody(_: _Waiter[Any, Any]) -> None:
    return None


def _later(_: _Waiter[Any, Any]) -> Deferred:
    return DEFERRED


def _too_late(error: Busy, since: float, seat: _Waiter[Any, Any]) -> Busy | None:
    return _copied(error) if seat.since <= since else None


def one_error_each(error: Failed, count: int) -> list[Failed]:
    """Return an error for each of several threads to raise."""
    return [error, *(_copied(error) for _ in range(count - 1))]


def _copied(error: Failed) -> Failed:
    """Return an error for another thread to raise: each notes where it was raised."""
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error
    return copied


def _interrupted() -> Busy:
    return Busy(
        "whoever wrote for several at once was interrupted, so this may have been made or not",
        fix="send the same again with its key, or look whether it is there",
    )
