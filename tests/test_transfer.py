"""Importing vaults, homes and archives, and exporting them again, through the facade."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace.book import Commonplace
from commonplace.engines import archives
from commonplace.errors import BadFile, BadInput, BadSpaceName, Conflict, NotFound, TooLarge
from commonplace.model import Filter, Memory


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def everything(book: Commonplace) -> dict[str, Memory]:
    found: list[Memory] = []
    page = book.list(limit=500)
    found += page.items
    while page.next:
        page = book.list(limit=500, after=page.next)
        found += page.items
    return {memory.path: memory for memory in found}


def titled(book: Commonplace, title: str) -> Memory:
    (found,) = [memory for memory in everything(book).values() if memory.title == title]
    return found


def related(book: Commonplace, memory: Memory) -> set[str]:
    return {book.get(link.target).title for link in memory.links if link.relation == "related_to"}


def dump(home: Path) -> list[str]:
    with sqlite3.connect(home / ".commonplace" / "state.db") as connection:
        lines = list(connection.iterdump())
    connection.close()
    return lines


def texts(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*.md"))
        if ".commonplace" not in file.parts
    }


@contextmanager
def opened(home: Path) -> Iterator[Commonplace]:
    with commonplace.open(home) as book:
        yield book


def said(memory: Memory) -> tuple[Any, ...]:
    """Everything that a file holds of a memory."""
    return (
        *(memory.id, memory.space.name, memory.kind, memory.title, memory.text, memory.tags, memory.author),
        *(memory.created, memory.updated, memory.importance, memory.occurred, memory.valid_from, memory.valid_until),
        *(memory.expires, memory.revision, memory.version, memory.path, memory.links),
    )


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A vault as Obsidian's users keep it."""
    return write(
        tmp_path / "vault",
        {
            "Home.md": "Start at [[Projects/Garden|the garden]] or [[alice]]. #Start\n",
            "Projects/Garden.md": "---\ntags: [outdoor, plan]\naliases: [Yard] # me\n---\nSee [[Alice#Phone]] #plan\n",
            "People/Alice.md": "# Alice\r\n\r\nKnows [[Garden]], [[Nobody]] and `[[Home]]`. #people/friends\r\n",
            "work/todo.md": "Water the [[garden]].\n\n```\n#not-a-tag [[Home]]\n```\n",
            ".obsidian/app.md": "not a note",
            ".trash/Old.md": "thrown away",
            "picture.png": b"\x89PNG",
        },
    )


# --- an Obsidian vault


def test_an_obsidian_vault_becomes_memories_with_tags_and_links(book: Commonplace, vault: Path):
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged, report.updated, report.skipped) == (4, 0, 0, ())
    assert {memory.title for memory in everything(book).values()} == {"Home", "Garden", "Alice", "todo"}
    assert titled(book, "Garden").tags == ("outdoor", "plan")
    assert titled(book, "Alice").tags == ("people/friends",)
    assert titled(book, "todo").tags == ()
    assert related(book, titled(book, "Home")) == {"Garden", "Alice"}
    assert related(book, titled(book, "Alice")) == {"Garden"}
    assert related(book, titled(book, "todo")) == {"Garden"}
    assert report.links == 5
    assert set(report.ids) == {memory.id for memory in everything(book).values()}


def test_a_vault_keeps_its_layout_and_the_leading_legal_names_are_spaces(book: Commonplace, home: Path, vault: Path):
    book.import_folder(str(vault))
    where = {path: memory.space.name for path, memory in everything(book).items()}
    assert where == {
        "Home.md": "personal",
        "Projects/Garden.md": "personal",
        "People/Alice.md": "personal",
        "work/todo.md": "work",
    }
    assert texts(home).keys() == where.keys()


def test_a_named_space_takes_everything_below_its_folder(book: Commonplace, vault: Path):
    book.import_folder(str(vault), space="team/wiki")
    where = {path: memory.space.name for path, memory in everything(book).items()}
    assert where["team/wiki/Home.md"] == "team/wiki"
    assert where["team/wiki/Projects/Garden.md"] == "team/wiki"
    assert where["team/wiki/work/todo.md"] == "team/wiki/work"


def test_what_people_wrote_is_kept_byte_by_byte(book: Commonplace, home: Path, vault: Path):
    book.import_folder(str(vault))
    garden = (home / "Projects/Garden.md").read_text()
    assert "aliases: [Yard] # me\n" in garden
    assert garden.endswith("---\nSee [[Alice#Phone]] #plan\n")
    assert (
        (home / "People/Alice.md")
        .read_bytes()
        .endswith(b"# Alice\r\n\r\n" + vault.joinpath("People/Alice.md").read_bytes()[11:])
    )
    assert texts(vault)["Home.md"] == b"Start at [[Projects/Garden|the garden]] or [[alice]]. #Start\n"


