"""The commands of rules, requests and limits, as people and programs use them."""

from __future__ import annotations

import pytest

import commonbook
from tests.interfaces.cli.test_cli import cli

__all__ = ["cli"]

BOB = "user:bob"


@pytest.fixture
def waiting(cli):
    """Return a share request that waits in `team`, because Bob wrote a fact into `lab`."""
    cli("space", "create", "lab")
    cli("rules", "add", "lab", "--space", "team", "--approval", "--kind", "fact")
    with commonbook.open() as book:
        book.grant(BOB, "lab", "writer")
        book.acting_as(BOB).remember("may I come in?", space="lab", kind="fact")
    (request,) = cli("pending", "--json").json
    return request


def test_rules_are_added_listed_and_removed(cli):
    cli("space", "create", "lab")
    added = cli("rules", "add", "lab", "--space", "team", "--tag", "open,done", "--importance", "0.5", "--json").json
    assert (added["space"]["name"], added["source"]["name"]) == ("team", "lab")
    assert (added["tags"], added["importance"]) == (["open", "done"], 0.5)
    assert (added["approval"], added["refresh"], added["created_by"], added["idle"]) == (
        False,
        "live",
        "user:local",
        "",
    )
    assert cli("rules", "list", "--json").json == [added]
    shown = cli("rules", "list", "--space", "team").out
    assert "#open, #done, importance 0.5 or more" in shown
    assert "active" in shown
    cli("remember", "taken in", "--space", "lab", "--tag", "open,done", "--importance", "0.5")
    assert [one["text"] for one in cli("list", "--space", "team", "--json").json["items"]] == ["taken in"]
    assert cli("rules", "remove", added["id"][-6:]).out == f"Removed the rule {added['id']}.\n"
    assert cli("rules", "list", "--json").json == []
    assert cli("rules", "remove", added["id"]).code == 3


def test_where_there_is_nothing_the_commands_say_so(cli):
    assert (cli("rules", "list").out, cli("rules", "list").err) == ("", "no rules\n")
    assert (cli("pending").out, cli("pending").err) == ("", "no requests\n")


@pytest.mark.parametrize("command", ["approve", "reject"])
def test_an_id_of_no_request_is_refused_with_the_command_that_lists_them(cli, waiting, command):
    refused = cli(command, "1234", "--json")
    assert (refused.code, refused.error["message"]) == (2, "'1234' is not the id or title of a request")
    assert "`commonbook pending`" in refused.error["fix"]
    assert "`commonbook rules list`" in cli("rules", "remove", "1234").err


def test_what_waits_is_shown_and_decided(cli, waiting):
    assert (waiting["text"], waiting["requested_by"], waiting["state"]) == ("may I come in?", BOB, "waiting")
    assert "may I come in?" in cli("pending", "--space", "team").out
    done = cli("approve", waiting["id"][-6:], "--note", "welcome", "--json").json
    assert (done["state"], done["decided_by"], done["note"]) == ("approved", "user:local", "welcome")
    assert cli("show", done["copy"], "--json").json["text"] == "may I come in?"
    again = cli("reject", waiting["id"], "--json")
    assert (again.code, again.error["type"]) == (5, "conflict")
    assert "approved by user:local" in again.error["message"]
    assert cli("pending", "--json").json == []
    assert "approved by user:local: welcome" in cli("pending", "--decided").out


def test_a_request_of_ones_own_is_not_ones_own_to_approve(cli):
    note = cli.remember("of use", "--space", "lab")["id"]
    cli("space", "create", "team")
    waiting = cli("request", note, "team", "--refresh", "snapshot", "--json").json
    assert (waiting["memory"], waiting["space"], waiting["rule"], waiting["refresh"]) == (
        note,
        "team",
        None,
        "snapshot",
    )
    refused = cli("approve", waiting["id"], "--json")
    assert (refused.code, refused.error["type"]) == (4, "not_allowed")
    assert cli("reject", waiting["id"]).out == "Withdrawn.\n"


