"""Importing vaults of others: what becomes of each file, and which files are refused, through the facade."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commonbook.errors import BadInput, BadSpaceName, NotFound
from commonbook.service.book import Book
from tests.conftest import Folder
from tests.support.transfers import dump, everything, mentioned, mentioned_ids, texts, titled, vault, write

__all__ = ["vault"]


# --- an Obsidian vault


def test_an_obsidian_vault_becomes_memories_with_tags_and_links(book: Book, vault: Path):
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged, report.updated, report.skipped) == (4, 0, 0, ())
    assert {memory.title for memory in everything(book).values()} == {"Home", "Garden", "Alice", "todo"}
    assert titled(book, "Garden").tags == ("outdoor", "plan")
    assert titled(book, "Alice").tags == ("people/friends",)
    assert titled(book, "todo").tags == ()
    assert mentioned(book, titled(book, "Home")) == {"Garden", "Alice"}
    assert mentioned(book, titled(book, "Alice")) == {"Garden"}
    assert report.links == 5
    assert set(report.ids) == {memory.id for memory in everything(book).values()}


@pytest.mark.promise("links.text")
def test_links_and_tags_in_a_text_are_not_copied_into_its_front_matter(book: Book, folder: Folder, vault: Path):
    book.import_folder(str(vault))
    home, garden = titled(book, "Home"), titled(book, "Garden")
    assert (home.tags, home.links, garden.links) == (("Start",), (), ())
    front = texts(folder())["Home.md"].partition(b"Start at")[0]
    assert b"links:" not in front
    assert b"tags:" not in front
    book.edit(home.id, text="Nothing is here any more")
    assert (book.get(home.id).tags, mentioned(book, home)) == ((), set())
    book.edit(garden.id, text="No tag in the text")
    assert book.get(garden.id).tags == ("outdoor", "plan")


def test_a_vault_keeps_its_layout_and_goes_into_one_space(book: Book, folder: Folder, vault: Path):
    report = book.import_folder(str(vault))
    assert report.spaces == ("personal",)
    where = {path: memory.space for path, memory in everything(book).items()}
    assert where == dict.fromkeys(("Home.md", "Projects/Garden.md", "People/Alice.md", "work/todo.md"), "personal")
    assert texts(folder()).keys() == where.keys()


def test_a_named_space_takes_everything_below_its_folder(book: Book, vault: Path):
    assert book.import_folder(str(vault), space="team/wiki", dry_run=True).spaces == ("team/wiki",)
    book.import_folder(str(vault), space="team/wiki")
    where = {path: memory.space for path, memory in everything(book).items()}
    paths = ("Home.md", "Projects/Garden.md", "People/Alice.md", "work/todo.md")
    assert where == {f"team/wiki/{path}": "team/wiki" for path in paths}
    assert book.import_folder(str(vault), space="team/wiki").spaces == ()


def test_folders_become_spaces_only_if_that_is_asked_for(book: Book, folder: Folder, vault: Path):
    report = book.import_folder(str(vault), folders_as_spaces=True, dry_run=True)
    assert (report.done, report.spaces) == (4, ("personal", "work"))
    assert book.spaces() == ()
    book.import_folder(str(vault), folders_as_spaces=True)
    where = {path: memory.space for path, memory in everything(book).items()}
    assert (where["Projects/Garden.md"], where["work/todo.md"]) == ("personal", "work")
    assert texts(folder()).keys() == where.keys()
    with pytest.raises(BadInput):
        book.import_folder(str(vault), folders_as_spaces=True, space="team")


def test_a_note_whose_folder_is_another_space_here_gets_another_path(book: Book, vault: Path):
    book.remember("a line of the work", space="work")
    book.import_folder(str(vault))
    todo = titled(book, "todo")
    assert (todo.space, todo.path) == ("personal", "personal/work/todo.md")
    assert book.doctor() == ()


def test_what_people_wrote_is_kept_byte_by_byte(book: Book, folder: Folder, vault: Path):
    book.import_folder(str(vault))
    home = folder()
    garden = (home / "Projects/Garden.md").read_text()
    assert "aliases: [Yard] # me\n" in garden
    assert garden.endswith("---\nSee [[Alice#Phone]] #plan\n")
    assert (
        (home / "People/Alice.md")
        .read_bytes()
        .endswith(b"# Alice\r\n\r\n" + vault.joinpath("People/Alice.md").read_bytes()[11:])
    )
    assert texts(vault)["Home.md"] == b"Start at [[Projects/Garden|the garden]] or [[alice]]. #Start\n"


def test_a_file_without_times_is_as_old_as_the_file_and_one_with_a_date_says_so(book: Book, tmp_path: Path):
    vault = write(
        tmp_path / "vault",
        {
            "old.md": "old",
            "dated.md": "---\ndate: 2020-02-03\n---\nx",
            "made.md": "---\ncreated: 2019-01-02T03:04:05Z\n---\ny",
        },
    )
    os.utime(vault / "old.md", (1_500_000_000, 1_500_000_000))
    book.import_folder(str(vault))
    assert titled(book, "old").created.timestamp() == 1_500_000_000
    assert titled(book, "dated").created.isoformat().startswith("2020-02-0")
    assert titled(book, "made").created.isoformat() == "2019-01-02T03:04:05+00:00"


def test_a_link_means_the_nearest_of_several_notes_and_a_path_means_just_that(book: Book, tmp_path: Path):
    vault = write(
        tmp_path / "vault",
        {
            "A/Plan.md": "plan of a",
            "B/Plan.md": "plan of b",
            "B/C/Other.md": "see [[plan]]",
            "A/Exact.md": "[[b/Plan]] and [[../b/c/other]]",
        },
    )
    book.import_folder(str(vault))
    of = {memory.id: memory.path for memory in everything(book).values()}
    assert [of[id_] for id_ in mentioned_ids(book, titled(book, "Other"))] == ["B/Plan.md"]
    assert [of[id_] for id_ in mentioned_ids(book, titled(book, "Exact"))] == ["B/Plan.md", "B/C/Other.md"]


def test_a_field_that_means_something_else_there_is_kept_as_it_is(book: Book, folder: Folder, tmp_path: Path):
    front = "---\nid: 202301011200\nauthor: Jane Doe # wrote it\nversion: 1.0\nkind: zettel\nlinks:\n- '[[b]]'\n---\n"
    vault = write(tmp_path / "vault", {"a.md": front + "see [[b]]\n", "b.md": "b"})
    report = book.import_folder(str(vault))
    assert (report.done, report.links, report.skipped) == (2, 1, ())
    kept = (folder() / "a.md").read_text()
    assert kept.startswith(front.removesuffix("---\n") + "commonbook_id: ")
    assert titled(book, "a").author == "user:local"
    assert book.import_folder(str(vault)).unchanged == 2
    assert book.doctor() == ()


def test_a_file_of_ours_with_a_bad_field_is_refused(book: Book, tmp_path: Path):
    receipt = book.remember("x", importance=0.7)
    book.export(str(tmp_path / "out"))
    exported = tmp_path / "out" / receipt.path
    exported.write_text(exported.read_text().replace("importance: 0.7", "importance: 7"))
    report = book.import_folder(str(tmp_path / "out"))
    assert [finding.where for finding in report.skipped] == [receipt.path]


# --- a basic-memory vault


def test_a_basic_memory_vault_is_linked_by_title_and_by_permalink(book: Book, folder: Folder, tmp_path: Path):
    front = "---\ntitle: {}\ntype: note\npermalink: {}\ntags:\n- {}\n---\n\n"
    vault = write(
        tmp_path / "memory",
        {
            "specs/coffee-brewing.md": front.format("Coffee Brewing Methods", "specs/coffee-brewing-methods", "coffee")
            + "# Coffee\n\n## Observations\n- [method] Pour over gives clarity #brewing\n\n"
            + "## Relations\n- relates_to [[Coffee Bean Origins]]\n- requires [[specs/water]]\n",
            "specs/beans.md": front.format("Coffee Bean Origins", "specs/coffee-bean-origins", "beans")
            + "- [fact] x\n",
            "specs/h2o.md": front.format("Proper Water", "specs/water", "water") + "hot\n",
        },
    )
    report = book.import_folder(str(vault), space="kitchen")
    assert (report.done, report.links, report.skipped) == (3, 2, ())
    brewing = titled(book, "Coffee Brewing Methods")
    assert brewing.tags == ("coffee", "brewing")
    assert mentioned(book, brewing) == {"Coffee Bean Origins", "Proper Water"}
    assert "permalink: specs/coffee-brewing-methods\n" in (folder() / brewing.path).read_text()


# --- files that cannot be taken


def test_what_cannot_be_read_is_named_and_the_rest_is_taken(book: Book, tmp_path: Path):
    vault = write(
        tmp_path / "vault",
        {
            "good.md": "good",
            "latin.md": b"caf\xe9",
            "nul.md": b"a\0b",
            "empty.md": b"",
            "open.md": "---\ntitle: x\n",
            "bomb.md": "---\na: &a [x]\nb: *a\n---\n",
            "large.md": b"x" * (5 * 1024 * 1024),
        },
    )
    report = book.import_folder(str(vault))
    assert report.done == 1
    assert {finding.where for finding in report.skipped} == {
        *("latin.md", "nul.md", "empty.md", "open.md", "bomb.md", "large.md")
    }
    assert all(finding.why and finding.fix for finding in report.skipped)


def test_links_hidden_and_ignored_files_are_left_alone(book: Book, tmp_path: Path):
    write(tmp_path / "elsewhere", {"secret.md": "secret"})
    vault = write(
        tmp_path / "vault",
        {"good.md": "good", "drafts/x.md": "draft", ".commonbookignore": "drafts/\n", ".git/x.md": "git"},
    )
    (vault / "link.md").symlink_to(tmp_path / "elsewhere/secret.md")
    (vault / "folder").symlink_to(tmp_path / "elsewhere")
    report = book.import_folder(str(vault))
    assert (report.done, report.skipped, list(everything(book))) == (1, (), ["good.md"])


def test_a_path_that_the_home_has_no_place_for_is_refused(book: Book, home: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (home / "linked").symlink_to(tmp_path / "elsewhere")
    write(home, {"file": "a plain file", "deep/Sub": "another", ".commonbookignore": "*.draft.md\n"})
    vault = {"linked/x.md": "x", "file/x.md": "x", "x.draft.md": "x", "y.md": "y", "deep/Sub/z.md": "z"}
    report = book.import_folder(str(write(tmp_path / "vault", vault)))
    assert [finding.where for finding in report.skipped] == ["linked/x.md", "x.draft.md"]
    assert (report.done, titled(book, "z").path[:9]) == (3, "personal/")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert book.doctor() == ()


def test_a_path_that_is_taken_gets_another_beside_it(book: Book, tmp_path: Path):
    book.import_folder(str(write(tmp_path / "first", {"x.md": "already here"})))
    book.import_folder(str(write(tmp_path / "vault", {"x.md": "from the vault", "x.md.d/y.md": "z"})))
    assert {path: memory.text for path, memory in everything(book).items()} == {
        "x.md": "already here",
        "x-2.md": "from the vault",
        "x.md.d/y.md": "z",
    }


def test_two_files_of_one_import_that_would_get_one_path_get_two(book: Book, tmp_path: Path):
    vault = str(write(tmp_path / "vault", {"plan.md": "the first plan", "plan.MD": "the second plan"}))
    report = book.import_folder(vault)
    stored = everything(book)
    assert (report.done, report.skipped) == (2, ())
    assert stored.keys() == {"plan.md", "plan-2.md"}
    assert {memory.text for memory in stored.values()} == {"the first plan", "the second plan"}
    assert book.import_folder(vault).unchanged == 2


def test_a_very_long_name_and_a_folder_in_the_way_get_a_plain_path(book: Book, tmp_path: Path):
    book.import_folder(str(write(tmp_path / "first", {"notes.md": "a file"})))
    vault = write(tmp_path / "vault", {"notes.md/inner.md": "inner", "ä" * 120 + ".md": "long"})
    report = book.import_folder(str(vault))
    assert (report.done, report.skipped) == (2, ())
    assert book.doctor() == ()
    assert titled(book, "inner").path.startswith("personal/")
    assert titled(book, "ä" * 120).path.startswith("personal/")


@pytest.mark.slow
def test_of_a_note_with_very_many_links_the_first_five_hundred_count(book: Book, tmp_path: Path):
    files = {f"n{number}.md": "x" for number in range(700)}
    names = "\n".join(f"[[n{number}]]" for number in range(700))
    report = book.import_folder(str(write(tmp_path / "vault", {**files, "map.md": names})))
    assert (report.done, report.links, report.skipped) == (701, 500, ())
    assert len(mentioned_ids(book, titled(book, "map"))) == 500
    assert book.import_folder(str(tmp_path / "vault")).unchanged == 701


@pytest.mark.parametrize(("place", "error"), [("home", BadInput), ("home/sub", BadInput), ("nowhere", NotFound)])
def test_the_home_itself_and_what_is_not_there_are_refused(
    book: Book, home: Path, tmp_path: Path, place: str, error: type[Exception]
):
    write(home, {"sub/x.md": "x"})
    with pytest.raises(error):
        book.import_folder(str(tmp_path / place))


def test_a_bad_space_and_a_file_of_another_kind_are_refused(book: Book, tmp_path: Path):
    write(tmp_path, {"x.txt": "x"})
    with pytest.raises(BadInput, match="neither"):
        book.import_folder(str(tmp_path / "x.txt"))
    with pytest.raises(BadSpaceName):
        book.import_folder(str(tmp_path), space="../up")


def test_a_folder_around_the_home_is_imported_without_the_home(book: Book, tmp_path: Path):
    book.remember("already here")
    write(tmp_path, {"outer.md": "outer"})
    assert book.import_folder(str(tmp_path)).done == 1


def test_a_single_file_can_be_imported_and_is_known_when_its_folder_comes(book: Book, vault: Path):
    assert book.import_folder(str(vault / "Home.md")).done == 1
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged + report.updated) == (3, 1)
    assert mentioned(book, titled(book, "Home")) == {"Garden", "Alice"}


def test_the_log_names_each_import_and_no_path(book: Book, vault: Path):
    book.import_folder(str(vault))
    entries = book.log(space="personal")
    imports = [entry for entry in entries if entry.action == "import"]
    assert len(imports) == 4
    assert not any("Garden" in entry.payload or "Home" in entry.payload for entry in entries)
    assert "Garden" not in repr(dump(book)["idempotency"])
    assert book.verify_log().ok


def test_a_folder_below_the_working_directory_is_taken_in(book: Book):
    Path("vault").mkdir()
    Path("vault/note.md").write_text("Alice owns billing\n")
    assert book.import_folder("vault", space="team").done == 1
    assert [memory.title for memory in book.list().items] == ["note"]


def test_a_file_without_a_name_is_titled_by_its_text_as_it_is_when_it_changes(book: Book, tmp_path: Path):
    write(tmp_path / "vault", {" .md": "Buy oil\nand salt\n"})
    book.import_folder(str(tmp_path / "vault"))
    assert everything(book)[" .md"].title == "Buy oil"
