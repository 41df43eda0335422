"""The SQLite database of a home: its pages and statements."""

from __future__ import annotations

import random
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.engines.process.clock import SystemClock
from commonbook.engines.sqlite.database import MAX_IDLE_READERS, SqliteDatabase


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


def test_a_burst_of_readers_leaves_few_connections_with_little_memory_each(home: Path, monkeypatch: pytest.MonkeyPatch):
    """SQLite lets each connection cache two megabytes of pages, and statements of a megabyte had been compiled."""
    is_open = dict[int, bool]()

    class Connection(sqlite3.Connection):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            assert named["cached_statements"] <= 64
            is_open[id(self)] = True

        def close(self) -> None:
            super().close()
            is_open[id(self)] = False

    home.mkdir()
    path, table = str(home / "state.db"), "CREATE TABLE number (value INTEGER PRIMARY KEY)"
    with closing(SqliteDatabase(path, migrations=[table], clock=SystemClock(), busy_seconds=1)) as database:
        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=Connection))
        for _ in range(2):
            with ExitStack() as burst:
                readers = [burst.enter_context(database.reading()) for _ in range(30)]
                assert {reader.rows("SELECT count(*) FROM number") == [(0,)] for reader in readers} == {True}
                assert all(reader.rows("PRAGMA cache_size") == [(-1000,)] for reader in readers)
            assert sum(is_open.values()) <= MAX_IDLE_READERS
        # The next reader waits for nothing, and opens nothing.
        before = len(is_open)
        with database.reading() as tx:
            assert tx.rows("SELECT count(*) FROM number") == [(0,)]
        assert len(is_open) == before
    assert not any(is_open.values())
