"""Grants and API keys on the command line, and acting as somebody else."""

from __future__ import annotations

import re

import pytest

from tests.interfaces.cli.test_cli import INSTANT, cli
from tests.interfaces.cli.test_terminal import pipe, terminal

__all__ = ["cli", "terminal"]

GRANT = {"principal", "space", "role", "granted_by", "granted_at", "expires"}
KEY = {"id", "principal", "label", "limits", "default_space", "created", "created_by", "expires", "revoked"}


@pytest.fixture
def team(cli):
    cli.remember("the team's plan", "--space", "team")
    cli.remember("my own plan", "--space", "personal")
    return cli


def titles(cli, *options: str) -> list[str]:
    return [item["title"] for item in cli(*options, "list", "--json").json["items"]]


def test_whoami_tells_the_principal_the_default_space_and_the_roles(team):
    owner = team("whoami", "--json").json
    assert (owner["principal"], owner["default_space"], owner["limits"]) == ("user:local", "personal", None)
    assert {"space": "team", "role": "admin"} in owner["spaces"]
    team("grant", "add", "user:bob", "team", "writer")
    shown = team("whoami", "--as", "user:bob").out
    book, _, shown = shown.partition("\n")
    assert book.startswith("book: ")
    assert shown == "principal: user:bob\ndefault space: personal\nspaces: team=writer\n"


def test_whoami_tells_the_limits_of_a_key(team, monkeypatch):
    team("grant", "add", "user:bob", "team", "admin")
    options = ("--limit", "team=writer", "--space", "team", "--expires", "in 3 days")
    key = team("key", "create", "user:bob", *options, "--json").json
    monkeypatch.setenv("COMMONBOOK_KEY", key["secret"])
    writer = [{"space": "team", "role": "writer"}]
    assert team("whoami", "--json").json == {
        "principal": "user:bob",
        "default_space": "team",
        "spaces": writer,
        "key_id": key["key"]["id"],
        "limits": writer,
        "expires": key["key"]["expires"],
    }
    lines = team("whoami").out.splitlines()
    assert lines[3:5] == [f"key: {key['key']['id']}", "limits: team=writer"]


# --- grants


def test_a_grant_is_given_listed_and_taken_away(team):
    result = team("grant", "add", "user:bob", "team", "reader", "--expires", "in 3 days", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json.keys() == GRANT
    assert (result.json["principal"], result.json["role"]) == ("user:bob", "reader")
    assert result.json["space"]["name"] == "team"
    assert INSTANT.match(result.json["expires"])
    assert team("grant", "list", "--json").json == [result.json]
    assert team("grant", "list", "--space", "personal", "--json").json == []
    assert team("grant", "list").out.split("\t")[:3] == ["team", "user:bob", "reader"]
    assert titles(team, "--as", "user:bob") == ["the team's plan"]
    result = team("grant", "revoke", "user:bob", "team", "--json")
    assert (result.code, result.json) == (0, None)
    assert titles(team, "--as", "user:bob") == []
    assert team("grant", "list").err == "no grants\n"


@pytest.mark.promise("access.granted")
def test_somebody_else_does_what_was_granted_and_no_more(team):
    team("grant", "add", "agent:reviewer", "team", "writer")
    result = team("remember", "seen", "--space", "team", "--as", "agent:reviewer", "--json")
    assert team("show", result.json["id"], "--json").json["author"] == "agent:reviewer"
    for args, code in (
        (("remember", "no", "--space", "personal"), 4),
        (("recall", "plan", "--space", "personal"), 4),
        (("grant", "add", "user:eve", "team", "reader"), 4),
        (("key", "create", "user:local"), 4),
        (("doctor",), 4),
        (("rebuild",), 4),
    ):
        refused = team("--as", "agent:reviewer", *args, "--json")
        assert (refused.code, refused.out) == (code, ""), args
        assert refused.error["type"] == "not_allowed"
    assert team("--as", "agent:reviewer", "status", "--json").json["memories"] == 2


@pytest.mark.promise("writes.bad-input")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--as", "bob", "list"), 2),
        (("--as", "", "list"), 2),
        (("grant", "add", "bob", "team", "reader"), 2),
        (("grant", "add", "user:bob", "team", "boss"), 2),
        (("grant", "add", "user:local", "team", "reader"), 2),
        (("grant", "add", "user:bob", "team", "reader", "--expires", "yesterday"), 2),
        (("grant", "add", "user:bob", "team"), 2),
        (("grant", "revoke", "user:bob", "team"), 3),
        (("grant",), 2),
        (("key", "create", "bob"), 2),
        (("key", "create", "user:bob", "--limit", "team"), 2),
        (("key", "create", "user:bob", "--limit", "team=boss"), 2),
        (("key", "create", "user:bob", "--limit", "nowhere=reader"), 3),
        (("key", "revoke", "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"), 3),
        (("key", "revoke", ""), 3),
    ],
)
def test_trouble_goes_to_standard_error_with_its_exit_code(team, args, code):
    result = team(*args, "--json")
    assert (result.code, result.out) == (code, "")
    assert result.error.keys() == {"type", "message", "fix"}
    assert all(result.error.values())


