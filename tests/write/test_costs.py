"""The cost of one write in a home: statements, file locks, signatures and syncs, and which locks are held meanwhile."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import commonbook
from commonbook.book.book import Book
from commonbook.engines.disk.signing_keys import KeyFiles
from commonbook.engines.process.fair_lock import FairLock
from commonbook.engines.sqlite.database import SqliteDatabase
from commonbook.errors import Busy
from commonbook.runtime import compressed_text

MAX_STATEMENTS = 26
MAX_LOCKS = 12
"""Three times four: the turnstile and the lock are locked and unlocked for the commit, the file, and its journal."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what a book does, if it is opened after this."""
    counts: Counter[str] = Counter()
    connect = SqliteDatabase._connect

    def traced(db: SqliteDatabase) -> sqlite3.Connection:
        connection = connect(db)
        connection.set_trace_callback(lambda _statement: counts.update(["statements"]))
        return connection

    def counting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object) -> object:
            counts[name] += 1
            return real(*args)

        return call

    monkeypatch.setattr(SqliteDatabase, "_connect", traced)
    monkeypatch.setattr(fcntl, "flock", counting("locks", fcntl.flock))
    monkeypatch.setattr(KeyFiles, "sign", counting("signatures", KeyFiles.sign))
    monkeypatch.setattr(os, "fsync", counting("file syncs", os.fsync))
    return counts


def _remembered(book: Book, counted: Counter[str], text: str) -> Counter[str]:
    counted.clear()
    book.remember(text, space="a")
    return Counter(counted)


def test_a_memory_costs_few_statements_locks_and_syncs(home: Path, counted: Counter[str]):
    with closing(commonbook.open(home, create=True)) as book:
        for at in range(3):
            book.remember(f"warm {at}", space="a")
        cost = _remembered(book, counted, "Alice owns the release on Friday, and nobody told the team about it")
    assert cost["statements"] <= MAX_STATEMENTS
    assert cost["locks"] <= MAX_LOCKS
    # One of the entry and one of the head of its log.
    assert cost["signatures"] == 2
    # The file and its folder; SQLite syncs its log itself.
    assert cost["file syncs"] == 2


def test_a_commit_of_another_process_costs_a_few_statements_more(home: Path, counted: Counter[str]):
    with closing(commonbook.open(home, create=True)) as book, closing(commonbook.open(home)) as other:
        book.remember("warm", space="a")
        other.remember("theirs", space="a")
        cost = _remembered(book, counted, "Alice owns the release on Friday, and nobody told the team about it")
    # Spaces, rules, facts of the home and the version of the schema are read again.
    assert cost["statements"] <= MAX_STATEMENTS + 4


def _is_free(home: Path, name: str) -> bool:
    """Tell whether another process could take a lock of the home now."""
    with closing(FairLock(str(home / ".commonbook" / name))) as lock:
        try:
            with lock.hold(0):
                return True
        except Busy:
            return False


def test_a_text_is_compressed_while_others_may_write(home: Path, monkeypatch: pytest.MonkeyPatch):
    free: list[bool] = []

    def compress(data: bytes) -> bytes:
        free.append(_is_free(home, "write.lock"))
        return zlib.compress(data)

    text = "Alice owns the release on Friday, and nobody told the team about it. " * 9
    with closing(commonbook.open(home, create=True)) as book:
        book.remember("warm", space="a")
        monkeypatch.setattr(compressed_text, "_compress_small", compress)
        receipt = book.remember(text, space="a")
        assert book.get(receipt.id).text == text
    # Once: the transaction compresses nothing.
    assert free == [True]


def test_files_and_folders_are_synced_while_others_may_write(home: Path, monkeypatch: pytest.MonkeyPatch):
    """A new file is synced before `files.lock` is taken, and its folder when it is released."""
    free: list[bool] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        free.extend(_is_free(home, name) for name in ("write.lock", "files.lock"))
        real(fd)

    with closing(commonbook.open(home, create=True)) as book:
        book.remember("warm", space="a")
        monkeypatch.setattr(os, "fsync", fsync)
        book.remember("cold", space="a")
    assert free == [True] * 4
