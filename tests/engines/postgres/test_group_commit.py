"""Group commit of appends of several threads on PostgreSQL: with locks of others, and with lost connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

import commonbook
from commonbook.engines.postgres.connections import PooledConnection
from commonbook.engines.postgres.database import PostgresDatabase
from commonbook.errors import Busy, NotAllowed, NotReplicated
from commonbook.service.book import Book
from commonbook.subjects.sessions.append import Appender
from commonbook.subjects.sessions.group_commit import GroupCommit, NotRun
from tests.support.crowds import Crowd, crowding, receipts_of, space_of, stored_texts, until
from tests.support.statements import recorded

HOLD_HEAD = "SELECT 1 FROM log_head JOIN space ON space.id = log_head.space WHERE name = %s FOR UPDATE OF log_head"
HOLD_JOB = "UPDATE job SET state = 'running' WHERE subject = %s RETURNING 1"
HOLD_SESSION = "SELECT 1 FROM session WHERE id = %s FOR UPDATE"
HOLD_SESSIONS = "SELECT 1 FROM session WHERE id LIKE %s FOR UPDATE"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def address(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_book[1])
    return postgres_book[0]


@pytest.fixture
def book(address: str) -> Iterator[Book]:
    with commonbook.open(address) as opened:
        yield opened


@pytest.fixture
def crowd(book: Book, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    with crowding(book, monkeypatch) as made:
        yield made


@contextmanager
def held(address: str, statement: str, name: str) -> Iterator[None]:
    """Let another connection hold a row lock until the block ends."""
    with psycopg.connect(address) as holder:
        assert holder.execute(statement, (name,)).fetchall()
        yield


@pytest.mark.parametrize(("hold", "name"), [(HOLD_HEAD, "room/0"), (HOLD_SESSION, "a")], ids=["space", "session"])
def test_nobody_waits_for_what_only_another_means(crowd, book, address, hold, name):
    futures = crowd.keep_two() + [crowd.append(name, "It rains.", key="1") for name in "acef"]
    with held(address, hold, name):
        crowd.go_on()
        assert receipts_of([*futures[:2], *futures[3:]])[2:] == [(name, 2, True) for name in "cef"]
        assert not futures[2].done()
    assert receipts_of(futures[2:3]) == [("a", 2, True)]
    assert book.verify_log().findings == ()


def test_who_waits_by_itself_keeps_nobody_else_from_going(crowd, book, address):
    crowd.go_on()
    with held(address, HOLD_HEAD, "room/0"), held(address, HOLD_SESSION, "c"):
        kept = [crowd._append(name, "It rains.", book) for name in "abc"]
        until(lambda: crowd.transactions >= 4)
        others = [crowd._append(name, "It rains.", book) for name in "ef"]
        assert receipts_of(others) == [(name, 2, True) for name in "ef"]
        assert not any(future.done() for future in kept)
    assert receipts_of(kept) == [(name, 2, True) for name in "abc"]
    assert book.verify_log().findings == ()


def gathered(monkeypatch: pytest.MonkeyPatch, books: Mapping[str, Book]) -> Callable[..., Sequence[Any]]:
    """Return a function that appends a message to each of these sessions in one batch, each by its own book."""
    requests: list[Any] = []

    def submit(_group_commit: GroupCommit, _space: str, request: object, *_others: object, **_named: object) -> None:
        requests.append(request)

    with monkeypatch.context() as patched:
        patched.setattr(GroupCommit, "submit", submit)
        for name, book in books.items():
            book.append(name, ["It rains."], space=space_of(name))
    return partial(book._appender._append_all, requests)


def wait_for_waiting(address: str, number: int) -> None:
    """Wait until so many connections wait for a lock."""
    with psycopg.connect(address, autocommit=True) as looking:
        until(lambda: looking.execute(WAITING).fetchone() == (number,))


def test_who_finds_everything_taken_commits_nothing(crowd, book, address, monkeypatch):
    do = gathered(monkeypatch, {"a": book, "b": book})
    with held(address, HOLD_HEAD, "room/0"), recorded(monkeypatch) as statements:
        assert do(patient=False) == [NotRun.LOCKED] * 2
    assert "COMMIT" not in statements
    assert [stored_texts(book, name)[1:] for name in "ab"] == [[], []]


def test_those_who_are_patient_wait_for_their_space_in_one_transaction(crowd, book, address, monkeypatch):
    do = gathered(monkeypatch, {"a": book, "b": book})
    with ThreadPoolExecutor(1) as pool:
        crowd.go_on()
        with held(address, HOLD_HEAD, "room/0"):
            waiting = pool.submit(do, patient=True)
            wait_for_waiting(address, 1)
        assert [one.messages[0].seq for one in waiting.result(60)] == [2, 2]
    assert crowd.transactions == 1
    assert book.verify_log().findings == ()


def test_who_is_patient_waits_for_no_session_unless_it_is_alone(crowd, book, address, monkeypatch):
    do = gathered(monkeypatch, {"a": book, "b": book})
    with held(address, HOLD_SESSION, "a"):
        first, second = do(patient=True)
        assert first is NotRun.LOCKED
        assert second.messages[0].seq == 2


def test_a_session_is_not_looked_for_where_another_is(crowd, book, address, monkeypatch):
    places = book._appender.session_spaces
    places["room/0", "a"] = places["room/2", "e"]
    do = gathered(monkeypatch, dict.fromkeys("abe", book))
    with held(address, HOLD_HEAD, "room/0"):
        first, second, third = do(patient=False)
    assert (first, second) == (NotRun.MUST_RUN_ALONE, NotRun.LOCKED)
    assert third.messages[0].seq == 2


@pytest.mark.promise("access.races")
def test_nobody_is_stored_with_others_behind_a_rename_that_took_the_space_out_of_its_reach(
    crowd, book, address, monkeypatch
):
    book.create_space("room")
    book.grant("agent:ada", "room", "writer")
    do = gathered(monkeypatch, {"a": book, "b": book.acting_as("agent:ada")})
    crowd.go_on()
    with ThreadPoolExecutor(2) as pool, commonbook.open(address) as other:
        with held(address, HOLD_HEAD, "room/0"):
            renamed = pool.submit(other.rename_space, "room/0", "attic")
            wait_for_waiting(address, 1)
            waiting = pool.submit(do, patient=True)
            wait_for_waiting(address, 2)
        renamed.result(60)
        assert waiting.result(60) == [NotRun.MUST_RUN_ALONE] * 2
    assert [stored_texts(book, name)[1:] for name in "ab"] == [[], []]


def test_a_job_that_a_worker_has_in_hand_keeps_nobody_from_other_spaces(crowd, address):
    futures = crowd.keep_two()
    kept = crowd._pool.submit(crowd.book.append, "a", ["It rains."] * 40, space="room/0")
    until(lambda: crowd.book._appender.group_commit.waiting() == 1)
    futures += [crowd.append(name, "It rains.", key="1") for name in "cef"]
    with held(address, HOLD_JOB, "a"):
        crowd.go_on()
        assert receipts_of(futures)[2:] == [(name, 2, True) for name in "cef"]
        assert not kept.done()
    assert receipts_of([kept]) == [("a", 2, True)]


def test_a_session_that_is_taken_keeps_nobody_from_others_of_its_space(book, address):
    for name in "ab":
        book.append(name, ["Good morning."], space="room")
    with ThreadPoolExecutor(2) as pool, held(address, HOLD_SESSION, "a"):
        stuck = pool.submit(book.append, "a", ["It rains."], space="room")
        until(lambda: book._appender.group_commit._contended_until)
        assert receipts_of([pool.submit(book.append, "b", ["It snows."], space="room")]) == [("b", 2, True)]
        assert not stuck.done()
    assert receipts_of([stuck]) == [("a", 2, True)]


@pytest.mark.parametrize(
    ("hold", "name"),
    [(HOLD_HEAD, "room"), (HOLD_SESSION, "s0"), (HOLD_SESSIONS, "s%")],
    ids=["space", "session", "sessions"],
)
def test_however_many_wait_for_what_is_taken_others_find_a_connection(address, monkeypatch, hold, name):
    monkeypatch.setenv("COMMONBOOK_BUSY_SECONDS", "3")
    monkeypatch.setenv("COMMONBOOK_CONNECTIONS", "4")
    with commonbook.open(address) as book, ThreadPoolExecutor(20) as pool:
        for at in range(12):
            book.append(f"s{at}", ["Good morning."], space="room")
        book.append("free", ["Good morning."], space="elsewhere")
        which = ["s0"] * 12 if hold == HOLD_SESSION else [f"s{at}" for at in range(12)]
        with held(address, hold, name):
            stuck = [pool.submit(book.append, session, ["It rains."], space="room") for session in which]
            while not all(future.done() for future in stuck):
                receipts_of([pool.submit(book.append, "free", ["It snows."], space="elsewhere")])
        assert {type(future.exception(60)) for future in stuck} == {Busy}


def test_those_who_wait_for_one_space_go_together_when_it_is_free(crowd, book, address):
    futures = crowd.keep_two() + [crowd.append(name, "It rains.", key="1") for name in "ab"]
    with held(address, HOLD_HEAD, "room/0"):
        crowd.go_on()
        receipts_of(futures[:2])
        until(lambda: crowd.transactions == 4)
        place = book._appender.session_spaces["room/0", "a"]
        # The first of both waits for the space by itself; those who come meanwhile wait for it together.
        until(lambda: book._appender.group_commit.waiting(place) == 1)
        more = [crowd._append(name, "It snows.", book, key="2") for name in "ab"]
        until(lambda: book._appender.group_commit.waiting(place) == 3)
    assert receipts_of(futures[2:]) == [("a", 2, True), ("b", 2, True)]
    assert sorted(receipts_of(more)) == [("a", 3, True), ("b", 3, True)]
    assert book.verify_log().findings == ()


@pytest.mark.promise("access.races")
@pytest.mark.parametrize("how", ["grant", "key"])
def test_whose_right_is_taken_while_it_writes_is_refused_and_the_others_are_stored(
    crowd, book, address, monkeypatch, how
):
    book.create_space("room")
    book.grant("agent:ada", "room", "writer")
    key = book.create_key("agent:ada", label="writes")
    ada = book.with_key(key.secret) if how == "key" else book.acting_as("agent:ada")
    first = threading.Lock()
    append = Appender._append_to_session

    def revoking(self, ctx, request, locked=None):
        answer = append(self, ctx, request, locked)
        if request.caller.actor.principal == "agent:ada" and first.acquire(blocking=False):
            with ThreadPoolExecutor(1) as pool, commonbook.open(address) as other:
                if how == "grant":
                    pool.submit(other.revoke, "agent:ada", "room").result(60)
                else:
                    pool.submit(other.revoke_key, key.key.id).result(60)
        return answer

    monkeypatch.setattr(Appender, "_append_to_session", revoking)
    futures = [*crowd.keep_two(), crowd.append("c", "It rains.", key="1")]
    bad = crowd.append("a", "Ada was here.", book=ada)
    if how == "key":
        # Another key of the same name still opens what it did.
        second = book.create_key("agent:ada", label="writes too")
        futures.append(crowd.append("d", "It rains.", book=book.with_key(second.secret)))
    crowd.go_on()
    assert receipts_of(futures)[2:] == [(name, 2, True) for name in "cd"[: len(futures) - 2]]
    with pytest.raises(NotAllowed):
        bad.result(60)
    assert stored_texts(book, "a") == ["Good morning."]


def test_a_connection_that_is_lost_in_the_commit_stores_all_of_them_once(crowd, book, address, monkeypatch):
    leave = psycopg.Pipeline.__exit__
    blows: list[int] = []

    def cut(pipe: psycopg.Pipeline, *error: Any) -> None:
        if threading.current_thread() is not threading.main_thread() and not blows and crowd.transactions == 3:
            blows.append(pipe._conn.info.backend_pid)
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", (blows[0],))
            time.sleep(0.1)
        leave(pipe, *error)

    futures = crowd.keep_two() + [crowd.append(name, "It rains.") for name in "abcdef"]
    monkeypatch.setattr(psycopg.Pipeline, "__exit__", cut)
    crowd.go_on()
    assert receipts_of(futures)[2:] == [(name, 2, True) for name in "abcdef"]
    assert len(blows) == 1
    assert [stored_texts(book, name)[1:] for name in "abcdef"] == [["It rains."]] * 6
    assert book.verify_log().findings == ()


def test_who_is_not_stored_yet_is_not_told_that_another_is_on_one_server_alone(crowd, book, address, monkeypatch):
    run_attempt = PostgresDatabase._run_attempt

    def warned(self: PostgresDatabase, pooled: PooledConnection, *arguments: Any, **options: Any) -> object:
        answer = run_attempt(self, pooled, *arguments, **options)
        if crowd.transactions == 3 and threading.current_thread() is not threading.main_thread():
            raise NotReplicated("the change was made, but may be on one server only", fix="look")
        return answer

    monkeypatch.setattr(PostgresDatabase, "_run_attempt", warned)
    kept = crowd.keep_two()
    made, taken = crowd.append("a", "It rains."), crowd.append("c", "It snows.")
    with held(address, HOLD_SESSION, "c"):
        crowd.go_on()
        receipts_of(kept)
        with pytest.raises(NotReplicated):
            made.result(60)
    assert receipts_of([taken]) == [("c", 2, True)]
    assert [stored_texts(book, name)[1:] for name in "ac"] == [["It rains."], ["It snows."]]
