"""Which book a command uses: that of an option, of a variable, the default of the user, or the home `~/commonbook`."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import commonbook
from commonbook.values.memory import Filter
from tests.interfaces.cli.test_cli import cli_without_book
from tests.support.http_servers import ServerProcess

__all__ = ["cli_without_book"]


@pytest.fixture
def log_in(book, server, cli_without_book, tmp_path, monkeypatch):
    """A member of a team on a new machine: no variable names a book, and the code of a login."""
    book.create_space("team")
    book.grant("user:anna", "team", "writer")
    code = book.create_login(book.create_key("user:anna", space="team").key.id).code
    for name in ("HOME", "DATABASE", "KEYS"):
        monkeypatch.delenv(f"COMMONBOOK_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "anna"))
    return lambda *options: cli_without_book("login", server.url, code, *options)


@pytest.fixture
def second(tmp_path, monkeypatch):
    """Another server, of a book of its own, and a key of its owner."""
    home = tmp_path / "second"
    with commonbook.open(home, create=True) as other:
        key = other.create_key("user:local").secret
    with monkeypatch.context() as patch:
        patch.setenv("COMMONBOOK_HOME", str(home))
        patch.delenv("COMMONBOOK_DATABASE", raising=False)
        server = ServerProcess()
    yield server.url, key
    server.close()


def texts(cli, *options: str) -> list[str]:
    return [item["title"] for item in cli("list", "--json", *options).json["items"]]


def terminal(monkeypatch) -> None:
    monkeypatch.setattr("commonbook.interfaces.cli.call.is_terminal", lambda stream: stream is sys.stdout)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "dumb")


def test_after_a_login_commands_use_the_book_of_the_server(book, server, log_in, cli_without_book, tmp_path):
    answer = log_in()
    assert (answer.code, f"the book of {server.url} by default now" in answer.err) == (0, True), answer.err
    assert cli_without_book("remember", "We deploy on Thursdays", "--space", "team").code == 0
    assert texts(cli_without_book) == [memory.title for memory in book.list(Filter(space="team")).items]
    assert book.list(Filter(space="team")).items[0].author == "user:anna"
    assert not (tmp_path / "anna" / "commonbook").exists(), "no home was made"
    default = tmp_path / "config" / "commonbook" / "book"
    assert (default.read_text(), stat.S_IMODE(default.stat().st_mode)) == (f"{server.url}\n", 0o600)
    with commonbook.connect() as there:
        assert there.actor == "user:anna"


def test_people_read_on_which_server_they_wrote(server, log_in, cli_without_book, monkeypatch):
    log_in()
    terminal(monkeypatch)
    assert f" in team on {server.url}\n" in cli_without_book("remember", "We deploy on Thursdays").out
    for command in ("whoami", "status"):
        assert re.search(rf"^book\s+{re.escape(server.url)}$", cli_without_book(command).out, re.MULTILINE), command


def test_the_default_book_is_shown_and_changed(log_in, cli_without_book, server, tmp_path):
    assert cli_without_book("use").out == "~/commonbook\n"
    log_in()
    assert cli_without_book("use").out == f"{server.url}\n"
    assert cli_without_book("use", "home").out == "~/commonbook\n"
    assert cli_without_book("remember", "mine").code == 0
    home = tmp_path / "anna" / "commonbook"
    assert len(list(home.glob("personal/*/mine*.md"))) == 1
    assert cli_without_book("use", server.url).code == 0
    assert texts(cli_without_book) == []
    assert cli_without_book("init", "notes", "--yes").code == 0
    assert cli_without_book("use", "notes", "--json").json == {
        "default": str(Path("notes").resolve()),
        "variable": None,
    }
    os.chdir(tmp_path)
    assert cli_without_book("remember", "a note").code == 0
    assert texts(cli_without_book) == ["a note"]
    assert texts(cli_without_book, "--home", str(home)) == ["mine"]


def test_only_a_book_that_can_be_used_becomes_the_default(log_in, cli_without_book, server, second):
    log_in()
    for wrong, code in (("nowhere", 1), (second[0], 2), ("http://memory.example.com", 2)):
        assert cli_without_book("use", wrong).code == code, wrong
    assert cli_without_book("use").out == f"{server.url}\n"


def test_an_option_wins_over_a_variable_and_a_variable_over_the_default(
    log_in, cli_without_book, server, second, tmp_path, monkeypatch
):
    log_in()
    cli_without_book("remember", "on the first")
    url, key = second
    monkeypatch.setenv("COMMONBOOK_URL", url)
    monkeypatch.setenv("COMMONBOOK_KEY", key)
    assert cli_without_book("remember", "on the second").code == 0
    assert texts(cli_without_book) == ["on the second"]
    assert "COMMONBOOK_URL is set, and wins" in cli_without_book("use").err
    monkeypatch.delenv("COMMONBOOK_KEY")
    assert texts(cli_without_book, "--url", server.url) == ["on the first"]
    home = str(tmp_path / "another")
    commonbook.open(home, create=True).close()
    assert texts(cli_without_book, "--home", home) == []
    monkeypatch.delenv("COMMONBOOK_URL")
    monkeypatch.setenv("COMMONBOOK_HOME", home)
    assert texts(cli_without_book) == []
    monkeypatch.delenv("COMMONBOOK_HOME")
    assert texts(cli_without_book) == ["on the first"]


def test_two_names_of_a_book_are_refused(cli_without_book, monkeypatch, tmp_path):
    monkeypatch.setenv("COMMONBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COMMONBOOK_DATABASE", raising=False)
    monkeypatch.setenv("COMMONBOOK_URL", "https://memory.example.com")
    refused = cli_without_book("remember", "tea", "--json")
    assert (refused.code, refused.error["type"]) == (2, "bad_input")
    assert refused.error["message"] == "COMMONBOOK_URL and COMMONBOOK_HOME each name a book"
    assert cli_without_book("--home", "x", "--url", "https://memory.example.com", "list").code == 2
    assert cli_without_book("init", "--yes").code == 0, "commands about this machine use its home"
    assert (tmp_path / "home" / ".commonbook").is_dir()


def test_a_home_beside_the_book_of_a_server_is_named(log_in, cli_without_book, tmp_path):
    assert cli_without_book("remember", "mine").code == 0
    home = tmp_path / "anna" / "commonbook"
    assert "there is a home here too" not in cli_without_book("whoami").err
    log_in()
    for command in ("whoami", "status"):
        assert cli_without_book(command).err.count(f"there is a home here too: `commonbook --home {home}`") == 1
    assert cli_without_book("use", "home").code == 0
    assert f"book: {home}\n" in cli_without_book("whoami").out


def test_as_another_principal_there_is_no_book_of_a_server(log_in, cli_without_book):
    log_in()
    assert cli_without_book("list", "--as", "user:bob").code == 2


def hook(event: dict[str, str], *options: str) -> None:
    command = [sys.executable, "-m", "commonbook", "hook", "claude-code", *options]
    subprocess.run(command, input=json.dumps(event), text=True, env=dict(os.environ), check=True, timeout=120)


PROMPT = {"session_id": "s1", "hook_event_name": "UserPromptSubmit", "prompt": "the heron is grey", "prompt_id": "p1"}


def test_an_agent_uses_the_default_book_unless_it_was_plugged_into_a_home(book, log_in, cli_without_book, tmp_path):
    cli_without_book("remember", "mine")
    cli_without_book("grant", "add", "agent:claude-code", "personal", "writer")
    log_in()
    hook(PROMPT, "--as", "agent:claude-code")
    assert book.sessions() == ()
    home = tmp_path / "anna" / "commonbook"
    with commonbook.open(home) as here:
        assert [message.text for message in here.messages("s1").items] == ["the heron is grey"]
    hook(PROMPT)
    assert [message.text for message in book.messages("s1").items] == ["the heron is grey"]


def test_mcp_serves_the_default_book(book, log_in, cli_without_book):
    log_in()
    call = {"name": "remember", "arguments": {"text": "We deploy on Thursdays"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]  # fmt: skip
    command = [sys.executable, "-m", "commonbook", "mcp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            assert "error" not in json.loads(process.stdout.readline())
        process.stdin.close()
    assert [memory.title for memory in book.list(Filter(space="team")).items] == ["We deploy on Thursdays"]
