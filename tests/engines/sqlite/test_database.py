"""The SQLite database of a home: its pages and statements."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.engines.process.clock import SystemClock
from commonbook.engines.sqlite.database import SqliteDatabase


def test_three_quarters_of_the_pages_of_notes_of_a_kilobyte_are_filled(home: Path):
    """In pages of 4 kB a row of such a note leaves a quarter of its page empty."""
    with commonbook.open(home, create=True) as book:
        book.remember_many([commonbook.Draft(text=f"note {number} " + "word " * 230) for number in range(200)])
    with closing(sqlite3.connect(home / ".commonbook" / "state.db")) as database:
        ((size, unused),) = database.execute("SELECT sum(pgsize), sum(unused) FROM dbstat WHERE name = 'memory'")
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert unused < 0.15 * size


def test_lists_of_any_length_find_the_same_and_share_few_statements(home: Path, monkeypatch: pytest.MonkeyPatch):
    """Each connection keeps its statements compiled: one for each length would fill the memory of a server."""
    statements = set[str]()

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            statements.add(sql)
            return super().execute(sql, *parameters)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=Connection))
    home.mkdir()
    table = "CREATE TABLE number (value INTEGER PRIMARY KEY); WITH RECURSIVE up(n) AS (SELECT 0 UNION ALL SELECT n + 1"
    filled = f"{table} FROM up WHERE n < 299) INSERT INTO number SELECT n FROM up;"
    path = str(home / "state.db")
    with closing(SqliteDatabase(path, migrations=[filled], clock=SystemClock(), busy_seconds=1)) as database:
        statements.clear()
        for length in (*range(300), 1_025):
            sought = random.Random(length).sample(range(max(300, length)), length)
            with database.reading() as tx:
                found = tx.rows("SELECT value FROM number WHERE value IN :sought ORDER BY value", sought=sought)
                others = tx.rows("SELECT count(*) FROM number WHERE NOT value IN :sought", sought=sought)
            assert found == [(value,) for value in sorted(sought) if value < 300]
            assert others == [(300 - len(found),)]
    assert len([sql for sql in statements if "sought_0" in sql]) < 50


def test_connections_keep_little_memory_each(home: Path):
    """SQLite lets each connection cache two megabytes of pages."""
    home.mkdir()
    path, table = str(home / "state.db"), "CREATE TABLE number (value INTEGER PRIMARY KEY)"
    with (
        closing(SqliteDatabase(path, migrations=[table], clock=SystemClock(), busy_seconds=1)) as database,
        database.reading() as one,
        database.reading() as another,
    ):
        assert [tx.rows("PRAGMA cache_size") for tx in (one, another)] == [[(-1000,)], [(-1000,)]]


def test_a_write_begins_beside_a_thread_that_asks_for_the_last_commit(home: Path):
    """A transaction that began with the snapshot of such a reader would find the database locked."""
    home.mkdir()
    path, table = str(home / "state.db"), "CREATE TABLE number (value INTEGER PRIMARY KEY)"
    is_over = threading.Event()
    with (
        closing(SqliteDatabase(path, migrations=[table], clock=SystemClock(), busy_seconds=1)) as database,
        closing(SqliteDatabase(path, migrations=[table], clock=SystemClock(), busy_seconds=1)) as another,
    ):
        with database.writing(durable=False) as first:
            first.run("INSERT INTO number VALUES (0)")

        def ask() -> None:
            while not is_over.is_set():
                database.is_last_commit(first)

        asking = [threading.Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        try:
            for value in range(1, 600, 2):
                for place, number in ((another, value), (database, value + 1)):
                    with place.writing(durable=False) as tx:
                        tx.run("INSERT INTO number VALUES (:number)", number=number)
        finally:
            is_over.set()
            for thread in asking:
                thread.join()
        with database.reading() as reading:
            assert reading.rows("SELECT count(*) FROM number") == [(601,)]
