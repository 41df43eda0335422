"""The Markdown files are the truth of a memory: edits by hand, seen through the facade."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import commonbook
from commonbook.errors import NotFound
from commonbook.service.book import Book
from commonbook.values.memory import Draft, Filter
from tests.conftest import OpenBook
from tests.support.best_of import takes_less_than
from tests.support.hand_edits import change, texts


def wait_until(holds, seconds: float = 60.0) -> float:
    """Wait until a condition holds; return how many seconds it took."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < seconds, "it did not come about"
        time.sleep(0.02)
    return time.monotonic() - start


# --- every memory is a file


def test_every_memory_is_a_file_with_front_matter_and_a_name_that_says_what_it_is(book: Book, home: Path):
    receipt = book.remember("Alice owns the billing service", space="team/backend", tags=["billing"])
    assert receipt.path.startswith("team/backend/")
    assert receipt.path.endswith(f"/alice-owns-the-billing-service--{receipt.id[-8:]}.md")
    lines = (home / receipt.path).read_text().splitlines()
    assert lines[0] == "---"
    assert f"id: {receipt.id}" in lines
    assert "title: Alice owns the billing service" in lines
    assert "tags: [billing]" in lines
    assert lines[-1] == "Alice owns the billing service"


def test_a_slug_and_a_month_stay_when_title_and_dates_change(book: Book):
    receipt = book.remember("Old name")
    assert book.edit(receipt.id, title="New name", occurred="1999-01-01").path == receipt.path


# --- edits by hand


@pytest.mark.promise("files.edits")
def test_hand_edits_of_every_field_are_taken_in_at_the_next_opening(book: Book, home: Path, open_book: OpenBook):
    target = book.remember("target")
    receipt = book.remember("The first text", title="First", tags=["a"], kind="note")
    book.close()
    path = home / receipt.path
    change(path, "\nThe first text\n", "\nAnother text\n")
    change(path, "title: First", "title: Second")
    change(path, "tags: [a]", "tags:\n  - b\n  - c # mine\nmood: sunny")
    change(path, "type: note", "type: decision")
    change(path, "author:", "occurred: 2020-02-03\nvalid_until: 2031-01-01\nimportance: 0.25\nauthor:")
    change(path, "\n---\n\n", f"\nlinks:\n  - related_to {target.id}\n---\n\n")
    saved = path.read_bytes()
    again = open_book()
    memory = again.get(receipt.id)
    assert (memory.text, memory.title, memory.kind, memory.tags) == ("Another text", "Second", "decision", ("b", "c"))
    assert memory.occurred is not None
    assert memory.occurred.isoformat() == "2020-02-03T00:00:00+00:00"
    assert memory.importance == 0.25
    assert [(link.relation, link.target) for link in memory.links] == [("related_to", target.id)]
    assert [link.source for link in again.links(target.id)] == [receipt.id]
    assert [one.id for one in again.list(Filter(tags=("c",))).items] == [receipt.id]
    assert (memory.version > receipt.version, memory.revision) == (True, 2)
    assert again.history(receipt.id)[-1].author == "user:filesystem"
    assert path.read_bytes() == saved, "a file that a person has saved is left as it is"
    assert again.verify_log().ok
    assert again.doctor() == ()


