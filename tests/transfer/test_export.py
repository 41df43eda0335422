"""Exporting, and importing what was exported into this home and others, through the facade."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from commonbook.errors import BadInput, Conflict, NotFound
from commonbook.service.book import Book
from commonbook.values.memory import Filter, Memory
from tests.conftest import Folder
from tests.support.transfers import everything, opened, texts, vault, write

__all__ = ["vault"]


def file_values(memory: Memory) -> tuple[Any, ...]:
    """Return everything of a memory that is in its file."""
    return (
        *(memory.id, memory.space, memory.kind, memory.title, memory.text, memory.tags, memory.author),
        *(memory.created, memory.importance, memory.occurred, memory.valid_from, memory.valid_until),
        *(memory.expires, memory.path),
        *((link.relation, link.target) for link in memory.links),
    )


def without_hashes(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return files without the content hashes of links: each home has its own key for them."""
    return {path: re.sub(rb"(?m)^(  - \w+ [0-9a-f-]{36})@[0-9a-f]{16}$", rb"\1", data) for path, data in files.items()}


# --- another home


def fill(book: Book) -> None:
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
def test_what_was_exported_comes_back_the_same(book: Book, folder: Folder, tmp_path: Path, name: str):
    fill(book)
    written = {"team/by-hand.md": "---\nmood: happy # today\ndate: 2024-05-01\n---\nBy hand\r\n"}
    book.import_folder(str(write(tmp_path / "written", written)))
    report = book.export(str(tmp_path / name))
    assert (report.done, report.skipped) == (4, ())
    with opened(tmp_path / "other") as other:
        taken = other.import_folder(str(tmp_path / name))
        assert (taken.done, taken.skipped) == (4, ())
        assert {path: file_values(one) for path, one in everything(other).items()} == {
            path: file_values(one) for path, one in everything(book).items()
        }
        assert without_hashes(texts(tmp_path / "other")) == without_hashes(texts(folder()))
        assert all("source_changed" not in one.marks for one in everything(other).values())
        assert other.import_folder(str(tmp_path / name)).unchanged == 4
        before = {path: one.version for path, one in everything(book).items()}
        assert book.import_folder(str(tmp_path / name)).unchanged == 4
        assert {path: one.version for path, one in everything(book).items()} == before


def test_a_home_whose_database_is_lost_is_brought_back_from_its_folder(home: Path, tmp_path: Path):
    with opened(home) as book:
        fill(book)
        before = {path: file_values(one) for path, one in everything(book).items()}
    shutil.rmtree(home / ".commonbook")
    with opened(tmp_path / "new") as new:
        assert new.import_folder(str(home)).done == 3
        assert {path: file_values(one) for path, one in everything(new).items()} == before


@pytest.mark.promise("export.own-files")
def test_an_edit_of_an_exported_file_comes_back_as_a_revision(book: Book, tmp_path: Path):
    receipt = book.remember("first")
    book.export(str(tmp_path / "out"))
    exported = tmp_path / "out" / receipt.path
    exported.write_text(exported.read_text().replace("\nfirst", "\nsecond"))
    report = book.import_folder(str(tmp_path / "out"))
    assert (report.updated, report.done) == (1, 0)
    assert [one.text for one in book.history(receipt.id)] == ["first", "second"]


@pytest.mark.promise("export.own-files")
def test_an_old_export_takes_nothing_back_and_its_edits_are_named(book: Book, tmp_path: Path):
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


def test_a_home_that_went_on_elsewhere_updates_what_was_not_changed_here(book: Book, tmp_path: Path):
    receipt = book.remember("first")
    book.export(str(tmp_path / "out"))
    with opened(tmp_path / "other") as other:
        other.import_folder(str(tmp_path / "out"))
        book.edit(receipt.id, text="second")
        book.export(str(tmp_path / "out"))
        assert other.import_folder(str(tmp_path / "out")).updated == 1
        assert other.get(receipt.id).text == "second"
        assert other.import_folder(str(tmp_path / "out")).unchanged == 1


def test_a_deleted_memory_comes_back_from_an_export_with_its_history(book: Book, tmp_path: Path):
    receipt = book.remember("first")
    book.edit(receipt.id, text="second")
    book.export(str(tmp_path / "out.zip"))
    book.delete(receipt.id)
    assert book.import_folder(str(tmp_path / "out.zip")).updated == 1
    assert book.get(receipt.id).text == "second"
    assert next(iter(book.history(receipt.id))).text == "first"


