"""The hashes of rows that an earlier program wrote are filled in once, when the book is opened."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from commonbook.book.book import Book
from commonbook.model.memory import Refresh
from commonbook.tables import file_journal
from tests.support.lost_databases import lose_database

_UNFILLED = (
    "UPDATE memory SET content_hash = '', copy_hash = NULL",
    "UPDATE link SET target_hash = NULL",
    "DELETE FROM home WHERE name = 'hashes'",
)
"""Statements that restore the state before the hashes are filled in."""


def _as_schema_3_stored_it(engine: str, place: Path | str, numbers: dict[str, int], own: dict[str, int]) -> None:
    """Store what schema 3 stored: numbers in place of hashes, and in the line of a copy the revision that is its own.

    `numbers` has the revision of each hash, `own` that of each copy.
    """
    with _connected(engine, place) as run:
        for id_, links, shared in run("SELECT id, links, shared FROM memory"):
            numbered = [[relation, target, numbers.get(hash_)] for relation, target, hash_ in json.loads(links)]
            line = None if shared is None else f"{shared} {own[id_]}"
            run(f"UPDATE memory SET links = '{json.dumps(numbered)}' WHERE id = '{id_}'")
            if line is not None:
                run(f"UPDATE memory SET shared = '{line}' WHERE id = '{id_}'")
        if engine == "sqlite":
            for path, hash_ in run("SELECT path, hash FROM file"):
                data = _in_the_format_of_version_3((Path(place) / path).read_text(), numbers, own).encode()
                if hash_ != file_journal.content_hash(data):
                    (Path(place) / path).write_bytes(data)
                    stat = (Path(place) / path).stat()
                    run(
                        f"UPDATE file SET hash = '{file_journal.content_hash(data)}', size = {stat.st_size},"
                        f" mtime_ns = {stat.st_mtime_ns} WHERE path = '{path}'"
                    )
        for statement in _UNFILLED:
            run(statement)


def _in_the_format_of_version_3(text: str, numbers: dict[str, int], own: dict[str, int]) -> str:
    id_ = re.search(r"(?m)^id: (\S+)$", text)
    text = re.sub(r"@([0-9a-f]{16})$", lambda found: f"@{numbers[found[1]]}", text, flags=re.MULTILINE)
    if id_ and id_[1] in own:
        text = re.sub(r"(?m)^(shared: .*) mac:[0-9a-f]{16}$", rf"\1 {own[id_[1]]}", text)
    return re.sub(r" mac:[0-9a-f]{16}", "", text)


@contextmanager
def _connected(engine: str, place: Path | str) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    if engine == "postgres":
        with psycopg.connect(str(place)) as server:

            def run(statement: str) -> list[tuple[Any, ...]]:
                cursor = server.execute(statement)
                return cursor.fetchall() if cursor.description else []

            yield run
        return
    with closing(sqlite3.connect(Path(place) / ".commonbook" / "state.db")) as database:
        yield lambda statement: database.execute(statement).fetchall()
        database.commit()


def _world_with_copies(book: Book) -> tuple[dict[str, str], dict[str, int], dict[str, int]]:
    """Return a book's memories by name, the revision of each hash, and the own revision of each copy."""
    source = book.remember("oil costs five", space="facts").id
    ids = {"source": source}
    modes: dict[str, Refresh] = {"live": "live", "stale": "snapshot", "diverged": "live", "detached": "live"}
    for name, refresh in modes.items():
        ids[name] = book.share(source, name, refresh=refresh).id
    ids["below"] = book.share(ids["live"], "below", refresh="lazy").id
    ids["before"] = book.reflect("oil is cheap", [source], space="a").id
    numbers = {book.get(source).content_hash: 1, book.get(ids["live"]).content_hash: 1}
    book.edit(ids["diverged"], text="oil is ours")
    book.detach(ids["detached"])
    book.edit(source, text="oil costs seven")
    ids["after"] = book.reflect("oil is dear", [source], space="a").id
    ground = book.remember("milk costs one", space="facts").id
    ids["decided"] = book.reflect("milk is cheap", [ground], space="a").id
    newer = book.remember("milk costs two", space="facts", replaces=ground).id
    book.triage(ids["decided"], "keep", note="it still holds")
    numbers |= {book.get(source).content_hash: 2, book.get(ids["live"]).content_hash: 2}
    numbers |= {book.get(id_).content_hash: 1 for id_ in (ground, newer, ids["decided"])}
    return ids, numbers, {ids[name]: 1 for name in ("stale", "diverged", "detached", "below")} | {ids["live"]: 2}


def _meaning(book: Book, ids: dict[str, str]) -> dict[str, tuple[object, ...]]:
    memories = {name: book.get(id_) for name, id_ in ids.items() if name != "below"}
    return {
        name: (one.text, one.revision, one.version, one.freshness, one.marks, one.shared, one.decisions, one.links)
        for name, one in memories.items()
    }


def test_links_and_copies_of_schema_3_keep_their_meaning(engine, place, open_book):
    with open_book() as book:
        ids, numbers, own = _world_with_copies(book)
        before = _meaning(book, ids)
        assert [before[name][3] for name in ("live", "stale", "diverged", "detached")] == [
            "fresh",
            "stale",
            "diverged",
            "detached",
        ]
        assert [("source_changed" in book.get(ids[name]).marks) for name in ("before", "after")] == [True, False]
    _as_schema_3_stored_it(engine, place, numbers, own)
    with open_book() as book:
        assert _meaning(book, ids) == before
        assert book.get(ids["below"]).text == "oil costs seven"
        assert book.doctor() == ()
        assert book.sync().edited == 0
        book.edit(ids["source"], text="oil costs nine")
        assert [book.get(ids[name]).text for name in ("live", "stale", "diverged", "detached")] == [
            "oil costs nine",
            "oil costs five",
            "oil is ours",
            "oil costs five",
        ]
    if engine == "sqlite":
        # The files of that home carry hashes and MACs now, so that they are enough without the database.
        lose_database(Path(place))
        with open_book() as book:
            assert (book.get(ids["live"]).text, book.get(ids["live"]).freshness) == ("oil costs nine", "fresh")
            assert book.get(ids["diverged"]).freshness == "diverged"
            assert [one.note for one in book.get(ids["decided"]).decisions] == ["it still holds"]


def test_two_processes_that_open_a_home_of_schema_3_at_once_fill_it_in_once(engine, place, open_book):
    with open_book() as book:
        ids, numbers, own = _world_with_copies(book)
        before = _meaning(book, ids)
    _as_schema_3_stored_it(engine, place, numbers, own)
    with ThreadPoolExecutor(4) as pool:
        books = list(pool.map(lambda _: open_book(), range(4)))
    assert [_meaning(book, ids) for book in books] == [before] * 4


def test_a_process_that_dies_while_it_fills_in_hashes_leaves_it_to_the_next(engine, place, open_book, monkeypatch):
    with open_book() as book:
        ids, numbers, own = _world_with_copies(book)
        before = _meaning(book, ids)
    _as_schema_3_stored_it(engine, place, numbers, own)
    with monkeypatch.context() as dying:
        dying.setattr("commonbook.tables.links.derive", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_book()
    assert _meaning(open_book(), ids) == before
