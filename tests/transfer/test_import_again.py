"""Importing again, dry, in parallel and after a kill: every file is taken in once, through the facade."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import commonbook
from commonbook.service.book import Book
from commonbook.values.memory import Memory
from tests.conftest import Folder
from tests.interfaces.cli.test_cli import cli
from tests.support.transfers import dump, everything, mentioned, mentioned_ids, opened, texts, titled, vault, write

__all__ = ["cli", "vault"]


# --- again


def test_importing_again_changes_nothing(book: Book, folder: Folder, vault: Path):
    book.import_folder(str(vault))
    before = dump(book), texts(folder())
    for _ in range(2):
        report = book.import_folder(str(vault))
        assert (report.done, report.unchanged, report.updated, report.links) == (0, 4, 0, 0)
        assert (report.skipped, report.ids) == ((), ())
    assert (dump(book), texts(folder())) == before


def test_a_file_that_changed_since_updates_its_memory(book: Book, vault: Path):
    book.import_folder(str(vault))
    old = titled(book, "Home")
    (vault / "Home.md").write_text("Start at [[Garden]]. #new\n")
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged, report.updated, report.links) == (0, 3, 1, 1)
    new = book.get(old.id)
    assert (new.text, new.tags, new.revision, new.version) == ("Start at [[Garden]]. #new", ("new",), 2, 2)
    assert mentioned(book, new) == {"Garden"}
    assert [one.text for one in book.history(old.id)] == [old.text, new.text]
    assert book.import_folder(str(vault)).unchanged == 4


def test_what_was_changed_on_both_sides_is_left_alone_and_named(book: Book, vault: Path):
    book.import_folder(str(vault))
    memory = titled(book, "Home")
    book.edit(memory.id, text="mine")
    (vault / "Home.md").write_text("theirs\n")
    report = book.import_folder(str(vault))
    (finding,) = report.skipped
    assert (finding.where, report.updated, report.unchanged) == ("Home.md", 0, 3)
    assert "changed" in finding.why
    assert book.get(memory.id).text == "mine"


def test_what_was_changed_here_alone_stays_as_it_is(book: Book, vault: Path):
    book.import_folder(str(vault))
    memory = titled(book, "Home")
    book.edit(memory.id, text=memory.text.replace("Start at", "Begin at"))
    report = book.import_folder(str(vault))
    assert (report.unchanged, report.skipped) == (4, ())
    assert book.get(memory.id).text.startswith("Begin at")


def test_a_hand_edit_that_nobody_looked_at_yet_counts_as_changed_here(book: Book, home: Path, vault: Path):
    book.import_folder(str(vault))
    memory = titled(book, "Home")
    (home / "Home.md").write_text((home / "Home.md").read_text().replace("Start at", "Begin at"))
    (vault / "Home.md").write_text("theirs\n")
    report = book.import_folder(str(vault))
    assert [finding.where for finding in report.skipped] == ["Home.md"]
    assert book.get(memory.id).text.startswith("Begin at")


def test_a_memory_that_was_deleted_here_does_not_come_back_by_itself(book: Book, vault: Path):
    book.import_folder(str(vault))
    book.delete(titled(book, "Home").id)
    report = book.import_folder(str(vault))
    assert ([finding.where for finding in report.skipped], report.unchanged) == (["Home.md"], 3)
    (vault / "Home.md").write_text("changed\n")
    assert [finding.where for finding in book.import_folder(str(vault)).skipped] == ["Home.md"]
    assert len(everything(book)) == 3


def test_a_link_leads_to_a_note_that_comes_later(book: Book, vault: Path):
    book.import_folder(str(vault))
    write(vault, {"Nobody.md": "somebody after all"})
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged, report.links) == (1, 4, 0)
    assert mentioned(book, titled(book, "Alice")) == {"Garden", "Nobody"}
    (vault / "People/Alice.md").write_text("Alice moved\n")
    assert book.import_folder(str(vault)).updated == 1


def test_a_note_that_was_renamed_or_a_vault_that_was_moved_is_known_again(book: Book, vault: Path):
    book.import_folder(str(vault))
    ids = {memory.id for memory in everything(book).values()}
    (vault / "work/todo.md").rename(vault / "work/done.md")
    assert (book.import_folder(str(vault)).updated, len(everything(book))) == (1, 4)
    assert titled(book, "done").id in ids
    write(vault, {"work/todo.md": "a new one"})
    assert book.import_folder(str(vault)).done == 1
    moved = vault.rename(vault.with_name("moved"))
    report = book.import_folder(str(moved))
    assert (report.done, report.unchanged) == (0, 5)
    (moved / "Home.md").write_text("after the move\n")
    assert book.import_folder(str(moved)).updated == 1


def test_two_folders_with_files_of_one_name_do_not_touch_each_other(book: Book, tmp_path: Path):
    first = write(tmp_path / "first", {"README.md": "# The first\n"})
    second = write(tmp_path / "second", {"README.md": "# The second\n"})
    book.import_folder(str(first))
    report = book.import_folder(str(second))
    assert (report.done, report.updated) == (1, 0)
    assert {path: memory.title for path, memory in everything(book).items()} == {
        "README.md": "The first",
        "README-2.md": "The second",
    }


def test_one_folder_may_be_imported_into_two_spaces(book: Book, vault: Path):
    assert book.import_folder(str(vault), space="one").done == 4
    assert book.import_folder(str(vault), space="two").done == 4
    assert book.import_folder(str(vault), space="one").unchanged == 4


def test_a_renamed_space_still_knows_what_was_imported(book: Book, vault: Path):
    book.import_folder(str(vault), space="one")
    book.rename_space("one", "two")
    assert book.import_folder(str(vault), space="one").unchanged == 4


# --- a dry run


def test_a_dry_run_says_what_an_import_would_do_and_changes_nothing(book: Book, folder: Folder, vault: Path):
    write(vault, {"bad.md": b"\xff\xfe"})
    before = dump(book)
    dry = book.import_folder(str(vault), space="team", dry_run=True)
    assert dump(book) == before
    assert (texts(folder()), dry.ids) == ({}, ())
    real = book.import_folder(str(vault), space="team")
    assert (dry.done, dry.unchanged, dry.updated, dry.links, dry.skipped) == (
        *(real.done, real.unchanged, real.updated, real.links),
        real.skipped,
    )
    (vault / "Home.md").write_text("changed [[todo]]\n")
    write(vault, {"New.md": "[[Home]]"})
    before, files = dump(book), texts(folder())
    dry = book.import_folder(str(vault), space="team", dry_run=True)
    assert (dry.done, dry.updated, dry.unchanged, dry.links) == (1, 1, 3, 2)
    assert (dump(book), texts(folder())) == (before, files)


@pytest.mark.slow
def test_a_dry_run_of_many_files_counts_the_links_between_all_of_them(book: Book, tmp_path: Path):
    vault = chain(tmp_path / "many", 450)
    dry = book.import_folder(str(vault), dry_run=True)
    real = book.import_folder(str(vault))
    assert (dry.done, dry.links) == (real.done, real.links) == (450, 449)


def chain(folder: Path, count: int) -> Path:
    """Notes that each link to the next, so that most links lead to a file that comes later."""
    return write(folder, {f"n{number:04}.md": f"to [[n{number + 1:04}]]" for number in range(count)})


# --- many files, killed and resumed


@pytest.mark.slow
def test_links_to_files_of_later_batches_are_found_and_counted_once(book: Book, tmp_path: Path):
    vault = chain(tmp_path / "many", 450)
    report = book.import_folder(str(vault))
    assert (report.done, report.links) == (450, 449)
    found = everything(book)
    for number in range(449):
        assert mentioned_ids(book, found[f"n{number:04}.md"]) == [found[f"n{number + 1:04}.md"].id]
    again = book.import_folder(str(vault))
    assert (again.done, again.unchanged, again.links) == (0, 450, 0)
    (vault / "n0199.md").write_text("changed [[n0200]]")
    assert book.import_folder(str(vault)).updated == 1


IMPORTER = """
import sys, commonbook
def report(what, done, total):
    if what != "looking":
        print(what, done, flush=True)
