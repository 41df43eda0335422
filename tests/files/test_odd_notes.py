"""Files that become no memory: empty notes, second versions that a sync leaves, and files that cannot be read."""

from __future__ import annotations

import errno
import shlex
import subprocess
from pathlib import Path

import pytest

import commonbook
from commonbook.engines.disk.home_folder import HomeFolder
from commonbook.service.book import Book
from tests.support.transfers import write


def titles(book: Book) -> list[str]:
    return sorted(memory.title for memory in book.list(limit=100).items)


# --- empty notes


@pytest.mark.promise("files.odd")
@pytest.mark.parametrize("empty", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf\n"])
def test_an_empty_new_note_is_no_memory_and_no_trouble_until_something_is_in_it(home: Path, book: Book, empty: bytes):
    write(home, {"Untitled.md": empty})
    report = book.sync()
    assert (report.malformed, report.new, titles(book)) == (0, 0, [])
    assert (book.doctor(), book.status().findings) == ((), ())
    assert (home / "Untitled.md").read_bytes() == empty
    write(home, {"Untitled.md": "Buy oil\n"})
    assert book.sync().new == 1
    assert [memory.text for memory in book.list().items] == ["Buy oil"]
    assert book.doctor() == ()


def test_an_empty_note_that_is_removed_again_leaves_nothing(home: Path, book: Book):
    write(home, {"Untitled.md": ""})
    book.sync()
    (home / "Untitled.md").unlink()
    assert book.sync().deleted == 0
    assert book.doctor() == ()


# --- second versions

MARKED = [
    "Plan.sync-conflict-20260101-120000-ABCDEFG.md",
    "Plan (Alice's conflicted copy 2026-01-01).md",
    "Plan (Alice’s conflicted copy 2026-01-01 2).md",
    "Plan (conflicted copy 2026-01-01 120000).md",
    "Plan (Conflicted copy phone 202601011200).md",
    "Plan_conflict-20260101-120000.md",
    "Plan.Conflict.md",
]
NUMBERED = ["Plan 2.md", "Plan (1).md", "Plan-LAPTOP-7.md"]


@pytest.mark.promise("files.odd")
@pytest.mark.parametrize("name", [*MARKED, *NUMBERED])
@pytest.mark.parametrize("settled", ["mv", "rm"])
def test_a_second_version_is_no_memory_and_doctor_says_how_to_settle_it(
    home: Path, book: Book, name: str, settled: str
):
    write(home, {"Notes/Plan.md": "the first\n"})
    book.sync()
    (memory,) = book.list().items
    first = (home / "Notes/Plan.md").read_text()
    write(home, {f"Notes/{name}": first.replace("the first", "the second")})
    book.sync()
    assert [one.id for one in book.list().items] == [memory.id]
    (finding,) = book.doctor()
    assert (finding.what, finding.where) == ("conflict copy", f"Notes/{name}")
    assert "Notes/Plan.md" in finding.why
    copy, original = shlex.quote(f"Notes/{name}"), "Notes/Plan.md"
    command = f"rm {copy}" if settled == "rm" else f"mv {copy} {original}"
    assert f"`{command}`" in finding.fix
    subprocess.run(["sh", "-c", command], cwd=home, check=True)
    book.sync()
    assert book.get(memory.id).text == ("the first" if settled == "rm" else "the second")
    assert (len(book.list().items), book.doctor()) == (1, ())


@pytest.mark.promise("files.odd")
@pytest.mark.parametrize("name", [MARKED[1], NUMBERED[0]])
def test_a_second_version_steals_no_id_after_a_lost_database(home: Path, name: str):
    write(home, {"Plan.md": "the first\n"})
    with commonbook.open(home, create=True) as book:
        (memory,) = book.list().items
    write(home, {name: (home / "Plan.md").read_text().replace("the first", "the second")})
    for file in (home / ".commonbook").glob("state.db*"):
        file.unlink()
    with commonbook.open(home) as book:
        assert [(one.id, one.path) for one in book.list().items] == [(memory.id, "Plan.md")]
        assert [finding.what for finding in book.doctor()] == ["conflict copy"]


def test_a_note_with_a_number_of_its_own_and_a_version_without_its_first_are_memories(home: Path, book: Book):
    write(home, {"Plan.md": "the first\n", "Plan 2.md": "another plan\n", MARKED[0].replace("Plan", "Gone"): "left\n"})
    assert book.sync().new == 3
    assert book.doctor() == ()


SENTENCE = "Alice owns the billing service since May, and the support team asks her about invoices.\n"


@pytest.mark.promise("files.odd")
@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("settled", ["rm", "mv"])
def test_a_note_that_may_be_a_second_version_is_a_memory_and_named_by_doctor(
    home: Path, book: Book, name: str, settled: str
):
    write(
        home,
        {"Notes/Plan.md": SENTENCE, f"Notes/{name}": SENTENCE.replace("May", "June"), "Notes/Plan 4.md": "short\n"},
    )
    assert book.sync().new == 3
    (finding,) = book.doctor()
    assert (finding.what, finding.where) == ("conflict copy", f"Notes/{name}")
    assert "Notes/Plan.md" in finding.why
    assert book.status().findings == ()
    copy = shlex.quote(f"Notes/{name}")
    assert f"`rm {copy}`" in finding.fix
    subprocess.run(["sh", "-c", f"rm {copy}" if settled == "rm" else f"mv {copy} Notes/Other.md"], cwd=home, check=True)
    book.sync()
    assert len(book.list().items) == (2 if settled == "rm" else 3)
    assert book.doctor() == ()


@pytest.mark.promise("files.odd")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("## Attendees\n\n## Agenda\n", "## Attendees\n\n## Agenda\n"),
        (
            SENTENCE,
            SENTENCE + "She leaves in June, and then Bob takes over whatever is left open by then, says the boss.\n",
        ),
        (SENTENCE, "The garden needs water every day in summer, and nothing at all from November to March.\n"),
    ],
    ids=["a template", "another half", "another text"],
)
def test_a_numbered_note_with_other_words_is_not_named(home: Path, book: Book, first: str, second: str):
    write(home, {"Plan.md": first, "Plan 2.md": second})
    assert book.sync().new == 2
    assert book.doctor() == ()


