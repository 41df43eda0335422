"""Opening a book in Python: a place without a book raises NoHome and stays as it is, unless `create` is given."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import commonbook
from commonbook import aio


@pytest.mark.promise("home.init")
def test_opening_nothing_raises_no_home_and_makes_nothing(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("a note")
    (tmp_path / "file").write_text("no folder")
    for place in ("nothing", "notes", "file", "file/below", "notes/a.md"):
        with pytest.raises(commonbook.NoHome) as caught:
            commonbook.open(tmp_path / place)
        is_file = place not in {"nothing", "notes"}
        assert ("name a folder" if is_file else f"commonbook init {tmp_path / place}") in caught.value.fix
        assert ("is a file" in caught.value.message) is is_file
    paths = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert paths == {"notes", "notes/a.md", "file", "work"}
    assert (tmp_path / "notes" / "a.md").read_text() == "a note"
    with pytest.raises(commonbook.NoHome, match="is a file"):
        commonbook.open(tmp_path / "file", create=True)


def test_a_home_that_was_made_opens_without_create(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("a note")
    with commonbook.open(tmp_path / "notes", create=True) as book:
        assert [memory.text for memory in book.list().items] == ["a note"]
    with commonbook.open(tmp_path / "notes") as book:
        assert book.remember("tea").new
    with commonbook.open(tmp_path / "notes", create=True) as book:
        assert len(book.list().items) == 2


@pytest.mark.parametrize("left", ["keys", "machine"])
def test_a_home_that_lost_its_database_is_still_a_home(tmp_path: Path, left: str):
    with commonbook.open(tmp_path / "home", create=True) as book:
        book.remember("tea")
    for path in sorted((tmp_path / "home" / ".commonbook").rglob("*"), reverse=True):
        if left not in path.parts:
            path.rmdir() if path.is_dir() else path.unlink()
    with commonbook.open(tmp_path / "home") as book:
        assert [memory.text for memory in book.list().items] == ["tea"]


def test_a_hidden_folder_with_settings_alone_is_no_home(tmp_path: Path):
    (tmp_path / "home" / ".commonbook").mkdir(parents=True)
    (tmp_path / "home" / ".commonbook" / "config.toml").write_text('zone = "Asia/Tokyo"')
    with pytest.raises(commonbook.NoHome):
        commonbook.open(tmp_path / "home")
    with commonbook.open(tmp_path / "home", create=True) as book:
        assert book.remember("tea").new


def test_the_default_home_needs_no_create_and_a_named_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("COMMONBOOK_HOME", str(tmp_path / "named"))
    with pytest.raises(commonbook.NoHome):
        commonbook.open()
    assert not (tmp_path / "named").exists()
    monkeypatch.delenv("COMMONBOOK_HOME")
    with commonbook.open() as book:
        assert book.home == str(tmp_path / "user" / "commonbook")


def test_the_default_home_needs_no_create_with_asyncio_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path / "user"))

    async def remember() -> None:
        with pytest.raises(commonbook.NoHome):
            await aio.open(tmp_path / "named")
        async with aio.open() as book:
            await book.remember("tea")

    asyncio.run(remember())
    assert not (tmp_path / "named").exists()
    with commonbook.open() as book:
        assert [memory.text for memory in book.list().items] == ["tea"]
