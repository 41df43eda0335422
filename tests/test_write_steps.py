"""The steps of a write that are handed in: those before its changes are finalized, and the one behind its commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import commonbook
from commonbook.book import Book
from commonbook.desk import Desk, step
from commonbook.errors import Conflict, HomeDamaged
from commonbook.ports import AfterCommit, BeforeSeal, Parts
from commonbook.writing import write_all


def with_before_seal(book: Book, *steps: BeforeSeal) -> None:
    book._parts = book._parts._replace(before_seal=steps)


def with_after_commit(book: Book, step: AfterCommit) -> None:
    book._parts = book._parts._replace(after_commit=step)


# --- before the changes are finalized


def test_the_steps_run_in_their_order_behind_the_operation_and_before_anything_is_finalized(book: Book):
    ran: list[tuple[str, list[str], int]] = []

    def named(name: str) -> BeforeSeal:
        def run(desk: Desk) -> None:
            (logged,) = desk.tx.rows("SELECT count(*) FROM log_entry")
            ran.append((name, [change.action for change in desk.tx.recorded], logged[0]))

        return step(run)

    book.create_space("weather")
    before = book.verify_log().entries
    with_before_seal(book, named("first"), named("second"), named("third"))
    book.remember("It rains.", space="weather")
    assert ran == [(name, ["remember"], before) for name in ("first", "second", "third")]


def test_every_actor_of_a_transaction_has_each_step(book: Book):
    ran: list[tuple[str, str]] = []
    with_before_seal(
        book,
        step(lambda desk: ran.append((str(desk.actor), "first"))),
        step(lambda desk: ran.append((str(desk.actor), "second"))),
    )
    write_all(book._parts, ["user:alice", "user:bob"], lambda desks: len(desks))
    assert ran == [("user:alice", "first"), ("user:alice", "second"), ("user:bob", "first"), ("user:bob", "second")]


def test_a_step_that_fails_undoes_the_whole_write(book: Book):
    committed: list[object] = []
    with_before_seal(book, step(lambda desk: desk.log(desk.system_space("weather"), "step", ())), step(_failing))
    with_after_commit(book, lambda _parts, contents: committed.append(contents))
    with pytest.raises(Conflict):
        book.remember("It rains.")
    assert (book.list().items, book.spaces(), committed) == ((), (), [])
    assert book.verify_log().findings == ()


def _failing(_desk: Desk) -> None:
    raise Conflict("a step refuses", fix="leave it out")


def test_a_step_refuses_what_is_no_write_context():
    with pytest.raises(TypeError, match="given a str"):
        step(_failing)("a context")


# --- behind the commit


def test_the_step_behind_the_commit_is_given_the_files_of_what_others_see_already(home: Path):
    with commonbook.open(home) as book, commonbook.open(home) as other:
        seen: list[str] = []

        def step(_parts: Parts, contents: Mapping[str, bytes | None]) -> None:
            for id_, data in contents.items():
                assert data is not None
                assert b"It rains." in data
                seen.append(other.get(id_).text)

        with_after_commit(book, step)
        book.remember("It rains.")
        assert seen == ["It rains."]


def test_what_goes_wrong_behind_the_commit_takes_nothing_back_and_is_made_good_later(home: Path):
    with commonbook.open(home) as book:
        for error in (OSError(5, "the disk is away"), HomeDamaged("the folder is away", fix="bring it back")):

            def failing(_parts: Parts, _contents: object, error: Exception = error) -> None:
                raise error

            with_after_commit(book, failing)
            receipt = book.remember("It rains.", tags=[type(error).__name__.lower()])
            assert book.get(receipt.id).text == "It rains."
            assert not (home / receipt.path).exists()
        assert book.status().pending_files == 2
    with commonbook.open(home) as book:
        assert book.status().pending_files == 0
        assert all((home / memory.path).exists() for memory in book.list().items)
        assert book.doctor() == ()
