"""The signed log through the public interfaces: it has every action, and tampering is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import commonbook
from commonbook.interfaces.cli.main import main
from commonbook.service.book import Book

COLUMNS = ("space", "seq", "time", "actor", "action", "subjects", "payload", "previous", "hash", "signature", "key_id")


@pytest.fixture
def log(book: Book) -> tuple[str, int]:
    """Create a space with some history; return its id and the number of its entries."""
    memory = book.remember("secret words about billing", space="team", tags=["t"])
    book.edit(memory.id, text="other words")
    book.link(memory.id, "related_to", book.remember("x", space="team").id)
    book.delete(memory.id)
    (space,) = [space for space in book.spaces() if space.name == "team"]
    return space.id, len(book.log(space="team"))


def tamper(book: Book, sql: str, **params: object) -> None:
    """Change the database directly, not through the book."""
    book._engines.db.write(lambda tx: tx.run(sql, **params))


@pytest.fixture
def restore(book: Book, log: tuple[str, int]) -> Callable[[], None]:
    """Restore the log."""
    names = ", ".join(COLUMNS)
    with book._engines.db.reading() as tx:
        whole = tx.rows(f"SELECT {names} FROM log_entry")

    def restoring() -> None:
        tamper(book, "DELETE FROM log_entry")
        values = ", ".join(f":{name}" for name in COLUMNS)
        for row in whole:
            tamper(book, f"INSERT INTO log_entry ({names}) VALUES ({values})", **dict(zip(COLUMNS, row, strict=True)))
        assert book.verify_log().ok

    return restoring


def test_every_change_is_in_the_log_with_its_actor(book: Book):
    memory = book.remember("one", space="team")
    book.edit(memory.id, tags=["x"])
    book.grant("user:bob", "team", "writer")
    book.acting_as("user:bob").edit(memory.id, text="two")
    book.move(memory.id, "other")
    book.rename_space("other", "another")
    book.delete(memory.id)
    assert [(entry.actor, entry.action) for entry in book.log(space="team")] == [
        ("user:local", "space.create"),
        ("user:local", "remember"),
        ("user:local", "edit"),
        ("user:local", "grant"),
        ("user:bob", "edit"),
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


def test_a_hand_edit_is_in_the_log_as_one(book: Book, home: Path):
    memory = book.remember("one", space="team")
    path = home / memory.path
    path.write_text(path.read_text().replace("\none\n", "\ntwo\n"))
    book.sync()
    last = book.log(space="team")[-1]
    assert (last.actor, last.action, book.verify_log().ok) == ("user:filesystem", "edit", True)


@pytest.mark.promise("log.no-text")
def test_the_log_holds_no_text_of_a_memory(book: Book, log: tuple[str, int]):
    for entry in book.log(space="team"):
        assert "words" not in entry.payload
        assert "billing" not in entry.payload
        json.loads(entry.payload)


@pytest.mark.parametrize("column", COLUMNS)
def test_one_changed_field_of_any_entry_is_found_and_located(book: Book, log, restore, column: str):
    space, entries = log
    for entry in book.log(space="team"):
        value = getattr(entry, column)
        changed = value + 1000 if isinstance(value, int) else ("0" if value[:1] != "0" else "1") + value[1:]
        change = f"UPDATE log_entry SET {column} = :changed WHERE space = :space AND seq = :seq"
        tamper(book, change, changed=changed, space=space, seq=entry.seq)
        report = book.verify_log()
        assert not report.ok, (column, entry.seq)
        found = [finding.where for finding in report.findings]
        assert f"{space} entry {entry.seq}" in found or column == "space", (found, entry.seq)
        restore()
    assert entry.seq == entries


def test_a_dropped_entry_swapped_entries_and_a_cut_tail_are_found(book: Book, log, restore):
    space, entries = log
    before = book.log(space="team")
    drop = "DELETE FROM log_entry WHERE space = :space AND seq = :seq"
    for seq in range(1, entries + 1):
        tamper(book, drop, space=space, seq=seq)
        assert book.verify_log().findings[0].where == f"{space} entry {seq}"
        restore()
    for seq, to in ((2, 99), (3, 2), (99, 3)):
        tamper(book, "UPDATE log_entry SET seq = :to WHERE space = :space AND seq = :seq", space=space, seq=seq, to=to)
    assert book.verify_log().findings[0].where == f"{space} entry 2"
    restore()
    tamper(book, drop, space=space, seq=entries)
    last = before[-2]
    tamper(
        book,
        "UPDATE log_head SET seq = :seq, hash = :hash, signature = :signature WHERE space = :space",
        space=space,
        seq=last.seq,
        hash=last.hash,
        signature=last.signature,
    )
    assert not book.verify_log().ok


def test_the_command_line_says_what_is_wrong_and_exits_with_one(book: Book, place, log, capsys):
    space, _ = log
    assert main(["--home", str(place), "audit", "verify"]) == 0
    tamper(book, "UPDATE log_entry SET actor = 'user:mallory' WHERE space = :space AND seq = 3", space=space)
    capsys.readouterr()
    assert main(["--home", str(place), "audit", "verify", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["findings"][0]["where"] == f"{space} entry 3"
    assert main(["--home", str(place), "doctor", "--json"]) == 1


_REFUSE = {
    "sqlite": ["CREATE TRIGGER refuse BEFORE INSERT ON log_entry BEGIN SELECT RAISE(ABORT, 'no room'); END"],
    "postgres": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no room''; END'",
        "CREATE TRIGGER refuse BEFORE INSERT ON log_entry EXECUTE FUNCTION refuse()",
    ],
}
_ALLOW = {"sqlite": "DROP TRIGGER refuse", "postgres": "DROP TRIGGER refuse ON log_entry"}


def test_an_entry_that_cannot_be_written_fails_its_change(book: Book, engine: str, folder):
    """The database refuses the entry."""
    memory = book.remember("one", space="team")
    for statement in _REFUSE[engine]:
        tamper(book, statement)
    files = {path: path.read_bytes() for path in folder().rglob("*.md")}
    before = book.status()._replace(database_bytes=0)
    for refused in (
        lambda: book.remember("two", space="team"),
        lambda: book.remember("two", space="fresh"),
        lambda: book.edit(memory.id, text="two"),
        lambda: book.move(memory.id, "other"),
        lambda: book.delete(memory.id),
        lambda: book.rename_space("team", "squad"),
    ):
        with pytest.raises(commonbook.errors.CommonbookError):
            refused()
    assert book.status()._replace(database_bytes=0) == before
    assert {path: path.read_bytes() for path in folder().rglob("*.md")} == files
    tamper(book, _ALLOW[engine])
    book.edit(memory.id, text="two")
    assert book.verify_log().ok
