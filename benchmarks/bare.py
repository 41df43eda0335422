"""The references: the minimal work for the same durability, or for a search, and nothing else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS memory (id TEXT PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL,"
    " created TEXT NOT NULL, path TEXT NOT NULL)"
)
_INSERT: Final = "INSERT INTO memory VALUES (?, ?, ?, ?, ?)"
_CREATED: Final = "2026-11-15T20:18:24.123456Z"

WALK: Final = """
import os, sys
folders = [sys.argv[1]]
while folders:
    with os.scandir(folders.pop()) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                entry.stat(follow_symlinks=False)
"""
"""A program that walks a folder and reads the status of every file."""

Row = tuple[str, str, str, str, str]


class BareLoop:
    """One table and one folder: a commit and an atomic file write for each text."""

    def __init__(self, folder: str) -> None:
        """Open or make the database and the folder of files."""
        self._files = os.path.join(folder, "files")
        os.makedirs(self._files, exist_ok=True)
        self._connection = sqlite3.connect(os.path.join(folder, "bare.db"), timeout=60, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL").fetchall()
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(_SCHEMA)

    def add(self, text: str) -> None:
        """Add one text: a FULL-synchronous commit, then its file and the folder's entry, each with its fsync."""
        row = self._row(text)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(_INSERT, row)
        self._connection.execute("COMMIT")
        _write(row)
        _fsync(self._files, os.O_RDONLY)

    def add_many(self, texts: Sequence[str]) -> None:
        """Add many texts: all rows in one commit, every file with its fsync, the folder's at the end."""
        rows = [self._row(text) for text in texts]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_INSERT, rows)
        self._connection.execute("COMMIT")
        for row in rows:
            _write(row)
        _fsync(self._files, os.O_RDONLY)

    def fill(self, texts: Sequence[str]) -> None:
        """Add initial texts, outside of the measurement."""
        rows = [self._row(text) for text in texts]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(_INSERT, rows)
        self._connection.execute("COMMIT")
        for row in rows:
            with open(row[4], "wb") as file:
                file.write(_content(row))

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _row(self, text: str) -> Row:
        memory = os.urandom(16).hex()
        title = text.partition("\n")[0]
        return memory, title, text, _CREATED, os.path.join(self._files, f"{memory}.md")


class BareLog:
    """One table of messages, each in a commit of its own."""

    def __init__(self, folder: str) -> None:
        """Open or make the database."""
        self._connection = sqlite3.connect(os.path.join(folder, "log.db"), timeout=60, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL").fetchall()
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL,"
            " role TEXT NOT NULL, author TEXT NOT NULL, text TEXT NOT NULL, time TEXT NOT NULL, client_id TEXT)"
        )

    def add(self, session: str, seq: int, text: str, client_id: str) -> None:
        """Add one message: a FULL-synchronous commit."""
        row = (os.urandom(16).hex(), session, seq, "user", "user:local", text, _CREATED, client_id)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


class BareSearch:
    """One full-text table and its queries: the search of SQLite (FTS5)."""

    def __init__(self, path: str) -> None:
        """Open or make the database."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS passage USING fts5 (id UNINDEXED, text, tokenize='porter unicode61')"
        )

    def fill(self, passages: Iterable[str]) -> None:
        """Index passages, and optimise the index."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO passage (id, text) VALUES (?, ?)", ((os.urandom(16).hex(), text) for text in passages)
        )
        self._connection.execute("COMMIT")
        self._connection.execute("INSERT INTO passage (passage) VALUES ('optimize')")

    def passage(self, number: int) -> str:
        """Return a passage by its number, from 1."""
        (text,) = self._connection.execute("SELECT text FROM passage WHERE rowid = ?", (number,)).fetchone()
        return str(text)

    def ask(self, words: Sequence[str], *, k: int) -> list[tuple[str, str]]:
        """Return the ids and texts of the passages that have some of these words, the best first."""
        return self._connection.execute(
            "SELECT id, text FROM passage WHERE passage MATCH ? ORDER BY bm25(passage) LIMIT ?",
            (" OR ".join(f'"{word}"' for word in words), k),
        ).fetchall()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def _content(row: Row) -> bytes:
    """Return a file of about the size of ours, front matter included."""
    memory, title, text, created, _ = row
    front = f"id: {memory}\ntitle: {title}\nkind: note\ncreated: {created}\nupdated: {created}\nauthor: user:local\n"
    return f"---\n{front}revision: 1\nversion: 1\n---\n\n{text}\n".encode()


def _write(row: Row) -> None:
    temporary = row[4] + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(fd, _content(row))
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, row[4])


def _fsync(path: str, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
