"""Homes that an earlier program made: they open, are brought up to date, and say what they said."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path

import pytest

import commonplace

MADE = Path(__file__).parent / "data"


@pytest.fixture
def older(home: Path) -> Path:
    """A home as the first program left it: written out as text, with keys that are good for nothing else."""
    made = json.loads((MADE / "home-of-schema-1.json").read_text(encoding="utf-8"))
    for name, content in made["files"].items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if name.endswith(".md") else base64.b64decode(content))
        path.chmod(0o600)
    (home / ".commonplace" / "keys").chmod(0o700)
    database = sqlite3.connect(home / ".commonplace" / "state.db")
    database.executescript(made["sql"])
    database.execute(f"PRAGMA user_version = {made['version']}")
    database.execute("PRAGMA journal_mode = WAL")
    database.close()
    return home


def test_a_home_of_the_first_schema_opens_and_says_what_it_said(older: Path):
    with commonplace.open(older) as book:
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
    with commonplace.open(older) as book:
        (owner,) = book.recall("who owns billing", spaces=["team/backend"]).hits
        copy = book.share(owner.id, "everybody")
        book.edit(owner.id, text="Carla owns the billing service")
        assert book.get(copy.id).text == "Carla owns the billing service"
        book.grant("user:alice", "team", "reader")
        book.settle("talk")
    with commonplace.open(older) as book:
        assert book.status().schema == 3
        assert book.doctor() == ()