def test_a_file_without_times_is_as_old_as_the_file_and_one_with_a_date_says_so(book: Commonplace, tmp_path: Path):
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


def test_a_link_means_the_nearest_of_several_notes_and_a_path_means_just_that(book: Commonplace, tmp_path: Path):
    vault = write(
        tmp_path / "vault",
        {
            "a/Plan.md": "plan of a",
            "b/Plan.md": "plan of b",
            "b/c/Other.md": "[[plan]]",
            "a/Exact.md": "[[b/Plan]] and [[../b/c/other]]",
        },
    )
    book.import_folder(str(vault))
    of = {memory.id: memory.path for memory in everything(book).values()}
    assert [of[link.target] for link in titled(book, "Other").links] == ["b/Plan.md"]
    assert {of[link.target] for link in titled(book, "Exact").links} == {"b/Plan.md", "b/c/Other.md"}


def test_a_field_that_means_something_else_there_is_kept_under_another_name(
    book: Commonplace, home: Path, tmp_path: Path
):
    front = "---\nid: 202301011200\nauthor: Jane Doe # wrote it\nversion: 1.0\nkind: zettel\nlinks:\n- '[[b]]'\n---\n"
    vault = write(tmp_path / "vault", {"a.md": front + "see [[b]]\n", "b.md": "b"})
    report = book.import_folder(str(vault))
    assert (report.done, report.links, report.skipped) == (2, 1, ())
    kept = (home / "a.md").read_text()
    for line in ("imported_id: 202301011200", "imported_author: Jane Doe # wrote it", "imported_links:\n- '[[b]]'"):
        assert f"\n{line}\n" in kept
    assert titled(book, "a").author == "user:local"
    assert book.import_folder(str(vault)).unchanged == 2
    assert book.doctor() == ()


def test_a_file_of_ours_with_a_bad_field_is_refused(book: Commonplace, tmp_path: Path):
    receipt = book.remember("x", importance=0.7)
    book.export(str(tmp_path / "out"))
    exported = tmp_path / "out" / receipt.path
    exported.write_text(exported.read_text().replace("importance: 0.7", "importance: 7"))
    report = book.import_folder(str(tmp_path / "out"))
    assert [finding.where for finding in report.skipped] == [receipt.path]


# --- a basic-memory vault


def test_a_basic_memory_vault_is_linked_by_title_and_by_permalink(book: Commonplace, home: Path, tmp_path: Path):
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
    assert related(book, brewing) == {"Coffee Bean Origins", "Proper Water"}
    assert "permalink: specs/coffee-brewing-methods\n" in (home / brewing.path).read_text()


# --- again


def test_importing_again_changes_nothing(book: Commonplace, home: Path, vault: Path):
    book.import_folder(str(vault))
    before = dump(home), texts(home)
    for _ in range(2):
        report = book.import_folder(str(vault))
        assert (report.done, report.unchanged, report.updated, report.links) == (0, 4, 0, 0)
        assert (report.skipped, report.ids) == ((), ())
    book.close()
    assert [line for line in dump(home) if "file_journal" not in line and '"file"' not in line] == [
        line for line in before[0] if "file_journal" not in line and '"file"' not in line
    ]
    assert texts(home) == before[1]


def test_a_file_that_changed_since_updates_its_memory(book: Commonplace, vault: Path):
    book.import_folder(str(vault))
    old = titled(book, "Home")
    (vault / "Home.md").write_text("Start at [[todo]]. #new\n")
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged, report.updated, report.links) == (0, 3, 1, 1)
    new = book.get(old.id)
    assert (new.text, new.tags, new.revision, new.version) == ("Start at [[todo]]. #new", ("new",), 2, 2)
    assert related(book, new) == {"todo"}
    assert [one.text for one in book.history(old.id)] == [old.text, new.text]
    assert book.import_folder(str(vault)).unchanged == 4


def test_what_was_changed_on_both_sides_is_left_alone_and_named(book: Commonplace, vault: Path):
    book.import_folder(str(vault))
    memory = titled(book, "Home")
    book.edit(memory.id, text="mine")
    (vault / "Home.md").write_text("theirs\n")
    report = book.import_folder(str(vault))
    (finding,) = report.skipped
    assert (finding.where, report.updated, report.unchanged) == ("Home.md", 0, 3)
    assert "changed" in finding.why
    assert book.get(memory.id).text == "mine"


