"""A lock file that processes take in turn, that ends with its holder, and that knows who holds it."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from commonbook.errors import Busy
from commonbook.runtime.fork_safety import renewed_in_child

_HOLDER_BYTES: Final = 200
_FIRST_PAUSE: Final = 0.000_05
_MOMENT: Final = 0.01

_Fds = tuple[int, int]


class FairLock:
    """A lock between processes and threads, on two files.

    Everybody passes the turnstile (`NAME.turn`) before the lock itself, and stands in it while waiting
    for the lock: so one who has just released the lock cannot barge in front of one who waits. The
    kernel releases both when a process dies.
    """

    def __init__(self, path: str) -> None:
        """Remember the path; the files are opened at the first use."""
        self._path = path
        self._threads = threading.Lock()
        self._fds: _Fds | None = None
        self._queued: list[_Fds] = []
        renewed_in_child(self)

    @contextmanager
    def hold(self, wait: float) -> Iterator[None]:
        """Hold the lock; raise Busy, naming the holder, when it is not to be had in `wait` seconds."""
        deadline = time.monotonic() + wait
        if not self._threads.acquire(timeout=wait):
            raise self._busy(wait)
        try:
            fds = self._open()
            try:
                got = self._try(fds) or self._linger(fds, deadline) or self._queue(deadline)
            except BaseException:
                # Interrupted while waiting: whatever was got just then is let go with its files.
                self.close()
                raise
            if not got:
                raise self._busy(wait)
            fds = self._open()
            try:
                os.pwrite(fds[1], _whoami().ljust(_HOLDER_BYTES), 0)
                yield
            finally:
                fcntl.flock(fds[1], fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Close the files."""
        fds, self._fds = self._fds, None
        if fds is not None:
            _close(fds)

    def __del__(self) -> None:
        """Close the files of a lock that nobody closed: a number is no file, and would stay open."""
        with suppress(AttributeError, OSError):
            self.close()

    def begin_anew(self) -> None:
        """In a forked child: let go of the parent's open files, with which its lock would outlive it."""
        self._threads = threading.Lock()
        self.close()
        while self._queued:
            _close(self._queued.pop())

    def _open(self) -> _Fds:
        if self._fds is None:
            self._fds = self._files()
        return self._fds

    def _files(self) -> _Fds:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._path + ".turn", flags, 0o600), os.open(self._path, flags, 0o600)

    @staticmethod
    def _try(fds: _Fds) -> bool:
        turn, lock = fds
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

    def _linger(self, fds: _Fds, deadline: float) -> bool:
        """Look again for a moment: most holders are done in a millisecond, and a thread costs as much.

        Nobody who queues is overtaken by that, since he stands in the turnstile; and a moment later one queues too.
        """
        pause = _FIRST_PAUSE
        end = min(deadline, time.monotonic() + _MOMENT)
        while time.monotonic() < end:
            time.sleep(pause)
            if self._try(fds):
                return True
            pause *= 1.5
        return False

    def _queue(self, deadline: float) -> bool:
        """Wait in the kernel's queue, which is in order; a thread does it, since flock knows no time limit.

        The thread queues with files of its own, and hands them over when its turn comes: so whoever stops
        waiting, at whatever moment, takes nothing from under it.
        """
        decided = threading.Lock()
        done = threading.Event()
        abandoned = False

        def stand_in_line() -> None:
            fds = self._files()
            self._queued.append(fds)
            fcntl.flock(fds[0], fcntl.LOCK_EX)
            fcntl.flock(fds[1], fcntl.LOCK_EX)
            fcntl.flock(fds[0], fcntl.LOCK_UN)
            with decided:
                self._queued.remove(fds)
                if abandoned:
                    fcntl.flock(fds[1], fcntl.LOCK_UN)
                    _close(fds)
                else:
                    self.close()
                    self._fds = fds
                    done.set()

        try:
            threading.Thread(target=stand_in_line, name="commonbook-lock", daemon=True).start()
            done.wait(max(0.0, deadline - time.monotonic()))
        finally:
            with decided:
                abandoned = not done.is_set()
        return not abandoned

    def _busy(self, wait: float) -> Busy:
        holder = "another process"
        with suppress(OSError), open(self._path, "rb") as file:
            holder = file.read(_HOLDER_BYTES).decode("utf-8", "replace").strip() or holder
        name = os.path.basename(self._path)
        return Busy(
            f"{name} was held for {wait:.0f} s by {holder}",
            fix="wait for that process or end it; COMMONBOOK_BUSY_SECONDS sets how long to wait",
        )


def _close(fds: _Fds) -> None:
    for fd in fds:
        os.close(fd)


def _whoami() -> bytes:
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
    return f"process {os.getpid()} ({program})".encode("utf-8", "replace")[:_HOLDER_BYTES]
