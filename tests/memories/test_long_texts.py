"""Long texts are stored in less room where the engine does not see to it, and come back to the last character."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import commonbook
from commonbook.service.book import Book
from tests.conftest import OpenBook

REPORTS = [
    "".join(f"On day {day} the keeper counted {day * 7} herons.\n" for day in range(60)),
    "".join(f"Am Tag {day} zählte die Wärterin {day * 7} Reiher 🪶.\r\n" for day in range(60)),
    "水門の番人は鷺を数えた。" * 80,
    "".join(chr(0x4E00 + (number * 7919) % 20_000) for number in range(200)),
]


@pytest.mark.promise("writes.exact")
@pytest.mark.parametrize("report", REPORTS, ids=["English", "German", "Japanese", "incompressible"])
def test_a_long_text_and_its_history_come_back_to_the_last_character(book: Book, open_book: OpenBook, report: str):
    memory = book.remember(report, space="personal").id
    stored = book.get(memory).text
    book.edit(memory, text="now it is short")
    book.edit(memory, text=report + "and longer")
    book.delete(memory)
    book.undelete(memory)
    with open_book() as again:
        assert [one.text for one in again.history(memory)] == [stored, "now it is short", again.get(memory).text]
        assert again.get(memory).text == stored + "and longer"
        assert again.doctor() == ()


def test_a_home_stores_a_long_text_in_half_of_its_length(home: Path):
    with commonbook.open(home, create=True) as book:
        memory = book.remember(REPORTS[0], space="personal").id
        book.edit(memory, text=REPORTS[0] + "changed")
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        sizes = [
            size
            for table in ("memory", "revision")
            for (size,) in database.execute(f"SELECT length(text) FROM {table}").fetchall()
        ]
    assert len(sizes) == 2
    assert max(sizes) < len(REPORTS[0]) / 2
