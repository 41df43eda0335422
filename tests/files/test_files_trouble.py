"""Files in trouble: malformed, gone in great numbers, checked out, evicted or unmounted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from commonbook.errors import FileInTheWay
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from tests.conftest import OpenBook
from tests.support.hand_edits import texts

# --- malformed files


@pytest.mark.promise("files.malformed")
@pytest.mark.parametrize(
    "broken",
    [
        b"---\ntitle: [unclosed\n---\n\ntext\n",
        b"---\nkind: poem\n---\n\ntext\n",
        b"---\ntitle: x\ntitle: y\n---\n\ntext\n",
        b"---\na: &a [x]\nb: *a\n---\n\ntext\n",
        b"---\ntitle: !!python/object/apply:os.system [ls]\n---\ntext\n",
        b"\xff\xfe broken",
        b"a\0b",
        b"",
    ],
)
def test_a_malformed_file_is_named_marked_and_left_alone_until_it_is_mended(
    home: Path, book: Book, open_book: OpenBook, broken: bytes
):
    receipt = book.remember("good text", tags=["x"])
    path = home / receipt.path
    good = path.read_bytes()
    path.write_bytes(broken)
    again = open_book()
    assert again.get(receipt.id).text == "good text"
    assert again.get(receipt.id).marks == ("malformed",)
    assert [finding.where for finding in again.doctor()] == [receipt.path]
    assert [finding.where for finding in again.status().findings] == [receipt.path]
    with pytest.raises(FileInTheWay):
        again.edit(receipt.id, text="over it")
    with pytest.raises(FileInTheWay):
        again.delete(receipt.id)
    assert path.read_bytes() == broken
    path.write_bytes(good.replace(b"good text", b"mended"))
    healed = open_book()
    assert (healed.get(receipt.id).text, healed.get(receipt.id).marks) == ("mended", ())
    assert healed.doctor() == ()


def test_a_malformed_new_file_is_named_and_becomes_a_memory_when_mended(home: Path, book: Book):
    path = home / "notes.md"
    path.write_text("---\ntitle: [oops\n---\n\ntext\n")
    assert book.sync().malformed == 1
    assert book.list().items == ()
    assert [finding.where for finding in book.status().findings] == ["notes.md"]
    path.write_text("---\ntitle: fine\n---\n\ntext\n")
    book.sync()
    assert book.list().items[0].title == "fine"
    path.write_text("---\nbroken: [\n")
    book.sync()
    path.unlink()
    book.sync()
    assert (book.status().findings, book.list().items) == ((), ())


# --- files that vanish


@pytest.mark.promise("files.mass-deletion")
def test_when_many_files_vanish_nothing_is_deleted_before_a_person_agrees(
    home: Path, book: Book, open_book: OpenBook, tmp_path: Path
):
    made = book.remember_many([Draft(text=f"n{n}", space="team") for n in range(40)])
    book.edit(made[0].id, text="edited")
    aside = tmp_path / "team"
    (home / "team").rename(aside)
    held = open_book()
    assert held.status().memories == 40
    assert held.status().pending_deletions == 40
    assert held.get(made[0].id).marks == ("missing",)
    assert held.doctor()[0].what == "missing file"
    aside.rename(home / "team")
    back = open_book()
    assert back.status().pending_deletions == 0
    assert back.get(made[0].id).marks == ()
    assert texts(back, made[0].id) == ["n0", "edited"]
    assert back.doctor() == ()
    shutil.rmtree(home / "team")
    gone = open_book()
    assert gone.status().memories == 40
    assert gone.accept_deletions() == 40
    assert (gone.status().memories, gone.status().deleted) == (0, 40)


def test_ten_files_or_a_tenth_may_go_without_asking(home: Path, book: Book, open_book: OpenBook):
    made = book.remember_many([Draft(text=f"n{n}") for n in range(200)])
    for one in made[:20]:
        (home / one.path).unlink()
    assert open_book().status().memories == 180


def test_a_checkout_of_an_old_commit_and_back_keeps_everything(home: Path, book: Book, open_book: OpenBook):
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
            cwd=home,
            check=True,
            capture_output=True,
        )

    old = book.remember_many([Draft(text=f"old {n}") for n in range(15)])
    git("init", "-q")
    (home / ".gitignore").write_text(".commonbook/\n")
    git("add", ".")
    git("commit", "-qm", "one")
    new = book.remember_many([Draft(text=f"new {n}") for n in range(15)])
    book.edit(old[0].id, text="edited")
    git("add", ".")
    git("commit", "-qm", "two")
    git("checkout", "-q", "HEAD~1")
    then = open_book()
    assert then.status().pending_deletions == 15
    assert then.get(old[0].id).text == "old 0"
    git("checkout", "-qf", "master") if (home / ".git/refs/heads/master").exists() else git("checkout", "-qf", "main")
    now = open_book()
    assert now.status().pending_deletions == 0
    assert now.get(old[0].id).text == "edited"
    assert {now.get(one.id).text for one in new} == {f"new {n}" for n in range(15)}
    assert "edited" in texts(now, old[0].id)
    assert now.doctor() == ()


@pytest.mark.promise("files.mass-deletion")
def test_files_that_a_cloud_drive_evicted_are_not_taken_for_deleted_or_emptied(
    home: Path, book: Book, open_book: OpenBook
):
    a, b = book.remember("a"), book.remember("b")
    path = home / a.path
    path.rename(path.with_name(f".{path.name}.icloud"))
    (home / b.path).write_bytes(b"")
    again = open_book()
    assert again.get(a.id).text == "a"
    assert (again.get(b.id).text, again.get(b.id).marks) == ("b", ("malformed",))


def test_a_home_that_is_taken_away_while_a_book_is_open_loses_nothing(home: Path, book: Book, tmp_path: Path):
    receipt = book.remember("one")
    home.rename(tmp_path / "unmounted")
    home.mkdir()
    book.sync()
    (home).rmdir()
    (tmp_path / "unmounted").rename(home)
    book.sync()
    assert book.get(receipt.id).text == "one"
