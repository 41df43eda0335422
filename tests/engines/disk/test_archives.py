"""Untrusted archives: no member leads out of its archive, and none does harm."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from commonbook.engines.disk import archives
from commonbook.errors import BadFile, TooLarge
from commonbook.service.book import Book
from tests.support.transfers import everything, opened


def test_members_that_lead_out_of_a_zip_are_refused(book: Book, tmp_path: Path):
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
    assert (report.done, len(report.skipped), list(everything(book))) == (1, 7, ["good.md"])
    assert not list(tmp_path.rglob("*evil*"))


def test_members_of_a_tar_that_are_links_or_devices_are_refused(book: Book, tmp_path: Path):
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
        for name, kind in (
            *(("good.md", tarfile.REGTYPE), ("../evil.md", tarfile.REGTYPE), ("/evil.md", tarfile.REGTYPE)),
            *(("soft.md", tarfile.SYMTYPE), ("hard.md", tarfile.LNKTYPE), ("dev.md", tarfile.CHRTYPE)),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"text"))
    report = book.import_folder(str(tmp_path / "bad.tar.gz"))
    assert (report.done, len(report.skipped), list(everything(book))) == (1, 5, ["good.md"])


@pytest.mark.promise("malformed.bombs")
def test_a_bomb_in_a_zip_is_refused_whatever_it_declares(book: Book, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.md", b"0" * (60 * 1024 * 1024))
        archive.writestr("good.md", "good")
    liar = (tmp_path / "bomb.zip").read_bytes().replace((60 * 1024 * 1024).to_bytes(4, "little"), b"\x05\0\0\0")
    (tmp_path / "liar.zip").write_bytes(liar)
    for name in ("bomb.zip", "liar.zip"):
        report = book.import_folder(str(tmp_path / name), space=name)
        assert (report.done, [finding.where for finding in report.skipped]) == (1, ["bomb.md"])


def test_an_archive_that_unpacks_to_too_much_is_refused_whole(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archives, "MAX_ARCHIVE_BYTES", 3_000_000)
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
def test_a_damaged_archive_is_refused_whole(book: Book, tmp_path: Path, name: str):
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
