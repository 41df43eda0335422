"""Folders and spaces: a folder is a space only if it was made one, and its `.space.toml` brings it back."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

import commonbook
from commonbook.service.book import Book
from commonbook.values.ids import new_id
from tests.conftest import OpenBook
from tests.support.hand_edits import space_folder
from tests.support.lost_databases import lose_database

SPACE_FILE = ".space.toml"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def claim(folder: Path, name: str, id_: str) -> None:
    """Write a space file by hand."""
    write(folder / SPACE_FILE, f'name = "{name}"\nid = "{id_}"\n')


def spaces_of(book: Book) -> dict[str, str]:
    """The space of each memory by its path."""
    return {memory.path: memory.space for memory in book.list(limit=500).items}


def ids_of(book: Book) -> dict[str, str]:
    return {space.name: space.id for space in book.spaces()}


def whys(book: Book) -> list[str]:
    return [finding.why for finding in book.doctor()]


# --- folders that are no spaces


def test_a_folder_is_just_a_folder_of_the_space_that_it_lies_in(home: Path, book: Book):
    book.create_space("team")
    places = {
        "root.md": "personal",
        "notes/x.md": "personal",
        "Notes/Deep/er/x.md": "personal",
        "personal/garden/x.md": "personal",
        "team/x.md": "team",
        "team/backend/x.md": "team",
        "team/2026-05/x.md": "team",
        "Team notes/x.md": "personal",
        "_private/x.md": "personal",
    }
    for path in places:
        write(home / path, path)
    book.sync()
    assert spaces_of(book) == places
    assert set(ids_of(book)) == {"personal", "team"}
    assert book.doctor() == ()


def test_a_note_moved_between_folders_of_a_space_only_changes_its_path(home: Path, book: Book):
    note = book.remember("one", space="team")
    write(home / "team/archive/other.md", "another")
    book.sync()
    before = book.get(note.id)
    entries = len(book.log(space="team"))
    (home / note.path).rename(home / "team/archive/one.md")
    book.sync()
    assert book.get(note.id) == before._replace(path="team/archive/one.md")
    assert len(book.log(space="team")) == entries


# --- the file


def test_every_space_has_a_file_with_its_name_and_id(home: Path, book: Book):
    book.remember("mine")
    book.remember("ours", space="team/backend")
    book.create_space("empty")
    for name, folder in (("personal", "."), ("team/backend", "team/backend"), ("empty", "empty")):
        text = (home / folder / SPACE_FILE).read_text()
        assert f'name = "{name}"\nid = "{ids_of(book)[name]}"\n' in text
    assert len(list(home.rglob(SPACE_FILE))) == 3
    assert book.doctor() == ()


@pytest.mark.promise("lost.spaces")
def test_a_lost_database_brings_every_space_back_with_its_id(home: Path, book: Book, open_book: OpenBook):
    for space in ("personal", "team", "team/backend", "other"):
        book.remember(f"about {space}", space=space)
    book.create_space("empty")
    write(home / "team/plans/x.md", "a note in a folder of the space")
    book.sync()
    ids, where = ids_of(book), spaces_of(book)
    book.close()
    lose_database(home)
    again = open_book()
    assert (ids_of(again), spaces_of(again)) == (ids, where)
    assert again.doctor() == ()


@pytest.mark.promise("lost.spaces")
def test_a_clone_of_the_folder_has_the_same_spaces(home: Path, book: Book, tmp_path: Path):
    book.remember("ours", space="team")
    book.remember("mine")
    shutil.copytree(home, tmp_path / "clone", ignore=shutil.ignore_patterns(".commonbook"))
    with commonbook.open(tmp_path / "clone", create=True) as clone:
        assert (ids_of(clone), spaces_of(clone)) == (ids_of(book), spaces_of(book))
        assert clone.doctor() == ()


@pytest.mark.promise("lost.spaces")
@pytest.mark.parametrize("target", ["out", "out.zip", "out.tar.gz"])
def test_an_export_brings_the_spaces_into_another_book(book: Book, tmp_path: Path, target: str):
    book.remember("ours", space="team")
    book.remember("below", space="team/backend")
    book.remember("mine")
    book.export(str(tmp_path / target))
    with commonbook.open(tmp_path / "other", create=True) as other:
        assert other.import_folder(str(tmp_path / target), dry_run=True).spaces == ("personal", "team", "team/backend")
        other.import_folder(str(tmp_path / target))
        assert (ids_of(other), spaces_of(other)) == (ids_of(book), spaces_of(book))


def test_a_file_that_a_person_removed_is_written_again_by_the_next_write_of_a_verb(home: Path, book: Book):
    book.remember("ours", space="team")
    before = (home / "team" / SPACE_FILE).read_bytes()
    (home / "team" / SPACE_FILE).unlink()
    write(home / "team" / "new.md", "a new note")
    for _ in range(2):
        book.sync()
        assert not (home / "team" / SPACE_FILE).exists()
        assert spaces_of(book)["team/new.md"] == "team"
    book.remember("ours too", space="team")
    assert (home / "team" / SPACE_FILE).read_bytes() == before
    assert book.doctor() == ()


def test_a_space_that_went_with_all_its_files_comes_back_with_the_next_write(home: Path, book: Book, tmp_path: Path):
    """As `git checkout` does, of a commit that did not have the space yet."""
    book.remember("mine")
    note = book.remember("ours", space="team")
    (home / "team").rename(tmp_path / "aside")
    book.sync()
    book.sync()
    assert not (home / "team").exists()
    assert book.doctor() == ()
    (tmp_path / "aside").rename(home / "team")
    book.sync()
    assert book.get(note.id).space == "team"
    shutil.rmtree(home / "team")
    book.sync()
    book.remember("ours again", space="team")
    assert ids_of(book)["team"] in (home / "team" / SPACE_FILE).read_text()
    assert book.doctor() == ()


def test_a_rename_takes_the_folder_and_its_file_along(home: Path, book: Book):
    note, below = book.remember("ours", space="team"), book.remember("below", space="team/backend")
    ids = ids_of(book)
    book.rename_space("team", "crew")
    assert not (home / "team").exists()
    assert f'name = "crew"\nid = "{ids["team"]}"' in (home / "crew" / SPACE_FILE).read_text()
    assert f'name = "crew/backend"\nid = "{ids["team/backend"]}"' in (home / "crew/backend" / SPACE_FILE).read_text()
    assert [book.get(one.id).path.split("/")[0] for one in (note, below)] == ["crew", "crew"]
    assert book.doctor() == ()


# --- folders that a person moved or copied


def test_a_folder_that_a_person_moved_is_the_same_space_with_the_same_name(home: Path, book: Book, open_book: OpenBook):
    note, below = book.remember("ours", space="team"), book.remember("below", space="team/backend")
    book.grant("user:alice", "team", "reader")
    (home / "archive").mkdir()
    (home / "team").rename(home / "archive" / "The Team")
    again = open_book()
    assert {space.name: space.folder for space in again.spaces()} == {
        "team": "archive/The Team",
        "team/backend": "archive/The Team/backend",
    }
    alice = again.acting_as("user:alice")
    assert [alice.get(one.id).space for one in (note, below)] == ["team", "team/backend"]
    written = again.remember("more", space="team")
    assert written.path.startswith("archive/The Team/20")
    assert again.doctor() == ()
    again.close()
    lose_database(home)
    assert {space.name: space.folder for space in open_book().spaces()}["team"] == "archive/The Team"


def test_a_space_keeps_the_spelling_of_its_folder(home: Path, book: Book):
    book.remember("ours", space="team")
    (home / "team").rename(home / "Team")
    book.sync()
    assert book.remember("more", space="team").path.startswith("Team/")
    assert book.remember("below", space="team/backend").path.startswith("Team/backend/")
    assert not (home / "team").exists()
    assert book.doctor() == ()


def test_a_second_folder_that_differs_by_case_alone_is_named(home: Path, book: Book):
    book.remember("ours", space="team")
    write(home / "Team/x.md", "in the wrong folder")
    book.sync()
    assert spaces_of(book)["Team/x.md"] == "personal"
    assert [(finding.what, finding.where) for finding in book.doctor()] == [("second folder", "Team")]


@pytest.mark.promise("access.space-files")
def test_a_copied_folder_is_no_space_and_is_named(home: Path, book: Book):
    book.remember("ours", space="team")
    shutil.copytree(home / "team", home / "copy")
    book.sync()
    assert sorted(set(spaces_of(book).values())) == ["personal", "team"]
    (why,) = whys(book)
    assert "is a copy" in why
    (home / "copy" / SPACE_FILE).unlink()
    book.sync()
    assert book.doctor() == ()


# --- files that somebody forged


@pytest.mark.promise("access.space-files")
def test_a_forged_file_gives_nobody_the_memories_of_another_space(home: Path, book: Book):
    secret = book.remember("the vault code", space="secret")
    book.remember("for all", space="public")
    book.grant("user:eve", "public", "writer")
    eve = book.acting_as("user:eve")
    # A folder of the public space says that it is the secret one, whose own file is gone.
    claim(home / "public/x", "secret", ids_of(book)["secret"])
    (home / "secret" / SPACE_FILE).unlink()
    write(home / "public/x/note.md", "words of eve")
    book.sync()
    book.edit(secret.id, text="the new vault code")
    assert {space.name: space.folder for space in book.spaces()} == {"public": "public", "secret": "secret"}
    assert spaces_of(book)["public/x/note.md"] == "public"
    assert [space.name for space in eve.spaces()] == ["public"]
    assert any("is a copy" in why for why in whys(book))


@pytest.mark.promise("access.space-files")
def test_a_forged_file_does_not_move_memories_into_the_reach_of_others(home: Path, book: Book):
    book.create_space("secret")
    note = write(home / "secret/plans/note.md", "the plan")
    book.remember("for all", space="public")
    book.sync()
    claim(home / "secret/plans", "public/plans", new_id())
    note.write_text(note.read_text().replace("the plan", "the new plan"))
    book.sync()
    assert spaces_of(book)["secret/plans/note.md"] == "secret"
    (why,) = whys(book)
    assert "would take memories from the space secret" in why


@pytest.mark.promise("access.space-files")
def test_a_name_or_id_that_a_person_changed_changes_no_space(home: Path, book: Book):
    book.remember("ours", space="team")
    book.remember("theirs", space="other")
    file = home / "team" / SPACE_FILE
    good = file.read_text()
    for text, expected in (
        (good.replace('"team"', '"public/team"'), "the space here is called team"),
        (good.replace(ids_of(book)["team"], ids_of(book)["other"]), "has the id of the space other"),
        ("name = ", "is not TOML"),
        ('name = "team"\n', "no id"),
        (good.replace('"team"', '"_home"'), "space of the system"),
    ):
        file.write_text(text)
        book.sync()
        (why,) = whys(book)
        assert expected in why
        assert set(ids_of(book)) == {"other", "team"}
        assert file.read_text() == text
    file.write_text(good)
    book.sync()
    assert book.doctor() == ()


def test_two_folders_with_one_name_are_one_space_and_one_folder(home: Path, book: Book):
    book.remember("ours", space="team")
    claim(home / "second", "team", new_id())
    write(home / "second/x.md", "a note")
    book.sync()
    assert spaces_of(book)["second/x.md"] == "personal"
    (why,) = whys(book)
    assert "names the space team" in why


@pytest.mark.parametrize("folder", ["personal", "personal/2031-01", "team/_invalidations/x", "."])
def test_some_folders_can_never_be_a_space_of_their_own(home: Path, book: Book, folder: str):
    book.create_space("team")
    write(home / "x.md", "x")
    book.sync()
    claim(home / folder, "other", new_id())
    book.sync()
    assert set(ids_of(book)) == {"personal", "team"}
    assert len(whys(book)) == 1


# --- making a folder a space


@pytest.mark.promise("access.new-spaces")
def test_the_owner_makes_a_folder_a_space_together_with_its_notes(home: Path, book: Book, open_book: OpenBook):
    write(home / "Projects/garden/plan.md", "dig")
    write(home / "Projects/other.md", "rest")
    book.sync()
    before = (home / "Projects/garden/plan.md").read_bytes()
    space = book.create_space("projects/garden")
    assert space.folder == "Projects/garden"
    assert spaces_of(book) == {"Projects/garden/plan.md": "projects/garden", "Projects/other.md": "personal"}
    assert b"dig" in before
    assert open_book().sync().read == 0
    assert book.doctor() == ()


@pytest.mark.promise("access.new-spaces")
def test_a_first_write_takes_no_note_of_a_folder_that_is_there(home: Path, book: Book):
    write(home / "projects/garden/plan.md", "dig")
    book.sync()
    receipt = book.remember("water", space="projects/garden")
    assert spaces_of(book) == {"projects/garden/plan.md": "personal", receipt.path: "projects/garden"}
    assert receipt.path.startswith("projects/garden-2/")
    assert book.doctor() == ()


@pytest.mark.promise("access.new-spaces")
def test_an_admin_of_a_space_takes_no_note_by_making_a_space_below_it(home: Path, book: Book):
    book.create_space("projects")
    write(home / "projects/garden/plan.md", "dig")
    book.sync()
    book.grant("user:alice", "projects", "admin")
    made = book.acting_as("user:alice").create_space("projects/garden")
    assert made.folder == "projects/garden-2"
    assert spaces_of(book) == {"projects/garden/plan.md": "projects"}


def test_a_watcher_sees_a_folder_that_a_person_moves(home: Path, book: Book):
    note = book.remember("ours", space="team")
    noticed = threading.Event()
    with book.watching(lambda _report: noticed.set()):
        assert noticed.wait(60)
        (home / "team").rename(home / "crew")
        end = time.monotonic() + 60
        while not book.get(note.id).path.startswith("crew/") and time.monotonic() < end:
            noticed.clear()
            noticed.wait(1)
    assert (book.get(note.id).space, book.get(note.id).path[:5]) == ("team", "crew/")


def test_folders_made_by_hand_with_a_space_file_are_spaces(home: Path, book: Book):
    (space_folder(home, "team") / "x.md").write_text("ours")
    book.sync()
    assert spaces_of(book) == {"team/x.md": "team"}
    assert book.doctor() == ()
