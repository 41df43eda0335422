"""Threads that append to one book: two are held in their transactions until the others wait for the group commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from commonbook.service.book import Book
from commonbook.values.session import AppendReceipt, NewMessage


class Crowd:
    """Threads that append to one book; two of them are held in their transactions until the others wait."""

    def __init__(self, book: Book, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.book, self._pool = book, pool
        self.transactions = 0
        self._open = threading.Event()
        write = book._engines.db.write

        def counted(*given: Any, **named: Any) -> object:
            if threading.current_thread() is not threading.main_thread():
                self.transactions += 1
                assert self._open.wait(60)
            return write(*given, **named)

        monkeypatch.setattr(book._engines.db, "write", counted)
        # A held thread must not be taken for stuck.
        monkeypatch.setattr("commonbook.subjects.sessions.group_commit._STUCK_SECONDS", 60.0)

    def keep_two(self) -> list[Future[AppendReceipt]]:
        """Start appends to two sessions that no other thread uses."""
        futures = [self._append(name, "kept", self.book) for name in ("kept-1", "kept-2")]
        until(lambda: self.transactions == 2)
        return futures

    def append(self, session: str, text: str, *, book: Book | None = None, **given: str) -> Future[AppendReceipt]:
        """Let a thread append, and return when it waits."""
        before = self.book._appender.group_commit.waiting()
        future = self._append(session, text, book or self.book, **given)
        until(lambda: self.book._appender.group_commit.waiting() > before)
        return future

    def _append(self, session: str, text: str, book: Book, **given: str) -> Future[AppendReceipt]:
        message = NewMessage(text, client_id=given.get("key"))
        return self._pool.submit(book.append, session, [message], space=space_of(session))

    def go_on(self) -> None:
        self._open.set()


def space_of(session: str) -> str:
    """Return the space of a session of the crowd: a and b are in the first room, and so on."""
    return f"room/{'abcdef'.index(session) // 2}" if len(session) == 1 else f"elsewhere/{session}"


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.001)


@contextmanager
def crowding(book: Book, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    """Create sessions a to f, two each in three spaces, and two for the held threads; yield the crowd."""
    for name in "abcdef":
        book.append(name, [NewMessage("Good morning.", client_id="0")], space=space_of(name))
    for name in ("kept-1", "kept-2"):
        book.append(name, ["Good morning."], space=space_of(name))
    with ThreadPoolExecutor(20) as pool:
        crowd = Crowd(book, pool, monkeypatch)
        yield crowd
        crowd.go_on()


def stored_texts(book: Book, session: str) -> list[str]:
    return [message.text for message in book.messages(session).items]


def receipts_of(futures: Sequence[Future[AppendReceipt]]) -> list[tuple[str, int, bool]]:
    answers = [future.result(60) for future in futures]
    return [(answer.session, answer.messages[0].seq, answer.messages[0].new) for answer in answers]
