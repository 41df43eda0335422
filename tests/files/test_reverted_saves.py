"""A save that brings back what a verb has changed is marked until somebody has looked."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook.interfaces.cli.main import main
from commonbook.service.book import Book
from tests.conftest import OpenBook
from tests.support.hand_edits import change, texts

pytestmark = pytest.mark.promise("files.reverted")

FIRST = "Alice owns the billing service. Ask her before you change an invoice, and tell the support team about it."
SECOND = "Bertha owns the billing service since May. Nobody else may change an invoice. The support team knows her."


@pytest.fixture
def edited(home: Path, book: Book) -> tuple[str, Path, bytes]:
    """A memory that a verb has edited: its id, its file, and the file as it was before."""
    receipt = book.remember(FIRST, title="Billing", space="team")
    before = (home / receipt.path).read_bytes()
    book.edit(receipt.id, text=SECOND)
    return receipt.id, home / receipt.path, before


def findings(book: Book) -> list[str]:
    assert [one.what for one in book.status().findings] == [one.what for one in book.doctor()]
    return [one.fix for one in book.doctor() if one.what == "reverted save"]


@pytest.mark.parametrize("typed", ["", " See the handbook."], ids=["as it was", "and more"])
def test_a_save_of_an_old_buffer_is_marked_and_named_with_the_command_that_takes_the_other_text(
    book: Book, edited: tuple[str, Path, bytes], open_book: OpenBook, typed: str
):
    id_, path, before = edited
    path.write_bytes(before.replace(b"about it.", b"about it." + typed.encode()))
    book.sync()
    assert (book.get(id_).text, book.get(id_).marks) == (FIRST + typed, ("reverted",))
    (fix,) = findings(book)
    assert f"`commonbook edit {id_} --to-revision 2` takes the others" in fix
    assert open_book().get(id_).marks == ("reverted",), "reading changes nothing"
    book.edit(id_, to_revision=2)
    assert (book.get(id_).text, book.get(id_).marks, findings(book)) == (SECOND, (), [])
    assert texts(book, id_) == [FIRST, SECOND, FIRST + typed, SECOND]


def test_the_words_that_came_back_can_be_kept(book: Book, edited: tuple[str, Path, bytes]):
    id_, path, before = edited
    path.write_bytes(before)
    book.sync()
    version = book.get(id_).version
    book.edit(id_, to_revision=3)
    assert (book.get(id_).text, book.get(id_).marks, book.get(id_).version) == (FIRST, (), version)
    assert findings(book) == []
    assert path.read_bytes() == before


@pytest.mark.parametrize("look", ["edited", "saved"])
def test_the_next_text_removes_the_mark(book: Book, edited: tuple[str, Path, bytes], look: str):
    id_, path, before = edited
    path.write_bytes(before)
    book.sync()
    if look == "edited":
        book.edit(id_, text="Carla owns it")
    else:
        change(path, "about it.", "about it, and the cashier.")
        book.sync()
    assert (book.get(id_).marks, findings(book)) == ((), [])


def test_edits_on_top_and_what_people_take_back_of_people_are_not_marked(book: Book, edited: tuple[str, Path, bytes]):
    id_, path, _ = edited
    change(path, "since May", "since June")
    book.sync()
    assert book.get(id_).marks == ()
    change(path, "since June", "since May")
    book.sync()
    assert book.get(id_).marks == ()
    change(path, SECOND, "Something else altogether, in other words, was typed here")
    book.sync()
    assert book.get(id_).marks == ()
    assert findings(book) == []


def test_another_tag_or_title_is_no_older_text(book: Book, edited: tuple[str, Path, bytes]):
    id_, path, _ = edited
    change(path, "type: note", "type: note\ntags: [x]")
    change(path, "title: Billing", "title: Bills")
    book.sync()
    assert (book.get(id_).title, book.get(id_).tags, book.get(id_).marks) == ("Bills", ("x",), ())


def test_show_names_it(book: Book, edited: tuple[str, Path, bytes], capsys: pytest.CaptureFixture[str]):
    id_, path, before = edited
    path.write_bytes(before)
    command = ["--home", str(book.home), "show", id_]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "reverted" in shown
    assert "reverted: a save brought older words back\n" in shown
    assert f"to take the others: commonbook edit {id_} --to-revision 2\n" in shown
    assert main(["--home", str(book.home), "edit", id_, "--to-revision", "3"]) == 0
    capsys.readouterr()
    assert main(command) == 0
    assert "reverted" not in capsys.readouterr().out


def test_another_number_in_a_short_text_takes_nothing_back(book: Book, home: Path):
    memory = book.remember("oil costs 5")
    book.edit(memory.id, text="oil costs 6")
    path = home / book.get(memory.id).path
    path.write_text(path.read_text().replace("costs 6", "costs 15"))
    book.sync()
    assert (book.get(memory.id).text, book.doctor()) == ("oil costs 15", ())
