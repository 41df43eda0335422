"""Sends the messages of an outbox, in order for each session, with retries: exponential back-off and jitter.

A sender leases a batch of one session, so that several threads and processes do not send the same session at once. A
message that the server refuses, or on which it fails too often, is set aside so that the others go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from commonbook.errors import CommonbookError, Refused, ServerBusy, ServerFailed, TransportError
from commonbook.ports.outbox import DeliveryOutcome, Outbox, OutboxBatch, Transport
from commonbook.runtime import pause_seconds, reset_in_child
from commonbook.values.ids import new_id

MAX_FAILURES: Final = 500
"""How often the server may fail on a message before it is set aside: some hours of attempts."""

_FIRST_PAUSE_SECONDS: Final = 0.25
_MAX_PAUSE_SECONDS: Final = 60.0
_MAX_RETRY_AFTER_SECONDS: Final = 3600.0
_MAX_BATCH_MESSAGES: Final = 100
_MAX_BATCH_BYTES: Final = 1024 * 1024
_POLL_SECONDS: Final = 0.2
_MAX_IDLE_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 0.5


class Sender:
    """Sends in threads, or without `background` only while a caller waits for it.

    The lease of a batch lasts twice as long as the server has for an answer; then another sender may take the batch.
    """

    def __init__(
        self, transport: Transport, outbox: Outbox, *, background: bool, threads: int, answer_seconds: float
    ) -> None:
        """Begin with no thread; `wake` starts one."""
        self._transport, self._outbox = transport, outbox
        self._background, self._max_threads = background, threads
        self._answer_seconds = answer_seconds
        self.closed = False
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Begin without threads, also in a forked child, where those of the parent do not exist."""
        self._changed = threading.Condition()
        self._version = 0
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._leases: set[str] = set()
        self.trouble: CommonbookError | None = None

    def wake(self) -> None:
        """Make a thread look at the outbox now."""
        if self._background:
            self._ensure_idle_thread()
        self._notify()

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Send, or let the threads send, until `done`; return whether that was in time."""
        end = time.monotonic() + seconds
        while True:
            version = self._version
            if done():
                return True
            left = end - time.monotonic()
            if left <= 0 or self.closed:
                return False
            # Other processes send too, and cannot notify this one: so poll.
            if self._background or not self._send(min(left, self._answer_seconds)):
                self._wait(version, min(left, _POLL_SECONDS, self._outbox.soonest() or _POLL_SECONDS))

    def close(self) -> None:
        """Stop within about half a second, whatever the network does."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
            threads, end = list(self._threads), time.monotonic() + _CLOSE_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        # A thread that still waits for an answer ignores it: the next process need not wait for its lease to end.
        if leases := list(self._leases):
            with suppress(CommonbookError):
                self._outbox.release(leases)

    # --- sending

    def _send(self, seconds: float) -> bool:
        """Send the next batch of any session; return whether there was one."""
        token = new_id()
        # Recorded before the batch is leased: a client that is closed at that moment releases it.
        self._leases.add(token)
        try:
            batch = self._outbox.take(
                token, lease=2 * self._answer_seconds, most=_MAX_BATCH_MESSAGES, most_bytes=_MAX_BATCH_BYTES
            )
            if batch is None:
                return False
            if self.closed:
                self._outbox.release([token])
                return False
            with self._waiting_for_server():
                self._outbox.settle(batch, self._deliver(batch, seconds))
        finally:
            self._leases.discard(token)
        self._notify()
        return True

    def _deliver(self, batch: OutboxBatch, seconds: float) -> DeliveryOutcome:
        entries = tuple(batch.entries.values())
        try:
            answer = self._transport.append(batch.session, entries, context=batch.context, timeout=seconds)
        except TransportError as error:
            return outcome_of(batch, error)
        except BaseException as error:
            # A bug in the transport, or an interrupt: the batch is put off or released, and the error goes on.
            failure = ServerFailed(f"the transport raised {type(error).__name__}")
            is_bug = isinstance(error, Exception)
            self._outbox.settle(batch, outcome_of(batch, failure) if is_bug else DeliveryOutcome())
            raise
        sent = tuple(id_ for id_, entry in batch.entries.items() if entry.client_id in answer)
        return DeliveryOutcome(sent) if sent else outcome_of(batch, ServerFailed("the server took none"))

    # --- threads

    def _notify(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def _ensure_idle_thread(self) -> None:
        """Start a thread if none looks at the outbox, since all wait for the server, and another is allowed."""
        with self._changed:
            if not self._idle and len(self._threads) < self._max_threads and not self.closed:
                self._idle += 1
                thread = threading.Thread(target=self._work, name="commonbook-outbox", daemon=True)
                self._threads.add(thread)
                try:
                    thread.start()
                except RuntimeError:
                    # No more threads can be made, or the interpreter ends: the messages are sent later.
                    self._idle -= 1
                    self._threads.discard(thread)

    def _work(self) -> None:
        try:
            while not self.closed:
                self._send_or_wait()
        finally:
            # If an unexpected error ended this thread (Python prints it), another takes its place.
            with self._changed:
                self._idle -= 1
                self._threads.discard(threading.current_thread())
            if not self.closed:
                self._ensure_idle_thread()

    def _send_or_wait(self) -> None:
        version = self._version
        try:
            if self._send(self._answer_seconds):
                return
            pause, self.trouble = self._outbox.soonest(), None
        except CommonbookError as error:
            # A full disk, say. An acknowledged message that could not be removed is sent again, and known by its id.
            pause, self.trouble = None, error
        self._wait(version, _MAX_IDLE_SECONDS if pause is None else min(pause, _MAX_IDLE_SECONDS))

    def _wait(self, version: int, seconds: float) -> None:
        """Wait for a notification after this version, for at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self.closed, timeout=seconds)

    @contextmanager
    def _waiting_for_server(self) -> Iterator[None]:
        """Let another thread look at the outbox while this one waits for the server."""
        with self._changed:
            self._idle -= 1
        if self._background:
            self._ensure_idle_thread()
        try:
            yield
        finally:
            with self._changed:
                self._idle += 1


# --- decisions


def outcome_of(batch: OutboxBatch, error: TransportError, *, share: float | None = None) -> DeliveryOutcome:
    """Decide about a batch that was not acknowledged; `share`, from 0 to 1, fixes the random part of the pause."""
    pause = pause_seconds(batch.tries, first=_FIRST_PAUSE_SECONDS, most=_MAX_PAUSE_SECONDS, share=share)
    single = len(batch.entries) == 1
    match error:
        case Refused():
            named = [id_ for id_, entry in batch.entries.items() if single or entry.client_id in error.client_ids]
            return DeliveryOutcome(refused=dict.fromkeys(named, error.message), reason=error.message, alone=not named)
        case ServerFailed() if single and batch.failures + 1 >= MAX_FAILURES:
            reason = f"the server failed on it {MAX_FAILURES} times, at last with: {error.message}"
            return DeliveryOutcome(refused=dict.fromkeys(batch.entries, reason))
        case ServerFailed():
            # The failing message is unknown: each is sent alone, so that one does not hold up the others for ever.
            return DeliveryOutcome(reason=error.message, pause=pause, failed=True, alone=True)
        case ServerBusy():
            retry_after = min(error.retry_after, _MAX_RETRY_AFTER_SECONDS)
            return DeliveryOutcome(reason=error.message, pause=max(pause, retry_after), requested_by_server=True)
    return DeliveryOutcome(reason=error.message, pause=pause)
