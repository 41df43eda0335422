"""The SQLite database of a home: its statements, and writes beside threads that read."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from pathlib import Path

from commonbook.engines.process import SystemClock
from commonbook.engines.sqlite.database import SqliteDatabase


def test_lists_of_any_length_find_the_same(home: Path):
    home.mkdir()
    table = "CREATE TABLE number (value INTEGER PRIMARY KEY); WITH RECURSIVE up(n) AS (SELECT 0 UNION ALL SELECT n + 1"
    filled = f"{table} FROM up WHERE n < 299) INSERT INTO number SELECT n FROM up;"
    path = str(home / "state.db")
    with closing(SqliteDatabase(path, migrations=[filled], clock=SystemClock(), busy_seconds=1)) as database:
        for length in (*range(300), 1_025):
            sought = random.Random(length).sample(range(max(300, length)), length)
            with database.reading() as tx:
                found = tx.rows("SELECT value FROM number WHERE value IN :sought ORDER BY value", sought=sought)
                others = tx.rows("SELECT count(*) FROM number WHERE NOT value IN :sought", sought=sought)
            assert found == [(value,) for value in sorted(sought) if value < 300]
            assert others == [(300 - len(found),)]


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
