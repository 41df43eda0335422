"""Sends what is in an outbox: who looks when, what the server's answer means, and when to try again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from commonbook.errors import CommonbookError, Refused, ServerBusy, ServerFailed, TransportError
from commonbook.model.ids import new_id
from commonbook.ports.outbox import DeliveryOutcome, Outbox, OutboxBatch, Transport
from commonbook.runtime.fork_safety import renewed_in_child

MOST_FAILURES: Final = 500
"""How often a server may fail on a message before the message steps aside: some hours of tries."""

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 60.0
_LONGEST_ASKED: Final = 3600.0
_MOST: Final = 100
_MOST_BYTES: Final = 1024 * 1024
_GLANCE: Final = 0.2
_LOOK_AGAIN: Final = 5.0
_GOODBYE: Final = 0.5
_DICE: Final = random.SystemRandom()  # A forked child does not throw its parent's numbers.


class Sender:
    """Sends in threads, or without `background` only while somebody waits for it.

    What one sender has taken, another may take after twice the time that the server has for an answer.
    """

    def __init__(
        self, transport: Transport, outbox: Outbox, *, background: bool, threads: int, answer_seconds: float
    ) -> None:
        """Begin with no thread; `wake` starts one."""
        self._transport, self._outbox = transport, outbox
        self._background, self._most_threads = background, threads
        self._answer_seconds = answer_seconds
        self.closed = False
        self.begin_anew()
        renewed_in_child(self)

    def begin_anew(self) -> None:
        """Have no thread, at first and in a forked child: those of the parent are not here."""
        self._changed = threading.Condition()
        self._news = 0
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._leases: set[str] = set()
        self.trouble: CommonbookError | None = None

    def wake(self) -> None:
        """Look at the outbox now."""
        if self._background:
            self._watch()
        self._tell()

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Send, or let the threads send, until something is so; tell whether it was in time."""
        end = time.monotonic() + seconds
        while True:
            seen = self._news
            if done():
                return True
            left = end - time.monotonic()
            if left <= 0 or self.closed:
                return False
            # Other processes send too, and do not tell: so look now and then.
            if self._background or not self._send(min(left, self._answer_seconds)):
                self._rest(seen, min(left, _GLANCE, self._outbox.soonest() or _GLANCE))

    def close(self) -> None:
        """Stop, soon, whatever the network does."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
            threads, end = list(self._threads), time.monotonic() + _GOODBYE
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        # Who still waits for an answer will not use it: the next process need not wait for the leases to end.
        if leases := list(self._leases):
            with suppress(CommonbookError):
                self._outbox.release(leases)

    # --- sending

    def _send(self, seconds: float) -> bool:
        """Send the next messages of some session; tell whether there were any."""
        token = new_id()
        # Known before it is taken: a client that is closed at that moment gives it back.
        self._leases.add(token)
        try:
            parcel = self._outbox.take(token, lease=2 * self._answer_seconds, most=_MOST, most_bytes=_MOST_BYTES)
            if parcel is None:
                return False
            if self.closed:
                self._outbox.release([token])
                return False
            with self._away():
                self._outbox.settle(parcel, self._deliver(parcel, seconds))
        finally:
            self._leases.discard(token)
        self._tell()
        return True

    def _deliver(self, parcel: OutboxBatch, seconds: float) -> DeliveryOutcome:
        entries = tuple(parcel.entries.values())
        try:
            answer = self._transport.append(parcel.session, entries, context=parcel.context, timeout=seconds)
        except TransportError as error:
            return outcome_of(parcel, error, share=_DICE.random())
        except BaseException as error:
            # A transport with a mistake in it, or a person who interrupts: put off, and then as loud as it came.
            mistake = ServerFailed(f"the transport raised {type(error).__name__}")
            at_fault = isinstance(error, Exception)
            self._outbox.settle(
                parcel, outcome_of(parcel, mistake, share=_DICE.random()) if at_fault else DeliveryOutcome()
            )
            raise
        sent = tuple(position for position, entry in parcel.entries.items() if entry.client_id in answer)
        return (
            DeliveryOutcome(sent)
            if sent
            else outcome_of(parcel, ServerFailed("the server took none"), share=_DICE.random())
        )

    # --- threads

    def _tell(self) -> None:
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    def _watch(self) -> None:
        """See to it that somebody looks at the outbox while others wait for the server."""
        with self._changed:
            if not self._idle and len(self._threads) < self._most_threads and not self.closed:
                self._idle += 1
                thread = threading.Thread(target=self._work, name="commonbook-outbox", daemon=True)
                self._threads.add(thread)
                try:
                    thread.start()
                except RuntimeError:
                    # No more threads, or the interpreter ends: what is in the outbox is sent later.
                    self._idle -= 1
                    self._threads.discard(thread)

    def _work(self) -> None:
        try:
            while not self.closed:
                self._look()
        finally:
            # A thread that an error ended, which Python has then printed, is followed by another.
            with self._changed:
                self._idle -= 1
                self._threads.discard(threading.current_thread())
            if not self.closed:
                self._watch()

    def _look(self) -> None:
        seen = self._news
        try:
            if self._send(self._answer_seconds):
                return
            pause, self.trouble = self._outbox.soonest(), None
        except CommonbookError as error:
            # A full disk, say: what was acknowledged and could not be struck off is sent again, and known by its id.
            pause, self.trouble = None, error
        self._rest(seen, _LOOK_AGAIN if pause is None else min(pause, _LOOK_AGAIN))

    def _rest(self, seen: int, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._news != seen or self.closed, timeout=seconds)

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Wait for the server, while another thread looks at the outbox."""
        with self._changed:
            self._idle -= 1
        if self._background:
            self._watch()
        try:
            yield
        finally:
            with self._changed:
                self._idle += 1


# --- decisions


def outcome_of(parcel: OutboxBatch, error: TransportError, *, share: float) -> DeliveryOutcome:
    """Decide what becomes of messages that were not acknowledged; `share`, from 0 to 1, is the jitter."""
    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(parcel.tries, 20)) * (1 + share) / 2
    single = len(parcel.entries) == 1
    match error:
        case Refused():
            named = [at for at, entry in parcel.entries.items() if single or entry.client_id in error.client_ids]
            return DeliveryOutcome(refused=dict.fromkeys(named, error.message), reason=error.message, alone=not named)
        case ServerFailed() if single and parcel.failures + 1 >= MOST_FAILURES:
            reason = f"the server failed on it {MOST_FAILURES} times, at last with: {error.message}"
            return DeliveryOutcome(refused=dict.fromkeys(parcel.entries, reason))
        case ServerFailed():
            # Which message it was, nobody knows: each goes alone, so that one does not hold up the others for ever.
            return DeliveryOutcome(reason=error.message, pause=pause, failed=True, alone=True)
        case ServerBusy():
            asked = min(error.retry_after, _LONGEST_ASKED)
            return DeliveryOutcome(reason=error.message, pause=max(pause, asked), asked=True)
    return DeliveryOutcome(reason=error.message, pause=pause)
