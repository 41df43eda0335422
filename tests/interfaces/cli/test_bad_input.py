"""Bad input: a typed error with a fix, a non-zero exit code, and nothing changed."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import pytest

from commonbook.interfaces.cli.main import main
from commonbook.values.memory import MAX_TEXT_BYTES
from tests.interfaces.cli.test_cli import Cli, cli, cli_without_book

pytestmark = pytest.mark.promise("writes.bad-input")

__all__ = ["cli", "cli_without_book"]

UNKNOWN = "01a1e0fd-4dd4-7b8b-8d8e-afb3dac445c8"
NOBODY = 65534


def snapshot(home: Path) -> tuple[dict[str, bytes], list[str], int]:
    """Every Markdown file, key and setting, every row, and the version of the schema."""
    hidden = home / ".commonbook"
    volatile = {hidden / name for name in ("state.db", "state.db-wal", "state.db-shm")}
    files = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    kept = {name: data for name, data in files.items() if home / name not in volatile and ".lock" not in name}
    with closing(sqlite3.connect(f"file:{hidden / 'state.db'}?mode=ro", uri=True)) as database:
        return kept, list(database.iterdump()), database.execute("PRAGMA user_version").fetchone()[0]


@pytest.fixture
def state(chosen, stored):
    """Return a function that reads the state of the book: refused commands leave it as it was."""

    def on_a_server() -> dict[str, bytes]:
        # A transaction that changed nothing leaves its mark for an hour all the same.
        return {table: rows for table, rows in stored().items() if table != "committed"}

    return on_a_server if chosen.database else lambda: snapshot(Path(chosen.home))


@pytest.fixture
def memory(cli: Cli) -> str:
    first = cli.remember("the first", "--tag", "a", "--space", "team")["id"]
    cli.remember("the second", "--key", "used")
    cli("edit", first, "the first, edited")
    cli("status")
    return str(first)


def test_a_command_that_only_looks_changes_nothing(cli, memory, state):
    before = state()
    for args in (("status",), ("list",), ("show", memory), ("history", memory), ("doctor",), ("audit", "verify")):
        assert cli(*args).code == 0
    assert state() == before


REFUSED = {
    "unknown id": (("show", UNKNOWN), 3, "not_found"),
    "unknown digits": (("show", "deadbeef"), 3, "not_found"),
    "no file of the home": (("show", "../../etc/passwd"), 3, "not_found"),
    "unknown id to edit": (("edit", UNKNOWN, "x"), 3, "not_found"),
    "unknown id to move": (("move", UNKNOWN, "team"), 3, "not_found"),
    "one of several ids unknown": (("delete", "{id}", UNKNOWN), 3, "not_found"),
    "history of nothing": (("history", UNKNOWN), 3, "not_found"),
    "link to nothing": (("link", "{id}", "related_to", UNKNOWN), 3, "not_found"),
    "link to itself": (("link", "{id}", "related_to", "{id}"), 2, "bad_input"),
    "no such relation": (("link", "{id}", "Resembles", UNKNOWN), 2, "bad_input"),
    "new memory linked to nothing": (("remember", "x", "--link", f"related_to:{UNKNOWN}"), 3, "not_found"),
    "replacing nothing": (("remember", "x", "--replaces", UNKNOWN), 3, "not_found"),
    "space with dots": (("remember", "x", "--space", "../outside"), 2, "bad_space_name"),
    "space with dots within": (("move", "{id}", "team/../../x"), 2, "bad_space_name"),
    "space like a month": (("space", "create", "2026-05"), 2, "bad_space_name"),
    "space of the system": (("space", "create", "_x"), 2, "bad_space_name"),
    "absolute space": (("list", "--space", "/etc"), 2, "bad_space_name"),
    "space with capitals": (("space", "create", "Team"), 2, "bad_space_name"),
    "space too deep": (("space", "create", "a/b/c/d/e/f/g/h"), 2, "bad_space_name"),
    "space that exists": (("space", "create", "team"), 5, "space_exists"),
    "renaming an unknown space": (("space", "rename", "nowhere", "x"), 3, "not_found"),
    "version conflict": (("edit", "{id}", "x", "--expected-version", "1"), 5, "version_conflict"),
    "version conflict of a move": (("move", "{id}", "x", "--expected-version", "7"), 5, "version_conflict"),
    "version conflict of a delete": (("delete", "{id}", "--expected-version", "1"), 5, "version_conflict"),
    "key used for something else": (("remember", "x", "--key", "used"), 5, "key_conflict"),
    "unknown kind": (("remember", "x", "--kind", "poem"), 2, "bad_input"),
    "kind of the system": (("edit", "{id}", "--kind", "notice"), 2, "bad_input"),
    "importance out of range": (("remember", "x", "--importance", "2"), 2, "bad_input"),
    "importance not a number": (("edit", "{id}", "--importance", "nan"), 2, "bad_input"),
    "unreadable time": (("remember", "x", "--occurred", "soon"), 2, "bad_time"),
    "times the wrong way round": (
        ("remember", "x", "--valid-from", "2026-02-01", "--valid-until", "2026-01-01"), 2, "bad_input",
    ),
    "unreadable filter": (("delete", "--since", "whenever", "--yes"), 2, "bad_time"),
    "delete without a filter": (("delete", "--yes"), 2, "bad_input"),
    "filter with an empty tag": (("delete", "--tag", "", "--kind", "note", "--yes"), 2, "bad_input"),
    "filter with an empty kind": (("delete", "--kind", "", "--tag", "a", "--yes"), 2, "bad_input"),
    "filter with an empty time": (("delete", "--since", "", "--tag", "a", "--yes"), 2, "bad_time"),
    "filter with an empty space": (("delete", "--space", "", "--tag", "a", "--yes"), 2, "bad_input"),
    "bad tag": (("remember", "x", "--tag", "two[words]"), 2, "bad_input"),
    "title too long": (("remember", "x", "--title", "x" * 201), 2, "too_large"),
    "bad cursor": (("list", "--after", "nonsense"), 2, "bad_input"),
    "page too large": (("list", "--limit", "1000000000000000000000"), 2, "bad_input"),
    "text with a lone surrogate": (("remember", "caf\udce9"), 2, "bad_text"),
    "title with a lone surrogate": (("edit", "{id}", "--title", "caf\udce9"), 2, "bad_text"),
    "tag with a lone surrogate": (("list", "--tag", "caf\udce9"), 2, "bad_text"),
    "space with a lone surrogate": (("remember", "x", "--space", "caf\udce9"), 2, "bad_space_name"),
    "key with a lone surrogate": (("remember", "x", "--key", "caf\udce9"), 2, "bad_text"),
    "time with a lone surrogate": (("list", "--since", "caf\udce9"), 2, "bad_time"),
    "id with a lone surrogate": (("show", "caf\udce9"), 2, "bad_input"),
    "cursor with a lone surrogate": (("list", "--after", "caf\udce9"), 2, "bad_input"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_typed_and_changes_nothing(cli, memory, state, what):
    args, code, kind = REFUSED[what]
    args = tuple(arg.replace("{id}", memory) for arg in args)
    before = state()
    result = cli(*args, "--json")
    assert (result.code, result.out) == (code, "")
    assert result.error["type"] == kind
    assert result.error["message"]
    assert result.error["fix"]
    plain = cli(*args)
    assert (plain.code, plain.out) == (code, "")
    assert plain.err.startswith("commonbook: ")
    assert "\nfix: " in plain.err
    assert state() == before


@pytest.mark.parametrize(
    ("args", "message", "help_of"),
    [
        (("rember", "hello"), "`commonbook` has no command 'rember'; did you mean 'remember'?", "commonbook"),
        (("xyzzy",), "`commonbook` has no command 'xyzzy'", "commonbook"),
        (("key", "crate", "x"), "`commonbook key` has no action 'crate'; did you mean 'create'?", "commonbook key"),
        (("remember", "hello", "--tags", "a"), "has no option '--tags'; did you mean '--tag'?", "commonbook remember"),
        (("recall", "foo", "--sapce=team"), "no option '--sapce'; did you mean '--space'?", "commonbook recall"),
        (("share", "x", "--too", "team"), "has no option '--too'; did you mean '--to'?", "commonbook share"),
        (("--sapce", "team", "list"), "has no option '--sapce'; did you mean '--space'?", "commonbook"),
        (("grant", "add", "--rol", "x"), "`commonbook grant add` has no option '--rol'", "commonbook grant add"),
        (("list", "-x"), "unrecognized arguments: -x", "commonbook list"),
        (("remember", "two", "words"), "unrecognized arguments: words", "commonbook remember"),
    ],
)
def test_a_mistyped_word_gets_a_guess_and_the_help_of_its_command(args, message, help_of, capsys):
    assert main([*args]) == 2
    printed = capsys.readouterr()
    message_line, fix = printed.err.splitlines()
    assert (printed.out, message in message_line, len(message_line) < 120) == ("", True, True), printed
    assert fix.startswith(f"fix: `{help_of} --help` shows the ")


def test_help_and_values_like_options_are_not_taken_for_mistyped_ones(cli):
    assert cli("recall", "--sapce", "--help").out.startswith("usage: commonbook recall")
    assert cli.remember("- a list", "--title=--tags")["new"]
    assert cli("remember", "--json", "--", "--tags").json["new"]


def test_a_space_with_a_final_slash_is_refused_by_a_write_with_the_reason(cli):
    error = cli("remember", "x", "--space", "team/", "--json").error
    assert (error["type"], error["fix"]) == ("bad_space_name", "leave out the final /")
    assert cli("list", "--space", "team/").code == 0
    for odd in ("/", "team//", "Team/"):
        assert cli("remember", "x", "--space", odd, "--json").error["type"] == "bad_space_name"


def test_a_reflection_without_sources_names_the_option(cli):
    error = cli("reflect", "so it is", "--json").error
    assert (error["type"], "--on ID" in error["fix"]) == ("bad_input", True)


def test_a_text_that_is_typed_on_a_terminal_is_asked_for(cli, monkeypatch, capsys):
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal(b"typed by hand\n"), encoding="utf-8"))
    assert main(["remember", "-"]) == 0
    assert capsys.readouterr().err == "reading from standard input; Ctrl-D on a line of its own ends it\n"
    assert "standard input" not in cli("remember", "-", stdin=b"piped").err


def test_a_mistyped_space_is_noticed_where_nothing_is_found(cli):
    cli.remember("Alice owns billing", "--space", "team/backend")
    note = "there is no space 'team/bckend' that you may read; did you mean 'team/backend'?"
    for command in (("list",), ("recall", "billing"), ("recall", "billing", "--prompt", "100")):
        result = cli(*command, "--space", "team/bckend")
        assert (result.code, result.out, note in result.err) == (0, "", True), result
        as_json = cli(*command, "--space", "team/bckend", "--json")
        assert (as_json.err, as_json.json["notes"]) == ("", [note])
        assert not cli(*command, "--space", "personal", "--json").json.get("notes")
        for known in ("team/backend", "team/", "personal", "/"):
            assert "there is no space" not in cli(*command, "--space", known).err


def test_a_note_on_a_mistyped_space_names_no_space_of_others(cli):
    cli.remember("a secret plan", "--space", "team/backend")
    cli.remember("for all", "--space", "open")
    cli("grant", "add", "user:eve", "open", "admin")
    hidden = cli("list", "--space", "open/bckend", "--as", "user:eve").err
    assert "there is no space 'open/bckend' that you may read" in hidden
    assert "team" not in hidden


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"caf\xe9", "bad_text"),
        (b"a\0b", "bad_text"),
        (b"\xff" * 10, "bad_text"),
        (b"\xed\xa0\x80", "bad_text"),
        (b"x" * (MAX_TEXT_BYTES + 1), "too_large"),
        (("x" + "é" * (MAX_TEXT_BYTES // 2)).encode(), "too_large"),
    ],
)
@pytest.mark.parametrize("command", ["remember", "edit"])
def test_bad_bytes_on_standard_input_change_nothing(cli, memory, state, command, text, kind):
    before = state()
    args = ("remember", "-") if command == "remember" else ("edit", memory, "-")
    result = cli(*args, "--json", stdin=text)
    assert (result.code, result.out, result.error["type"]) == (2, "", kind)
    assert result.error["fix"]
    assert state() == before


def test_bad_bytes_in_a_file_change_nothing(cli, memory, state, tmp_path):
    (tmp_path / "bad").write_bytes(b"caf\xe9")
    before = state()
    for args in (("remember", "--file", "bad"), ("edit", memory, "--file", "bad")):
        assert cli(*args, "--json").error["type"] == "bad_text"
    assert state() == before


def _sent_until_refused(pipe: IO[bytes], megabytes: int) -> int:
    """Return how many megabytes could be sent before the reader went away."""
    sent = 0
    with suppress(BrokenPipeError), pipe:
        while sent < megabytes:
            pipe.write(b"x" * 1_000_000)
            sent += 1
    return sent


def test_a_hundred_megabytes_are_refused_without_being_read(cli, memory, state):
    before = state()
    process = subprocess.Popen(
        [sys.executable, "-m", "commonbook", "remember", "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    sent = _sent_until_refused(process.stdin, 100)
    assert process.wait(60) == 2
    with process.stdout, process.stderr:
        out, err = process.stdout.read(), process.stderr.read()
    assert out == b""
    assert json.loads(err)["error"]["type"] == "too_large"
    assert sent < 20
    assert state() == before


def test_a_home_of_a_newer_program_is_not_touched(cli, memory, home):
    state = home / ".commonbook" / "state.db"
    with closing(sqlite3.connect(state)) as database, database:
        database.execute("PRAGMA user_version = 99")
    before = snapshot(home), state.read_bytes()
    for args in (("status",), ("remember", "x"), ("delete", memory), ("doctor", "--accept"), ("rebuild",)):
        result = cli(*args, "--json")
        assert (result.code, result.out, result.error["type"]) == (1, "", "home_of_another_build")
        assert result.error["fix"]
    assert (snapshot(home), state.read_bytes()) == before


def test_a_home_that_is_no_database_is_not_touched(cli_without_book, home):
    state = home / ".commonbook" / "state.db"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"no database at all, but long enough to be looked at " * 20)
    before = state.read_bytes()
    result = cli_without_book("status", "--json")
    assert (result.code, result.error["type"]) == (1, "home_damaged")
    assert state.read_bytes() == before


def test_a_home_that_is_a_file_is_refused(cli_without_book, home):
    home.write_text("not a folder")
    result = cli_without_book("status", "--json")
    assert (result.code, result.error["fix"] != "") == (1, True)
    assert home.read_text() == "not a folder"


@pytest.fixture
def readable_by_all() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


AS_SOMEBODY = """
import os, sys
from commonbook.interfaces.cli.main import main
warm, home, *args = sys.argv[1:]
# Everything is imported before the rights are given up: the interpreter may be in a folder of root's own.
for warming in (["status"], ["remember", "x"], ["show", "zzzz"], ["remember", "x", "--kind", "poem"]):
    main(["--home", warm, "--json", *warming])
sys.stdout.flush(), sys.stderr.flush()
print("====", flush=True), print("====", file=sys.stderr, flush=True)
if os.getuid() == 0:
    os.setgroups([]), os.setgid(NOBODY), os.setuid(NOBODY)
sys.exit(main(["--home", home, *args]))
""".replace("NOBODY", str(NOBODY))


@pytest.mark.parametrize("args", [("remember", "x"), ("status",), ("edit", "{id}", "y"), ("delete", "{id}")])
def test_a_read_only_home_is_refused_and_not_touched(cli, home, readable_by_all, args):
    warm, home = home, readable_by_all / "home"
    cli("init", str(home), "--yes")
    memory_id = cli("remember", "one", "--home", str(home), "--json").json["id"]
    cli("status", "--home", str(home))
    for path in [home, *home.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = snapshot(home)
    given = [arg.replace("{id}", memory_id) for arg in args]
    done = subprocess.run(
        [sys.executable, "-c", AS_SOMEBODY, str(warm), str(home), *given, "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=readable_by_all,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.partition("====\n")[2] == ""
    error = json.loads(done.stderr.partition("====\n")[2])["error"]
    assert error["type"] == "home_read_only"
    assert error["fix"]
    assert snapshot(home) == before