def test_what_was_changed_here_alone_stays_as_it_is(book: Commonplace, home: Path, vault: Path):
    book.import_folder(str(vault))
    memory = titled(book, "Home")
    (home / "Home.md").write_text((home / "Home.md").read_text().replace("Start at", "Begin at"))
    report = book.import_folder(str(vault))
    assert (report.unchanged, report.skipped) == (4, ())
    book.sync()
    assert book.get(memory.id).text.startswith("Begin at")


def test_a_hand_edit_that_nobody_looked_at_yet_counts_as_changed_here(book: Commonplace, home: Path, vault: Path):
    book.import_folder(str(vault))
    memory = titled(book, "Home")
    (home / "Home.md").write_text((home / "Home.md").read_text().replace("Start at", "Begin at"))
    (vault / "Home.md").write_text("theirs\n")
    report = book.import_folder(str(vault))
    assert [finding.where for finding in report.skipped] == ["Home.md"]
    assert book.get(memory.id).text.startswith("Begin at")


def test_a_memory_that_was_deleted_here_does_not_come_back_by_itself(book: Commonplace, vault: Path):
    book.import_folder(str(vault))
    book.delete(titled(book, "Home").id)
    report = book.import_folder(str(vault))
    assert ([finding.where for finding in report.skipped], report.unchanged) == (["Home.md"], 3)
    (vault / "Home.md").write_text("changed\n")
    assert [finding.where for finding in book.import_folder(str(vault)).skipped] == ["Home.md"]
    assert len(everything(book)) == 3


def test_a_link_that_was_taken_away_here_stays_away(book: Commonplace, vault: Path):
    book.import_folder(str(vault))
    source, target = titled(book, "todo"), titled(book, "Garden")
    book.unlink(source.id, "related_to", target.id)
    report = book.import_folder(str(vault))
    assert (report.unchanged, report.links) == (4, 0)
    assert book.get(source.id).links == ()


def test_a_note_that_comes_later_gets_the_links_that_waited_for_it(book: Commonplace, vault: Path):
    book.import_folder(str(vault))
    write(vault, {"Nobody.md": "somebody after all"})
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged, report.links) == (1, 4, 1)
    assert related(book, titled(book, "Alice")) == {"Garden", "Nobody"}
    (vault / "People/Alice.md").write_text("Alice moved\n")
    assert book.import_folder(str(vault)).updated == 1


def test_a_note_that_was_renamed_or_a_vault_that_was_moved_is_known_again(book: Commonplace, vault: Path):
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


def test_two_folders_with_files_of_one_name_do_not_touch_each_other(book: Commonplace, tmp_path: Path):
    first = write(tmp_path / "first", {"README.md": "# The first\n"})
    second = write(tmp_path / "second", {"README.md": "# The second\n"})
    book.import_folder(str(first))
    report = book.import_folder(str(second))
    assert (report.done, report.updated) == (1, 0)
    assert {path: memory.title for path, memory in everything(book).items()} == {
        "README.md": "The first",
        "README-2.md": "The second",
    }


def test_one_folder_may_be_imported_into_two_spaces(book: Commonplace, vault: Path):
    assert book.import_folder(str(vault), space="one").done == 4
    assert book.import_folder(str(vault), space="two").done == 4
    assert book.import_folder(str(vault), space="one").unchanged == 4


def test_a_renamed_space_still_knows_what_was_imported(book: Commonplace, vault: Path):
    book.import_folder(str(vault), space="one")
    book.rename_space("one", "two")
    assert book.import_folder(str(vault), space="one").unchanged == 4


# --- a dry run


def test_a_dry_run_says_what_an_import_would_do_and_changes_nothing(book: Commonplace, home: Path, vault: Path):
    write(vault, {"bad.md": b"\xff\xfe"})
    before = dump(home)
    dry = book.import_folder(str(vault), space="team", dry_run=True)
    assert dump(home) == before
    assert (texts(home), dry.ids) == ({}, ())
    real = book.import_folder(str(vault), space="team")
    assert (dry.done, dry.unchanged, dry.updated, dry.links, dry.skipped) == (
        *(real.done, real.unchanged, real.updated, real.links),
        real.skipped,
    )
    (vault / "Home.md").write_text("changed [[todo]]\n")
    write(vault, {"New.md": "[[Home]]"})
    before, files = dump(home), texts(home)
    dry = book.import_folder(str(vault), space="team", dry_run=True)
    assert (dry.done, dry.updated, dry.unchanged, dry.links) == (1, 1, 3, 2)
    assert (dump(home), texts(home)) == (before, files)


