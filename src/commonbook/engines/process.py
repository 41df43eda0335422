"""The process and its neighbours: a fair lock between processes, handlers of forks, and the system clock.

The fair lock consists of advisory file locks (flock) on a lock file and a turnstile file. Waiters acquire it in the
order of their arrival. The kernel releases it when its holder dies. The holder writes its name into the lock file, so
that `Busy` can name it.

Before a fork a gate closes connections, and both sides open them again after it. SQLite keeps its locks and its shared
memory in tables of the process: a forked child inherits the tables but not the locks, and would read and write pages
that are no longer valid.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from weakref import WeakSet

from commonbook.errors import Busy, HomeError
from commonbook.runtime import reset_in_child

_FIRST_PAUSE_SECONDS: Final = 0.000_05
_MAX_PAUSE_SECONDS: Final = 0.000_4
_SPIN_SECONDS: Final = 0.01

_FilePair = tuple[int, int]


class FairLock:
    """A fair lock on two files.

    A process locks the turnstile (`NAME.turn`) before the lock itself, and keeps it while it waits for the lock. So a
    process that has just released the lock cannot overtake one that waits. The kernel releases both locks when a
    process dies.
    """

    def __init__(self, path: str) -> None:
        """Remember the path; the files are opened at the first use."""
        self._path = path
        self._thread_lock = threading.Lock()
        self._files: _FilePair | None = None
        self._queued_files: list[_FilePair] = []
        reset_in_child(self)

    @contextmanager
    def hold(self, wait: float) -> Iterator[None]:
        """Hold the lock; raise Busy, naming the holder, when it cannot be acquired within `wait` seconds."""
        self.acquire(wait)
        try:
            yield
        finally:
            self.release()

    def acquire(self, wait: float) -> None:
        """Acquire the lock, which `release` releases; raise Busy when it cannot be had within `wait` seconds."""
        deadline = time.monotonic() + wait
        if not self._thread_lock.acquire(timeout=wait):
            raise busy_error(self._path, wait)
        try:
            self._acquire_files(wait, deadline)
        except BaseException:
            self._thread_lock.release()
            raise

    def _acquire_files(self, wait: float, deadline: float) -> None:
        files = self._own_files()
        try:
            acquired = self._try_acquire(files) or self._spin(files, deadline) or self._wait_in_queue(deadline)
        except BaseException:
            # Interrupted while waiting: closing the files releases what was locked just then.
            self.close()
            raise
        if not acquired:
            raise busy_error(self._path, wait)
        try:
            record_holder(self._own_files()[1])
        except BaseException:
            self._release_file()
            raise

    def release(self) -> None:
        """Release the lock."""
        try:
            self._release_file()
        finally:
            self._thread_lock.release()

    def _release_file(self) -> None:
        # Files that were closed meanwhile, as after a fork, hold nothing any more.
        if self._files is not None:
            fcntl.flock(self._files[1], fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files."""
        files, self._files = self._files, None
        if files is not None:
            _close(files)

    def __del__(self) -> None:
        """Close the files of a lock that was not closed: bare descriptors would stay open."""
        with suppress(AttributeError, OSError):
            self.close()

    def reset_after_fork(self) -> None:
        """Close the parent's files in a forked child: otherwise the parent's lock would outlive the parent."""
        self._thread_lock = threading.Lock()
        self.close()
        while self._queued_files:
            _close(self._queued_files.pop())

    def _own_files(self) -> _FilePair:
        if self._files is None:
            self._files = self._open_files()
        return self._files

    def _open_files(self) -> _FilePair:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path + ".turn", flags, 0o600), os.open(self._path, flags, 0o600)

    @staticmethod
    def _try_acquire(files: _FilePair) -> bool:
        turn, lock = files
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)
        return True

    def _spin(self, files: _FilePair, deadline: float) -> bool:
        """Try again after short pauses: most holders release within a millisecond, and a thread costs as much.

        This overtakes no queued waiter, since that one holds the turnstile.
        """
        pause = _FIRST_PAUSE_SECONDS
        end = min(deadline, time.monotonic() + _SPIN_SECONDS)
        while time.monotonic() < end:
            time.sleep(pause)
            if self._try_acquire(files):
                return True
            pause = min(pause * 1.5, _MAX_PAUSE_SECONDS)
        return False

    def _wait_in_queue(self, deadline: float) -> bool:
        """Wait in the kernel's first-in-first-out queue, in a thread, since flock has no time-out.

        The thread locks files of its own and hands them over when its turn comes. So a caller may stop waiting at any
        moment without closing files that the thread still uses.
        """
        decision = threading.Lock()
        acquired_event = threading.Event()
        abandoned = False

        def wait_in_queue() -> None:
            files = self._open_files()
            self._queued_files.append(files)
            fcntl.flock(files[0], fcntl.LOCK_EX)
            fcntl.flock(files[1], fcntl.LOCK_EX)
            fcntl.flock(files[0], fcntl.LOCK_UN)
            with decision:
                self._queued_files.remove(files)
                if abandoned:
                    fcntl.flock(files[1], fcntl.LOCK_UN)
                    _close(files)
                else:
                    self.close()
                    self._files = files
                    acquired_event.set()

        try:
            threading.Thread(target=wait_in_queue, name="commonbook-lock", daemon=True).start()
            acquired_event.wait(max(0.0, deadline - time.monotonic()))
        finally:
            with decision:
                abandoned = not acquired_event.is_set()
        return not abandoned