def test_of_two_files_with_one_id_the_second_gets_its_own(book: Book, tmp_path: Path):
    receipt = book.remember("once")
    book.export(str(tmp_path / "out"))
    exported = tmp_path / "out" / receipt.path
    shutil.copy(exported, tmp_path / "out" / "zz-copy.md")
    with opened(tmp_path / "other") as other:
        assert other.import_folder(str(tmp_path / "out")).done == 2
        assert len({memory.id for memory in everything(other).values()}) == 2
        assert other.get(receipt.id).path == receipt.path
        assert other.import_folder(str(tmp_path / "out")).unchanged == 2


# --- export


def test_a_space_is_exported_alone_and_with_a_slash_with_all_below(book: Book, tmp_path: Path):
    for space in ("team", "team/backend", "teams"):
        book.remember(f"in {space}", space=space)
    assert book.export(str(tmp_path / "one"), space="team").done == 1
    assert book.export(str(tmp_path / "below"), space="team/").done == 2
    assert book.export(str(tmp_path / "all")).done == 3
    assert {path.split("/")[0] for path in texts(tmp_path / "below")} == {"team"}
    with pytest.raises(NotFound):
        book.export(str(tmp_path / "none"), space="nothing")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.zip", "out.tar", "out.tar.gz"])
def test_the_same_memories_give_the_same_archive(book: Book, tmp_path: Path, name: str):
    fill(book)
    book.export(str(tmp_path / name))
    first = (tmp_path / name).read_bytes()
    time.sleep(1.1)
    book.export(str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


def test_an_exported_file_is_as_old_as_its_memory(book: Book, tmp_path: Path):
    receipt = book.remember("x")
    book.export(str(tmp_path / "out"))
    assert abs((tmp_path / "out" / receipt.path).stat().st_mtime - book.get(receipt.id).updated.timestamp()) < 0.01


def test_a_second_export_into_a_folder_mirrors_what_changed(book: Book, tmp_path: Path):
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


def test_what_others_changed_in_an_exported_folder_is_left_alone(book: Book, tmp_path: Path):
    changed, deleted = book.remember("changed"), book.remember("deleted")
    out = tmp_path / "out"
    book.export(str(out))
    write(out, {changed.path: "typed here", deleted.path: "typed here too", "own.md": "own"})
    book.edit(changed.id, text="changed now")
    book.delete(deleted.id)
    report = book.export(str(out))
    assert [finding.where for finding in report.skipped] == [changed.path]
    assert set(texts(out).values()) == {b"typed here", b"typed here too", b"own"}


def test_a_folder_or_archive_that_is_not_ours_is_refused(book: Book, tmp_path: Path):
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


def test_an_export_into_the_home_is_refused(book: Book, home: Path):
    for place in (home, home / "out", home / "out.zip"):
        with pytest.raises(BadInput):
            book.export(str(place))


def test_an_export_does_not_write_through_a_link(book: Book, tmp_path: Path):
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
def test_an_export_that_is_stopped_leaves_nothing_half(book: Book, tmp_path: Path, name: str):
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
import os, signal, sys, commonbook
def stop(_what, done, _total):
    if done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
commonbook.open(sys.argv[1], create=True).export(sys.argv[2], progress=stop)
"""


@pytest.mark.parametrize("name", ["out.zip", "out.tar.gz", "out"])
def test_an_export_that_is_killed_leaves_no_half_archive_and_can_be_repeated(
    book: Book, place: Path | str, tmp_path: Path, name: str
):
    for number in range(5):
        book.remember(f"number {number}")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place), str(tmp_path / name)], check=False)
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


def test_a_disk_error_is_an_error_of_ours(book: Book, tmp_path: Path):
    book.remember("x")
    write(tmp_path, {"file": "a file"})
    for place in ("file/out.zip", "file/out"):
        with pytest.raises((BadInput, Conflict)):
            book.export(str(tmp_path / place))


def test_progress_is_told(book: Book, vault: Path, tmp_path: Path):
    steps: list[tuple[str, int, int]] = []
    book.import_folder(str(vault), progress=lambda *step: steps.append(step))
    assert ("importing", 4, 4) in steps
    steps.clear()
    book.export(str(tmp_path / "out"), progress=lambda *step: steps.append(step))
    assert steps[-1] == ("exporting", 4, 4)


def test_only_live_memories_are_exported(book: Book, tmp_path: Path):
    book.delete(book.remember("gone").id)
    assert book.export(str(tmp_path / "out")).done == 0
    assert book.list(Filter(deleted=True)).items


def test_a_folder_that_goes_through_a_book_comes_out_byte_by_byte(book: Book, tmp_path: Path):
    """Front matter that we do not know, comments and line ends stay as they are, in rows as in files."""
    with opened(tmp_path / "source") as source:
        fill(source)
        write(
            tmp_path / "source",
            {
                "team/by-hand.md": "---\nmood: happy # today\n\n# a comment\nlist:\n  - a\n---\nBy hand\r\n",
                "team/2026-01/crlf.md": "---\r\ntitle: Lines\r\nown: 1\r\n---\r\nOne\r\nTwo\r\n",
                "plain.md": "\ufeffWithout front matter",
            },
        )
        source.sync()
        source.append("talk", ["one", "two"])
        source.settle("talk")
        source.export(str(tmp_path / "before"))
    assert book.import_folder(str(tmp_path / "before")).skipped == ()
    book.export(str(tmp_path / "after"))
    before, after = (
        {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*.md")}
        for top in (tmp_path / "before", tmp_path / "after")
    )
    assert len(before) == 8
    assert without_hashes(after) == without_hashes(before)
    assert [one.text for one in book.messages("talk").items] == ["one", "two"]


# --- files of the home that are not in an export


@pytest.mark.promise("export.left-out")
def test_an_export_names_every_file_of_the_home_that_it_leaves_out(home: Path, tmp_path: Path):
    with opened(home) as book:
        kept = book.remember("kept").path
        write(
            home,
            {
                ".commonbookignore": "drafts/\nsecret.md\n",
                ".obsidian/app.json": "{}",
                "drafts/one.md": "ignored",
                "secret.md": "ignored",
                "broken.md": "---\ntitle: never closed\n",
                "empty.md": "",
                "latin.md": "caf\u00e9".encode("latin-1"),
                "program.xyz": "of no known kind",
                "picture.png": b"picture",
                "note.md": "a note",
            },
        )
        (home / "link.md").symlink_to(home / "note.md")
        book.sync()
        report = book.export(str(tmp_path / "out"))
        assert report.attachments == ("picture.png",)
        assert {finding.where: finding.what for finding in report.skipped} == dict.fromkeys(
            [
                *(".commonbookignore", ".obsidian/", "drafts/", "secret.md", "broken.md", "empty.md", "latin.md"),
                *("program.xyz", "link.md"),
            ],
            "not exported",
        )
        assert all(finding.why and finding.fix for finding in report.skipped)
        assert texts(tmp_path / "out").keys() == {kept, "note.md"}
        assert len(book.export(str(tmp_path / "out")).skipped) == 9
        everything_taken = book.export(str(tmp_path / "all"), include=["*"])
        assert everything_taken.attachments == ("picture.png", "program.xyz")


@pytest.mark.promise("export.left-out")
def test_an_export_says_where_it_has_an_older_state_than_the_file(home: Path, tmp_path: Path):
    with opened(home) as book:
        path = book.remember("first").path
        (home / path).write_text("---\ntitle: never closed\n")
        book.sync()
        (finding,) = book.export(str(tmp_path / "out")).skipped
        assert (finding.what, finding.where) == ("older state exported", path)
        assert b"first" in texts(tmp_path / "out")[path]


def test_an_export_of_a_space_names_only_the_files_in_its_folder(home: Path, tmp_path: Path):
    with opened(home) as book:
        book.remember("here", space="team")
        book.remember("below", space="team/backend")
        write(home, {"team/odd.xyz": "", "team/backend/odd.xyz": "", "odd.xyz": ""})
        assert [one.where for one in book.export(str(tmp_path / "one"), space="team").skipped] == ["team/odd.xyz"]
        assert len(book.export(str(tmp_path / "below"), space="team/").skipped) == 2
        assert len(book.export(str(tmp_path / "bundle"), okf=True).skipped) == 3


def test_an_export_counts_the_empty_spaces_that_it_leaves_out(book: Book, tmp_path: Path):
    book.remember("here", space="team/backend")
    book.create_space("empty/below")
    assert "1 empty space" in book.export(str(tmp_path / "out")).left_out