def test_a_dry_run_of_many_files_counts_the_links_between_all_of_them(book: Commonplace, tmp_path: Path):
    vault = chain(tmp_path / "many", 450)
    dry = book.import_folder(str(vault), dry_run=True)
    real = book.import_folder(str(vault))
    assert (dry.done, dry.links) == (real.done, real.links) == (450, 449)


def chain(folder: Path, count: int) -> Path:
    """Notes that each link to the next, so that most links lead to a file that comes later."""
    return write(folder, {f"n{number:04}.md": f"to [[n{number + 1:04}]]" for number in range(count)})


# --- many files, killed and resumed


def test_links_to_files_of_later_batches_are_made_once(book: Commonplace, tmp_path: Path):
    vault = chain(tmp_path / "many", 450)
    report = book.import_folder(str(vault))
    assert (report.done, report.links) == (450, 449)
    found = everything(book)
    for number in range(449):
        (link,) = found[f"n{number:04}.md"].links
        assert link.target == found[f"n{number + 1:04}.md"].id
    again = book.import_folder(str(vault))
    assert (again.done, again.unchanged, again.links) == (0, 450, 0)
    (vault / "n0199.md").write_text("changed [[n0200]]")
    assert book.import_folder(str(vault)).updated == 1


IMPORTER = """
import sys, commonplace
def told(what, done, total):
    if what != "looking":
        print(what, done, flush=True)
commonplace.open(sys.argv[1]).import_folder(sys.argv[2], progress=told)
"""


