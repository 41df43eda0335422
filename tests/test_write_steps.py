"""The steps of a write that are handed in: those before its changes are finalized, and the one behind its commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import commonbook
from commonbook.book import Book
from commonbook.errors import HomeDamaged
from commonbook.ports import AfterCommit, Parts


def with_after_commit(book: Book, step: AfterCommit) -> None:
    book._parts = book._parts._replace(after_commit=step)


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
