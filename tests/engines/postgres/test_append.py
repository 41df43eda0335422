"""The changes of a space on PostgreSQL are numbered without gaps."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import commonbook
from commonbook.service.book import Book
from commonbook.values.session import NewMessage


@pytest.fixture
def book(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    with commonbook.open(address) as opened:
        opened.append("talk", [NewMessage("Good morning.", client_id="0")], space="green")
        yield opened


def test_changes_are_numbered_without_gaps_however_many_at_once(book, postgres_book):
    book.append("talk", [f"Bell {number} rings." for number in range(5)], space="green")
    book.remember("The bell was cast in 1300.", space="green")
    with psycopg.connect(postgres_book[0]) as looking:
        rows = looking.execute("SELECT space, array_agg(number ORDER BY number) FROM change GROUP BY space").fetchall()
        counts: dict[str, int] = dict(looking.execute("SELECT space, last FROM change_count").fetchall())
    assert {space: list(range(1, last + 1)) for space, last in counts.items()} == dict(rows)
    assert 7 in counts.values()