def importing(home: Path, vault: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", IMPORTER, str(home), str(vault)], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_an_import_that_is_killed_goes_on_where_it_was(home: Path, tmp_path: Path):
    vault = chain(tmp_path / "many", 1500)
    commonplace.open(home).close()
    reached: list[int] = []
    for pause in (0.0, 0.01, 0.03, 0.06, 0.1, 0.15):
        with importing(home, vault) as importer:
            assert importer.stdout is not None
            importer.stdout.readline()
            time.sleep(pause)
            importer.send_signal(signal.SIGKILL)
        with opened(home) as book:
            reached.append(len(everything(book)))
    with opened(home) as book:
        report = book.import_folder(str(vault))
        assert report.done + report.unchanged == 1500
        found = everything(book)
        assert sorted(found) == [f"n{number:04}.md" for number in range(1500)]
        assert sum(len(memory.links) for memory in found.values()) == 1499
        again = book.import_folder(str(vault))
        assert (again.done, again.unchanged, again.updated, again.links) == (0, 1500, 0, 0)
        assert book.verify_log().ok
        assert book.doctor() == ()
    assert reached == sorted(reached)
    assert 0 < reached[0] < 1500, "the kill came too late"


def test_two_processes_that_import_one_folder_at_once_take_each_file_in_once(home: Path, tmp_path: Path):
    vault = chain(tmp_path / "many", 300)
    commonplace.open(home).close()
    importers = [importing(home, vault) for _ in range(2)]
    assert [len(importer.communicate()) and importer.returncode for importer in importers] == [0, 0]
    with opened(home) as book:
        assert len(everything(book)) == 300
        assert sum(len(memory.links) for memory in everything(book).values()) == 299


# --- files that cannot be taken


def test_what_cannot_be_read_is_named_and_the_rest_is_taken(book: Commonplace, tmp_path: Path):
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


def test_links_hidden_and_ignored_files_are_left_alone(book: Commonplace, tmp_path: Path):
    write(tmp_path / "elsewhere", {"secret.md": "secret"})
    vault = write(
        tmp_path / "vault",
        {"good.md": "good", "drafts/x.md": "draft", ".commonplaceignore": "drafts/\n", ".git/x.md": "git"},
    )
    (vault / "link.md").symlink_to(tmp_path / "elsewhere/secret.md")
    (vault / "folder").symlink_to(tmp_path / "elsewhere")
    report = book.import_folder(str(vault))
    assert (report.done, report.skipped, list(everything(book))) == (1, (), ["good.md"])


def test_a_path_that_the_home_has_no_place_for_is_refused(book: Commonplace, home: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (home / "linked").symlink_to(tmp_path / "elsewhere")
    write(home, {"file": "a plain file", "deep/Sub": "another", ".commonplaceignore": "*.draft.md\n"})
    vault = {"linked/x.md": "x", "file/x.md": "x", "x.draft.md": "x", "y.md": "y", "deep/Sub/z.md": "z"}
    report = book.import_folder(str(write(tmp_path / "vault", vault)))
    assert [finding.where for finding in report.skipped] == ["file/x.md", "linked/x.md", "x.draft.md"]
    assert (report.done, titled(book, "z").space.name) == (2, "deep")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert book.doctor() == ()


def test_a_path_that_is_taken_gets_another_beside_it(book: Commonplace, home: Path, tmp_path: Path):
    write(home, {"x.md": "already here"})
    book.sync()
    book.import_folder(str(write(tmp_path / "vault", {"x.md": "from the vault", "x.md.d/y.md": "z"})))
    assert {path: memory.text for path, memory in everything(book).items()} == {
        "x.md": "already here",
        "x-2.md": "from the vault",
        "x.md.d/y.md": "z",
    }


def test_a_very_long_name_and_a_folder_in_the_way_get_a_plain_path(book: Commonplace, home: Path, tmp_path: Path):
    write(home, {"notes.md": "a file"})
    book.sync()
    vault = write(tmp_path / "vault", {"notes.md/inner.md": "inner", "ä" * 120 + ".md": "long"})
    report = book.import_folder(str(vault))
    assert (report.done, report.skipped) == (2, ())
    assert book.doctor() == ()
    assert titled(book, "inner").path.startswith("personal/")
    assert titled(book, "ä" * 120).path.startswith("personal/")


def test_a_note_with_more_links_than_front_matter_holds_keeps_the_others_in_its_text(book: Commonplace, tmp_path: Path):
    files = {f"n{number}.md": "x" for number in range(700)}
    names = "\n".join(f"[[n{number}]]" for number in range(700))
    report = book.import_folder(str(write(tmp_path / "vault", {**files, "map.md": names})))
    assert (report.done, report.skipped) == (701, ())
    assert len(titled(book, "map").links) == 500
    assert book.import_folder(str(tmp_path / "vault")).unchanged == 701


@pytest.mark.parametrize(("place", "error"), [("home", BadInput), ("home/sub", BadInput), ("nowhere", NotFound)])
def test_the_home_itself_and_what_is_not_there_are_refused(
    book: Commonplace, home: Path, tmp_path: Path, place: str, error: type[Exception]
):
    write(home, {"sub/x.md": "x"})
    with pytest.raises(error):
        book.import_folder(str(tmp_path / place))


def test_a_bad_space_and_a_file_of_another_kind_are_refused(book: Commonplace, tmp_path: Path):
    write(tmp_path, {"x.txt": "x"})
    with pytest.raises(BadInput, match="neither"):
        book.import_folder(str(tmp_path / "x.txt"))
    with pytest.raises(BadSpaceName):
        book.import_folder(str(tmp_path), space="../up")


def test_a_folder_around_the_home_is_imported_without_the_home(book: Commonplace, tmp_path: Path):
    book.remember("already here")
    write(tmp_path, {"outer.md": "outer"})
    assert book.import_folder(str(tmp_path)).done == 1


def test_a_single_file_can_be_imported_and_is_known_when_its_folder_comes(book: Commonplace, vault: Path):
    assert book.import_folder(str(vault / "Home.md")).done == 1
    report = book.import_folder(str(vault))
    assert (report.done, report.unchanged + report.updated) == (3, 1)
    assert related(book, titled(book, "Home")) == {"Garden", "Alice"}


def test_the_log_names_each_import_and_no_path(book: Commonplace, home: Path, vault: Path):
    book.import_folder(str(vault))
    entries = book.log(space="personal")
    imports = [entry for entry in entries if entry.action == "import"]
    assert len(imports) == 3
    assert not any("Garden" in entry.payload or "Home" in entry.payload for entry in entries)
    assert not any("Garden" in line for line in dump(home) if 'INTO "idempotency"' in line)
    assert book.verify_log().ok


# --- another home


def fill(book: Commonplace) -> None:
    first = book.remember("Alice owns billing", space="team/backend", tags=["billing"], importance=0.5)
    second = book.remember(
        "Bob likes [[tea]] #hot",
        kind="preference",
        occurred="2025-05-01",
        expires="2030-01-01",
        links=[("related_to", first.id)],
    )
    book.edit(second.id, text="Bob likes [[coffee]] #hot")
    book.remember("Alice has left billing", space="team/backend", replaces=first.id)
    gone = book.remember("gone", space="team")
    book.delete(gone.id)


@pytest.mark.parametrize("name", ["out", "out.zip", "out.tar", "out.tar.gz", "out.tgz"])
def test_what_was_exported_comes_back_the_same(book: Commonplace, home: Path, tmp_path: Path, name: str):
    fill(book)
    write(home, {"team/by-hand.md": "---\nmood: happy # today\n---\nBy hand\r\n"})
    book.sync()
    report = book.export(str(tmp_path / name))
    assert (report.done, report.skipped) == (4, ())
    with opened(tmp_path / "other") as other:
        taken = other.import_folder(str(tmp_path / name))
        assert (taken.done, taken.skipped) == (4, ())
        assert {path: said(one) for path, one in everything(other).items()} == {
            path: said(one) for path, one in everything(book).items()
        }
        assert texts(tmp_path / "other") == texts(home)
        assert other.import_folder(str(tmp_path / name)).unchanged == 4
        assert book.import_folder(str(tmp_path / name)).unchanged == 4
        assert {path: one.version for path, one in everything(book).items()} == {
            path: one.version for path, one in everything(other).items()
        }


def test_a_home_whose_database_is_lost_is_brought_back_from_its_folder(home: Path, tmp_path: Path):
    with opened(home) as book:
        fill(book)
        before = {path: said(one) for path, one in everything(book).items()}
    shutil.rmtree(home / ".commonplace")
    with opened(tmp_path / "new") as new:
        assert new.import_folder(str(home)).done == 3
        assert {path: said(one) for path, one in everything(new).items()} == before


def test_an_edit_of_an_exported_file_comes_back_as_a_revision(book: Commonplace, tmp_path: Path):
    receipt = book.remember("first")
    book.export(str(tmp_path / "out"))
    exported = tmp_path / "out" / receipt.path
    exported.write_text(exported.read_text().replace("\nfirst", "\nsecond"))
    report = book.import_folder(str(tmp_path / "out"))
    assert (report.updated, report.done) == (1, 0)
    assert [one.text for one in book.history(receipt.id)] == ["first", "second"]


def test_an_old_export_takes_nothing_back_and_its_edits_are_named(book: Commonplace, tmp_path: Path):
    receipt = book.remember("first")
    book.export(str(tmp_path / "old"))
    book.edit(receipt.id, text="second")
    assert book.import_folder(str(tmp_path / "old")).unchanged == 1
    assert book.get(receipt.id).text == "second"
    exported = tmp_path / "old" / receipt.path
    exported.write_text(exported.read_text().replace("\nfirst", "\nthird"))
    report = book.import_folder(str(tmp_path / "old"))
    assert [finding.where for finding in report.skipped] == [receipt.path]
    assert book.get(receipt.id).text == "second"


def test_a_home_that_went_on_elsewhere_updates_what_was_not_changed_here(book: Commonplace, tmp_path: Path):
    receipt = book.remember("first")
    book.export(str(tmp_path / "out"))
    with opened(tmp_path / "other") as other:
        other.import_folder(str(tmp_path / "out"))
        book.edit(receipt.id, text="second")
        book.export(str(tmp_path / "out"))
        assert other.import_folder(str(tmp_path / "out")).updated == 1
        assert other.get(receipt.id).text == "second"
        assert other.import_folder(str(tmp_path / "out")).unchanged == 1


def test_a_deleted_memory_comes_back_from_an_export_with_its_history(book: Commonplace, tmp_path: Path):
    receipt = book.remember("first")
    book.edit(receipt.id, text="second")
    book.export(str(tmp_path / "out.zip"))
    book.delete(receipt.id)
    assert book.import_folder(str(tmp_path / "out.zip")).updated == 1
    assert book.get(receipt.id).text == "second"
    assert next(iter(book.history(receipt.id))).text == "first"


def test_of_two_files_with_one_id_the_second_gets_its_own(book: Commonplace, tmp_path: Path):
    receipt = book.remember("once")
    book.export(str(tmp_path / "out"))
    exported = tmp_path / "out" / receipt.path
    shutil.copy(exported, tmp_path / "out" / "zz-copy.md")
    with opened(tmp_path / "other") as other:
        assert other.import_folder(str(tmp_path / "out")).done == 2
        assert len({memory.id for memory in everything(other).values()}) == 2
        assert other.get(receipt.id).path == receipt.path
        assert other.import_folder(str(tmp_path / "out")).unchanged == 2


# --- archives of others


def test_members_that_lead_out_of_a_zip_are_refused(book: Commonplace, home: Path, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        for name in (
            "good.md",
            "../evil.md",
            "/etc/evil.md",
            "a/../../evil.md",
            "..\\evil.md",
            "C:\\evil.md",
            "a\nb.md",
        ):
            archive.writestr(name, "text")
        link = zipfile.ZipInfo("link.md")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr(".obsidian/x.md", "hidden")
    report = book.import_folder(str(tmp_path / "bad.zip"))
    assert (report.done, len(report.skipped), list(texts(home))) == (1, 7, ["good.md"])
    assert not list(tmp_path.rglob("*evil*"))


def test_members_of_a_tar_that_are_links_or_devices_are_refused(book: Commonplace, home: Path, tmp_path: Path):
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
        for name, kind in (
            *(("good.md", tarfile.REGTYPE), ("../evil.md", tarfile.REGTYPE), ("/evil.md", tarfile.REGTYPE)),
            *(("soft.md", tarfile.SYMTYPE), ("hard.md", tarfile.LNKTYPE), ("dev.md", tarfile.CHRTYPE)),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"text"))
    report = book.import_folder(str(tmp_path / "bad.tar.gz"))
    assert (report.done, len(report.skipped), list(texts(home))) == (1, 5, ["good.md"])


def test_a_bomb_in_a_zip_is_refused_whatever_it_declares(book: Commonplace, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.md", b"0" * (60 * 1024 * 1024))
        archive.writestr("good.md", "good")
    liar = (tmp_path / "bomb.zip").read_bytes().replace((60 * 1024 * 1024).to_bytes(4, "little"), b"\x05\0\0\0")
    (tmp_path / "liar.zip").write_bytes(liar)
    for name in ("bomb.zip", "liar.zip"):
        report = book.import_folder(str(tmp_path / name), space=name)
        assert (report.done, [finding.where for finding in report.skipped]) == (1, ["bomb.md"])


def test_an_archive_that_unpacks_to_too_much_is_refused_whole(
    book: Commonplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archives, "TOTAL", 3_000_000)
    with zipfile.ZipFile(tmp_path / "much.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4):
            archive.writestr(f"{number}.md", b"0" * 1_000_000)
    with tarfile.open(tmp_path / "much.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("picture.png")
        member.size = 5_000_000
        tar.addfile(member, io.BytesIO(bytes(5_000_000)))
        tar.addfile(tarfile.TarInfo("after.md"))
    for name in ("much.zip", "much.tar.gz"):
        with pytest.raises(TooLarge):
            book.import_folder(str(tmp_path / name))
    assert everything(book) == {}


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz"])
def test_a_damaged_archive_is_refused_whole(book: Commonplace, tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(os.urandom(5000))
    with pytest.raises(BadFile):
        book.import_folder(str(tmp_path / name))
    for number in range(20):
        book.remember(f"{number} {os.urandom(1000).hex()}")
    book.export(str(tmp_path / f"good-{name}"))
    whole = (tmp_path / f"good-{name}").read_bytes()
    with opened(tmp_path / "other") as other:
        for length in (len(whole) // 2, len(whole) // 1024 * 512, len(whole) // 1024 * 512 + 100):
            (tmp_path / name).write_bytes(whole[:length])
            with pytest.raises(BadFile):
                other.import_folder(str(tmp_path / name))
        assert everything(other) == {}


# --- export


def test_a_space_is_exported_alone_and_with_a_slash_with_all_below(book: Commonplace, tmp_path: Path):
    for space in ("team", "team/backend", "teams"):
        book.remember(f"in {space}", space=space)
    assert book.export(str(tmp_path / "one"), space="team").done == 1
    assert book.export(str(tmp_path / "below"), space="team/").done == 2
    assert book.export(str(tmp_path / "all")).done == 3
    assert {path.split("/")[0] for path in texts(tmp_path / "below")} == {"team"}
    with pytest.raises(NotFound):
        book.export(str(tmp_path / "none"), space="nothing")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["out.zip", "out.tar", "out.tar.gz"])
def test_the_same_memories_give_the_same_archive(book: Commonplace, tmp_path: Path, name: str):
    fill(book)
    book.export(str(tmp_path / name))
    first = (tmp_path / name).read_bytes()
    time.sleep(1.1)
    book.export(str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


def test_an_exported_file_is_as_old_as_its_memory(book: Commonplace, tmp_path: Path):
    receipt = book.remember("x")
    book.export(str(tmp_path / "out"))
    assert abs((tmp_path / "out" / receipt.path).stat().st_mtime - book.get(receipt.id).updated.timestamp()) < 0.01


def test_a_second_export_into_a_folder_mirrors_what_changed(book: Commonplace, tmp_path: Path):
    kept, edited, deleted = (book.remember(text, space="a/b") for text in ("kept", "edited", "deleted"))
    other = book.remember("elsewhere", space="c")
    book.export(str(tmp_path / "out"))
    book.edit(edited.id, text="edited now")
    book.delete(deleted.id, other.id)
    report = book.export(str(tmp_path / "out"))
    assert (report.done, report.updated, report.unchanged) == (0, 1, 1)
    assert texts(tmp_path / "out").keys() == {kept.path, edited.path}
    assert b"edited now" in texts(tmp_path / "out")[edited.path]
    assert not (tmp_path / "out" / "c").exists()


def test_what_others_changed_in_an_exported_folder_is_left_alone(book: Commonplace, tmp_path: Path):
    changed, deleted = book.remember("changed"), book.remember("deleted")
    out = tmp_path / "out"
    book.export(str(out))
    write(out, {changed.path: "typed here", deleted.path: "typed here too", "own.md": "own"})
    book.edit(changed.id, text="changed now")
    book.delete(deleted.id)
    report = book.export(str(out))
    assert [finding.where for finding in report.skipped] == [changed.path]
    assert set(texts(out).values()) == {b"typed here", b"typed here too", b"own"}


def test_a_folder_or_archive_that_is_not_ours_is_refused(book: Commonplace, tmp_path: Path):
    book.remember("x")
    write(tmp_path / "full", {"own.md": "own"})
    write(tmp_path, {"own.zip": b"own", "file": "a file"})
    with tarfile.open(tmp_path / "own.tar", "w"):
        pass
    for name in ("full", "own.zip", "own.tar", "file"):
        with pytest.raises(Conflict):
            book.export(str(tmp_path / name))
    assert list(texts(tmp_path / "full")) == ["own.md"]
    assert (tmp_path / "own.zip").read_bytes() == b"own"


def test_an_export_into_the_home_is_refused(book: Commonplace, home: Path):
    for place in (home, home / "out", home / "out.zip"):
        with pytest.raises(BadInput):
            book.export(str(place))


def test_an_export_does_not_write_through_a_link(book: Commonplace, tmp_path: Path):
    book.remember("x", space="team")
    book.export(str(tmp_path / "out"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/team").rename(tmp_path / "elsewhere/team")
    (tmp_path / "out/team").symlink_to(tmp_path / "elsewhere/team")
    before = texts(tmp_path / "elsewhere")
    with pytest.raises(Conflict):
        book.export(str(tmp_path / "out"))
    book.rename_space("team", "other")
    book.export(str(tmp_path / "out"))
    assert texts(tmp_path / "elsewhere") == before


class Stopped(Exception):
    """Raised in the middle."""


@pytest.mark.parametrize("name", ["out.zip", "out.tar.gz", "out"])
def test_an_export_that_is_stopped_leaves_nothing_half(book: Commonplace, tmp_path: Path, name: str):
    for number in range(5):
        book.remember(f"number {number}")

    def stop(_what: str, done: int, _total: int) -> None:
        if done == 3:
            raise Stopped

    with pytest.raises(Stopped):
        book.export(str(tmp_path / name), progress=stop)
    if name != "out":
        assert [place.name for place in tmp_path.iterdir() if "out" in place.name] == []
    book.edit(next(iter(everything(book).values())).id, text="changed meanwhile")
    report = book.export(str(tmp_path / name))
    assert (report.done + report.updated + report.unchanged, report.skipped) == (5, ())


KILLED = """
import os, signal, sys, commonplace
def stop(_what, done, _total):
    if done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
commonplace.open(sys.argv[1]).export(sys.argv[2], progress=stop)
"""


@pytest.mark.parametrize("name", ["out.zip", "out.tar.gz", "out"])
def test_an_export_that_is_killed_leaves_no_half_archive_and_can_be_repeated(
    book: Commonplace, home: Path, tmp_path: Path, name: str
):
    for number in range(5):
        book.remember(f"number {number}")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(home), str(tmp_path / name)], check=False)
    assert killed.returncode == -signal.SIGKILL
    if name != "out":
        assert not (tmp_path / name).exists()
    for memory in everything(book).values():
        book.edit(memory.id, text="changed meanwhile")
    report = book.export(str(tmp_path / name))
    assert (report.done + report.updated + report.unchanged, report.skipped) == (5, ())
    assert not list(tmp_path.glob("**/*.part"))
    with opened(tmp_path / "other") as other:
        assert other.import_folder(str(tmp_path / name)).done == 5


def test_a_disk_error_is_an_error_of_ours(book: Commonplace, tmp_path: Path):
    book.remember("x")
    write(tmp_path, {"file": "a file"})
    for place in ("file/out.zip", "file/out"):
        with pytest.raises((BadInput, Conflict)):
            book.export(str(tmp_path / place))


def test_progress_is_told(book: Commonplace, vault: Path, tmp_path: Path):
    told: list[tuple[str, int, int]] = []
    book.import_folder(str(vault), progress=lambda *said: told.append(said))
    assert ("importing", 4, 4) in told
    told.clear()
    book.export(str(tmp_path / "out"), progress=lambda *said: told.append(said))
    assert told[-1] == ("exporting", 4, 4)


def test_only_live_memories_are_exported(book: Commonplace, tmp_path: Path):
    book.delete(book.remember("gone").id)
    assert book.export(str(tmp_path / "out")).done == 0
    assert book.list(Filter(deleted=True)).items