def _close(files: _FilePair) -> None:
    for fd in files:
        os.close(fd)


_HOLDER_BYTES: Final = 200


def record_holder(lock_fd: int) -> None:
    """Write the name of this process, which holds the lock, into the lock file, unless it is there already.

    A file that was only read need not be written to the disk.
    """
    description = _description(os.getpid(), sys.argv[0] if sys.argv else "")
    if os.pread(lock_fd, _HOLDER_BYTES, 0) != description:
        os.pwrite(lock_fd, description, 0)


@lru_cache(maxsize=8)
def _description(process: int, program: str) -> bytes:
    """Return the name of a process, padded to its full length; each write of a process records the same one."""
    named = f"process {process} ({os.path.basename(program) or 'python'})"
    return named.encode("utf-8", "replace")[:_HOLDER_BYTES].ljust(_HOLDER_BYTES)


def busy_error(path: str, wait: float) -> Busy:
    """Return the error for a lock that could not be acquired within `wait` seconds; it names the holder."""
    holder = "another process"
    with suppress(OSError), open(path, "rb") as file:
        holder = file.read(_HOLDER_BYTES).decode("utf-8", "replace").strip() or holder
    return Busy(
        f"{os.path.basename(path)} was held for {wait:.0f} s by {holder}",
        fix="wait for that process or end it; COMMONBOOK_BUSY_SECONDS sets how long to wait",
    )


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)


_DRAIN_SECONDS: Final = 30.0


class ForkGate:
    """Lets any number of threads use a resource, and shuts while the process forks."""

    def __init__(self, release: Callable[[], None]) -> None:
        """Call `release` before each fork, when no thread is inside."""
        self._release = release
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._entries: dict[int, int] = {}
        self._is_shut = False
        self._forked_inside = False
        _GATES.add(self)

    def __enter__(self) -> None:
        """Enter the gate; meanwhile no other thread can fork."""
        if self._forked_inside:
            raise HomeError(
                "this process was forked in the middle of a transaction, and cannot use the book",
                fix="fork outside of transactions, or start processes with the method `spawn`",
            )
        thread_id = threading.get_ident()
        # The lock itself is entered and left without a call of Python's, the condition is not.
        with self._lock:
            if self._is_shut:
                self._changed.wait_for(lambda: not self._is_shut or thread_id in self._entries)
            self._entries[thread_id] = self._entries.get(thread_id, 0) + 1

    def __exit__(self, *_: object) -> None:
        """Leave the gate."""
        thread_id = threading.get_ident()
        with self._lock:
            # A child that was forked inside begins without entries.
            if (entered := self._entries.get(thread_id, 0)) > 1:
                self._entries[thread_id] = entered - 1
            else:
                self._entries.pop(thread_id, None)
            if self._is_shut:
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until no other thread is inside, then release; not if the forking thread is inside itself."""
        thread_id = threading.get_ident()
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: not self._entries.keys() - {thread_id}, timeout=_DRAIN_SECONDS)
            if not self._entries:
                self._release()

    def open_again(self) -> None:
        """Let threads in again, in the parent after the fork."""
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()

    def open_in_child(self) -> None:
        """Start over in the child, which has only the thread that forked."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._forked_inside = bool(self._entries)
        self._entries = {}
        self._is_shut = False


_GATES: Final[WeakSet[ForkGate]] = WeakSet()


def _for_each_gate(action: Callable[[ForkGate], None]) -> Callable[[], None]:
    def handler() -> None:
        for gate in list(_GATES):
            action(gate)

    return handler


os.register_at_fork(
    before=_for_each_gate(ForkGate.shut),
    after_in_parent=_for_each_gate(ForkGate.open_again),
    after_in_child=_for_each_gate(ForkGate.open_in_child),
)
