"""Attachments beside notes: copied by import and export, never over another file, and named in the report."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

import commonbook
from commonbook.engines.disk import archives, import_export
from commonbook.errors import BadInput
from commonbook.interfaces.cli.main import main
from commonbook.service.book import Book
from tests.conftest import Folder
from tests.support.transfers import everything, write

VAULT: dict[str, str | bytes] = {
    "Home.md": "![[plan.png]] and [[Board.canvas]]\n",
    "Assets/plan.png": b"\x89PNG 1",
    "Assets/talk.MP3": b"ID3",
    "Board.canvas": '{"nodes": []}',
    "Books.base": "views: []\n",
    "notes.xyz": "of no known kind",
    ".obsidian/app.json": "{}",
    ".hidden/secret.png": b"hidden",
}
COPIED = ("Assets/plan.png", "Assets/talk.MP3", "Board.canvas", "Books.base")


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return write(tmp_path / "vault", VAULT)


def others(folder: Path) -> dict[str, bytes]:
    """Return the visible files of a folder that are not Markdown."""
    found = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}
    return {
        path: file.read_bytes()
        for path, file in found.items()
        if not path.endswith(".md") and not any(part.startswith(".") for part in path.split("/"))
    }


@pytest.mark.promise("export.attachments")
def test_attachments_are_copied_beside_their_notes_and_named(home: Path, vault: Path):
    os.utime(vault / "Board.canvas", (1_500_000_000, 1_500_000_000))
    with commonbook.open(home, create=True) as book:
        dry = book.import_folder(str(vault), space="team", dry_run=True)
        assert (dry.attachments, others(home)) == (COPIED, {})
        report = book.import_folder(str(vault), space="team")
        assert (report.done, report.attachments, report.skipped) == (1, COPIED, ())
        assert others(home) == {f"team/{path}": (vault / path).read_bytes() for path in COPIED}
        assert (home / "team/Board.canvas").stat().st_mtime == 1_500_000_000
        assert book.import_folder(str(vault), space="team").attachments == ()
        assert book.doctor() == ()
        assert len(everything(book)) == 1


@pytest.mark.promise("export.attachments")
def test_no_file_of_the_home_is_overwritten(home: Path, vault: Path, tmp_path: Path):
    write(home, {"Board.canvas": "mine"})
    (tmp_path / "elsewhere").mkdir()
    (home / "Assets").symlink_to(tmp_path / "elsewhere")
    with commonbook.open(home, create=True) as book:
        report = book.import_folder(str(vault))
    assert report.attachments == ("Books.base",)
    assert [finding.where for finding in report.skipped] == ["Assets/plan.png", "Assets/talk.MP3", "Board.canvas"]
    assert "another file" in report.skipped[-1].why
    assert (home / "Board.canvas").read_text() == "mine"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.promise("export.attachments")
def test_a_book_without_files_names_attachments_as_not_imported(place: Path | str, vault: Path):
    with commonbook.open(place, create=True) as book:
        report = book.import_folder(str(vault))
        if isinstance(place, Path):
            assert (report.attachments, report.skipped) == (COPIED, ())
        else:
            assert (report.done, report.attachments) == (1, ())
            assert tuple(finding.where for finding in report.skipped) == COPIED
            assert all("no folder" in finding.why for finding in report.skipped)


@pytest.mark.parametrize("name", ["vault.zip", "vault.tar.gz"])
def test_an_archive_brings_attachments_too(home: Path, vault: Path, tmp_path: Path, name: str):
    archive = tmp_path / name
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive, "w") as packed:
            for path in VAULT:
                packed.write(vault / path, path)
    else:
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(vault, ".")
    with commonbook.open(home, create=True) as book:
        report = book.import_folder(str(archive))
        assert (sorted(report.attachments), report.skipped) == (sorted(COPIED), ())
    assert others(home) == {path: (vault / path).read_bytes() for path in COPIED}


@pytest.mark.promise("export.attachments")
def test_an_export_has_the_attachments_of_its_spaces(home: Path, vault: Path, tmp_path: Path):
    with commonbook.open(home, create=True) as book:
        book.import_folder(str(vault), space="team")
        write(home, {"private/note.md": "mine\n", "private/mine.png": b"mine", "team/notes.xyz": "x"})
        book.sync()
        report = book.export(str(tmp_path / "out"), space="team")
        assert report.attachments == tuple(f"team/{path}" for path in COPIED)
        assert others(tmp_path / "out") == {f"team/{path}": (vault / path).read_bytes() for path in COPIED}
        again = book.export(str(tmp_path / "out"), space="team")
        assert (again.attachments, [finding.where for finding in again.skipped]) == ((), ["team/notes.xyz"])
        (home / "team/Board.canvas").unlink()
        (tmp_path / "out/team/Books.base").write_text("changed there")
        last = book.export(str(tmp_path / "out"), space="team")
        assert [finding.where for finding in last.skipped] == ["team/Books.base", "team/notes.xyz"]
        assert not (tmp_path / "out/team/Board.canvas").exists()
        book.export(str(tmp_path / "all.zip"))
    with commonbook.open(tmp_path / "other", create=True) as other:
        report = other.import_folder(str(tmp_path / "all.zip"))
    assert others(tmp_path / "other").keys() == {
        *(f"team/{path}" for path in COPIED if path != "Board.canvas"),
        "private/mine.png",
    }


def test_a_file_that_is_too_large_is_named_with_the_limit(home: Path, vault: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(import_export, "MAX_ATTACHMENT_BYTES", 4)
    with commonbook.open(home, create=True) as book:
        report = book.import_folder(str(vault))
        assert report.attachments == ("Assets/talk.MP3",)
        assert {finding.why for finding in report.skipped} == {"the file has more than 4 bytes"}
        assert all("by hand" in finding.fix for finding in report.skipped)
    assert archives.MAX_ATTACHMENT_BYTES == 100 * 1024 * 1024


# --- patterns


@pytest.mark.parametrize(
    ("include", "exclude", "notes", "attachments"),
    [
        (["Work"], [], {"Work/a.md", "Work/deep/b.md"}, {"Work/a.png"}),
        (["Work/*.md", "x.xyz"], [], {"Work/a.md", "Work/deep/b.md"}, {"x.xyz"}),
        ([], ["Work", "*.png"], {"top.md"}, set()),
        ([], ["Work/deep/"], {"top.md", "Work/a.md"}, {"Work/a.png", "top.png"}),
        (["**/*.md"], ["top*"], {"Work/a.md", "Work/deep/b.md"}, set()),
    ],
)
def test_patterns_choose_what_is_imported_and_exported(
    book: Book,
    folder: Folder,
    tmp_path: Path,
    include: list[str],
    exclude: list[str],
    notes: set[str],
    attachments: set[str],
):
    files: dict[str, str | bytes] = {
        "top.md": "top",
        "Work/a.md": "a",
        "Work/deep/b.md": "b",
        "Work/a.png": b"a",
        "top.png": b"t",
        "x.xyz": "x",
    }
    vault = write(tmp_path / "vault", files)
    report = book.import_folder(str(vault), include=include, exclude=exclude)
    assert everything(book).keys() == notes
    if book.status().markdown_bytes is not None:
        assert set(report.attachments) == attachments
    book.import_folder(str(vault))
    assert len(everything(book)) == 3
    out = book.export(str(tmp_path / "out"), include=include, exclude=exclude)
    assert out.done == len(notes)
    exported = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.md")}
    assert exported == notes


def test_a_file_that_is_left_out_is_not_taken_for_one_that_was_moved(book: Book, tmp_path: Path):
    vault = write(tmp_path / "vault", {"a.md": "same words"})
    book.import_folder(str(vault))
    write(vault, {"b.md": "same words"})
    assert book.import_folder(str(vault), exclude=["a.md"]).done == 1
    assert book.import_folder(str(vault)).unchanged == 2
    with pytest.raises(BadInput):
        book.import_folder(str(vault), exclude="a.md")


# --- templates


@pytest.mark.parametrize("packed", [False, True])
def test_the_folder_of_obsidians_templates_is_skipped_and_named(book: Book, tmp_path: Path, packed: bool):
    files: dict[str, str | bytes] = {
        "Forms/daily.md": "# {{date}}\n",
        "Forms/head.png": b"x",
        "Templates/cake.md": "a real note\n",
        ".obsidian/templates.json": '{"folder": "Forms"}',
    }
    source = write(tmp_path / "vault", files)
    if packed:
        source = tmp_path / "vault.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for path in files:
                archive.write(tmp_path / "vault" / path, path)
    report = book.import_folder(str(source))
    assert [memory.path for memory in everything(book).values()] == ["Templates/cake.md"]
    (finding,) = report.skipped
    assert finding.where == "Forms/"
    assert "templates (2 files)" in finding.why
    assert report.attachments == ()


# --- the command line


def test_the_command_line_names_attachments_and_takes_patterns(
    home: Path, vault: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    commonbook.open(home, create=True).close()
    command = ["--home", str(home)]
    assert main([*command, "import", str(vault), "--exclude", "*.base", "--exclude", "Assets"]) == 0
    assert "attachments 1: Board.canvas\n" in capsys.readouterr().out
    assert main([*command, "--json", "export", str(tmp_path / "out"), "--include", "*.canvas"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["done"], report["attachments"]) == (0, ["Board.canvas"])
