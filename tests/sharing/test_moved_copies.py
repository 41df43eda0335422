"""A copy whose file is moved by hand stays one memory, also if its source and other copies change in the same scan."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook.core.files import scan
from commonbook.service.book import Book
from commonbook.values.memory import Filter


@pytest.fixture
def source(book: Book) -> str:
    for space in ("team", "other"):
        book.create_space(space)
    return book.remember("Alice owns the billing service").id


def edit_and_move(home: Path, book: Book, source: str, copy: str, to: str) -> Path:
    """Edit the file of the source and move that of its copy, as a checkout of a commit does; return the new place."""
    edited, path = (home / book.get(one).path for one in (source, copy))
    edited.write_text(edited.read_text().replace("Alice", "Bob"))
    place = home / to / path.name
    place.parent.mkdir(parents=True, exist_ok=True)
    path.rename(place)
    return place


def memories_of(book: Book) -> dict[str, tuple[str, str | None, str]]:
    return {one.id: (one.space, one.freshness, one.text.split()[0]) for one in book.list(Filter()).items}


@pytest.mark.promise("copies.moved")
@pytest.mark.parametrize("to", ["personal", "other"])
def test_one_that_is_moved_beside_its_root_or_a_copy_while_the_source_changes_is_detached(home, book, source, to):
    copy, other = book.share(source, "team").id, book.share(source, "other").id
    place = edit_and_move(home, book, source, copy, to)
    book.sync()
    assert memories_of(book) == {
        source: ("personal", None, "Bob"),
        copy: (to, "detached", "Alice"),
        other: ("other", "fresh", "Bob"),
    }
    assert (home / book.get(copy).path) == place
    assert not list((home / "team").rglob("*--*.md"))
    assert book.doctor() == ()


@pytest.mark.promise("copies.moved")
def test_one_that_is_moved_to_where_another_copy_was_removed_follows_on(home, book, source):
    copy, other = book.share(source, "team").id, book.share(source, "other").id
    (home / book.get(other).path).unlink()
    edit_and_move(home, book, source, copy, "other")
    book.sync()
    assert memories_of(book) == {source: ("personal", None, "Bob"), copy: ("other", "fresh", "Bob")}
    assert book.doctor() == ()


def test_a_scan_that_is_interrupted_before_the_moved_file_is_applied_is_made_up_for(home, book, source, monkeypatch):
    copy = book.share(source, "team").id
    edit_and_move(home, book, source, copy, "personal")
    with monkeypatch.context() as patched:
        patched.setattr("commonbook.core.files.scan._apply_files", _interrupted_after_the_first())
        with pytest.raises(KeyboardInterrupt):
            book.sync()
    book.edit(source, text="Carol owns the billing service")
    book.sync()
    assert memories_of(book) == {source: ("personal", None, "Carol"), copy: ("personal", "detached", "Alice")}
    assert book.doctor() == ()


def _interrupted_after_the_first():
    apply = scan._apply_files
    calls: list[int] = []

    def apply_once(*arguments, **named):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return apply(*arguments, **named)

    return apply_once
