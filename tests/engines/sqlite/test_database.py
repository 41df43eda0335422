"""The SQLite database of a home: its pages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import commonbook


def test_three_quarters_of_the_pages_of_notes_of_a_kilobyte_are_filled(home: Path):
    """In pages of 4 kB a row of such a note leaves a quarter of its page empty."""
    with commonbook.open(home, create=True) as book:
        book.remember_many([commonbook.Draft(text=f"note {number} " + "word " * 230) for number in range(200)])
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        ((size, unused),) = database.execute("SELECT sum(pgsize), sum(unused) FROM dbstat WHERE name = 'memory'")
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert unused < 0.15 * size
