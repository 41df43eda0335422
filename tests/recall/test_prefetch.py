"""Prefetch: a recall begun in advance belongs to one session, one generation and one query, and nobody waits for it.

No test sleeps for ten seconds: a recall is slow here until the test lets it go on.
"""

from __future__ import annotations

import threading
import time

import pytest

from commonbook.errors import BadInput
from commonbook.subjects.recall import prefetch
from tests.support.running_threads import wait_for_threads


class Slow:
    """A book's recall, held up until the test lets it go on."""

    def __init__(self, book, monkeypatch):
        self.begun, self.go_on, self.ended = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)
        real = book.recall

        def recall(query, **options):
            self.begun.release()
            assert self.go_on.wait(60)
            try:
                return real(query, **options)
            finally:
                self.ended.release()

        monkeypatch.setattr(book, "recall", recall)

    def wait_begun(self):
        assert self.begun.acquire(timeout=60)

    def finish(self):
        self.go_on.set()
        assert self.ended.acquire(timeout=60)
        wait_for_threads()


@pytest.fixture
def slow(book, monkeypatch):
    book.append("s", ["the heron nests", "the otter swims"])
    slow = Slow(book, monkeypatch)
    yield slow
    slow.go_on.set()
    wait_for_threads()


def at_once(call):
    begun = time.monotonic()
    result = call()
    assert time.monotonic() - begun < 30, "somebody waited for a recall"
    return result


@pytest.fixture
def sent(book):
    return [one.id for one in book.append("s", ["the heron nests", "the otter swims"]).messages]


def test_a_prefetched_recall_is_what_a_recall_would_have_been(book, sent):
    assert book.prefetch("s", "heron", k=1)
    fetched = book.prefetched("s", "heron", wait=30)
    assert fetched is not None
    assert fetched.hits == book.recall("heron", k=1).hits
    assert fetched.hits[0].id == sent[0]


def test_a_consumed_prefetch_is_not_handed_out_twice(book, sent):
    book.prefetch("s", "heron")
    assert book.prefetched("s", "heron", wait=30) is not None
    assert book.prefetched("s", "heron") is None


def test_two_who_ask_at_once_do_not_both_get_it(book, slow):
    book.prefetch("s", "heron")
    got = []
    takers = [threading.Thread(target=lambda: got.append(book.prefetched("s", "heron", wait=30))) for _ in range(8)]
    for taker in takers:
        taker.start()
    slow.wait_begun()
    slow.finish()
    for taker in takers:
        taker.join()
    assert len([one for one in got if one is not None]) == 1


def test_a_prefetch_for_one_query_is_not_handed_to_another(book, sent):
    book.prefetch("s", "heron")
    assert book.prefetched("s", "otter", wait=30) is None
    assert book.prefetched("t", "heron", wait=30) is None
    assert book.prefetched("s", "heron", wait=30) is not None


def test_the_last_query_is_the_one_that_counts(book, slow):
    book.prefetch("s", "heron")
    slow.wait_begun()
    book.prefetch("s", "otter")
    slow.wait_begun()
    slow.finish()
    assert slow.ended.acquire(timeout=60)
    assert book.prefetched("s", "heron", wait=1) is None
    assert book.prefetched("s", "otter", wait=30).hits[0].text == "the otter swims"


@pytest.mark.promise("hermes.people")
def test_a_switch_returns_at_once_and_the_late_result_is_never_handed_out(book, slow):
    book.prefetch("s", "heron")
    slow.wait_begun()
    assert at_once(lambda: book.switch("s", "new")).unsettled == 0
    slow.finish()
    for session in ("s", "new"):
        assert book.prefetched(session, "heron", wait=1) is None
    book.switch("new", "s", reason="resume")
    assert book.prefetched("s", "heron", wait=1) is None


def test_a_result_that_was_there_before_a_switch_is_void_after_it(book, slow):
    book.prefetch("s", "heron")
    slow.wait_begun()
    slow.finish()
    book.switch("s", "new")
    book.switch("new", "s", reason="resume")
    assert book.prefetched("s", "heron", wait=1) is None


def test_a_switch_by_another_process_voids_it_too(book, slow, open_book):
    book.prefetch("s", "heron")
    slow.wait_begun()
    open_book().switch("s", "new")
    slow.finish()
    assert book.prefetched("s", "heron", wait=1) is None


def test_a_rewind_voids_what_was_fetched(book, slow, open_book):
    for rewinding in (book, open_book()):
        book.append("s", ["one more"])
        book.prefetch("s", "heron")
        rewinding.rewind("s", 1)
        slow.wait_begun()
        slow.finish()
        assert book.prefetched("s", "heron", wait=1) is None


def test_waiting_is_bounded_and_does_not_spend_the_result(book, slow):
    book.prefetch("s", "heron")
    slow.wait_begun()
    assert at_once(lambda: book.prefetched("s", "heron")) is None
    assert at_once(lambda: book.prefetched("s", "heron", wait=0.05)) is None
    with pytest.raises(BadInput):
        book.prefetched("s", "heron", wait=-1)
    slow.finish()
    assert book.prefetched("s", "heron", wait=30) is not None


