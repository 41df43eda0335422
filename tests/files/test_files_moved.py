"""Files that people move, swap, remove and bring back: each keeps its id, and nobody else's is touched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from commonbook.errors import FileInTheWay
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from tests.support.hand_edits import change


def test_a_file_that_is_only_moved_is_not_a_new_version_however_it_is_laid_out(home: Path, book: Book):
    receipt = book.remember("one", space="a")
    change(home / receipt.path, "type: note\n", "type: note\nmood: sunny\n")
    book.sync()
    before = book.get(receipt.id).version
    (home / receipt.path).rename(home / "a" / "other.md")
    book.sync()
    assert (book.get(receipt.id).path, book.get(receipt.id).version) == ("a/other.md", before)


def test_a_file_moved_to_the_place_of_another_that_was_moved_first_leaves_both_their_ids(home: Path, book: Book):
    a, b = book.remember("a"), book.remember("b")
    (home / b.path).rename(home / "archived.md")
    (home / a.path).rename(home / b.path)
    book.sync()
    assert {one.id: (one.text, one.path) for one in book.list().items} == {
        a.id: ("a", b.path),
        b.id: ("b", "archived.md"),
    }


def test_two_files_that_change_places_keep_their_ids(home: Path, book: Book):
    a, b = book.remember("a"), book.remember("b")
    (home / a.path).rename(home / "aside")
    (home / b.path).rename(home / a.path)
    (home / "aside").rename(home / b.path)
    book.sync()
    assert [(book.get(one.id).text, book.get(one.id).path) for one in (a, b)] == [("a", b.path), ("b", a.path)]


@pytest.mark.parametrize("closed", [False, True])
def test_many_files_that_each_take_the_next_ones_place_keep_their_ids(home: Path, book: Book, closed: bool):
    for space in ("a", "b", "c", "d", "e"):  # in whatever order the folder is read
        made = [book.remember(f"n{n}", title="same", space=space) for n in range(5)]
        places = [*(one.path for one in made), made[0].path if closed else f"{space}/last.md"]
        (home / places[4]).rename(home / "aside")
        for n in (3, 2, 1, 0):
            (home / places[n]).rename(home / places[n + 1])
        (home / "aside").rename(home / places[5])
        book.sync()
        found = {one.id: one.text for one in book.list(Filter(space=space)).items}
        assert found == {one.id: f"n{n}" for n, one in enumerate(made)}


def test_a_malformed_file_survives_the_renaming_of_its_space(home: Path, book: Book):
    receipt = book.remember("good", space="a")
    (home / receipt.path).write_text("---\ntitle: [half\n---\n\nlong typing by a person\n")
    book.sync()
    with suppress(FileInTheWay):
        book.rename_space("a", "b")
    book.sync()
    assert any("long typing by a person" in path.read_text() for path in home.rglob("*.md"))


def test_a_file_moved_by_hand_just_before_its_space_is_renamed_keeps_its_id(home: Path, book: Book):
    receipt = book.remember("one", space="a")
    (home / receipt.path).rename(home / "moved.md")
    book.rename_space("a", "b")
    book.sync()
    assert [one.id for one in book.list().items] == [receipt.id]


def test_a_file_removed_by_hand_just_before_its_space_is_renamed_stays_removed(home: Path, book: Book):
    receipt = book.remember("one", space="a")
    (home / receipt.path).unlink()
    book.rename_space("a", "b")
    book.sync()
    assert book.list().items == ()


def test_a_memory_moved_from_below_the_deepest_space_stays_in_the_space_it_was_moved_to(home: Path, book: Book):
    deep = home / "a/b/c/d/e/f/g/h/x.md"
    deep.parent.mkdir(parents=True)
    deep.write_text("deep")
    book.sync()
    (memory,) = book.list().items
    moved = book.move(memory.id, "z")
    change(home / moved.path, "\n\ndeep", "\n\ndeeper")
    book.sync()
    assert (book.get(memory.id).text, book.get(memory.id).space) == ("deeper", "z")


def test_a_repeat_after_its_space_was_renamed_gives_the_first_receipt(book: Book):
    receipt = book.remember("one", space="a", key="k")
    book.rename_space("a", "b")
    assert book.remember("one", space="b", key="k").id == receipt.id


def test_a_memory_that_comes_back_elsewhere_leaves_alone_who_has_its_old_path(home: Path, book: Book):
    receipt = book.remember("one", space="a")
    path, data = home / receipt.path, (home / receipt.path).read_bytes()
    book.delete(receipt.id)
    path.parent.mkdir(parents=True)
    path.write_text("another note")
    book.sync()
    path.unlink()
    (home / "back.md").write_bytes(data)
    book.sync()
    assert [one.text for one in book.list().items] == ["one"]


def test_a_deleted_memory_comes_back_at_a_path_that_we_left_though_its_last_one_is_taken(home: Path, book: Book):
    receipt = book.remember("one", space="a")
    moved = book.move(receipt.id, "b")
    data = (home / moved.path).read_bytes()
    book.delete(receipt.id)
    (home / moved.path).parent.mkdir(parents=True)
    (home / moved.path).write_text("another note")
    book.sync()
    (home / receipt.path).parent.mkdir(parents=True)
    (home / receipt.path).write_bytes(data)
    book.sync()
    assert sorted(one.text for one in book.list().items) == ["another note", "one"]
