"""Homes that an earlier program made: they open, are migrated to the current schema, and keep their contents."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import commonbook

MADE = Path(__file__).parents[1] / "data"


@pytest.fixture
def older(home: Path) -> Path:
    """A home as the first program left it: written out as text, with keys that are good for nothing else."""
    made = json.loads((MADE / "home-of-schema-1.json").read_text(encoding="utf-8"))
    for name, content in made["files"].items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if name.endswith(".md") else base64.b64decode(content))
        path.chmod(0o600)
    (home / ".commonbook" / "keys").chmod(0o700)
    database = sqlite3.connect(home / ".commonbook" / "state.db")
    database.executescript(made["sql"])
    database.execute(f"PRAGMA user_version = {made['version']}")
    database.execute("PRAGMA journal_mode = WAL")
    database.close()
    return home


def test_a_home_of_the_first_schema_opens_and_says_what_it_said(older: Path):
    with commonbook.open(older) as book:
        texts = {memory.text for memory in book.list().items if memory.kind == "note"}
        assert texts == {"Bertha owns the billing service", "The deploy runs on Fridays"}
        (owner,) = book.recall("who owns billing", spaces=["team/backend"]).hits
        assert [one.text for one in book.history(owner.id)] == [
            "Alice owns the billing service",
            "Bertha owns the billing service",
        ]
        assert [one.text for one in book.messages("talk").items][-1] == "And the otter?"
        assert {hit.passage for hit in book.recall("heron otter", spaces=["personal"]).hits} >= {"And the otter?"}
        assert book.verify_log().findings == ()
        assert book.doctor() == ()


def test_a_home_of_the_first_schema_can_do_what_came_later(older: Path):
    with commonbook.open(older) as book:
        (owner,) = book.recall("who owns billing", spaces=["team/backend"]).hits
        copy = book.share(owner.id, "everybody")
        book.edit(owner.id, text="Carla owns the billing service")
        assert book.get(copy.id).text == "Carla owns the billing service"
        book.grant("user:alice", "team", "reader")
        book.settle("talk")
    with commonbook.open(older) as book:
        assert book.status().schema == 3
        assert book.doctor() == ()


def test_dependents_of_what_was_replaced_before_there_were_notices_are_notified_by_a_job(
    engine, place, open_book, monkeypatch
):
    with monkeypatch.context() as before, open_book() as book:
        before.setattr(book, "_engines", book._engines._replace(before_finalize=()))
        old = book.remember("a litre of oil costs five", space="facts").id
        gone = book.remember("a litre of milk costs one", space="facts").id
        dependent = book.reflect("oil is cheap", [old], space="a").id
        thirsty = book.reflect("milk is cheap", [gone], space="a").id
        new = book.remember("a litre of oil costs seven", space="facts", replaces=old).id
        book.delete(gone)
        assert book.inbox().items == ()
    _back_to_version_2(engine, place)
    book = open_book()
    assert book.status().waiting_jobs == 2
    while book.work():
        pass
    notices = {
        (one.dependent.id, one.invalidated.id, one.invalidating and one.invalidating.id) for one in book.inbox().items
    }
    assert notices == {(dependent, old, new), (thirsty, gone, None)}
    assert (book.status().waiting_jobs, book.status().failed_jobs, book.work()) == (0, 0, 0)


def _back_to_version_2(engine: str, place: Path | str) -> None:
    undone = ["ALTER TABLE memory DROP COLUMN judged", "ALTER TABLE space DROP COLUMN depth"]
    if engine == "postgres":
        with psycopg.connect(str(place)) as server:
            for statement in (*undone, "UPDATE schema_version SET version = 2"):
                server.execute(statement)
        return
    with closing(sqlite3.connect(Path(place) / ".commonbook" / "state.db")) as database:
        for statement in (*undone, "PRAGMA user_version = 2"):
            database.execute(statement)
        database.commit()
