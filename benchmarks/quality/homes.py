"""Stores a data set in a temporary book, and its turns in a table of FTS5 beside it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from tempfile import TemporaryDirectory

from benchmarks.quality.datasets import DataSet, Note, Talk
from commonbook import Book, Draft
from commonbook.compose.book import open_book
from commonbook.compose.databases import make_keys
from commonbook.core.settings.settings import DatabaseChoice, Settings, require_address
from commonbook.values.ids import format_time


@contextmanager
def stored(data: DataSet, *, database: str | None = None, pooled: bool = False) -> Iterator[Book]:
    """Open a temporary book that has a data set; `pooled` puts all talks into one space."""
    with TemporaryDirectory(prefix="commonbook-quality-") as folder:
        home, notes = os.path.join(folder, "home"), os.path.join(folder, "notes")
        settings = Settings.load()._replace(home=home, database=None, space=None, zone="UTC")
        if database is not None:
            keys = os.path.join(folder, "keys")
            make_keys(keys)
            settings = settings._replace(database=DatabaseChoice(require_address(database, "the database"), keys))
        with open_book(settings, create=True) as book:
            drafts = [_episode(talk, "all" if pooled else talk.space) for talk in data.talks]
            for start in range(0, len(drafts), 100):
                book.remember_many(drafts[start : start + 100])
            if data.notes:
                _write_notes(notes, data.notes)
                book.import_folder(notes, space="notes")
            book.reindex()
            yield book


def _episode(talk: Talk, space: str) -> Draft:
    return Draft(_transcript(talk), space=space, kind="episode", title=talk.id, occurred=talk.time)


def _transcript(talk: Talk) -> str:
    return "\n\n".join(
        f"### {turn.speaker} ({turn.role}) · {format_time(talk.time)} · {seq} · {turn.id}\n\n{turn.text}"
        for seq, turn in enumerate(talk.turns, 1)
    )


def _write_notes(folder: str, notes: Sequence[Note]) -> None:
    """Write notes as files with front matter: aliases are known from files only."""
    os.mkdir(folder)
    for note in notes:
        front = f"title: {json.dumps(note.title)}\ntags: {json.dumps(note.tags)}\naliases: {json.dumps(note.aliases)}"
        name = re.sub(r"[^\w -]", "", note.title)
        with open(os.path.join(folder, f"{name}.md"), "w", encoding="utf-8") as file:
            file.write(f"---\n{front}\n---\n{note.text}\n")


class FullText:
    """The search of SQLite (FTS5, BM25, stems) on single turns: the reference."""

    def __init__(self, talks: Sequence[Talk]) -> None:
        """Index every turn of these talks, with its space."""
        self._connection = sqlite3.connect(":memory:")
        self._connection.execute(
            "CREATE VIRTUAL TABLE turn USING fts5 (id UNINDEXED, space UNINDEXED, text, tokenize='porter unicode61')"
        )
        self.talk_of = {turn.id: talk.id for talk in talks for turn in talk.turns}
        rows = [(turn.id, talk.space, f"{turn.speaker} {turn.text}") for talk in talks for turn in talk.turns]
        self._connection.executemany("INSERT INTO turn VALUES (?, ?, ?)", rows)

    def ids(self, query: str, k: int, *, space: str | None = None) -> list[str]:
        """Return the ids of the best turns that have any word of the query."""
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        where, values = ("", (words, k)) if space is None else (" AND space = ?", (words, space, k))
        statement = f"SELECT id FROM turn WHERE turn MATCH ?{where} ORDER BY rank LIMIT ?"
        with closing(self._connection.execute(statement, values)) as rows:
            return [id_ for (id_,) in rows]
