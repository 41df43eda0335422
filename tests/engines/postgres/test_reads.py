"""Reads from a server that is lost in the middle of an answer are repeated, unnoticed by the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import commonbook
from commonbook.errors import NotFound
from commonbook.service.book import Book
from commonbook.values.session import NewMessage

pytestmark = pytest.mark.promise("postgres.retries")


@pytest.fixture
def book(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with commonbook.open(address) as opened:
        yield opened


@pytest.fixture
def losing(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """End the connection at the n-th wait for a result; the list is empty when that has happened."""
    left: list[int] = []

    def waiting(fetch: Callable[[psycopg.Cursor], Any]) -> Callable[[psycopg.Cursor], Any]:
        def fetching(cursor: psycopg.Cursor) -> Any:
            if left:
                left[0] -= 1
                if not left[0]:
                    left.clear()
                    with psycopg.connect(postgres_book[0], autocommit=True) as other:
                        other.execute("SELECT pg_terminate_backend(%s, 5000)", (cursor.connection.info.backend_pid,))
            return fetch(cursor)

        return fetching

    for name in ("fetchone", "fetchall"):
        monkeypatch.setattr(psycopg.Cursor, name, waiting(getattr(psycopg.Cursor, name)))

    def lose(nth: int) -> list[int]:
        left[:] = [nth]
        return left

    return lose


VERBS: dict[str, Callable[[Book, str], object]] = {
    "get": lambda book, id_: book.get(id_),
    "find_id": lambda book, id_: book.find_id(id_[-12:]),
    "list": lambda book, _: book.list().items,
    "history": lambda book, id_: book.history(id_),
    "links": lambda book, id_: book.links(id_),
    "recall": lambda book, _: [hit.id for hit in book.recall("ledger tower", spaces="/").hits],
    "spaces": lambda book, _: book.spaces(),
    "status": lambda book, _: book.status().memories,
    "doctor": lambda book, _: book.doctor(),
    "verify_log": lambda book, _: book.verify_log(),
    "log": lambda book, _: book.log(space="team"),
    "messages": lambda book, _: book.messages("chat").items,
    "sessions": lambda book, _: book.sessions(),
    "lineage": lambda book, id_: book.lineage(id_),
    "copies": lambda book, id_: book.copies(id_),
    "grants": lambda book, _: book.grants(),
    "keys": lambda book, _: book.keys(),
    "rules": lambda book, _: book.rules(),
    "pending": lambda book, _: book.pending(),
    "limits": lambda book, _: book.limits(),
    "dependents": lambda book, id_: book.dependents(id_),
    "inbox": lambda book, _: book.inbox(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_is_lost_at_any_point_of_an_answer_is_asked_again(book, losing, verb):
    id_ = book.remember("The ledger is kept in the tower.", space="team").id
    book.append("chat", [NewMessage("Where is the ledger?")], space="team")
    book.reindex()
    wanted = VERBS[verb](book, id_)
    for nth in range(1, 50):
        left = losing(nth)
        assert VERBS[verb](book, id_) == wanted
        if left:
            left.clear()
            return
    raise AssertionError("it waits for ever so many answers")


def test_what_is_refused_is_refused_once(book, losing):
    losing(2)
    with pytest.raises(NotFound):
        book.get("00000000-0000-7000-8000-000000000000")


def test_every_verb_that_only_asks_is_asked_again():
    asking = {name for name in dir(Book) if hasattr(getattr(Book, name), "__wrapped__")}
    assert asking >= set(VERBS)


@pytest.mark.parametrize("verb", ["settle", "switch", "work"])
def test_a_server_that_is_lost_while_a_settling_is_planned_is_asked_again(book, losing, verb):
    for nth in range(1, 60):
        session = f"chat-{nth}"
        book.append(session, [NewMessage("Where is the ledger?"), NewMessage("In the tower.")], space="team")
        left = losing(nth)
        if verb == "settle":
            book.settle(session)
        elif verb == "switch":
            book.switch(session, f"next-{nth}", reason="new", space="team")
        else:
            book.work()
        if left:
            left.clear()
            break
    assert [one.id for one in book.sessions(limit=200) if one.unsettled and verb != "work"] == []
    assert book.verify_log().ok