# --- keys


def made(cli, *options: str) -> tuple[str, str]:
    created = cli("key", "create", *options, "--json").json
    assert (created.keys(), created["key"].keys()) == ({"key", "secret", "login"}, KEY)
    return created["key"]["id"], created["secret"]


def test_a_key_in_the_environment_opens_what_it_was_made_for(team, monkeypatch):
    team("grant", "add", "user:bob", "team", "writer")
    key, secret = made(team, "user:bob", "--label", "laptop", "--limit", "team=reader")
    monkeypatch.setenv("COMMONBOOK_KEY", secret)
    assert titles(team) == ["the team's plan"]
    assert team("remember", "no", "--space", "team").code == 4
    refused = team("--as", "user:local", "list", "--json")
    assert (refused.code, refused.error["type"]) == (4, "not_allowed")
    monkeypatch.delenv("COMMONBOOK_KEY")
    (listed,) = team("key", "list", "--json").json
    ids = {space["id"]: space["name"] for space in team("space", "list", "--json").json}
    assert listed.keys() == KEY
    assert (listed["id"], listed["principal"], listed["label"], listed["revoked"]) == (key, "user:bob", "laptop", None)
    assert [[ids[space], role] for space, role in listed["limits"]] == [["team", "reader"]]
    revoked = team("key", "revoke", key[-8:], "--json").json
    assert (revoked["id"], bool(INSTANT.match(revoked["revoked"]))) == (key, True)
    monkeypatch.setenv("COMMONBOOK_KEY", secret)
    result = team("list", "--json")
    assert (result.code, result.out, secret in result.err) == (4, "", False)


def test_a_key_has_the_default_space_that_it_was_made_with(team, monkeypatch):
    team("grant", "add", "user:bob", "team", "writer")
    _, secret = made(team, "user:bob", "--space", "team")
    _, other = made(team, "user:bob")
    ids = {space["name"]: space["id"] for space in team("space", "list", "--json").json}
    assert {one["default_space"] for one in team("key", "list", "--json").json} == {ids["team"], None}
    monkeypatch.setenv("COMMONBOOK_KEY", secret)
    assert team("remember", "bob's line", "--json").json["space"] == "team"
    monkeypatch.setenv("COMMONBOOK_KEY", other)
    refused = team("remember", "bob's line", "--json")
    assert (refused.code, refused.error["fix"]) == (4, "name one of those that it may write to: team")


@pytest.mark.promise("access.secret")
@pytest.mark.parametrize(("secret", "code"), [("cbk_nonsense", 4), ("two words", 2), ("", 0)])
def test_a_key_that_opens_nothing_is_refused_and_never_shown(team, monkeypatch, secret, code):
    monkeypatch.setenv("COMMONBOOK_KEY", secret)
    result = team("list")
    assert result.code == code
    assert not secret or secret not in result.err + result.out


