"""Commands of the real Hermes: the provider is installed, shown, set up, backed up and restored."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import commonbook
from tests.support.hermes import everything
from tests_hermes.real_hermes import HERMES, LIMIT


class User:
    """A user of Hermes with nothing of Commonbook yet."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "user"
        self.hermes_home = self.home / ".hermes"
        self.hermes_home.mkdir(parents=True)
        self.env = {"HOME": str(self.home), "PATH": f"{HERMES.parent}:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}

    def hermes(self, *words: str, answers: str = "", profile: str = "") -> str:
        env = self.env | ({"HERMES_HOME": str(self.hermes_home / "profiles" / profile)} if profile else {})
        return run([str(HERMES), *words], env, self.home, answers)

    def commonbook(self, *words: str) -> str:
        return run([sys.executable, "-m", "commonbook", *words], self.env, self.home)


def run(command: list[str], env: dict[str, str], folder: Path, answers: str = "") -> str:
    done = subprocess.run(
        command, env=env, cwd=folder, input=answers, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def user(tmp_path):
    return User(tmp_path)


@pytest.mark.promise("install.undone")
def test_an_installation_is_found_by_hermes_in_every_profile_and_gone_without_a_trace(user):
    config = user.hermes_home / "config.yaml"
    config.write_text("# mine\nmemory:\n  provider: ''  # nothing yet\n")
    (user.hermes_home / "profiles" / "coder").mkdir(parents=True)
    user.hermes("memory", "status")
    before = config.read_text()
    user.commonbook("install", "hermes", "--yes")
    assert "has the book already" in user.commonbook("install", "hermes", "--yes")
    for profile in ("", "coder"):
        shown = user.hermes("memory", "status", profile=profile)
        assert "commonbook" in shown
        assert "available ✓" in shown
    assert f"book: {user.home / 'commonbook'}" in user.hermes("commonbook")
    user.commonbook("remember", "Herons nest by the mill")
    assert "Herons nest by the mill" in user.hermes("commonbook", "list")
    user.commonbook("uninstall", "hermes", "--yes")
    assert config.read_text() == before
    assert not list(user.hermes_home.rglob("*commonbook*"))
    assert "available" not in user.hermes("memory", "status")


def test_the_status_says_what_is_wrong(user):
    user.commonbook("install", "hermes", "--yes")
    options = user.hermes_home / "commonbook" / "config.json"
    options.parent.mkdir()
    options.write_text('{"settle_every": "often"}')
    shown = user.hermes("memory", "status")
    assert "not available ✗" in shown
    if HAS_STATUS_CONFIG:
        assert "settle_every" in shown
    (user.home / "file").write_text("a file")
    options.write_text(json.dumps({"home": str(user.home / "file" / "book")}))
    assert "not available ✗" in user.hermes("memory", "status")
    assert "is a file" in user.hermes("commonbook")


def test_a_second_setup_keeps_what_was_chosen(user):
    user.commonbook("install", "hermes", "--yes")
    options = user.hermes_home / "commonbook" / "config.json"
    setup = [
        "-c",
        "import sys; from hermes_cli.memory_setup import cmd_setup_provider as run; run('commonbook')",
    ]  # 0.13 has this function, and no words for it
    python = [str(HERMES.parent / "python"), *setup]
    output = run(python, user.env, user.home, "\nwork\n\n3\n")
    assert "Start a new session" in output
    assert json.loads(options.read_text()) == {"space": "work", "settle_every": 3}
    run(python, user.env, user.home, "\n" * 6)
    assert json.loads(options.read_text()) == {"space": "work", "settle_every": 3}


@pytest.mark.promise("hermes.backup")
def test_a_backup_taken_during_writes_brings_the_book_back(user):
    user.commonbook("install", "hermes", "--yes")
    user.commonbook("remember", "Herons nest by the mill")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(user.home / "commonbook")], env=user.env, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip() for _ in range(20)]
    user.hermes("backup", "--output", str(user.home / "kept.zip"))
    writer.kill()
    writer.communicate()
    backups = user.hermes_home / "commonbook" / "backups"
    assert not backups.exists()
    shutil.rmtree(user.home / "commonbook")
    user.hermes("import", "--force", str(user.home / "kept.zip"))
    if not HAS_BACKUP_PATHS:
        assert not backups.exists()
        pytest.skip("this Hermes archives its own folder alone: it asks no provider for paths")
    assert "put-back" in user.hermes("commonbook")
    user.hermes("commonbook", "put-back")
    assert user.commonbook("doctor").strip() == "nothing is wrong"
    shown = user.commonbook("list", "--json", "--limit", "1000")
    assert all(text in shown for text in (*acknowledged, "Herons nest by the mill"))
    # Only the database has these.
    with commonbook.open(user.home / "commonbook") as book:
        messages = [message.text for message in everything(book)["s9"][1]]
    assert messages[: len(acknowledged)] == acknowledged


WRITER = """
import itertools, sys, commonbook
from commonbook.values.session import NewMessage
with commonbook.open(sys.argv[1]) as book:
    for number in itertools.count():
        book.remember(f"Heron number {number} of the mill")
        book.append("s9", [NewMessage(f"Heron number {number} of the mill")], space="personal")
        print(f"Heron number {number} of the mill", flush=True)
"""


def has(word: str, path: str) -> bool:
    """Tell whether a module of this Hermes has a word."""
    found = next(HERMES.parent.parent.glob(f"lib/*/site-packages/{path}"), None)
    return found is not None and word in found.read_text(encoding="utf-8")


HAS_STATUS_CONFIG = has("get_status_config", "hermes_cli/memory_setup.py")
HAS_BACKUP_PATHS = has("backup_paths", "hermes_cli/backup.py")