def test_an_import_leaves_second_versions_out_and_names_them(book: Book, tmp_path: Path):
    vault = write(tmp_path / "vault", {"Plan.md": "the first\n", MARKED[0]: "the second\n"})
    report = book.import_folder(str(vault))
    assert (report.done, [finding.where for finding in report.skipped]) == (1, [MARKED[0]])
    assert "Plan.md" in report.skipped[0].why


# --- names


def test_a_note_whose_name_ends_with_capitals_is_a_memory(home: Path, book: Book):
    write(home, {"NOTES.MD": "all of it\n", "Map.md": "see [[notes]]\n", "Readme.txt": "no note\n"})
    assert book.sync().new == 2
    by_title = {memory.title: memory for memory in book.list().items}
    assert by_title.keys() == {"NOTES", "Map"}
    notes = by_title["NOTES"]
    assert [link.source for link in book.links(notes.id)] == [by_title["Map"].id]
    book.edit(notes.id, text="all of it, and more")
    assert "all of it, and more" in (home / "NOTES.MD").read_text()
    assert book.move(notes.id, "team").path == "team/NOTES.MD"
    (home / "team" / "NOTES.MD").rename(home / "team" / "notes.md")
    book.sync()
    assert (book.get(notes.id).path, book.doctor()) == ("team/notes.md", ())
    (home / "team" / "notes.md").unlink()
    book.sync()
    assert len(book.list().items) == 1


# --- files that cannot be read


@pytest.mark.promise("files.odd")
@pytest.mark.parametrize(
    ("content", "why", "fix"),
    [
        (b"x" * (5 * 1024 * 1024), "4,194,304 bytes", "split"),
        (b"x" * (4 * 1024 * 1024 + 10), "4194304 bytes", "split"),
        (b"caf\xe9\n", "not valid UTF-8", "iconv -f latin1 -t utf-8"),
        (b"a\0b", "NUL", "UTF-8"),
        (b"---\ntitle: [oops\n---\nx\n", "line", "front matter"),
    ],
)
def test_each_file_that_cannot_be_taken_in_has_an_error_of_its_own(
    home: Path, book: Book, content: bytes, why: str, fix: str
):
    write(home, {"odd.md": content})
    assert book.sync().malformed == 1
    (finding,) = book.doctor()
    assert (finding.what, finding.where) == ("malformed file", "odd.md")
    assert why in finding.why
    assert fix in finding.fix
    assert (home / "odd.md").read_bytes() == content


@pytest.mark.promise("files.malformed")
def test_a_file_that_is_no_memory_can_be_ignored_as_the_finding_says(home: Path, book: Book):
    write(home, {"docs/picture.md": b"\x89PNG\xff", "README.md": "# About this folder\n"})
    book.sync()
    (finding,) = book.doctor()
    assert "by a line with its path in .commonbookignore" in finding.fix
    write(home, {".commonbookignore": "docs/picture.md\n"})
    assert (book.doctor(), book.status().findings) == ((), ())
    (home / ".commonbookignore").unlink()
    assert len(book.doctor()) == 1


def test_a_memory_whose_file_is_broken_is_not_said_to_become_none(home: Path, book: Book):
    receipt = book.remember("Alice owns billing")
    write(home, {receipt.path: "---\ntitle: [oops\n---\nBob owns billing\n"})
    book.sync()
    (finding,) = book.doctor()
    assert finding.fix.endswith("; until then the memory is as it was before")
    assert book.get(receipt.id).text == "Alice owns billing"


def test_files_that_are_no_notes_are_no_trouble(home: Path, book: Book):
    write(
        home,
        {
            ".DS_Store": b"\0\0\0\1Bud1",
            ".obsidian/app.json": "{}",
            ".obsidian/plugins/x/README.md": "# A plug-in\n",
            "team/picture.png": b"\x89PNG\r\n",
            "notes.txt": "plain",
        },
    )
    book.sync()
    assert (book.list().items, book.doctor()) == ((), ())


def test_a_file_that_this_user_may_not_read_is_named_with_the_right_that_it_needs(
    home: Path, book: Book, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_folder: HomeFolder, _path: str) -> bytes | None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(HomeFolder, "read", refuse)
    write(home, {"odd.md": "x\n"})
    book.sync()
    (finding,) = [one for one in book.doctor() if one.what == "malformed file"]
    assert "cannot be read: Permission denied" in finding.why
    assert "right to read" in finding.fix