def test_limits_are_set_and_listed(cli):
    assert cli("limit", "list", "--json").json[0]["per_minute"] == 600
    limit = cli("limit", "set", "share", "3", "--principal", BOB, "--json").json
    assert (limit["principal"], limit["action"], limit["per_minute"]) == (BOB, "share", 3)
    assert "everybody else" in cli("limit", "list").out
    assert cli("limit", "set", "share", "none", "--principal", BOB, "--json").json["per_minute"] == 600
    for wrong in (["share", "often"], ["share", "-1"], ["breathe", "3"]):
        assert cli("limit", "set", *wrong).code == 2


@pytest.mark.parametrize(
    "typed",
    [
        ["rules", "add", "lab", "--space", "lab"],
        ["rules", "add", "lab", "--space", "team", "--tag", ""],
        ["rules", "add", "lab", "--space", "team", "--importance", "much"],
        ["rules", "add", "lab", "--space", "team", "--refresh", "now"],
        ["approve", "nonsense"],
    ],
)
def test_what_cannot_be_is_refused(cli, typed):
    cli("space", "create", "lab")
    assert cli(*typed).code == 2
    assert cli("rules", "list", "--json").json == []


@pytest.fixture
def proposed(cli):
    """Return the id of a memory that an agent has proposed in `team`."""
    cli("space", "create", "team")
    cli("grant", "add", "agent:ana", "team", "writer")
    assert cli("space", "review", "team", "agents", "--json").json["reviewed"] is True
    result = cli("remember", "We deploy on Mondays", "--space", "team", "--as", "agent:ana", "--json")
    assert result.json["proposed"] is True
    return result.json["id"]


def test_a_proposal_is_shown_approved_and_rejected(cli, proposed):
    receipt = cli("remember", "Second", "--space", "team", "--as", "agent:ana")
    assert "until a person approves it" in receipt.err
    for command in (("inbox",), ("pending",), ("pending", "--space", "team")):
        shown = cli(*command).out
        assert "We deploy on Mondays" in shown
        assert "agent:ana" in shown
    second, first = cli("inbox", "--json").json["proposals"]
    assert (first["id"], first["purpose"], first["version"]) == (proposed, "proposal", 1)
    assert cli("approve", proposed, "--as", "agent:ana").code == 4
    assert cli("approve", proposed, "--expected-version", "7").code != 0
    assert f"Approved: {proposed} in team." in cli("approve", proposed[-8:], "--expected-version", "1").out
    assert "Rejected" in cli("reject", second["id"]).out
    assert cli("inbox", "--json").json["proposals"] == []
    assert cli("show", proposed, "--json").json["space"] == "team"


def test_a_proposal_is_approved_and_rejected_by_its_title_or_its_file(cli, proposed):
    twice = [cli("remember", "Second", "--space", "team", "--as", "agent:ana", "--json").json["id"] for _ in range(2)]
    refused = cli("reject", "second", "--json")
    assert (refused.code, refused.error["type"]) == (2, "ambiguous")
    assert all(id_ in refused.error["message"] for id_ in twice)
    assert cli("reject", f"second--{twice[0][-8:]}.md").code == 0
    assert cli("reject", "second").code == 0
    assert f"Approved: {proposed} in team." in cli("approve", "we deploy on Mondays").out
    assert cli("pending", "--json").json == []


def test_a_request_is_approved_by_what_names_its_memory(cli, waiting):
    assert cli("approve", "nothing of the sort").code == 2
    assert cli("approve", waiting["memory"][-8:]).code == 0
    assert cli("pending", "--json").json == []


def test_a_request_is_approved_by_the_title_of_its_memory(cli, waiting):
    assert cli("approve", waiting["title"].upper(), "--json").json["id"] == waiting["id"]


def test_the_review_of_a_space_is_shown_set_and_ended(cli, proposed):
    cli("space", "create", "team/a")
    assert cli("space", "review", "team/a").out == "team/a\tagents\n"
    assert cli("space", "review", "team/a", "--json").json["review"] is None
    assert cli("space", "review", "team", "none", "--json").json["reviewed"] is False
    assert cli("space", "review", "team").out == "team\tnone\n"
    assert cli("space", "review", "team", "everybody").code == 2
    assert cli("space", "review", "nowhere").code != 0