def test_a_key_in_the_settings_is_not_shown_with_them(monkeypatch):
    from commonbook.core.settings.settings import Settings

    monkeypatch.setenv("COMMONBOOK_KEY", "cbk_secret")
    assert Settings.load().key == "cbk_secret"
    assert "cbk_secret" not in repr(Settings.load())


@pytest.mark.promise("access.secret")
def test_the_secret_is_printed_once_and_kept_nowhere(team, stored):
    result = team("key", "create", "user:bob")
    key, principal, secret = result.out.rstrip("\n").split("\t")
    assert (principal, secret[:4]) == ("user:bob", "cbk_")
    assert "it is shown once" in result.err
    assert secret not in result.err
    for args in (("key", "list"), ("key", "list", "--json"), ("audit", "list", "--space", "_home"), ("status",)):
        assert secret not in team(*args).out
    assert team("key", "list").out.split("\t")[0] == key
    assert [name for name, data in stored().items() if secret.encode() in data] == []


def test_digits_that_mean_several_keys_revoke_none(team):
    first, _ = made(team, "user:bob")
    made(team, "user:bob")
    result = team("key", "revoke", first[:8], "--json")
    assert (result.code, "several keys" in result.error["message"]) == (2, True)


def test_a_terminal_shows_grants_and_keys_as_tables(terminal, tmp_path):
    pipe(tmp_path, "grant", "add", "user:bob", "team", "reader")
    made_key = terminal("key", "create", "user:bob", "--limit", "team=reader")
    assert re.search(r"Created a key for user:bob: cbk_\S{43}", made_key.plain)
    assert re.search(r"team +user:bob +reader", terminal("grant", "list").plain)
    assert re.search(r"[0-9a-f]{8} +user:bob +team=reader +just now", terminal("key", "list").plain)
    assert "user:bob no longer has a grant on team" in terminal("grant", "revoke", "user:bob", "team").plain


# --- what others wrote


def test_the_command_shows_no_diff_to_a_text_of_another_space(cli):
    memory = cli.remember("the code is 1234", "--space", "vault")["id"]
    cli("edit", memory, "ask the owner")
    cli("grant", "add", "user:alice", "team", "reader")
    cli("move", memory, "team")
    cli("edit", memory, "ask Bertha")
    for output in (
        cli("history", memory, "--as", "user:alice").out,
        cli("history", memory, "--as", "user:alice", "--json").out,
    ):
        assert "1234" not in output
        assert "ask the owner" in output
        assert "ask Bertha" in output


def test_a_recall_by_the_command_without_a_space_gives_nothing_of_others(cli):
    cli.remember("the heron is mine", "--space", "personal")
    assert cli("recall", "heron", "--as", "user:alice", "--json").json["hits"] == []


# --- login


def test_a_new_key_comes_with_the_line_that_logs_another_machine_in(team):
    result = team("key", "create", "agent:helper", "--login-url", "https://memory.example.com", "--json")
    code = result.json["login"]["code"]
    assert result.json["login"]["command"] == f"commonbook login https://memory.example.com {code}"
    assert INSTANT.match(result.json["login"]["expires"])
    assert result.json["secret"] not in result.json["login"]["command"]
    plain = team("key", "create", "agent:helper")
    assert re.search(r"^  commonbook login http://127\.0\.0\.1:7373 [A-Z2-7-]{27}\n", plain.err, re.MULTILINE)


def test_a_new_key_that_reaches_nothing_says_so(cli):
    cli("space", "create", "team")
    note = "user:eve has no grant, so the key reaches no space yet:\n  commonbook grant add user:eve SPACE ROLE\n"
    assert note in cli("key", "create", "user:eve").err
    assert cli("key", "create", "user:eve", "--json").err == ""
    cli("grant", "add", "user:eve", "team", "reader")
    for principal in ("user:eve", "user:local"):
        assert "has no grant" not in cli("key", "create", principal).err
