"""A retraction outlives files that lack its times: only `reinstate` takes it back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import commonbook
from commonbook.service.book import Book
from tests.support.lost_databases import keep_database, lose_database, put_database_back


def retracted(book: Book) -> str:
    """Return a reflection whose ground was superseded, and that was retracted for it."""
    ground = book.remember("a litre costs five").id
    thought = book.reflect("oil is cheap", [ground]).id
    book.supersede(ground, by=book.remember("a litre costs seven").id)
    book.triage(thought, "retract", note="no longer")
    return thought


def remove_times(folder: Path, memory_id: str) -> Path:
    """Remove the times of a memory from its file, and return the file."""
    path = next(path for path in folder.rglob("*.md") if path.read_text().startswith(f"---\nid: {memory_id}"))
    path.write_text(re.sub(r"(?m)^(expires|valid_until):.*\n", "", path.read_text()))
    return path


def require_retracted(book: Book, memory_id: str) -> None:
    assert "retracted" in book.get(memory_id).marks
    assert memory_id not in {hit.memory for hit in book.recall("oil is cheap", min_confidence=0).hits}


def require_reinstated(book: Book, memory_id: str) -> None:
    book.reinstate(memory_id)
    found = book.get(memory_id)
    assert (found.expires, found.valid_until, found.marks) == (None, None, ("suspect",))


@pytest.mark.promise("supersede.retracted")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_import_of_its_file_without_times_does_not_take_a_retraction_back(book, tmp_path, is_deleted):
    thought = retracted(book)
    book.export(str(tmp_path / "exported"))
    remove_times(tmp_path / "exported", thought)
    if is_deleted:
        book.delete(thought)
    book.import_folder(str(tmp_path / "exported"))
    require_retracted(book, thought)
    require_reinstated(book, thought)


def test_a_retraction_comes_into_another_book_without_the_times_of_its_file(open_book, tmp_path):
    book = open_book()
    thought = retracted(book)
    book.export(str(tmp_path / "exported"))
    book.close()
    remove_times(tmp_path / "exported", thought)
    with commonbook.open(tmp_path / "other", create=True) as other:
        other.import_folder(str(tmp_path / "exported"))
        require_retracted(other, thought)


@pytest.mark.promise("supersede.retracted")
def test_a_lost_database_takes_no_retraction_back(home):
    with commonbook.open(home, create=True) as book:
        thought = retracted(book)
    remove_times(home, thought)
    lose_database(home)
    with commonbook.open(home) as book:
        require_retracted(book, thought)
        assert "\nexpires: " in (home / book.get(thought).path).read_text()
        require_reinstated(book, thought)


@pytest.mark.promise("supersede.retracted")
def test_an_older_database_that_knows_a_retraction_keeps_it(home, tmp_path):
    with commonbook.open(home, create=True) as book:
        grounds = [book.remember(text).id for text in ("a litre costs five", "a barrel costs fifty")]
        thought = book.reflect("oil is cheap", grounds).id
        book.supersede(grounds[0], by=book.remember("a litre costs seven").id)
        book.triage(thought, "retract")
    keep_database(home, tmp_path / "kept")
    with commonbook.open(home) as book:
        book.supersede(grounds[1], by=book.remember("a barrel costs seventy").id)
        book.triage(thought, "keep")
    remove_times(home, thought)
    put_database_back(home, tmp_path / "kept")
    with commonbook.open(home) as book:
        require_retracted(book, thought)
        require_reinstated(book, thought)
