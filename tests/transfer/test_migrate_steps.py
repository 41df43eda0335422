"""The way from a home to PostgreSQL as people type it: in the right order, and in every wrong one.

Each wrong order is refused before anything is changed, with the next command to type.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.promise("move.complete"), pytest.mark.slow]

_NAMES = count()
NOTE = "Alice owns the billing service"


class Answer(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    error: str


class Shell:
    """A shell with some variables, in which commands are typed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.variables: dict[str, str] = {}

    def export(self, **variables: str) -> None:
        self.variables |= {f"COMMONBOOK_{name}": value for name, value in variables.items()}

    def type(self, *arguments: str) -> Answer:
        """Run a command of ours."""
        done = subprocess.run(
            [sys.executable, "-m", "commonbook", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            env={**os.environ, "HOME": str(self._folder), **self.variables},
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def type_on_a_terminal(self, *arguments: str, columns: int) -> str:
        """Run a command of ours with a terminal for its output, and return that."""
        ours, theirs = pty.openpty()
        environment = {**os.environ, "HOME": str(self._folder), **self.variables, "COLUMNS": str(columns)}
        command = [sys.executable, "-m", "commonbook", *arguments]
        with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=self._folder, env=environment):
            os.close(theirs)
            output = b""
            # Reading from a terminal whose other end is closed is an error on Linux, and the end elsewhere.
            with suppress(OSError):
                while part := os.read(ours, 4096):
                    output += part
        os.close(ours)
        return output.decode()

    def texts(self, *options: str) -> list[str]:
        done = self.type(*options, "list", "--json")
        assert done.code == 0, done.error
        return re.findall(r'"text": "([^"]*)"', done.out)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def old(shell: Shell, tmp_path: Path) -> str:
    """A home with a memory, as an option."""
    home = str(tmp_path / "commonbook")
    assert shell.type("init", home, "--yes").code == 0
    assert shell.type("--home", home, "remember", NOTE, "--space", "team").code == 0
    return home


@pytest.fixture
def database(postgres):
    """The address of a database as `createdb` makes it, without a table or an extension."""
    name = f"typed_{next(_NAMES)}"
    yield postgres.make_database(name)
    postgres.drop_database(name)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    return str(tmp_path / "etc" / "keys")


def refused(answer: Answer, *parts: str) -> None:
    """Check that a command was refused, and that its error has these parts."""
    assert answer.code != 0
    assert answer.out == ""
    for part in parts:
        assert part in answer.error


def still_takes_writes(shell: Shell, home: str) -> None:
    assert shell.type("--home", home, "remember", "still here", "--space", "team").code == 0


# --- the right order


def test_a_home_moves_with_its_keys_and_nothing_is_left_to_do(shell, old, database, keys):
    shell.export(KEYS=keys)
    moved = shell.type("--home", old, "migrate", database)
    assert moved.code == 0, moved.error
    assert f"Its keys are in {keys}" in moved.out
    assert f"COMMONBOOK_KEYS={keys}" in moved.out
    assert "export COMMONBOOK_DATABASE=" in moved.out
    assert "reindex" not in moved.out
    late = shell.type("--home", old, "remember", "too late")
    refused(late, "was moved to postgresql://", "export COMMONBOOK_DATABASE=", f"COMMONBOOK_KEYS={keys}")
    # The home was only needed until here.
    shutil.rmtree(old)
    shell.export(DATABASE=database)
    assert shell.type("reindex").out == "The index was up to date\n"
    assert NOTE in shell.type("recall", "who owns billing", "--space", "team").out
    assert shell.type("audit", "verify").code == 0
    assert shell.type("remember", "and it goes on", "--space", "team").code == 0
    assert {path.stat().st_mode & 0o077 for path in (Path(keys), *Path(keys).iterdir())} == {0}


def test_on_a_terminal_the_settings_can_be_copied(shell, old, database, keys):
    shell.export(KEYS=keys)
    shown = shell.type_on_a_terminal("--home", old, "migrate", database, columns=60)
    (settings,) = [line for line in shown.splitlines() if "export COMMONBOOK_DATABASE=" in line]
    assert settings.rstrip().endswith(f"COMMONBOOK_KEYS={keys}")


def test_it_moves_back_into_a_folder_that_is_not_there(shell, old, database, keys, tmp_path):
    shell.export(KEYS=keys)
    assert shell.type("--home", old, "migrate", database).code == 0
    shell.export(DATABASE=database)
    refused(shell.type("migrate", old), "is this book", "a folder that does not exist yet")
    back = shell.type("migrate", str(tmp_path / "back"))
    assert back.code == 0, back.error
    assert f"Its keys are in {tmp_path / 'back'}" in back.out
    assert "export" not in back.out
    assert shell.texts("--home", str(tmp_path / "back")) == [NOTE]


def test_a_move_is_complete_without_its_index_and_says_so(shell, old, database, keys):
    shell.export(KEYS=keys, BUSY_SECONDS="1")
    shell.export(EMBEDDER="openai:nobody", EMBEDDER_URL="http://127.0.0.1:1/v1", EMBEDDER_KEY="none")
    moved = shell.type("--home", old, "migrate", database)
    assert moved.code == 0, moved.error
    assert "`commonbook reindex` completes it" in moved.out


def test_a_new_book_begins_with_keys(shell, database, keys):
    shell.export(DATABASE=database, KEYS=keys)
    refused(shell.type("remember", NOTE), f"commonbook audit keys {keys}", f"export COMMONBOOK_KEYS={keys}")
    assert shell.type("audit", "keys", keys).code == 0
    assert shell.type("remember", NOTE).code == 0


# --- the wrong ones


def test_without_a_folder_for_the_keys_nothing_is_moved(shell, old, database, keys):
    refused(shell.type("--home", old, "migrate", database), "COMMONBOOK_KEYS", "export COMMONBOOK_KEYS=FOLDER")
    shell.export(KEYS=f"{old}/.commonbook/keys")
    refused(shell.type("--home", old, "migrate", database), "is in the home", "export COMMONBOOK_KEYS=FOLDER")
    still_takes_writes(shell, old)
    shell.export(KEYS=keys)
    assert shell.type("--home", old, "migrate", database).code == 0


def test_keys_that_were_made_first_are_not_those_of_the_home(shell, old, database, keys, tmp_path):
    """The database has an empty book with these keys, since somebody has made one: it takes those of the home."""
    assert shell.type("audit", "keys", keys).code == 0
    shell.export(KEYS=keys, DATABASE=database)
    assert shell.type("init", "--yes").code == 0
    refused(
        shell.type("--home", old, "migrate", database),
        f"{keys} has the keys of another book",
        "a folder that does not exist yet",
        "export COMMONBOOK_KEYS=FOLDER",
    )
    still_takes_writes(shell, old)
    shell.export(KEYS=str(tmp_path / "others"))
    assert shell.type("--home", old, "migrate", database).code == 0
    assert NOTE in shell.texts()
    shell.export(KEYS=keys)
    refused(shell.type("list"), "are not those", "copy the folder of the keys from another server")


def test_a_database_that_is_in_use_already_is_not_moved_into(shell, old, database, keys, tmp_path):
    assert shell.type("audit", "keys", keys).code == 0
    shell.export(KEYS=keys, DATABASE=database)
    assert shell.type("remember", "the first in the new book", "--space", "team").code == 0
    refused(
        shell.type("--home", old, "migrate", database),
        "a book with memories",
        "createdb",
        "commonbook export FOLDER",
        "commonbook import FOLDER",
    )
    still_takes_writes(shell, old)
    folder = str(tmp_path / "exported")
    assert shell.type("--home", old, "export", folder).code == 0
    assert shell.type("import", folder).code == 0
    assert {NOTE, "the first in the new book"} <= set(shell.texts())


def test_a_home_that_is_not_named_or_not_there_is_asked_for(shell, old, database, keys, tmp_path):
    shell.export(KEYS=keys, DATABASE=database)
    assert shell.type("audit", "keys", keys).code == 0
    refused(shell.type("migrate", database), "already", "commonbook --home FOLDER migrate TO")
    missing = tmp_path / "misspelt"
    refused(shell.type("--home", str(missing), "migrate", database), "no home", "commonbook --home FOLDER migrate TO")
    assert not missing.exists()


def test_a_database_that_is_not_there_is_to_be_made_first(shell, old, database, keys):
    shell.export(KEYS=keys)
    nowhere = re.sub(r"/typed_\d+", "/nowhere", database)
    refused(shell.type("--home", old, "migrate", nowhere), "does not exist", "createdb")
    still_takes_writes(shell, old)


def test_a_folder_for_keys_that_cannot_be_written_stops_the_move(shell, old, database, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    shell.export(KEYS=str(tmp_path / "file" / "keys"))
    refused(shell.type("--home", old, "migrate", database), "cannot be copied", "export COMMONBOOK_KEYS=FOLDER")
    still_takes_writes(shell, old)


def test_a_further_server_without_the_keys_is_told_to_copy_them(shell, old, database, keys, tmp_path):
    shell.export(KEYS=keys)
    assert shell.type("--home", old, "migrate", database).code == 0
    other = Shell(tmp_path)
    other.export(DATABASE=database)
    refused(other.type("list"), "COMMONBOOK_KEYS", "copy their folder from another server")
    other.export(KEYS=str(tmp_path / "copied"))
    refused(other.type("list"), "is missing", "copy their folder", f"export COMMONBOOK_KEYS={tmp_path / 'copied'}")
    shutil.copytree(keys, tmp_path / "copied")
    assert other.texts() == [NOTE]


def test_moving_twice_says_where_the_book_is(shell, old, database, keys):
    shell.export(KEYS=keys)
    assert shell.type("--home", old, "migrate", database).code == 0
    refused(shell.type("--home", old, "migrate", database), "was moved to", "export COMMONBOOK_DATABASE=", keys)
