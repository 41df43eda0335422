"""`audit list`: what a person sees of the signed log on a terminal, and what programs read."""

from __future__ import annotations

import json
import re

import pytest

from tests.interfaces.cli.test_terminal import pipe, terminal

__all__ = ["terminal"]


@pytest.fixture
def used(tmp_path, terminal):
    """A home in which somebody has worked; return the ids of two memories."""
    del terminal
    old = pipe(tmp_path, "remember", "Alice owns the billing service", "--space", "team").split("\t")[0]
    new = pipe(tmp_path, "remember", "Bob owns the billing service", "--space", "team").split("\t")[0]
    pipe(tmp_path, "supersede", old, "--by", new)
    pipe(tmp_path, "grant", "add", "user:bob", "team", "reader")
    pipe(tmp_path, "session", "append", "s1", "hello", "--space", "team")
    return old, new


def rows(seen: str) -> dict[str, str]:
    """Return the text of each row by its first cell, with wrapped cells joined."""
    found: dict[str, str] = {}
    last = ""
    for line in seen.splitlines():
        if match := re.match(r"(\d+) +(.*)", line):
            last = match[1]
            found[last] = match[2]
        elif last and line.startswith(" "):
            found[last] += " " + line.strip()
    return {number: " ".join(text.split()) for number, text in found.items()}


@pytest.mark.parametrize("width", ["80", "120"])
def test_the_log_on_a_terminal_says_who_did_what_when_and_to_which_memory(terminal, used, width):
    old, new = (id_[-8:] for id_ in used)
    seen = terminal("audit", "list", "--space", "team", env={"COLUMNS": width}).plain
    assert seen.split()[:5] == ["no.", "when", "who", "action", "what"]
    entries = {number: re.sub(r"(just now|\d+ \w+ ago)", "WHEN", text) for number, text in rows(seen).items()}
    assert entries["2"] == f"WHEN user:local remember {old} Alice owns the billing service"
    assert entries["4"].startswith(
        f"WHEN user:local supersede {new} Bob owns the billing service, {old} Alice owns the billing service"
    )
    assert entries["5"] == "WHEN user:local grant principal user:bob, role reader"
    assert entries["7"] == "WHEN user:local append session s1, message 1"


def test_the_log_says_by_which_memory_of_another_space_one_was_superseded(terminal, tmp_path, used):
    other = pipe(tmp_path, "remember", "Carol owns everything", "--space", "board").split("\t")[0]
    pipe(tmp_path, "supersede", used[1], "--by", other)
    (last,) = rows(terminal("audit", "list", "--space", "team", "--after", "7").plain).values()
    old, new = f"{used[1][-8:]} Bob owns the billing service", f"{other[-8:]} Carol owns everything"
    assert last.endswith(f"superseded {old} by {new}")


def test_the_log_names_deleted_memories_and_no_title_that_one_may_not_read(terminal, tmp_path, used):
    old, _ = used
    pipe(tmp_path, "delete", old)
    last = terminal("audit", "list", "--space", "team", "--after", "7").plain
    assert f"{old[-8:]} Alice owns the billing service" in " ".join(last.split())
    secret = pipe(tmp_path, "remember", "The vault code", "--space", "private").split("\t")[0]
    pipe(tmp_path, "share", secret, "--to", "team", "--refresh", "snapshot")
    pipe(tmp_path, "edit", secret, "The vault code is changed")
    seen = terminal("--as", "user:bob", "audit", "list", "--space", "team").plain
    assert secret[-8:] in seen
    assert "is changed" not in seen


def test_a_page_of_the_log_says_how_to_see_the_rest_and_which_log_it_is(terminal, tmp_path, used):
    pipe(tmp_path, "remember", "The kettle is broken")
    page = terminal("audit", "list", "--space", "team", "--limit", "3").plain
    assert "there are more: --after 3" in page
    assert "there are more" not in terminal("audit", "list", "--space", "team", "--limit", "7").plain
    assert "this is the log of" not in page
    assert "this is the log of personal; --space names another" in terminal("audit", "list").plain


def test_in_a_pipe_the_log_is_as_it_was_signed(tmp_path, used):
    lines = pipe(tmp_path, "audit", "list", "--space", "team").splitlines()
    entries = json.loads(pipe(tmp_path, "audit", "list", "--space", "team", "--json"))
    assert [line.split("\t") for line in lines] == [
        [str(entry["seq"]), entry["time"], entry["actor"], entry["action"], entry["subjects"], entry["hash"][:16]]
        for entry in entries
    ]
