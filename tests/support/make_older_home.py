"""Writes a home as JSON, to be kept in `tests/data` when the schema changes: it shows what the older program stored.

Run it with the older program: `PYTHONPATH=<its src> python tests/support/make_older_home.py tests/data/<name>.json`.
It uses only verbs that every program since schema 2 has, and those of reflections where there are any.
"""

from __future__ import annotations

import base64
import inspect
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import commonbook

HIDDEN = ".commonbook"


def fill(book: Any) -> None:
    """Store one of everything; the tests of older homes know these texts."""
    book.grant("user:ana", "team", "writer")
    book.grant("user:ben", "team", "reader")
    book.grant("user:ben", "everybody", "admin", expires="2999-01-01")
    book.create_key("agent:helper", label="helper", limits=[("team", "reader")])
    book.set_limit("share", 7, principal="user:ana")
    ana = book.acting_as("user:ana")

    owner = book.remember("Alice owns the billing service", space="team", tags=["people"]).id
    book.edit(owner, text="Bertha owns the billing service")
    page = book.remember("Call Bertha when billing pages", space="personal").id
    book.link(page, "derived_from", owner)
    book.edit(owner, text="Carla owns the billing service")
    old = book.remember("The deploy runs on Fridays", space="personal").id
    book.remember("The deploy runs on Mondays", space="team", replaces=old)
    moved = book.remember("The vault code is 1234", space="personal").id
    book.edit(moved, text="The vault code is in the safe")
    book.move(moved, "team")
    book.delete(book.remember("A line that was wrong", space="team").id)

    _depend(book)
    _share(book, ana)
    _talk(book)
    if hasattr(book, "reflect"):
        _reflect(book)


def _depend(book: Any) -> None:
    milk = book.remember("Milk costs one", space="facts").id
    book.link(book.remember("Milk is cheap", space="team").id, "derived_from", milk)
    book.remember("Milk costs three", space="facts", replaces=milk)
    tea = book.remember("Tea costs two", space="facts").id
    book.link(book.remember("Tea is dear", space="team").id, "derived_from", tea)
    book.delete(tea)


def _share(book: Any, ana: Any) -> None:
    for mode in ("live", "lazy", "snapshot"):
        source = ana.remember(f"The {mode} price is five", space="team").id
        book.share(source, "everybody", refresh=mode)
        ana.edit(source, text=f"The {mode} price is six")
    book.add_rule("digest", "team", tags=["digest"])
    ana.remember("The digest has one line", space="team", tags=["digest"])
    book.grant("user:ana", "everybody", "reader")
    ana.request_share(ana.remember("The request waits for a decision", space="team").id, "everybody")


def _talk(book: Any) -> None:
    book.append("talk", ["Where is the heron?", "By the river."], space="team", tags=["birds"])
    book.settle("talk")
    # Since schema 4 a session belongs to its space; an earlier program found it by its name alone.
    space = {"space": "team"} if "space" in inspect.signature(book.switch).parameters else {}
    book.switch("talk", "talk/2", reason="compress", **space)
    book.append("talk/2", ["And the otter?", "Under the bridge.", "And the crane?"], **space)
    book.rewind("talk/2", 2, **space)
    book.append("alone", ["Nobody has answered this."], space="personal")


def _reflect(book: Any) -> None:
    book.set_depth("team", 7)
    for verdict in ("keep", None):
        price = book.remember(f"Oil costs five in the {verdict} shop", space="facts").id
        thought = book.reflect(f"Oil is cheap in the {verdict} shop", [price], space="team").id
        newer = book.remember(f"Oil costs nine in the {verdict} shop", space="facts").id
        book.supersede(price, newer, reason="the shop says so")
        if verdict:
            book.triage(thought, verdict, note="still cheaper than elsewhere")


def dump(home: Path) -> dict[str, Any]:
    """Return a home as values of JSON: the statements that make its database, its files, and its keys in base 64."""
    with closing(sqlite3.connect(home / HIDDEN / "state.db")) as database:
        ((version,),) = database.execute("PRAGMA user_version").fetchall()
        sql = "\n".join(database.iterdump())
    keys = {path.relative_to(home).as_posix(): path for path in sorted((home / HIDDEN / "keys").iterdir())}
    notes = {path.relative_to(home).as_posix(): path for path in sorted(home.rglob("*.md"))}
    return {
        "version": version,
        "sql": sql,
        "files": {
            **{name: base64.b64encode(path.read_bytes()).decode() for name, path in keys.items()},
            **{name: path.read_text(encoding="utf-8") for name, path in notes.items()},
        },
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        with commonbook.open(Path(folder) / "home", create=True) as filled:
            fill(filled)
        Path(sys.argv[1]).write_text(json.dumps(dump(Path(folder) / "home"), indent=1) + "\n", encoding="utf-8")
