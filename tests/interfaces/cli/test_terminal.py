"""The command line on a terminal: colour, tables, questions, and a person's own editor."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import commonbook
from commonbook.interfaces.cli.output.terminal import Screen, ago

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Seen:
    code: int
    text: str

    @property
    def plain(self) -> str:
        return COLOUR.sub("", self.text).replace("\r\n", "\n")


@pytest.fixture
def terminal(tmp_path):
    """Run a command with all streams on a terminal, type something, and return what is to be seen."""
    commonbook.open(tmp_path / "home", create=True).close()

    def run(*args: str, typed: str = "", env: dict[str, str] | None = None) -> Seen:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "commonbook", *args],
            cwd=tmp_path,
            env={**environ(tmp_path), **(env or {})},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        seen = _all_of(ours)
        os.close(ours)
        return Seen(process.wait(60), seen.decode())

    return run


def environ(tmp_path) -> dict[str, str]:
    unwanted = ("COMMONBOOK_", "NO_COLOR", "FORCE_COLOR", "VISUAL", "EDITOR", "COLORTERM")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return {**ours, "COMMONBOOK_HOME": str(tmp_path / "home"), "TERM": "xterm-256color", "COLUMNS": "100"}


def _all_of(handle: int) -> bytes:
    data = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([handle], [], [], 1)[0]:
            continue
        try:
            some = os.read(handle, 65536)
        except OSError:  # The other side is closed.
            return data
        if not some:
            return data
        data += some
    raise AssertionError(f"the command did not end; it said {data!r}")


def pipe(tmp_path, *args: str, check: bool = True) -> str:
    return subprocess.run(
        [sys.executable, "-m", "commonbook", *args],
        cwd=tmp_path,
        env=environ(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=check,
    ).stdout


@pytest.fixture
def memory(tmp_path) -> str:
    return str(json.loads(pipe(tmp_path, "remember", "Alice owns [bold]billing[/bold]", "--tag", "x", "--json"))["id"])


def test_there_is_colour_on_a_terminal_and_none_in_a_pipe(terminal, tmp_path, memory):
    assert COLOUR.search(terminal("list").text)
    assert "\x1b" not in pipe(tmp_path, "list")
    for args, env in ((("--no-color", "list"), {}), (("list",), {"NO_COLOR": "1"}), (("list",), {"TERM": "dumb"})):
        assert "\x1b" not in terminal(*args, env=env).text, (args, env)


def test_a_list_on_a_terminal_is_a_table_with_short_ids_and_times_as_people_say_them(terminal, memory):
    seen = terminal("list").plain
    header, *rows = [line for line in seen.splitlines() if line.strip() and "─" not in line]
    assert header.split() == ["id", "space", "kind", "created", "title", "tags"]
    assert re.search(rf"{memory[-8:]} +personal +note +(just now|\d+ \w+ ago) +Alice owns \[bold\]billing", rows[0])


def test_deleted_memories_are_a_table_with_short_ids_too_which_undelete_takes(terminal, tmp_path, memory):
    pipe(tmp_path, "delete", memory)
    assert memory not in terminal("list", "--deleted", env={"COLUMNS": "80"}).plain
    assert memory[-8:] in terminal("list", "--deleted", env={"COLUMNS": "80"}).plain
    assert f"Undeleted {memory[-8:]} in personal" in terminal("undelete", memory[-8:]).plain


def test_the_version_of_a_memory_says_what_it_is_for(terminal, memory):
    seen = terminal("show", memory).plain
    assert re.search(r"^revision +1\nversion +1 \(for --expected-version\)$", seen, re.MULTILINE), seen


def test_rows_stand_below_each_other_on_a_terminal_that_is_too_narrow_for_a_table(terminal, memory):
    wide, narrow = (terminal("list", env={"COLUMNS": width}).plain for width in ("80", "40"))
    narrow = re.sub(" +$", "", narrow, flags=re.MULTILINE)
    assert "─" in wide
    assert "personal" in wide
    assert "─" not in narrow
    assert [line.split()[0] for line in narrow.strip().splitlines()][:4] == ["id", "space", "kind", "created"]
    assert re.search(rf"^id +{memory[-8:]}$", narrow, re.MULTILINE)
    assert re.search(r"^space +personal$", narrow, re.MULTILINE)


def test_a_list_of_spaces_fits_80_columns_with_each_space_on_one_line(terminal):
    names = ["team/backend-services", "team/frontend-services"]
    for name in names:
        terminal("space", "create", name)
    seen = terminal("space", "list", env={"COLUMNS": "80"}).plain
    for name in names:
        assert re.search(rf"^{name} +{name} .* +[0-9a-f]{{8}} *$", seen, re.MULTILINE), seen


def test_copies_in_a_space_with_a_long_name_are_listed_as_stale_within_80_columns(terminal, tmp_path):
    memory = json.loads(pipe(tmp_path, "remember", "Deploy only after two people have read it", "--json"))["id"]
    pipe(tmp_path, "share", memory, "--to", "projects/a-long-project-name", "--refresh", "snapshot")
    pipe(tmp_path, "edit", memory, "Deploy only after three people have read it", "--tag", "deploy")
    for command in (("list",), ("copies", memory)):
        seen = terminal(*command, env={"COLUMNS": "80"}).plain
        assert re.search(r"\bstale\b", seen), seen
        assert all(re.search(rf"\b{word}\b", seen) for word in ("Deploy", "only", "after", "people", "read")), seen


@pytest.mark.parametrize("width", range(20, 130, 7))
def test_no_cell_of_a_table_is_cropped(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    headers = ("space", "principal", "role", "expires", "granted by", "granted")
    row = ("projects/a-long-project-name", "user:somebody@example.org", "write", "never", "user:local", "2 minutes ago")
    other = ("team", "agent:x", "read", "2027-01-01 00:00", "user:local", "just now")
    Screen(colour=False).table(headers, [row, other])
    seen = capsys.readouterr().out
    cells = "".join((*headers, *row, *other)).replace(" ", "")
    # Only the terminal breaks a value of one word, in a copy of which no line end is then.
    names = (*headers, row[0], row[1], row[4])
    assert all(len(line) <= width or line.split()[-1] in names for line in seen.splitlines()), seen
    assert not Counter(cells) - Counter(seen), seen


@pytest.mark.parametrize("width", ["40", "60", "80", "120"])
def test_ids_and_names_in_a_table_are_whole(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", width)
    row = (
        "01a1eecc-8c8b-70c5-9e85-267a00dd70b4", "projects/a-long-project-name", "note", "2 minutes ago",
        "See https://example.org/a/page/with/an/address/that/is/much/too/long/for/a/table of ours",
    )  # fmt: skip
    Screen(colour=False).table(("id", "space", "kind", "created", "title"), [row])
    words = capsys.readouterr().out.split()
    assert row[0] in words
    assert row[1] in words


def test_an_address_in_a_title_does_not_turn_a_table_into_rows(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    titles = ("See https://example.org/a/page/with/an/address/that/is/long", "Alice owns billing")
    Screen(colour=False).table(("id", "space", "title"), [("00dd70b4", "personal", title) for title in titles])
    assert capsys.readouterr().out.startswith("id        space     title")


def test_the_path_of_a_memory_is_whole_on_a_narrow_terminal(terminal, memory, tmp_path):
    path = json.loads(pipe(tmp_path, "show", memory, "--json"))["path"]
    assert path in terminal("show", memory, env={"COLUMNS": "40"}).plain.split()


def test_requests_and_rules_have_short_ids_on_a_terminal_which_commands_take(terminal, tmp_path, memory):
    pipe(tmp_path, "space", "create", "team")
    rule = pipe(tmp_path, "rules", "add", "personal", "--space", "team", "--approval").split("\t")[0]
    seen = terminal("rules", "list", env={"COLUMNS": "80"}).plain
    assert seen.splitlines()[2].split()[:2] == [rule[-8:], "team"]
    assert terminal("rules", "remove", rule[-8:]).code == 0


def test_notes_are_wrapped_between_words_and_their_commands_are_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("commonbook.interfaces.cli.output.terminal.is_terminal", lambda stream: True)
    command = "commonbook login https://memory.example.com K3VQ7M-2JXW5T-R8LQ4N-6YZB2D"
    Screen(colour=False).note("or let another machine have the key, once and within ten minutes:", command=command)
    assert capsys.readouterr().err.splitlines() == [
        "or let another machine have the key,",
        "once and within ten minutes:",
        f"  {command}",
    ]
    path = "/somewhere/with/a/path/that/is/longer/than/the/terminal.md"
    Screen(colour=False).note(f"see {path}")
    assert path in capsys.readouterr().err.splitlines()


def test_show_on_a_terminal_takes_no_markup_from_a_memory(terminal, memory):
    seen = terminal("show", memory[-8:])
    assert "Alice owns [bold]billing[/bold]" in seen.plain
    assert memory in seen.plain


def test_a_memory_cannot_steer_the_terminal(terminal, tmp_path):
    memory = pipe(tmp_path, "remember", "one \x1b]0;owned\x07\x1b[2J two \x9b31m", "--title", "t").split("\t")[0]
    for args in (("show", memory), ("history", memory), ("list",)):
        seen = terminal(*args).plain
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", seen), seen


def test_history_on_a_terminal_colours_what_changed(terminal, tmp_path, memory):
    pipe(tmp_path, "edit", memory, "Bob owns billing")
    seen = terminal("history", memory)
    assert "\x1b[32m+Bob owns billing" in seen.text
    assert "\x1b[31m-Alice owns" in seen.text


@pytest.mark.slow
def test_every_answer_can_be_seen_on_a_terminal(terminal, memory):
    for args in (("status",), ("space", "list"), ("audit", "list"), ("audit", "verify"), ("doctor",), ("rebuild",)):
        seen = terminal(*args)
        assert seen.code == 0, seen.plain
        assert seen.plain.strip()
    assert re.search(r"Remembered [0-9a-f]{8} in team", terminal("remember", "tea", "--space", "team").plain)


def test_json_on_a_terminal_is_only_json(terminal, memory):
    assert json.loads(terminal("show", memory, "--json").text)["id"] == memory


def test_deleting_by_a_filter_asks_first(terminal, tmp_path, memory):
    assert "Delete 1 memory? [y/N]" in terminal("delete", "--tag", "x", typed="n\n").plain
    assert json.loads(pipe(tmp_path, "list", "--json"))["items"]
    assert terminal("delete", "--tag", "x", typed="yes\n").code == 0
    assert json.loads(pipe(tmp_path, "list", "--json"))["items"] == []


@pytest.mark.promise("undo.asks")
def test_deleting_by_id_names_the_title_and_asks_on_a_terminal_unless_told_not_to(terminal, tmp_path, memory):
    question = terminal("delete", memory, typed="n\n").plain
    assert "Alice owns" in question.partition("Delete 1 memory? [y/N]")[0]
    assert json.loads(pipe(tmp_path, "list", "--json"))["items"]
    assert terminal("delete", memory, typed="y\n").code == 0
    assert json.loads(pipe(tmp_path, "list", "--json"))["items"] == []
    assert terminal("undelete", memory).code == 0
    assert "[y/N]" not in terminal("delete", memory, "--yes").plain
    assert json.loads(pipe(tmp_path, "list", "--json"))["items"] == []


def test_receipts_on_a_terminal_say_only_what_was_done(terminal, tmp_path, memory):
    assert f"Not deleted: {memory[-8:]} in personal" in terminal("undelete", memory).plain
    assert f"Moved {memory[-8:]} to office" in terminal("move", memory, "office").plain
    copy = pipe(tmp_path, "share", memory, "--to", "team").split("\t")[0]
    assert terminal("unshare", copy).plain.strip() == f"Unshared {copy[-8:]}: removed from team"
    pipe(tmp_path, "delete", memory)
    assert f"Undeleted {memory[-8:]} in office" in terminal("undelete", memory).plain


@pytest.mark.promise("move.announced")
def test_a_migration_asks_on_a_terminal_and_the_old_home_then_says_in_every_answer_that_it_was_moved(
    terminal, tmp_path, memory
):
    new = str(tmp_path / "new")
    assert "Nothing was moved" in terminal("migrate", new, typed="n\n").plain
    assert not os.path.exists(new)
    assert terminal("migrate", new, typed="y\n").code == 0
    for command in (("show", memory), ("recall", "billing"), ("list",)):
        assert f"this book was moved to {new}" in terminal(*command).plain
    status = json.loads(pipe(tmp_path, "status", "--json", check=False))
    findings = json.loads(pipe(tmp_path, "doctor", "--json", check=False))
    for finding in (*status["findings"], *findings):
        assert (finding["what"], finding["fix"]) == ("moved book", f"use it there: --home {new}")


@pytest.fixture
def editor(tmp_path):
    """Make an editor that does what a shell script says to the file $1."""

    def make(script: str) -> dict[str, str]:
        path = tmp_path / "my editor"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {"EDITOR": f"'{path}' --wait", "TMPDIR": str(tmp_path / "temporary")}

    (tmp_path / "temporary").mkdir()
    return make


def kept(tmp_path) -> list[str]:
    return [path.read_text() for path in (tmp_path / "temporary").iterdir()]


def test_edit_opens_the_persons_own_editor(terminal, editor, tmp_path, memory):
    seen = terminal(
        "edit", memory, env=editor('cat "$2" >"$PWD/seen"; ls -l "$2" | cut -c1-10 >mode; echo "Bob owns it" >"$2"')
    )
    assert seen.code == 0
    assert (tmp_path / "seen").read_text() == "Alice owns [bold]billing[/bold]"
    assert (tmp_path / "mode").read_text() == "-rw-------\n"
    shown = json.loads(pipe(tmp_path, "show", memory, "--json"))
    assert (shown["text"], shown["version"]) == ("Bob owns it", 2)
    assert kept(tmp_path) == []


def test_an_edit_that_changes_nothing_says_so(terminal, memory):
    for same in (("Alice owns [bold]billing[/bold]",), ("--add-tag", "x"), ("--to-revision", "1")):
        seen = terminal("edit", memory, *same)
        assert (seen.code, f"Not changed: {memory[-8:]} in personal\n" in seen.plain) == (0, True), seen.plain
    assert f"Edited {memory[-8:]} in personal (version 2)" in terminal("edit", memory, "--add-tag", "y").plain


def test_an_editor_that_changes_nothing_makes_no_revision(terminal, editor, tmp_path, memory):
    seen = terminal("edit", memory, env=editor('echo >>"$2"'))
    assert (seen.code, f"Not changed: {memory[-8:]}" in seen.plain) == (0, True)
    assert json.loads(pipe(tmp_path, "show", memory, "--json"))["version"] == 1


def test_a_memory_that_changed_meanwhile_is_not_overwritten_and_nothing_typed_is_lost(
    terminal, editor, tmp_path, memory
):
    command = f'"{sys.executable}" -m commonbook edit {memory} "Carol owns it" >other </dev/null'
    seen = terminal("edit", memory, env=editor(f'echo "Bob owns it" >"$2"; {command}'))
    assert seen.code == 5
    assert str(tmp_path / "temporary") in seen.plain.replace("\n", "")
    assert kept(tmp_path) == ["Bob owns it\n"]
    assert json.loads(pipe(tmp_path, "show", memory, "--json"))["text"] == "Carol owns it"


@pytest.mark.parametrize("script", ['echo typed >"$2"; exit 1', r'printf "typed \351" >"$2"'])
def test_what_cannot_be_saved_is_kept(terminal, editor, tmp_path, memory, script):
    seen = terminal("edit", memory, env=editor(script))
    assert seen.code == 2
    assert "is kept in" in seen.plain
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    assert json.loads(pipe(tmp_path, "show", memory, "--json"))["version"] == 1


def test_an_editor_that_is_not_there_is_named(terminal, memory):
    seen = terminal("edit", memory, env={"EDITOR": "no-such-editor-anywhere"})
    assert seen.code == 2
    assert "no-such-editor-anywhere" in seen.plain


@pytest.mark.slow
def test_a_bar_shows_how_far_long_work_is(tmp_path):
    slow = (
        "import sys, time\n"
        "from commonbook.interfaces.cli.output import ProgressBar\n"
        "with ProgressBar(bar=True) as teller:\n"
        "    for done in range(15):\n"
        "        teller('looking', done, 15)\n"
        "        time.sleep(0.1)\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", slow], stderr=theirs, env=environ(tmp_path))
    os.close(theirs)
    seen = _all_of(ours).decode()
    os.close(ours)
    assert process.wait(60) == 0
    assert "looking" in seen
    assert "/15" in seen


@pytest.mark.parametrize(
    ("past", "words"),
    [
        (timedelta(seconds=3), "just now"),
        (timedelta(seconds=61), "1 minute ago"),
        (timedelta(minutes=59, seconds=59), "59 minutes ago"),
        (timedelta(hours=23), "23 hours ago"),
        (timedelta(days=1), "1 day ago"),
        (timedelta(days=29), "29 days ago"),
    ],
)
def test_times_are_said_as_people_say_them(past, words):
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    assert ago(now - past, now) == words


def test_times_far_away_or_to_come_are_dates():
    now = datetime(2026, 11, 15, 12, tzinfo=UTC)
    for time_ in (now - timedelta(days=60), now + timedelta(days=1)):
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", ago(time_, now))
