"""Login: a code is exchanged for a key, which is saved where only its user can read it."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import commonbook
from commonbook.errors import BadInput, NotAllowed
from tests.interfaces.cli.test_cli import cli, cli_without_book
from tests.support.http_servers import Cable
from tests.support.servers import serving

__all__ = ["cli", "cli_without_book"]


@pytest.mark.promise("client.saved-key")
def test_a_login_saves_the_key_that_a_connection_uses(book, server, connect, cli_without_book):
    book.grant("agent:helper", "team", "writer")
    key = book.create_key("agent:helper", space="team").key
    code = book.create_login(key.id).code
    result = cli_without_book("login", server.url, code, "--json")
    assert (result.code, result.err) == (0, "")
    assert (result.json["key"], result.json["principal"]) == (key.id, "agent:helper")
    path = Path(result.json["file"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text(encoding="ascii").strip() not in result.out
    here = connect(server.url)
    assert (here.actor, here.default_space) == ("agent:helper", "team")
    again = cli_without_book("login", server.url, code)
    assert (again.code, "the code opens nothing here" in again.err) == (4, True)
    book.revoke_key(key.id)
    with pytest.raises(NotAllowed):
        connect(server.url).status()


def test_a_code_may_come_from_standard_input(book, server, tmp_path):
    code = book.create_login(book.create_key("agent:helper").key.id).code
    command = [sys.executable, "-m", "commonbook", "login", server.url]
    run = subprocess.run(command, input=f"{code}\n", capture_output=True, text=True, env=dict(os.environ), check=True)
    assert "agent:helper" in run.stdout
    assert list((tmp_path / "config").rglob("http*"))


@pytest.mark.promise("access.login")
def test_a_login_whose_answer_is_lost_gets_the_same_key_at_the_next_attempt(book, serve, connect, cli_without_book):
    cable = Cable(serve().port)
    cable.cut_after = 20
    code = book.create_login(book.create_key("agent:helper").key.id).code
    assert cli_without_book("login", cable.url, code).code == 0
    assert cable.cuts == 1
    assert connect(cable.url).actor == "agent:helper"
    assert [entry.action for entry in book.log(space="_home", limit=500)].count("key.login") == 1
    cable.cut_after = 20
    remote = connect(cable.url, book.create_key("user:local").secret)
    new = remote.exchange_login(book.create_login(book.create_key("agent:other").key.id).code)
    assert (cable.cuts, book.with_key(new.secret).actor) == (2, "agent:other")
    cable.close()


def test_the_printed_line_logs_in(book, server, cli):
    printed = cli("key", "create", "agent:helper", "--login-url", server.url, "--json").json["login"]["command"]
    assert cli(*shlex.split(printed)[1:]).code == 0
    with commonbook.connect(server.url) as here:
        assert here.actor == "agent:helper"


def test_a_code_is_not_used_up_where_no_key_can_be_saved(book, server, tmp_path, cli_without_book):
    (tmp_path / "config").write_text("no folder")
    login = book.create_login(book.create_key("agent:helper").key.id)
    assert cli_without_book("login", server.url, login.code).code == 1
    assert book.exchange_login(login.code).key == login.key


@pytest.mark.promise("client.saved-key")
def test_a_login_goes_unencrypted_to_this_machine_alone(cli_without_book):
    result = cli_without_book("login", "http://memory.example.com", "AAAAAA")
    assert (result.code, "not encrypted" in result.err) == (2, True)


CODE = "AAAAAA-AAAAAA-AAAAAA-AAAAAA"


def test_a_login_where_no_server_is_fails_at_once_and_says_what_to_check(book, server, cli_without_book):
    server.kill()
    began = time.monotonic()
    result = cli_without_book("login", server.url, CODE)
    assert time.monotonic() - began < 3
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"commonbook: {server.url} does not answer: ")
    assert "whether `commonbook serve` runs there" in result.err
    assert "trying again" not in result.err
    assert cli_without_book("login", server.url, CODE, "--json").error["type"] == "unreachable"


def test_a_login_that_waits_for_a_lost_answer_says_so(cli_without_book, monkeypatch):
    monkeypatch.setattr("commonbook.compose.client._SECONDS", 2.0)
    monkeypatch.setattr("commonbook.compose.client._ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr("commonbook.interfaces.cli.commands.access._QUIET_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = cli_without_book("login", address, CODE)
    assert result.err.startswith(f"{address} does not answer yet; trying again\n")


def test_a_key_that_is_no_word_is_refused_without_showing_it():
    with pytest.raises(BadInput) as refused:
        commonbook.connect("http://127.0.0.1:1", "two words")
    assert "two words" not in refused.value.message


def test_commands_print_the_address_of_a_server_that_runs_on_their_home(chosen, cli):
    def printed() -> tuple[str, str, str]:
        created = cli("key", "create", "user:local")
        login = next(line for line in created.err.splitlines() if "commonbook login" in line)
        signed = cli("sign-in", "--json")
        link = str(signed.json["link"]) if signed.code == 0 else signed.error["message"]
        return login.partition("commonbook login ")[2].split()[0], link.partition("/sign-in")[0], created.err

    cli("remember", "Alice owns billing")
    default, refused = "http://127.0.0.1:7373", "no server runs on this home now, so no link would work"
    login, link, notes = printed()
    assert (login, link) == (default, refused)
    assert "no server runs on this home now" in notes
    with serving(None) as first, serving(None) as second:
        login, link, notes = printed()
        assert (login, link) == (second.url, second.url), "the newest"
        assert "no server runs" not in notes
        second.end(signal.SIGKILL)
        assert printed()[:2] == (first.url, first.url)
        assert first.end() == 0
        login, link, notes = printed()
        assert (login, link) == (default, refused)
        assert "no server runs on this home now" in notes
