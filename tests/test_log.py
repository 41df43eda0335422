"""The signed log through the public doors: what was done is in it, and tampering is found (REQUIREMENTS F)."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import commonplace
from commonplace.book import Commonplace
from commonplace.doors.cli import main
from tests.conftest import OpenBook

COLUMNS = ("space", "seq", "time", "actor", "action", "subjects", "payload", "previous", "hash", "signature", "key_id")


@pytest.fixture
def log(book: Commonplace) -> tuple[str, int]:
    """A space with some history; its id and the number of its entries."""
    memory = book.remember("secret words about billing", space="team", tags=["t"])
    book.edit(memory.id, text="other words")
    book.link(memory.id, "related_to", book.remember("x", space="team").id)
    book.delete(memory.id)
    (space,) = [space for space in book.spaces() if space.name == "team"]
    return space.id, len(book.log(space="team"))


def tamper(home: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    state = sqlite3.connect(home / ".commonplace" / "state.db", isolation_level=None)
    for sql, values in statements:
        state.execute(sql, values)
    state.close()


def test_every_change_is_in_the_log_with_its_actor(book: Commonplace, home: Path, open_book: OpenBook):
    memory = book.remember("one", space="team")
    book.edit(memory.id, tags=["x"])
    path = home / memory.path
    path.write_text(path.read_text().replace("\none\n", "\ntwo\n"))
    book.sync()
    book.move(memory.id, "other")
    book.rename_space("other", "another")
    book.delete(memory.id)
    assert [(entry.actor, entry.action) for entry in book.log(space="team")] == [
        ("user:local", "space.create"),
        ("user:local", "remember"),
        ("user:local", "edit"),
        ("user:filesystem", "edit"),
        ("user:local", "move.out"),
    ]
    assert [entry.action for entry in book.log(space="another")] == [
        "space.create",
        "move.in",
        "space.rename",
        "delete",
    ]
    assert book.verify_log().ok
    assert book.verify_log().entries == book.status().log_entries


def test_the_log_holds_no_text_of_a_memory(book: Commonplace, log: tuple[str, int]):
    for entry in book.log(space="team"):
        assert "words" not in entry.payload
        assert "billing" not in entry.payload
        json.loads(entry.payload)


@pytest.mark.parametrize("column", COLUMNS)
def test_one_changed_field_of_any_entry_is_found_and_located(book: Commonplace, home: Path, log, column: str):
    space, entries = log
    for seq in range(1, entries + 1):
        copy = home.parent / f"{column}-{seq}.db"
        state = sqlite3.connect(home / ".commonplace" / "state.db", isolation_level=None)
        kept = state.execute("SELECT * FROM log_entry WHERE space = ? AND seq = ?", (space, seq)).fetchone()
        value = kept[COLUMNS.index(column)]
        changed = value + 1000 if isinstance(value, int) else ("0" if value[:1] != "0" else "1") + value[1:]
        state.execute(f"UPDATE log_entry SET {column} = ? WHERE space = ? AND seq = ?", (changed, space, seq))
        report = book.verify_log()
        assert not report.ok, (column, seq)
        found = [finding.where for finding in report.findings]
        assert f"{space} entry {seq}" in found or column == "space", (found, seq)
        state.execute(
            f"UPDATE log_entry SET {column} = ? WHERE rowid = (SELECT rowid FROM log_entry WHERE {column} = ? LIMIT 1)",
            (value, changed),
        )
        state.close()
        assert book.verify_log().ok
        assert not copy.exists()


def test_a_dropped_entry_swapped_entries_and_a_cut_tail_are_found(book: Commonplace, home: Path, log):
    space, entries = log
    whole = sqlite3.connect(home / ".commonplace" / "state.db").execute("SELECT * FROM log_entry").fetchall()

    def restore() -> None:
        tamper(home, ("DELETE FROM log_entry", ()))
        for row in whole:
            tamper(home, (f"INSERT INTO log_entry VALUES ({', '.join('?' * len(row))})", row))
        assert book.verify_log().ok

    for seq in range(1, entries + 1):
        tamper(home, ("DELETE FROM log_entry WHERE space = ? AND seq = ?", (space, seq)))
        assert book.verify_log().findings[0].where == f"{space} entry {seq}"
        restore()
    move = "UPDATE log_entry SET seq = ? WHERE space = ? AND seq = ?"
    tamper(home, (move, (99, space, 2)), (move, (2, space, 3)), (move, (3, space, 99)))
    assert book.verify_log().findings[0].where == f"{space} entry 2"
    restore()
    last = next(row for row in whole if row[0] == space and row[1] == entries - 1)
    tamper(
        home,
        ("DELETE FROM log_entry WHERE space = ? AND seq = ?", (space, entries)),
        (
            "UPDATE log_head SET seq = ?, hash = ?, signature = ? WHERE space = ?",
            (entries - 1, last[8], last[9], space),
        ),
    )
    assert not book.verify_log().ok


def test_the_command_line_says_what_is_wrong_and_exits_with_one(book: Commonplace, home: Path, log, capsys):
    space, _ = log
    assert main(["--home", str(home), "audit", "verify"]) == 0
    tamper(home, ("UPDATE log_entry SET actor = 'user:mallory' WHERE space = ? AND seq = 3", (space,)))
    capsys.readouterr()
    assert main(["--home", str(home), "audit", "verify", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert said["findings"][0]["where"] == f"{space} entry 3"
    assert main(["--home", str(home), "doctor", "--json"]) == 1


def test_an_entry_that_cannot_be_written_fails_its_change(book: Commonplace, home: Path):
    """F3, with a database that refuses the entry."""
    memory = book.remember("one", space="team")
    tamper(
        home,
        ("CREATE TRIGGER refuse BEFORE INSERT ON log_entry BEGIN SELECT RAISE(ABORT, 'no room in the log'); END", ()),
    )
    files = {path: path.read_bytes() for path in home.rglob("*.md")}
    before = book.status()
    for refused in (
        lambda: book.remember("two", space="team"),
        lambda: book.remember("two", space="fresh"),
        lambda: book.edit(memory.id, text="two"),
        lambda: book.move(memory.id, "other"),
        lambda: book.delete(memory.id),
        lambda: book.rename_space("team", "squad"),
    ):
        with pytest.raises(commonplace.errors.CommonplaceError):
            refused()
    assert book.status() == before
    assert {path: path.read_bytes() for path in home.rglob("*.md")} == files
    tamper(home, ("DROP TRIGGER refuse", ()))
    book.edit(memory.id, text="two")
    assert book.verify_log().ok
