"""A copy remembers when its deleted source ended, so that no lost or older database makes it valid again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import commonbook
from commonbook.engines.process import SystemClock
from commonbook.service.book import Book
from commonbook.values.memory import Refresh
from tests.support.lost_databases import lose_database

NOW = SystemClock().now()


def thought_with_copies(book: Book) -> tuple[str, str, str, str]:
    """Return a thought in doubt, a snapshot and a live copy of it, and a copy of the live one."""
    ground = book.remember("a litre of oil costs five", space="facts").id
    thought = book.reflect("oil is cheap", [ground], space="a").id
    snapshot = book.share(thought, "archive", refresh="snapshot").id
    live = book.share(thought, "team").id
    below = book.share(live, "others").id
    book.remember("a litre costs seven", space="facts", replaces=ground)
    return thought, snapshot, live, below


def retract(book: Book, thought: str) -> None:
    book.triage(thought, "retract")


def expire(book: Book, thought: str) -> None:
    book.edit(thought, expires=NOW - timedelta(days=1))


def end(book: Book, thought: str) -> None:
    book.edit(thought, valid_until=NOW - timedelta(days=1))


def expired(book: Book, *ids: str) -> list[bool]:
    return ["expired" in book.get(id_).marks or "ended" in book.get(id_).marks for id_ in ids]


def recalled(book: Book) -> set[str]:
    names = [space.name for space in book.spaces()]
    return {hit.memory for name in names for hit in book.recall("cheap", spaces=[name]).hits}


def noted(book: Book, *ids: str) -> set[datetime | None]:
    infos = [book.get(id_).shared for id_ in ids]
    return {info.source_ends if info else None for info in infos}


@pytest.mark.promise("lost.doubts")
@pytest.mark.parametrize("ending", [retract, expire, end])
def test_a_copy_of_a_deleted_source_stays_ended(
    book: Book, home: Path, open_book: Callable[[], Book], ending: Callable[[Book, str], None]
):
    thought, *copies = thought_with_copies(book)
    ending(book, thought)
    book.delete(thought)
    assert expired(book, *copies) == [True] * len(copies)
    book.close()
    lose_database(home)
    for _ in range(2):
        book = open_book()
        assert expired(book, *copies) == [True] * len(copies)
        assert not recalled(book) & {*copies}
        book.rebuild()
        assert expired(book, *copies) == [True] * len(copies)
        assert book.doctor() == ()
        book.close()


def test_a_copy_ends_when_its_deleted_source_would_have(book: Book):
    thought, snapshot, live, below = thought_with_copies(book)
    ends = NOW + timedelta(days=30)
    book.edit(thought, expires=ends)
    book.delete(thought)
    assert noted(book, snapshot, live) == {ends}
    assert noted(book, below) == {None}, "its own source is not deleted"
    assert expired(book, snapshot, live, below) == [False, False, False]
    book.delete(live)
    assert noted(book, below) == {ends}


def test_a_source_that_came_back_and_did_not_end_leaves_nothing_noted(book: Book):
    source = book.remember("oil is cheap", space="a").id
    copy = book.share(source, "team").id
    expire(book, source)
    book.delete(source)
    assert (len(noted(book, copy) - {None}), expired(book, copy)) == (1, [True])
    book.undelete(source)
    book.edit(source, expires=None)
    assert expired(book, copy) == [False]
    book.delete(source)
    assert (noted(book, copy), expired(book, copy)) == ({None}, [False])


@pytest.mark.promise("lost.doubts")
@pytest.mark.parametrize("refresh", ["live", "lazy", "snapshot"])
def test_a_source_that_comes_back_leaves_no_old_end_in_its_copies(book: Book, refresh: Refresh):
    source = book.remember("oil is cheap", space="a").id
    book.grant("user:bob", "a", "reader")
    book.grant("user:bob", "team", "writer")
    copy = book.acting_as("user:bob").share(source, "team", refresh=refresh).id
    expire(book, source)
    book.delete(source)
    assert len(noted(book, copy) - {None}) == 1
    book.undelete(source)
    assert noted(book, copy) == {None}
    book.edit(source, expires=None)
    book.revoke("user:bob", "a")
    book.delete(source)
    assert (book.get(copy).marks, book.get(copy).text) == ((), "oil is cheap")


@pytest.mark.promise("lost.doubts")
def test_a_source_whose_file_comes_back_leaves_no_old_end_in_its_copies(book: Book, home: Path):
    source = book.remember("oil is cheap", space="a").id
    copy = book.share(source, "team").id
    path = home / book.get(source).path
    without_end = path.read_text()
    expire(book, source)
    book.delete(source)
    assert expired(book, copy) == [True]
    path.parent.mkdir(exist_ok=True)
    for deed in (lambda: path.write_text(without_end), path.unlink):
        deed()
        book.sync()
        assert (noted(book, copy), expired(book, copy)) == ({None}, [False])


@pytest.mark.promise("lost.doubts")
def test_a_sharer_who_may_no_longer_read_the_source_learns_nothing_of_its_end(book: Book):
    source = book.remember("oil is cheap", space="a").id
    book.grant("user:bob", "a", "reader")
    book.grant("user:bob", "team", "writer")
    copy = book.acting_as("user:bob").share(source, "team").id
    book.revoke("user:bob", "a")
    book.edit(source, expires=NOW + timedelta(days=30))
    book.delete(source)
    assert noted(book, copy) == {None}


@pytest.mark.promise("lost.doubts")
def test_a_forged_end_is_put_back(book: Book, home: Path):
    source = book.remember("oil is cheap", space="a").id
    copy = book.share(source, "team").id
    expire(book, source)
    book.delete(source)
    path = home / book.get(copy).path
    before, (ends,) = path.read_text(), noted(book, copy)
    word = next(word for word in before.split() if word.startswith("ends:"))
    path.write_text(before.replace(f"{word} ", ""))
    book.sync()
    assert (path.read_text(), noted(book, copy)) == (before, {ends})


def test_all_of_many_copies_note_the_end(book: Book):
    source = book.remember("oil is cheap", space="a").id
    copies = [book.share(source, f"team{number}").id for number in range(105)]
    ends = NOW + timedelta(days=30)
    book.edit(source, expires=ends)
    book.delete(source)
    book.work()
    assert noted(book, *copies) == {ends}


@pytest.mark.promise("copies.no-way-round")
@pytest.mark.parametrize("source_space", ["a", "z"], ids=["source first", "source last"])
@pytest.mark.parametrize("is_deleted", [False, True], ids=["source there", "source deleted"])
def test_an_ended_copy_whose_file_was_moved_beside_another_copy_stays_ended(
    book: Book, home: Path, open_book: Callable[[], Book], source_space: str, is_deleted: bool
):
    ground = book.remember("a litre of oil costs five", space="facts").id
    endings = {
        book.reflect("oil is cheap", [ground], space=source_space).id: ending for ending in (retract, expire, end)
    }
    book.supersede(ground, by=book.remember("a litre costs seven", space="facts").id)
    moved = {book.share(thought, "team").id: ending for thought, ending in endings.items()}
    others = [book.share(thought, "others").id for thought in endings]
    for thought, ending in endings.items():
        ending(book, thought)
        if is_deleted:
            book.delete(thought)
    paths = [home / book.get(copy).path for copy in moved]
    book.close()
    lose_database(home)
    for path in paths:
        path.rename(home / "others" / path.name)
    book = open_book()
    assert {book.get(copy).freshness for copy in moved} == {"detached"}
    assert all(expired(book, *moved, *others))
    assert not recalled(book) & {copy for copy in (*moved, *others) if "expired" in book.get(copy).marks}
    retracted = [ending for copy, ending in moved.items() if "retracted" in book.get(copy).marks]
    assert retracted == ([] if is_deleted else [retract])
    assert not {entry.action for entry in book.log(space="team")} & {"delete", "restore"}
    assert book.doctor() == ()


@pytest.mark.promise("copies.no-way-round")
def test_an_ended_copy_that_is_imported_beside_another_copy_stays_ended(book: Book, tmp_path: Path):
    with commonbook.open(tmp_path / "elsewhere", create=True) as origin:
        source = origin.remember("oil is cheap", space="a").id
        copy = origin.share(source, "team").id
        origin.export(str(tmp_path / "export"))
    book.import_folder(str(tmp_path / "export"), exclude=["team"])
    book.share(source, "team")
    expire(book, source)
    book.import_folder(str(tmp_path / "export"))
    assert book.get(copy).freshness == "detached"
    assert expired(book, copy) == [True]
    assert not recalled(book)
