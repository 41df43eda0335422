"""Backups of the book by Hermes: a consistent copy, taken during writes, and its way back.

`tests_hermes/test_commands.py` does the same with the real `hermes backup` and `hermes import`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import commonbook
from commonbook.adapters.hermes import cli
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.compose import backup
from commonbook.core.settings.settings import Settings
from commonbook.engines.process import FairLock
from commonbook.errors import Busy, Conflict
from commonbook.values.session import NewMessage
from tests.support import crashing
from tests.support.hermes import everything


@pytest.fixture
def hermes_home(tmp_path, home, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "hermes"))
    return tmp_path / "hermes"


def import_into(hermes_home: Path, copy: Path) -> None:
    """Bring a copy to the place where it was, as `hermes import` does: its content, and nothing else."""
    target = hermes_home / "commonbook" / "backups" / "book.tar"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(copy.read_bytes())


def start(hermes_home: Path) -> None:
    provider = CommonbookMemoryProvider(hermes_home=str(hermes_home))
    provider.initialize("s1", platform="cli")
    provider.shutdown()


def texts(home: Path) -> set[str]:
    with commonbook.open(home) as book:
        return {memory.text.strip() for memory in book.list(limit=1000).items}


@pytest.mark.promise("hermes.backup")
def test_a_copy_taken_during_writes_is_whole_and_comes_back_when_there_is_no_book(home, hermes_home, tmp_path):
    kept = tmp_path / "kept.tar"
    acknowledged: list[str] = []
    enough, stop = threading.Event(), threading.Event()

    def write() -> None:
        with commonbook.open(home, create=True) as book:
            book.create_space("backups")
            while not stop.is_set():
                text = f"Heron {len(acknowledged)} nests by the mill"
                book.remember(text, space="backups" if len(acknowledged) % 2 else None)
                # A message is in no file yet: only the database has it.
                book.append("s9", [NewMessage(text)], space="personal")
                acknowledged.append(text)
                if len(acknowledged) == 20:
                    enough.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert enough.wait(60)
        before = len(acknowledged)
        (path,) = CommonbookMemoryProvider().backup_paths()
        shutil.copy(path, kept)
    finally:
        stop.set()
        writer.join(60)
    assert len(acknowledged) > before
    shutil.rmtree(home)
    import_into(hermes_home, kept)
    start(hermes_home)
    assert texts(home) >= set(acknowledged[:before])
    assert texts(home) <= set(acknowledged)
    with commonbook.open(home) as book:
        assert book.doctor() == ()
        messages = [message.text for message in everything(book)["s9"][1]]
    assert messages == acknowledged[: len(messages)]
    assert len(messages) >= before
    # It is put back once: a book that the user removes then is gone.
    shutil.rmtree(home)
    start(hermes_home)
    assert texts(home) == set()


@pytest.mark.promise("hermes.backup")
def test_a_book_that_is_there_is_replaced_only_on_demand_and_kept(home, hermes_home, tmp_path, capsys):
    with commonbook.open(home, create=True) as book:
        book.remember("In the backup")
    (path,) = CommonbookMemoryProvider().backup_paths()
    with commonbook.open(home) as book:
        book.remember("After the backup")
    import_into(hermes_home, Path(shutil.copy(path, tmp_path / "book.tar")))
    start(hermes_home)
    assert texts(home) == {"In the backup", "After the backup"}
    assert "put-back" in CommonbookMemoryProvider().get_status_config({})["backup"]
    cli.commonbook_command(argparse.Namespace(words=["put-back"]))
    assert "was put back" in capsys.readouterr().out
    assert texts(home) == {"In the backup"}
    (former,) = home.parent.glob(f"{home.name}.before-*")
    assert texts(former) == {"In the backup", "After the backup"}
    cli.commonbook_command(argparse.Namespace(words=["put-back"]))
    assert "no backup" in capsys.readouterr().out


def test_a_copy_that_was_made_here_is_gone_with_its_process_and_never_put_back(home, hermes_home):
    with commonbook.open(home, create=True) as book:
        book.remember("Herons")
    script = """
import os, sys
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
(path,) = CommonbookMemoryProvider().backup_paths()
print(os.path.getsize(path) > 0, os.stat(path).st_mode & 0o777 == 0o600)
if sys.argv[1:]:
    sys.stdout.flush()
    os._exit(1)
"""
    env = crashing.environment() | {"COMMONBOOK_HOME": str(home), "HERMES_HOME": str(hermes_home)}
    for end in ((), ("killed",)):
        done = subprocess.run(
            [sys.executable, "-c", script, *end], env=env, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["True", "True"], done.stderr
        assert (hermes_home / "commonbook" / "backups").exists() is bool(end)
    shutil.rmtree(home)
    start(hermes_home)
    assert texts(home) == set()


def test_without_a_book_there_is_nothing_to_back_up(home, hermes_home):
    assert CommonbookMemoryProvider().backup_paths() == []
    assert not home.exists()


def test_a_book_that_cannot_be_copied_is_backed_up_as_it_is_and_that_is_reported(
    home, hermes_home, monkeypatch, capsys
):
    commonbook.open(home, create=True).close()

    def refuse(*_arguments: object, **_options: object) -> None:
        raise Busy("another process holds the files", fix="wait")

    monkeypatch.setattr(backup, "copy_home", refuse)
    assert CommonbookMemoryProvider().backup_paths() == [str(home)]
    assert "another process holds the files" in capsys.readouterr().err


def test_a_broken_copy_is_reported_and_keeps_nobody_from_a_session(home, hermes_home, tmp_path, caplog):
    (tmp_path / "broken.tar").write_bytes(b"no archive")
    import_into(hermes_home, tmp_path / "broken.tar")
    start(hermes_home)
    assert "could not be put back" in caplog.text
    assert texts(home) == set()
    assert "backup" in CommonbookMemoryProvider().get_status_config({})


def test_no_file_is_written_while_the_copy_is_made(home, hermes_home, tmp_path):
    commonbook.open(home, create=True).close()
    settings = Settings.load(str(home))._replace(busy_seconds=0.2)
    with FairLock(str(home / ".commonbook" / "files.lock")).hold(60), pytest.raises(Busy):
        backup.copy_home(settings, str(tmp_path / "book.tar"))
    assert not list(tmp_path.glob("book.tar*"))
    backup.copy_home(settings, str(tmp_path / "book.tar"))
    assert (tmp_path / "book.tar").exists()


def test_a_copy_is_not_put_over_other_files(home, hermes_home, tmp_path):
    commonbook.open(home, create=True).close()
    (path,) = CommonbookMemoryProvider().backup_paths()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.md").write_text("mine")
    with pytest.raises(Conflict):
        backup.put_back(path, str(tmp_path / "full"))
    assert os.listdir(tmp_path / "full") == ["note.md"]
