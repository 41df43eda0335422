"""A home that may only be read: it is recalled from, and turns wait in the spill file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile

import pytest

import commonbook
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.compose.read_only_home import open_read_only
from commonbook.core.settings.settings import Settings
from commonbook.errors import HomeReadOnly
from commonbook.values.session import NewMessage
from tests.support.hermes import everything


@pytest.fixture
def provider(home, tmp_path, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    made = CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes"))
    made.save_config({"space": "personal", "recall_seconds": 7}, str(tmp_path / "hermes"))
    with commonbook.open(home, create=True) as book:
        book.remember("Herons nest by the old mill", space="personal")
    yield made
    made.shutdown()


@pytest.fixture
def locked(home, monkeypatch):
    """Take the right to write away; root would have it all the same."""
    allowed = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: not (str(path).startswith(str(home)) and mode & os.W_OK) and allowed(path, mode),
    )


@pytest.mark.promise("hermes.slow")
def test_a_read_only_home_recalls_and_its_turns_wait(provider, home, locked, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()}
    assert provider.is_available()
    assert "read-only" in provider.get_status_config({})["access"]
    provider.initialize("s1", platform="cli")
    assert "Herons nest by the old mill" in provider.prefetch("where do herons nest", session_id="s1")
    provider.sync_turn("where do herons nest", "By the mill.", session_id="s1")
    answer = json.loads(provider.handle_tool_call("commonbook_remember", {"text": "Tea without sugar"}))
    assert "read-only" in answer["error"]
    provider.shutdown()
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*") if path.is_file()} == before
    monkeypatch.undo()
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    provider.initialize("s2", platform="cli")
    provider.shutdown()
    with commonbook.open(home) as book:
        assert [message.text for message in everything(book)["s1"][1]] == ["where do herons nest", "By the mill."]


def test_nothing_is_lost_in_the_copy_because_nothing_is_written_to_it(provider, home):
    with open_read_only(Settings.load(str(home))) as book:
        assert book.recall("herons").hits
        for write in (
            lambda: book.remember("x"),
            lambda: book.append("s1", [NewMessage("words")]),
            lambda: book.create_space("team"),
        ):
            with pytest.raises(HomeReadOnly):
                write()


def test_a_copy_goes_with_the_book_or_when_the_next_is_made(provider, home, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left, foreign = (tmp_path / "temporary" / name for name in (f"commonbook-read-{killed.pid}-x", "other"))
    for folder in (left, foreign):
        folder.mkdir()
    with open_read_only(Settings.load(str(home))):
        assert not left.exists()
        assert len(list((tmp_path / "temporary").iterdir())) == 2
    assert list((tmp_path / "temporary").iterdir()) == [foreign]


def test_a_log_that_sqlite_cannot_read_there_is_copied_along(provider, home, monkeypatch):
    real = sqlite3.connect

    def refuse(path, *args, **kwargs):
        if "mode=ro" in str(path) and str(home) in str(path):
            raise sqlite3.OperationalError("unable to open database file")
        return real(path, *args, **kwargs)

    with commonbook.open(home) as writing:
        writing.remember("Storks nest on the chimney", space="personal")
        monkeypatch.setattr(sqlite3, "connect", refuse)
        with open_read_only(Settings.load(str(home))) as book:
            assert "Storks" in book.recall("storks chimney").hits[0].passage