@pytest.mark.promise("files.edits")
@pytest.mark.slow
def test_a_hand_edit_shows_within_two_seconds_while_another_process_watches(home: Path, tmp_path: Path):
    script = tmp_path / "watcher.py"
    script.write_text(
        "import sys, commonbook\n"
        "with commonbook.open(sys.argv[1]) as book, book.watching(lambda report: print('.', flush=True)):\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with commonbook.open(home, create=True) as book:
        receipt = book.remember("before", title="t")
        book.create_space("elsewhere")
        fresh = home / "team" / "fresh.md"
        with subprocess.Popen(
            [sys.executable, str(script), str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as watcher:
            try:
                assert watcher.stdout is not None
                assert {watcher.stdout.readline().strip(), watcher.stdout.readline().strip()} == {"ready", "."}
                versions = [("before", "0"), *((str(number), str(number + 1)) for number in range(20))]

                def attempt() -> float:
                    old, new = versions.pop(0)
                    change(home / receipt.path, f"\n{old}\n", f"\n{new}\n")
                    took = wait_until(lambda: book.get(receipt.id).text == new)
                    wait_until(lambda: book.status().pending_files == 0)
                    return took

                takes_less_than(2, attempt)
                fresh.parent.mkdir()
                fresh.write_text("A new thought")
                wait_until(lambda: len(book.list(Filter(space="personal")).items) == 2)
                moved = home / "elsewhere" / "moved.md"
                (home / receipt.path).rename(moved)
                wait_until(lambda: book.get(receipt.id).space == "elsewhere")
                wait_until(lambda: book.status().pending_files == 0)
                moved.unlink()
                wait_until(lambda: receipt.id not in {one.id for one in book.list().items})
                assert book.get(book.list().items[0].id).text == "A new thought"
            finally:
                watcher.communicate()
            assert watcher.returncode == 0


# --- files made, removed and moved by hand


def test_a_new_file_without_front_matter_becomes_a_memory_and_gets_one(home: Path, open_book: OpenBook):
    open_book().create_space("team")
    (home / "team" / "My Notes").mkdir()
    path = home / "team" / "My Notes" / "Some idea.md"
    path.write_bytes(b"# A heading\r\n\r\nand text\r\n")
    book = open_book()
    (memory,) = book.list().items
    assert (memory.space, memory.title, memory.author) == ("team", "Some idea", "user:filesystem")
    assert memory.path == "team/My Notes/Some idea.md"
    assert path.read_bytes() == f"---\r\nid: {memory.id}\r\n---\r\n\r\n# A heading\r\n\r\nand text\r\n".encode()
    assert book.sync().read == 0


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_an_edit_of_a_file_with_crlf_changes_only_the_bytes_of_its_line(home: Path, book: Book, eol: str):
    path = home / "Windows.md"
    path.write_bytes(b"# A heading\r\n\r\none\r\ntwo\r\n")
    book.sync()
    (memory,) = book.list().items
    before = path.read_bytes()
    book.edit(memory.id, text=eol.join(["# A heading", "", "one", "three"]))
    assert path.read_bytes() == before.replace(b"\r\ntwo\r\n", b"\r\nthree\r\n") != before


@pytest.mark.parametrize("front", [b"", b"---\r\nmood: good\r\n---\r\n"])
def test_a_note_of_one_line_keeps_its_line_ends_when_it_grows(home: Path, book: Book, front: bytes):
    path = home / "Windows.md"
    path.write_bytes(front + b"one\r\n")
    book.sync()
    (memory,) = book.list().items
    book.edit(memory.id, text="one\ntwo\nthree")
    assert path.read_bytes().endswith(b"one\r\ntwo\r\nthree\r\n")
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")
    book.edit(memory.id, text="one")
    book.edit(memory.id, text="one\ntwo")
    assert path.read_bytes().endswith(b"one\r\ntwo\r\n")


def test_an_edit_of_a_file_with_mixed_line_ends_keeps_those_of_the_new_text(home: Path, book: Book):
    path = home / "Mixed.md"
    path.write_bytes(b"one\r\ntwo\nthree\n")
    book.sync()
    (memory,) = book.list().items
    before = path.read_bytes()
    book.edit(memory.id, text="one\r\n2\nthree")
    assert path.read_bytes() == before.replace(b"\ntwo\n", b"\n2\n") != before


@pytest.mark.promise("files.removed")
def test_a_removed_file_removes_its_memory_and_brings_it_back_with_its_history(
    home: Path, book: Book, open_book: OpenBook, tmp_path: Path
):
    receipt = book.remember("one", tags=["x"])
    book.create_space("elsewhere")
    book.edit(receipt.id, text="two")
    aside = tmp_path / "aside.md"
    (home / receipt.path).rename(aside)
    again = open_book()
    with pytest.raises(NotFound):
        again.get(receipt.id)
    assert again.list(Filter(tags=("x",))).items == ()
    place = home / "elsewhere" / "back.md"
    aside.rename(place)
    back = open_book()
    memory = back.get(receipt.id)
    assert (memory.text, memory.space, memory.tags) == ("two", "elsewhere", ("x",))
    assert texts(back, receipt.id) == ["one", "two"]
    assert [entry.action for entry in back.log(space="elsewhere")] == ["space.create", "restore"]
    assert back.doctor() == ()


def test_a_moved_file_keeps_its_id_and_links(home: Path, book: Book, open_book: OpenBook):
    target = book.remember("target")
    receipt = book.remember("one", space="a", links=[("related_to", target.id)])
    book.create_space("b")
    new = home / "b" / "renamed by hand.md"
    (home / receipt.path).rename(new)
    again = open_book()
    memory = again.get(receipt.id)
    assert (memory.space, memory.path) == ("b", "b/renamed by hand.md")
    assert [link.source for link in again.links(target.id)] == [receipt.id]
    assert again.list().items[0].id == receipt.id
    assert again.status().memories == 2
    assert again.doctor() == ()


def test_a_file_moved_inside_its_space_only_changes_its_path(home: Path, book: Book):
    receipt = book.remember("one", space="a")
    (home / receipt.path).rename(home / "a" / "other.md")
    book.sync()
    assert (book.get(receipt.id).path, book.get(receipt.id).version) == ("a/other.md", 1)
    book.edit(receipt.id, text="two")
    assert sorted(path.name for path in (home / "a").rglob("*.md")) == ["other.md"]


def test_an_edit_through_the_api_finds_a_file_that_was_just_moved(home: Path, book: Book):
    receipt = book.remember("one", space="a")
    (home / "a" / "other.md").write_bytes((home / receipt.path).read_bytes())
    (home / receipt.path).unlink()
    assert book.edit(receipt.id, text="two").path == "a/other.md"
    assert [path.name for path in (home / "a").rglob("*.md")] == ["other.md"]
    assert book.status().memories == 1


def test_a_file_moved_over_another_replaces_it(home: Path, book: Book, open_book: OpenBook):
    a, b = book.remember("a"), book.remember("b")
    (home / a.path).replace(home / b.path)
    again = open_book()
    assert again.get(a.id).path == b.path
    with pytest.raises(NotFound):
        again.get(b.id)
    assert again.doctor() == ()


def test_a_folder_renamed_by_hand_moves_everything_in_it(home: Path, book: Book, open_book: OpenBook):
    made = book.remember_many([Draft(text=f"n{n}", space="old/place") for n in range(30)])
    (home / "old").rename(home / "new")
    again = open_book()
    # The id in its space file says which space it is; that keeps its name, on which rights depend.
    assert {again.get(one.id).space for one in made} == {"old/place"}
    assert {again.get(one.id).path.rpartition("/")[0] for one in made} == {
        f"new/place/{one.path.split('/')[2]}" for one in made
    }
    assert [(space.name, space.folder) for space in again.spaces()] == [("old/place", "new/place")]
    assert again.status().memories == 30
    assert again.doctor() == ()


# --- one title in several spaces


def test_memories_of_one_title_and_day_in_two_spaces_never_touch_each_others_file(home: Path, book: Book):
    made = [book.remember("the same", space=space) for space in ("a", "b", "a", "a/b", "personal")]
    assert len({one.path for one in made}) == 5
    book.edit(made[0].id, text="changed")
    assert [book.get(one.id).text for one in made[1:]] == ["the same"] * 4
    assert all("the same" in (home / one.path).read_text() for one in made[1:])
    book.move(made[0].id, "b")
    assert "the same" in (home / made[1].path).read_text()
