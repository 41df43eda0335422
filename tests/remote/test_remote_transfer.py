"""Import and export of a remote book give the reports and the files that the book gives itself."""

from __future__ import annotations

import asyncio
import tarfile
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook import aio
from commonbook.engines.disk.archives import MAX_FILE_BYTES
from commonbook.errors import BadInput, Conflict, NotAllowed, NotFound, Unreachable
from commonbook.service.book import Book
from commonbook.values.reports import TransferReport
from tests.support.http_servers import Cable

pytestmark = pytest.mark.promise("client.same")

PICTURE = b"\x89PNG" + bytes(range(256)) * 300


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A vault with notes, a picture, a template, ignored and hidden files, and files that cannot be imported."""
    top = tmp_path / "vault"
    for name, data in {
        "Tea.md": b"# Tea\n\nOolong at four, see [[Cups]] and ![[pot.png]]\n",
        "Work/Cups.md": b"---\ntags: [kitchen]\n---\n\nSix cups\n",
        "Work/pot.png": PICTURE,
        "Work/setup.exe": b"no attachment",
        "Templates/New.md": b"{{title}}\n",
        "drafts/Old.md": b"ignored\n",
        ".obsidian/templates.json": b'{"folder": "Templates"}',
        ".hidden/Secret.md": b"hidden\n",
        ".commonbookignore": b"drafts/\n",
        "Broken.md": b"\xff\xfe broken",
        "Key.md": b"# Key\n\npassword: hunter2-Zebra-99\n",
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    (top / "Huge.md").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    return top


@pytest.fixture
def library(tmp_path_factory) -> Book:
    """Another empty book of the same kind of place, used through the library."""
    return commonbook.open(tmp_path_factory.mktemp("library") / "home", create=True)


def shown(report: TransferReport) -> TransferReport:
    """Return a report without what is new in each book."""
    return report._replace(ids=("",) * len(report.ids), skipped=tuple(sorted(report.skipped)))


def contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_an_import_gives_the_report_of_the_library(book, remote, library, vault):
    has_files = (Path(book.home) / ".commonbook").exists()
    for dry_run in (True, False, False):
        expected = shown(library.import_folder(str(vault), space="vault", dry_run=dry_run))
        found = shown(remote.import_folder(str(vault), space="vault", dry_run=dry_run))
        if not has_files:
            # A book on a database server has no folder for attachments, and says so.
            expected = expected._replace(attachments=found.attachments, skipped=found.skipped)
        assert found == expected
    assert {finding.where for finding in found.skipped} >= {"Broken.md", "Huge.md"}
    assert sorted(memory.title for memory in book.list().items) == ["Cups", "Key", "Tea"]
    (vault / "Tea.md").write_text("# Tea\n\nGreen tea at five\n")
    again = remote.import_folder(str(vault), space="vault")
    assert (again.done, again.updated, again.unchanged) == (0, 1, 2)
    library.close()


def test_patterns_choose_what_is_sent_and_imported(book, remote, vault):
    report = remote.import_folder(str(vault), space="vault", include=["Work"], exclude=["*.png", "*.exe"])
    assert (report.done, report.attachments) == (1, ())
    with pytest.raises(BadInput, match="lists of patterns"):
        remote.import_folder(str(vault), include="Work")


def test_an_export_gives_the_report_and_the_files_of_the_library(book, remote, vault, tmp_path):
    remote.import_folder(str(vault), space="vault")
    book.append("talk", ["hello", "there"], space="vault")
    book.grant("user:bob", "vault", "reader")
    chosen: list[dict[str, Any]] = [{}, {"space": "vault"}, {"okf": True}, {"include": ["tea*"]}]
    names = ("out.zip", "out.tar", "out.tgz", "folder")
    for at, (name, options) in enumerate(product(names, chosen)):
        here, there = tmp_path / f"here{at}-{name}", tmp_path / f"there{at}-{name}"
        expected, found = book.export(str(here), **options), remote.export(str(there), **options)
        assert found == expected, (name, options)
        if here.is_dir():
            assert contents(there) == contents(here), options
        else:
            assert sorted(members(there)) == sorted(members(here)), (name, options)
            assert members(there) == members(here), (name, options)


def members(archive: Path) -> dict[str, bytes]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    with tarfile.open(archive) as tar:
        return {info.name: file.read() for info in tar if (file := tar.extractfile(info))}


def test_an_export_into_the_same_folder_again_leaves_the_files_of_others(book, remote, tmp_path):
    first, second, third = (book.remember(text, space="team").id for text in ("one", "two", "three"))
    target = tmp_path / "out"
    assert remote.export(str(target)).done == 3
    book.edit(second, text="changed")
    (path,) = [path for path in target.rglob("*.md") if path.read_text().endswith("three\n")]
    path.write_text("a person was here")
    book.edit(third, text="changed too")
    report = remote.export(str(target))
    assert (report.done, report.updated, report.unchanged) == (0, 1, 1)
    assert report.ids == tuple(id_ for id_ in report.ids if id_ in (first, second))
    assert [(finding.what, finding.where) for finding in report.skipped] == [
        ("not exported", str(path.relative_to(target)))
    ]
    assert path.read_text() == "a person was here"
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("")
    with pytest.raises(Conflict, match="not empty"):
        remote.export(str(taken))


def test_an_edited_export_comes_back(book, remote, tmp_path):
    memory = book.remember("one", space="team").id
    other = book.remember("two", space="team").id
    target = tmp_path / "out"
    remote.export(str(target))
    (path,) = [path for path in target.rglob("*.md") if path.read_text().endswith("one\n")]
    path.write_text(path.read_text().replace("one", "edited outside"))
    book.edit(other, text="newer in the book")
    report = remote.import_folder(str(target))
    assert (report.done, report.updated) == (0, 1)
    assert (book.get(memory).text, book.get(other).text) == ("edited outside", "newer in the book")


def test_archives_and_single_files_are_imported(book, remote, vault, tmp_path):
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as archive:
        archive.write(vault / "Tea.md", "Tea.md")
    with tarfile.open(tmp_path / "notes.tar.gz", "w:gz") as tar:
        tar.add(vault / "Tea.md", "Tea.md")
    for at, source in enumerate((tmp_path / "notes.zip", tmp_path / "notes.tar.gz", vault / "Tea.md")):
        assert remote.import_folder(str(source), space=f"vault{at}").done == 1, source
        assert remote.import_folder(str(source), space=f"vault{at}").unchanged == 1, source


def test_an_import_and_an_export_whose_answers_are_lost_are_made_again(book, server, connect, key, vault, tmp_path):
    cable = Cable(server.port)
    here = connect(cable.url, key)
    cable.cut_after = 20
    assert here.import_folder(str(vault), space="vault").done == 3
    entries = len(book.log(space="vault", limit=500))
    assert here.import_folder(str(vault), space="vault").unchanged == 3
    assert len(book.log(space="vault", limit=500)) == entries
    cable.cut_after = 1000
    assert here.export(str(tmp_path / "out.zip")).done == 3
    assert cable.cuts == 2
    cable.close()


def test_errors_are_those_of_the_book(book, server, connect, remote, vault, tmp_path):
    with pytest.raises(NotFound, match="there is no"):
        remote.import_folder(str(tmp_path / "missing"))
    with pytest.raises(NotFound, match="there is no space"):
        remote.export(str(tmp_path / "out"), space="missing")
    assert not (tmp_path / "out").exists()
    bob = connect(server.url, book.create_key("user:bob").secret)
    with pytest.raises(NotAllowed):
        bob.import_folder(str(vault))
    with pytest.raises(NotAllowed):
        bob.export(str(tmp_path / "out"))
    server.kill()
    short = connect(server.url, book.create_key("user:local").secret, patience_seconds=0.5)
    with pytest.raises(Unreachable):
        short.export(str(tmp_path / "out"))


def test_import_and_export_are_coroutines_too(book, server, key, vault, tmp_path):
    async def run() -> tuple[TransferReport, TransferReport]:
        async with aio.connect(server.url, key) as here:
            return await here.import_folder(str(vault), space="vault"), await here.export(str(tmp_path / "out.zip"))

    imported, exported = asyncio.run(run())
    assert (imported.done, exported.done) == (3, 3)