commonbook.open(sys.argv[1], create=True).import_folder(sys.argv[2], progress=report)
"""


def importing(place: Path | str, vault: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", IMPORTER, str(place), str(vault)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_an_import_that_is_killed_goes_on_where_it_was(place: Path | str, tmp_path: Path):
    vault = chain(tmp_path / "many", 1500)
    commonbook.open(place, create=True).close()
    reached: list[int] = []
    for pause in (0.0, 0.01, 0.03, 0.06, 0.1, 0.15):
        with importing(place, vault) as importer:
            assert importer.stdout is not None
            importer.stdout.readline()
            time.sleep(pause)
            importer.send_signal(signal.SIGKILL)
        with opened(place) as book:
            reached.append(len(everything(book)))
    with opened(place) as book:
        report = book.import_folder(str(vault))
        assert report.done + report.unchanged == 1500
        found = everything(book)
        assert sorted(found) == [f"n{number:04}.md" for number in range(1500)]
        assert len(dump(book)["mention"]) == 1500
        again = book.import_folder(str(vault))
        assert (again.done, again.unchanged, again.updated, again.links) == (0, 1500, 0, 0)
        assert book.verify_log().ok
        assert book.doctor() == ()
    assert reached == sorted(reached)
    assert 0 < reached[0] < 1500, "the kill came too late"


@pytest.mark.slow
def test_two_processes_that_import_one_folder_at_once_take_each_file_in_once(place: Path | str, tmp_path: Path):
    vault = chain(tmp_path / "many", 300)
    commonbook.open(place, create=True).close()
    importers = [importing(place, vault) for _ in range(2)]
    assert [len(importer.communicate()) and importer.returncode for importer in importers] == [0, 0]
    with opened(place) as book:
        assert len(everything(book)) == 300
        assert len(dump(book)["mention"]) == 300


# --- ids of memories outside of the space that an import goes into


def foreign(folder: Path, memory: Memory, text: str) -> Path:
    """Write a file with the id of a memory, and one that links to it, as somebody else may send them."""
    link = f"---\nlinks:\n  - related_to {memory.id}\n---\nBeside it\n"
    return write(folder, {"a.md": f"---\nid: {memory.id}\n---\n{text}\n", "b.md": link})


@pytest.mark.promise("import.inside")
def test_an_import_into_a_space_leaves_a_memory_of_another_space_as_it_is(book: Book, tmp_path: Path):
    secret = book.get(book.remember("The plan of the board", space="secret").id)
    source = foreign(tmp_path / "foreign", secret, "Something else")
    dry = book.import_folder(str(source), space="quarantine", dry_run=True)
    report = book.import_folder(str(source), space="quarantine")
    assert (dry.done, dry.updated, dry.new_ids) == (report.done, report.updated, report.new_ids) == (2, 0, ("a.md",))
    assert book.get(secret.id) == secret
    (named,) = [memory for memory in everything(book).values() if memory.text == "Something else"]
    assert (named.space, named.id == secret.id) == ("quarantine", False)
    assert [link.target for link in titled(book, "b").links] == [named.id]


@pytest.mark.promise("import.inside")
def test_a_file_with_a_new_id_becomes_one_memory_however_often_and_from_wherever_it_comes(book: Book, tmp_path: Path):
    secret = book.get(book.remember("The plan of the board", space="secret").id)
    source = foreign(tmp_path / "foreign", secret, "Something else")
    book.import_folder(str(source), space="quarantine")
    again = book.import_folder(str(source), space="quarantine")
    assert (again.unchanged, again.done, again.updated, again.new_ids) == (2, 0, 0, ())
    (source / "b.md").unlink()
    (source / "a.md").rename(tmp_path / "a.md")
    assert book.import_folder(str(tmp_path / "a.md"), space="quarantine").done == 0
    book.rename_space("quarantine", "checked")
    (tmp_path / "a.md").write_text((tmp_path / "a.md").read_text() + "and more\n")
    report = book.import_folder(str(tmp_path / "a.md"), space="checked")
    assert (report.done, report.updated, len(everything(book))) == (0, 1, 3)
    assert book.get(secret.id) == secret


def test_an_import_into_a_space_updates_what_lies_there_and_below(book: Book, tmp_path: Path):
    below = book.get(book.remember("First words", space="team/backend").id)
    source = foreign(tmp_path / "own", below, "Second words")
    report = book.import_folder(str(source), space="team")
    assert (report.done, report.updated, report.new_ids) == (1, 1, ())
    assert book.get(below.id).text == "Second words"


def test_an_import_without_a_space_updates_a_memory_wherever_it_is(book: Book, tmp_path: Path):
    memory = book.get(book.remember("First words", space="team").id)
    report = book.import_folder(str(foreign(tmp_path / "own", memory, "Second words")))
    assert (report.done, report.updated, report.new_ids) == (1, 1, ())
    assert book.get(memory.id).text == "Second words"


@pytest.mark.promise("import.inside")
def test_a_memory_that_was_moved_out_of_the_space_is_not_changed_by_its_file(book: Book, tmp_path: Path):
    source = write(tmp_path / "notes", {"a.md": "First words\n"})
    book.import_folder(str(source), space="inbox")
    moved = book.move(titled(book, "a").id, "team")
    assert book.import_folder(str(source), space="inbox").unchanged == 1
    write(source, {"a.md": "Second words\n"})
    report = book.import_folder(str(source), space="inbox")
    assert (report.done, report.updated, [each.where for each in report.skipped]) == (0, 0, ["a.md"])
    assert "moved out" in report.skipped[0].why
    assert book.get(moved.id).text == "First words"


def test_the_command_names_files_whose_memories_got_new_ids(cli, tmp_path: Path):
    id_ = cli("remember", "The plan of the board", "--space", "secret", "--json").json["id"]
    write(tmp_path / "foreign", {"a.md": f"---\nid: {id_}\n---\nSomething else\n"})
    for options in (["--dry-run"], []):
        shown = cli("import", str(tmp_path / "foreign"), "--space", "quarantine", *options).out
        assert "memories elsewhere 1: a.md" in shown
        assert "secret" not in shown