def test_a_shutdown_waits_for_no_recall(book, slow):
    book.prefetch("s", "heron")
    slow.wait_begun()
    at_once(book.close)


def test_too_many_at_once_are_left_out_and_there_is_room_again_afterwards(book, slow):
    began = [book.prefetch(f"s{number}", "heron") for number in range(prefetch._MAX_RUNNING + 2)]
    assert began == [True] * prefetch._MAX_RUNNING + [False] * 2
    for _ in range(prefetch._MAX_RUNNING):
        slow.wait_begun()
    slow.finish()
    assert book.prefetch("s", "otter")
    assert book.prefetched("s", "otter", wait=30) is not None


def test_a_recall_that_fails_gives_nothing_and_leaves_room(book, sent):
    for _ in range(prefetch._MAX_RUNNING + 1):
        assert book.prefetch("s", "heron", k=0)
        assert book.prefetched("s", "heron", wait=30) is None
    with pytest.raises(BadInput):
        book.recall("heron", k=0)
    assert book.prefetch("s", "heron")
    assert book.prefetched("s", "heron", wait=30) is not None


def test_nothing_is_fetched_that_is_not_good_enough(book, sent):
    book.prefetch("s", "quarterly tax return deadline")
    fetched = book.prefetched("s", "quarterly tax return deadline", wait=30)
    assert fetched is not None
    assert fetched.hits == ()
    book.prefetch("s", "heron", min_confidence=1)
    assert book.prefetched("s", "heron", wait=30).hits == ()


def test_sessions_do_not_share_what_is_fetched(book, slow):
    book.append("t", ["the heron flies"])
    for session in ("s", "t"):
        book.prefetch(session, "heron")
        slow.wait_begun()
    book.switch("s", "new")
    slow.finish()
    assert slow.ended.acquire(timeout=60)
    assert book.prefetched("t", "heron", wait=30) is not None
    assert book.prefetched("s", "heron", wait=1) is None


def test_no_more_is_kept_than_there_is_room_for(book, sent, monkeypatch):
    monkeypatch.setattr(prefetch, "_MAX_SESSIONS", 3)
    for name in "abcde":
        book.append(name, ["the heron nests"])
        book.prefetch(name, "heron")
        wait_for_threads()
    assert [book.prefetched(name, "heron") is not None for name in "abcde"] == [False, False, True, True, True]


def test_a_switch_by_another_process_while_somebody_waits_voids_it(book, slow, open_book):
    book.append("s", ["about walruses"])
    book.prefetch("s", "walrus")
    handed: list[object] = []
    waiting = threading.Thread(target=lambda: handed.append(book.prefetched("s", "walrus", wait=20)))
    waiting.start()
    open_book().switch("s", "new")
    slow.finish()
    waiting.join()
    assert handed == [None]


def test_a_first_append_does_not_void_what_was_fetched_before_it(book, slow, open_book):
    for session, other in (("fresh", book), ("elsewhere", open_book())):
        book.prefetch(session, "heron")
        slow.wait_begun()
        other.append(session, ["good morning"])
        slow.finish()
        assert book.prefetched(session, "heron", wait=30).hits[0].text == "the heron nests"


@pytest.mark.parametrize("old", ["s", "never-heard-of"])
def test_a_switch_to_or_from_a_session_without_messages_voids_what_was_fetched_for_it(book, slow, open_book, old):
    for session in (old, "fresh"):
        book.prefetch(session, "heron")
        slow.wait_begun()
    open_book().switch(old, "fresh")
    slow.finish()
    for session in (old, "fresh"):
        assert book.prefetched(session, "heron", wait=1) is None


@pytest.mark.parametrize("where", ["a memory", "a message"])
def test_what_was_fetched_is_not_handed_out_when_the_right_to_it_was_taken_away(book, open_book, where):
    if where == "a memory":
        book.remember("the kestrel hovers", space="team")
    else:
        book.append("talk", ["the kestrel hovers"], space="team")
    book.grant("user:alice", "team", "reader")
    alice = book.acting_as("user:alice")
    assert alice.prefetch("s", "kestrel", spaces="team")
    (hit,) = alice.prefetched("s", "kestrel", wait=30).hits
    assert hit.passage == "the kestrel hovers"
    assert alice.prefetch("s", "kestrel", spaces="team")
    wait_for_threads()
    open_book().revoke("user:alice", "team")
    assert alice.prefetched("s", "kestrel", wait=30) is None


@pytest.mark.promise("access.revoked")
def test_the_nearest_of_a_prefetched_result_is_not_told_after_a_revocation(book):
    book.remember("Alice owns the billing service", space="team")
    book.grant("user:bob", "team", "reader")
    bob, question = book.acting_as("user:bob", space="team"), "what is the password of the printer"
    assert bob.prefetch("s", question)
    fetched = bob.prefetched("s", question, wait=30)
    assert fetched.hits == ()
    assert fetched.nearest is not None
    assert bob.prefetch("s", question)
    wait_for_threads()
    book.revoke("user:bob", "team")
    assert bob.prefetched("s", question, wait=30) is None
