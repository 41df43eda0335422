"""Group commit of appends: each append of a shared transaction is stored once, in order, with its own receipt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial

import pytest

from commonbook.core.tables import sessions
from commonbook.errors import DatabaseUnreachable, HomeDamaged, KeyConflict, NotAllowed
from commonbook.ports.database import Transaction
from commonbook.service.book import Book
from commonbook.service.serving import answer_once
from commonbook.subjects.sessions.append import Appender
from tests.support.crowds import Crowd, crowding, receipts_of, space_of, stored_texts, until

pytestmark = pytest.mark.promise("sessions.group-commit")


@pytest.fixture
def crowd(book: Book, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    with crowding(book, monkeypatch) as made:
        yield made


def test_those_who_wait_are_stored_in_one_transaction(crowd, book):
    futures = crowd.keep_two() + [crowd.append(name, f"Heron {name} nests.", key="1") for name in "abcdef"]
    crowd.go_on()
    assert receipts_of(futures)[2:] == [(name, 2, True) for name in "abcdef"]
    assert crowd.transactions == 3
    assert [stored_texts(book, name) for name in "abcdef"] == [
        ["Good morning.", f"Heron {name} nests."] for name in "abcdef"
    ]
    assert book.verify_log().findings == ()
    for at in range(3):
        pair = "abcdef"[2 * at : 2 * at + 2]
        logged = [entry for entry in book.log(space=f"room/{at}") if entry.action == "append"]
        assert [entry.payload.count(f'"{name}"') for entry, name in zip(logged[-2:], pair, strict=True)] == [1, 1]
    found = {hit.text for hit in book.recall("heron", spaces=[f"room/{at}" for at in range(3)]).hits}
    assert all(any(f"Heron {name} nests." in text for text in found) for name in "abcdef")


def test_what_was_sent_before_is_a_repeat_in_a_crowd_too(crowd, book):
    futures = crowd.keep_two()
    futures += [crowd.append("a", "Good morning.", key="0"), crowd.append("b", "It rains.", key="1")]
    futures += [crowd.append("c", "Good morning.", key="0")]
    crowd.go_on()
    assert receipts_of(futures)[2:] == [("a", 1, False), ("b", 2, True), ("c", 1, False)]
    assert crowd.transactions == 3


def test_two_for_one_session_come_one_after_the_other(crowd, book):
    futures = crowd.keep_two() + [crowd.append("a", text) for text in ("one", "two", "three")]
    futures += [crowd.append("b", "four")]
    crowd.go_on()
    assert receipts_of(futures)[2:] == [("a", 2, True), ("a", 3, True), ("a", 4, True), ("b", 2, True)]
    assert stored_texts(book, "a") == ["Good morning.", "one", "two", "three"]
    assert crowd.transactions == 3
    assert book.verify_log().findings == ()


def test_a_message_that_is_sent_twice_at_once_is_stored_once(crowd, book):
    futures = crowd.keep_two() + [crowd.append("a", "It rains.", key="1") for _ in range(3)]
    crowd.go_on()
    assert receipts_of(futures)[2:] == [("a", 2, True), ("a", 2, False), ("a", 2, False)]
    assert stored_texts(book, "a") == ["Good morning.", "It rains."]
    assert crowd.transactions == 3


@pytest.mark.parametrize("same_content", [True, False])
def test_of_two_requests_at_once_with_one_idempotency_key_one_is_carried_out(crowd, book, same_content):
    def request(text: str) -> Callable[[], str]:
        call = partial(Book.append, session="a", messages=[text], space="room/0")
        return partial(answer_once, book, call, key="once", content=text, encode=str)

    futures = crowd.keep_two()
    first = crowd._pool.submit(request("It rains."))
    until(lambda: book._appender.group_commit.waiting() == 1)
    second = crowd._pool.submit(request("It rains." if same_content else "It pours."))
    until(lambda: book._appender.group_commit.waiting() == 2)
    crowd.go_on()
    receipts_of(futures)
    if same_content:
        assert second.result(60) == first.result(60)
    else:
        # Either may be the first when the batch is run again, one by one.
        assert [type(future.exception(60)) for future in (first, second)].count(KeyConflict) == 1
    assert len(stored_texts(book, "a")) == 2


def test_who_sends_what_cannot_be_is_refused_alone(crowd, book):
    futures = crowd.keep_two()
    good = [crowd.append("a", "It rains.", key="1")]
    bad = crowd.append("b", "Something else.", key="0")
    good += [crowd.append("c", "It rains.", key="1")]
    crowd.go_on()
    assert receipts_of(good) == [("a", 2, True), ("c", 2, True)]
    with pytest.raises(KeyConflict) as caught:
        bad.result(60)
    assert caught.value.item == 0
    receipts_of(futures)
    assert [stored_texts(book, name)[1:] for name in "abc"] == [["It rains."], [], ["It rains."]]
    assert book.verify_log().findings == ()


def test_who_sends_by_itself_what_cannot_be_is_refused_at_once(crowd, book):
    crowd.go_on()
    assert isinstance(crowd._append("a", "Something else.", book, key="0").exception(60), KeyConflict)
    assert crowd.transactions == 1


def test_what_is_damaged_for_one_is_told_to_it_alone(crowd, book, monkeypatch):
    append = Appender._append_to_session

    def damaged(self, ctx, request, locked=None):
        if request.session_id == "b":
            raise HomeDamaged("the session cannot be read", fix="restore it")
        return append(self, ctx, request, locked)

    monkeypatch.setattr(Appender, "_append_to_session", damaged)
    futures = crowd.keep_two() + [crowd.append(name, "It rains.") for name in "abc"]
    crowd.go_on()
    assert receipts_of([*futures[:3], futures[4]])[2:] == [("a", 2, True), ("c", 2, True)]
    assert isinstance(futures[3].exception(60), HomeDamaged)


def test_each_acts_in_its_own_name_and_by_its_own_rights(crowd, book):
    book.grant("agent:ada", "room/0", "writer")
    book.grant("agent:eve", "room/0", "reader")
    key = book.create_key("agent:ada", label="reads", limits=[("room/0", "reader")])
    futures = crowd.keep_two()
    good = [crowd.append("a", "Ada was here.", book=book.acting_as("agent:ada"))]
    eve = crowd.append("b", "Eve was here.", book=book.acting_as("agent:eve"))
    good += [crowd.append("c", "The owner was here.")]
    crowd.go_on()
    assert receipts_of([*futures, *good])[2:] == [("a", 2, True), ("c", 2, True)]
    with pytest.raises(NotAllowed):
        eve.result(60)
    limited = book.with_key(key.secret)
    with pytest.raises(NotAllowed):
        limited.append("a", ["By a key that only reads."], space="room/0")
    assert [entry.actor for entry in book.log(space="room/0") if entry.action == "append"][-1] == "agent:ada"
    assert stored_texts(book, "b") == ["Good morning."]
    assert book.verify_log().findings == ()


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_one_key_of_an_actor_is_not_taken_for_another(crowd, book, order):
    book.grant("agent:ada", "room/0", "writer")
    reads = book.create_key("agent:ada", label="reads", limits=[("room/0", "reader")])
    writes = book.create_key("agent:ada", label="writes", limits=[("room/0", "writer")])
    keys = {"a": writes.secret, "b": reads.secret}
    futures = crowd.keep_two()
    sent = {name: crowd.append(name, "Ada was here.", book=book.with_key(keys[name])) for name in order}
    crowd.go_on()
    assert receipts_of([*futures, sent["a"]])[2:] == [("a", 2, True)]
    with pytest.raises(NotAllowed):
        sent["b"].result(60)
    assert stored_texts(book, "b") == ["Good morning."]


@pytest.mark.parametrize("caller", ["another key", "a key without limits", "no key"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_group_commit_checks_each_append_with_the_limits_of_its_own_key(crowd, book, order, caller):
    book.grant("agent:ada", "room", "writer")
    elsewhere = book.create_key("agent:ada", limits=[("room/1", "writer")])
    here = book.create_key("agent:ada", limits=[("room/0", "writer")] if caller == "another key" else None)
    allowed = book.acting_as("agent:ada") if caller == "no key" else book.with_key(here.secret)
    callers = {"a": allowed, "b": book.with_key(elsewhere.secret)}
    kept = crowd.keep_two()
    sent = {name: crowd.append(name, "Ada was here.", book=callers[name]) for name in order}
    crowd.go_on()
    assert receipts_of([*kept, sent["a"]])[2:] == [("a", 2, True)]
    with pytest.raises(NotAllowed):
        sent["b"].result(60)
    assert stored_texts(book, "b") == ["Good morning."]
    logged = [entry.actor for entry in book.log(space="room/0") if entry.action == "append"]
    assert logged[-1] == "agent:ada"
    assert book.verify_log().findings == ()


def test_how_many_messages_go_together_is_limited(crowd, book, monkeypatch):
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._MAX_BATCH_SIZE", 5)
    futures = crowd.keep_two()
    for name in "abc":
        futures.append(crowd._pool.submit(book.append, name, ["It rains.", "It pours."], space=space_of(name)))
        until(lambda: book._appender.group_commit.waiting() == len(futures) - 2)
    crowd.go_on()
    assert receipts_of(futures)[2:] == [(name, 2, True) for name in "abc"]
    # Four of a and b, then two of c.
    assert crowd.transactions == 4


def test_where_a_session_was_seen_is_never_believed(crowd, book):
    places = book._appender.session_spaces
    room_2 = places["room/2", "e"]
    places["room/0", "a"], places["room/1", "c"] = room_2, "nowhere"
    futures = crowd.keep_two() + [crowd.append(name, "It rains.") for name in "ace"]
    crowd.go_on()
    assert receipts_of(futures)[2:] == [(name, 2, True) for name in "ace"]
    places["room/0", "b"] = room_2
    assert book.append("b", ["In the main thread."], space="room/0").messages[0].seq == 2
    assert [entry.action for at in range(3) for entry in book.log(space=f"room/{at}")].count("append") == 10
    assert book.verify_log().findings == ()


def test_what_goes_wrong_with_the_database_is_told_to_all(crowd, book, monkeypatch):
    write = book._engines.db.write

    def failing(*given: object, **named: object) -> object:
        if crowd.transactions == 2:
            crowd.transactions += 1
            raise DatabaseUnreachable("the server is gone", fix="wait")
        return write(*given, **named)

    futures = crowd.keep_two() + [crowd.append(name, "It rains.") for name in "abc"]
    monkeypatch.setattr(book._engines.db, "write", failing)
    crowd.go_on()
    receipts_of(futures[:2])
    errors = [future.exception(60) for future in futures[2:]]
    assert [str(error) for error in errors] == ["the server is gone"] * 3
    assert [stored_texts(book, name) for name in "abc"] == [["Good morning."]] * 3


def test_appends_to_a_locked_session_hold_no_connection_and_delay_no_others(crowd, book, monkeypatch):
    lock_available, is_locked = sessions.lock_available, threading.Event()
    is_locked.set()

    def lock_others(tx: Transaction, keys: Collection[sessions.SessionKey]) -> object:
        found = lock_available(tx, keys)
        return {key: row for key, row in found.items() if key[1] != "a" or not is_locked.is_set()}

    monkeypatch.setattr(sessions, "lock_available", lock_others)
    crowd.go_on()
    stuck = [crowd._append("a", "It rains.", book) for _ in range(15)]
    until(lambda: crowd.transactions > 15)
    # The others are of the same space and of another one.
    for seq in range(2, 12):
        assert receipts_of([crowd._append(name, "It snows.", book) for name in "bc"]) == [
            (name, seq, True) for name in "bc"
        ]
    assert not any(future.done() for future in stuck)
    # All of them pause now and then: no transaction is open while they do.
    until(lambda: not book._appender.group_commit._queues)
    is_locked.clear()
    assert sorted(receipts_of(stuck)) == [("a", seq, True) for seq in range(2, 17)]
    assert book.verify_log().findings == ()
