"""The statements that an append sends to PostgreSQL, and when: a space is locked for as short a time as possible."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import commonbook
from commonbook.book.book import Book
from commonbook.model.session import NewMessage
from tests.support.statements import recorded

HOLD = "SELECT 1 FROM log_head WHERE space = (SELECT id FROM space WHERE name = 'green') FOR UPDATE"
WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def book(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with commonbook.open(address) as opened:
        opened.append("talk", [NewMessage("Good morning.", client_id="0")], space="green")
        yield opened


def test_an_append_is_nine_statements(book, monkeypatch):
    with recorded(monkeypatch) as statements:
        book.append("talk", [NewMessage("The bell rings at noon.", client_id="1")], space="green")
    assert len(statements) == 9
    assert next(one for one in statements if "log_head" in one and "FOR UPDATE" in one).endswith("SKIP LOCKED")
    assert "INSERT INTO message" in statements[-2]
    assert "INSERT INTO log_entry" in statements[-2]


def test_who_finds_a_space_taken_stores_its_rows_before_it_waits(book, postgres_book, monkeypatch):
    address = postgres_book[0]
    with recorded(monkeypatch) as statements, ThreadPoolExecutor(1) as pool:
        with psycopg.connect(address) as other, psycopg.connect(address, autocommit=True) as looking:
            other.execute(HOLD)
            message = NewMessage("The bell rings at noon.", client_id="1")
            appended = pool.submit(book.append, "talk", [message], space="green")
            until = time.monotonic() + 60
            while looking.execute(WAITING).fetchone() is None:
                assert time.monotonic() < until, "nobody waits"
                time.sleep(0.01)
            sent = list(statements)
            assert book.messages("talk").items[-1].text == "Good morning."
        assert appended.result().messages[0].seq == 2
    ((stored, one),) = [(at, one) for at, one in enumerate(sent) if "INSERT INTO message" in one]
    assert "log_entry" not in one
    assert any("log_head" in later and later.endswith("FOR UPDATE") for later in sent[stored + 1 :])
    assert not any("INSERT INTO log_entry" in one or "INTO change" in one for one in sent)
    assert book.verify_log().findings == ()
    assert not book.append("talk", [message], space="green").messages[0].new


def test_changes_are_numbered_without_gaps_however_many_at_once(book, postgres_book):
    book.append("talk", [f"Bell {number} rings." for number in range(5)], space="green")
    book.remember("The bell was cast in 1300.", space="green")
    with psycopg.connect(postgres_book[0]) as looking:
        rows = looking.execute("SELECT space, array_agg(number ORDER BY number) FROM change GROUP BY space").fetchall()
        counts: dict[str, int] = dict(looking.execute("SELECT space, last FROM change_count").fetchall())
    assert {space: list(range(1, last + 1)) for space, last in counts.items()} == dict(rows)
    assert 7 in counts.values()
