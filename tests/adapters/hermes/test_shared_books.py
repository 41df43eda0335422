"""One book for all providers of a process, as Hermes' gateway makes them: one for each request, never shut down."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest

from commonbook.adapters.hermes import shared_book
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.adapters.hermes.shared_book import SharedBook, shared_books
from commonbook.errors import Busy
from commonbook.service.book import Book
from tests.support.hermes import everything, reading, turns_of
from tests.support.running_threads import wait_for_threads

REQUESTS = int(os.environ.get("COMMONBOOK_REQUESTS", "60"))


@pytest.fixture
def request_of(place, tmp_path):
    """Return a function that is one request of the API: a provider that is used for a turn and dropped."""
    CommonbookMemoryProvider().save_config({"write_seconds": 60, "recall_seconds": 7}, str(tmp_path / "hermes"))

    def run(session, user="where does the heron nest", assistant="By the mill.", **arguments):
        provider = CommonbookMemoryProvider()
        arguments = {"hermes_home": str(tmp_path / "hermes"), "platform": "api_server", **arguments}
        provider.initialize(session, **arguments)
        provider.on_turn_start(1, user)
        recalled = provider.prefetch(user, session_id=session)
        messages = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        provider.sync_turn(user, assistant, session_id=session, messages=messages)
        provider.queue_prefetch(user, session_id=session)
        return recalled

    yield run
    until(lambda: not any(book.users for book in books()))
    for book in books():
        book._last_use, book._left = -shared_book.LINGER_SECONDS, set()
        shared_books.close_if_unused(book)


def books() -> list[SharedBook]:
    return list(shared_books._books.values())


def until(condition):
    """Wait until every provider that was dropped is released too."""
    end = time.monotonic() + 60
    while not condition():
        gc.collect()
        assert time.monotonic() < end
        time.sleep(0.01)


def resources() -> tuple[int, int]:
    """Return the numbers of open files and of threads, once nothing of a request runs any more."""
    until(lambda: not any(book.users for book in books()))
    wait_for_threads(("commonbook-prefetch", "commonbook-hermes-prefetch", "commonbook-hermes-recall"))
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_requests_that_are_never_shut_down_leave_nothing_open(request_of, place):
    for number in range(20):
        request_of(f"s{number}")
    files, threads = resources()
    for number in range(20, REQUESTS):
        request_of(f"s{number}")
    files_now, threads_now = resources()
    # PostgreSQL keeps connections in a pool, which may have grown by one.
    assert files_now <= files + 2
    assert threads_now <= threads + 1
    assert len(books()) == 1
    with reading(place) as book:
        stored = everything(book)
    assert {name: turns_of(messages) for name, (_, messages) in stored.items()} == {
        f"s{number}": [("where does the heron nest", "By the mill.")] for number in range(REQUESTS)
    }


def test_recalls_of_many_requests_run_a_few_at_once(request_of, monkeypatch):
    # Each arena of the C library keeps what the largest recall in one of its threads needed.
    running: list[int] = []
    recall, lock = Book.recall, threading.Lock()
    at_once = 0

    def noted(book, *arguments, **options):
        nonlocal at_once
        with lock:
            at_once += 1
            running.append(at_once)
        try:
            return recall(book, *arguments, **options)
        finally:
            with lock:
                at_once -= 1

    monkeypatch.setattr(Book, "recall", noted)
    for number in range(20):
        request_of(f"s{number % 5}")
    resources()
    assert 1 <= max(running) <= 4


def test_a_provider_that_is_shut_down_leaves_the_book_to_the_others(provider, place, tmp_path):
    other = CommonbookMemoryProvider()
    provider.initialize("s1")
    other.initialize("s2", hermes_home=str(tmp_path / "hermes"))
    assert len(books()) == 1
    other.shutdown()
    provider.sync_turn("where", "there")
    provider.shutdown()
    assert not books()
    with reading(place) as book:
        assert turns_of(everything(book)["s1"][1]) == [("where", "there")]


def test_a_provider_can_be_dropped_while_locks_are_held(provider, tmp_path):
    provider.initialize("s1")
    (book,) = books()
    dropped = CommonbookMemoryProvider()
    dropped.initialize("s2", hermes_home=str(tmp_path / "hermes"))
    with book.append_lock, book._spill_lock, book._chores_lock, shared_books._lock:
        del dropped
        gc.collect()
    until(lambda: book.users == 1)


def test_words_of_a_dropped_provider_are_stored(request_of, place, tmp_path):
    provider = CommonbookMemoryProvider()
    provider.initialize("s1", hermes_home=str(tmp_path / "hermes"), platform="api_server")
    provider.on_turn_start(1, "count every reed")
    # Held back, since the turn before is open.
    provider.on_turn_start(2, "no, stop")
    del provider
    until(lambda: not any(book.users for book in books()))
    with reading(place) as book:
        assert [message.text for message in everything(book)["s1"][1]] == ["count every reed", "no, stop"]


def test_a_book_that_nobody_uses_is_closed_after_a_while(request_of, monkeypatch):
    monkeypatch.setattr(shared_book, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(shared_book, "CHORES_EVERY", 0.05)
    monkeypatch.setattr(shared_book, "SILENCE", timedelta(0))
    request_of("s1")
    until(lambda: not books())
    until(lambda: not any(thread.name.startswith("commonbook-hermes") for thread in threading.enumerate()))


def test_sessions_of_requests_are_closed_after_a_silence(request_of, place, monkeypatch):
    monkeypatch.setattr(shared_book, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(shared_book, "CHORES_EVERY", 0.05)
    request_of("s1")
    with reading(place) as book:
        book.append("other", ["of another agent"], space=book.sessions()[0].space.name, tags=["claude"])
    until(lambda: books() and not books()[0].users and books()[0]._left)
    with reading(place) as book:
        assert book.messages("s1").session.closed is None
    monkeypatch.setattr(shared_book, "SILENCE", timedelta(0))
    until(lambda: not books())
    with reading(place) as book:
        page = book.messages("s1")
        assert page.session.closed is not None
        assert all(message.episode for message in page.items)
        assert book.messages("other").session.closed is None


def test_recalls_that_hang_take_a_bounded_number_of_threads(provider):
    provider.initialize("s1")
    go_on = threading.Event()
    keeper = provider._active.keeper
    before = threading.active_count()
    try:
        for _ in range(2 * shared_book.MAX_ASIDE):
            with suppress(Busy):
                keeper.read(lambda _: go_on.wait(60), wait=0.001)
        assert threading.active_count() <= before + shared_book.MAX_ASIDE
        # A recall that cannot be started does not stop a turn.
        assert provider.prefetch("where") == ""
    finally:
        go_on.set()
    wait_for_threads(("commonbook-hermes-recall",))
    assert keeper.read(lambda _: "again", wait=60) == "again"
