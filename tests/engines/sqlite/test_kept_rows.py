"""Rows that the writer keeps between transactions are dropped by whatever changes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import commonbook
from commonbook.book.book import Book
from commonbook.ports.database import Row, Transaction

FACTS = "SELECT name, value FROM home WHERE name = :name"


def _fact(tx: Transaction) -> list[Row]:
    return tx.defer_stable(FACTS, name="a")()


def _set(tx: Transaction, value: str) -> None:
    tx.run("INSERT INTO home (name, value) VALUES ('a', :value)", value=value)


def _names(book: Book, space: str) -> list[str]:
    return sorted(memory.text for memory in book.list().items if memory.space == space)


@pytest.mark.parametrize("who", ["the same process", "another process"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda book: book.rename_space("a", "b"), {"a": ["second"], "b": ["first"]}),
        (lambda book: book.add_rule("c", "a"), {"a": ["first", "second"], "c": ["second"]}),
    ],
    ids=["a space was renamed", "a rule was added"],
)
def test_a_write_sees_what_changed_before_it(
    home: Path, who: str, change: Callable[[Book], object], expected: dict[str, list[str]]
):
    with closing(commonbook.open(home, create=True)) as book, closing(commonbook.open(home)) as other:
        book.create_space("c")
        book.remember("first", space="a")
        change(book if who == "the same process" else other)
        book.remember("second", space="a")
        assert {space: _names(book, space) for space in expected} == expected


def test_rows_of_a_change_that_is_rolled_back_are_not_kept(book: Book):
    db = book._engines.db

    def fail(tx: Transaction) -> None:
        _set(tx, "never")
        assert _fact(tx) == [("a", "never")]
        raise KeyError

    assert db.write(_fact) == []
    with pytest.raises(KeyError):
        db.write(fail)
    assert db.write(_fact) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE home SET value = 'new' WHERE name = 'a'",
        "WITH named AS (SELECT 'a' AS name) UPDATE home SET value = 'new' WHERE name IN (SELECT name FROM named)",
        "UPDATE home SET value = 'new' WHERE name = 'a' RETURNING name",
    ],
)
def test_rows_are_read_again_after_a_statement_on_their_table(home: Path, change: str):
    with closing(commonbook.open(home, create=True)) as book:

        def run(tx: Transaction) -> tuple[list[Row], list[Row], list[Row]]:
            _set(tx, "old")
            before = _fact(tx)
            tx.run("UPDATE space SET depth = 3")
            kept = _fact(tx)
            tx.rows(change)
            return before, kept, _fact(tx)

        assert book._engines.db.write(run) == ([("a", "old")], [("a", "old")], [("a", "new")])
