"""The principal of an agent: never the owner by default, and confined to its project and `personal`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from commonbook.core.settings.settings import Settings
from commonbook.errors import BadInput, NotAllowed, NotFound
from commonbook.interfaces.mcp import sources
from commonbook.interfaces.mcp.sources import LocalBook
from tests.support.mcp_clients import PlainClient
from tests.support.repositories import repository

AGENT = "agent:claude-code"


def let_in(book) -> None:
    """Give the agent what `install` gives it."""
    for space in ("personal", "projects"):
        book.create_space(space) if space not in {each.name for each in book.spaces()} else None
        book.grant(AGENT, space, "writer")


@pytest.mark.promise("agents.reach")
def test_an_agent_without_a_name_is_not_the_owner(book):
    book.remember("Salaries are secret", space="private")
    with PlainClient() as client:
        words = client.call("recall", query="salaries", spaces=["private"])["content"][0]["text"]
        assert words.startswith("not_allowed: agent:other reaches nothing")
        assert "commonbook grant add agent:other personal writer" in words


@pytest.mark.promise("agents.reach")
def test_an_agent_reaches_its_project_and_personal_alone(book, tmp_path, monkeypatch):
    let_in(book)
    mine = book.remember("The dog is called Rex", space="personal").id
    other = book.remember("The other project is secret", space="projects/other").id
    team = book.remember("The team is secret", space="team").id
    monkeypatch.chdir(repository(tmp_path / "garden"))
    with PlainClient("--as", AGENT) as client:
        assert client.call("recall", query="dog")["structuredContent"]["hits"][0]["id"] == mine
        stored = client.call("remember", text="Roses need water")["structuredContent"]
        assert stored["space"] == "projects/garden"
        assert client.call("status")["structuredContent"]["spaces"] == ["personal", "projects/garden"]
        for secret in (other, team):
            assert client.call("get", id=secret)["content"][0]["text"].startswith("not_found: ")
            assert client.call("delete", ids=[secret])["content"][0]["text"].startswith("not_found: ")
            assert client.call("share", id=secret, to="personal")["isError"]
        for space in ("team", "projects/other", "projects", "new", "projects/new"):
            for tool, arguments in (("share", {"id": mine, "to": space}), ("remember", {"text": "x", "space": space})):
                assert client.call(tool, **arguments)["content"][0]["text"].startswith("not_allowed: ")
            assert client.call("recall", query="secret", spaces=[space])["isError"]
        assert client.call("recall", query="secret", spaces=["/"])["structuredContent"]["hits"] == []
    assert book.get(stored["id"]).author == AGENT
    actors = {entry.actor for entry in book.log(space="projects/garden", limit=10) if entry.action == "remember"}
    assert actors == {AGENT}


@pytest.mark.promise("hostile.deletions")
def test_what_an_agent_deletes_can_be_brought_back_and_the_log_names_the_agent(book):
    let_in(book)
    memory = book.remember("The dog is called Rex", space="personal").id
    with PlainClient("--as", AGENT) as client:
        assert client.call("delete", ids=[memory])["structuredContent"]["ids"] == [memory]
    assert book.list().items == ()
    (deletion,) = [entry for entry in book.log(space="personal", limit=10) if entry.action == "delete"]
    assert deletion.actor == AGENT
    book.undelete(memory)
    assert book.get(memory).text == "The dog is called Rex"


def test_reading_makes_no_space(book, tmp_path, monkeypatch):
    let_in(book)
    monkeypatch.chdir(repository(tmp_path / "garden"))
    before = [space.name for space in book.spaces()]
    with PlainClient("--as", AGENT) as client:
        assert client.call("recall", query="dog")["structuredContent"]["hits"] == []
        assert client.call("status")["isError"] is False
    assert [space.name for space in book.spaces()] == before


def test_an_agent_whose_grants_have_expired_reaches_nothing(book, monkeypatch):
    book.create_space("garden")
    book.grant(AGENT, "garden", "writer", expires=datetime.now(UTC) + timedelta(days=1))
    sources.confined_book(book, AGENT, changes=False, space="garden")

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=2)

    monkeypatch.setattr(sources, "datetime", Later)
    with pytest.raises(NotAllowed, match="reaches nothing"):
        sources.confined_book(book, AGENT, changes=True, space="garden")


@pytest.mark.promise("agents.revoked")
def test_a_revoked_grant_is_not_given_again(book, tmp_path, monkeypatch):
    let_in(book)
    monkeypatch.chdir(repository(tmp_path / "garden"))
    with PlainClient("--as", AGENT) as client:
        assert client.call("remember", text="Roses need water")["isError"] is False
        book.revoke(AGENT, "projects")
        assert client.call("remember", text="And light")["content"][0]["text"].startswith("not_allowed: ")
        assert client.call("remember", text="And light", space="personal")["isError"] is False


def test_an_agent_that_may_only_read_projects_makes_none(book, tmp_path, monkeypatch):
    let_in(book)
    book.grant(AGENT, "projects", "reader")
    monkeypatch.chdir(repository(tmp_path / "garden"))
    with PlainClient("--as", AGENT) as client:
        assert client.call("remember", text="Roses need water")["content"][0]["text"].startswith("not_allowed: ")
    assert "projects/garden" not in {space.name for space in book.spaces()}


@pytest.mark.promise("agents.reach")
def test_a_space_that_was_granted_by_name_is_reached_too(book):
    let_in(book)
    book.create_space("team")
    book.grant(AGENT, "team", "reader")
    memory = book.remember("Tea is at four", space="team").id
    with PlainClient("--as", AGENT) as client:
        assert client.call("recall", query="tea", spaces=["team"])["structuredContent"]["hits"][0]["id"] == memory
        assert client.call("edit", id=memory, text="x")["content"][0]["text"].startswith("not_allowed: ")


def test_a_key_of_the_environment_decides_who_the_agent_is(book):
    book.create_space("team")
    book.grant("agent:ana", "team", "writer")
    key = book.create_key("agent:ana", space="team").secret
    with PlainClient(env={"COMMONBOOK_KEY": key}) as client:
        assert client.call("status")["structuredContent"]["principal"] == "agent:ana"
        assert client.call("remember", text="Tea is at four")["structuredContent"]["space"] == "team"


def test_an_agent_is_named_by_its_principal_or_by_its_key_and_not_by_both(home):
    with PlainClient("--url", "http://127.0.0.1:9", "--as", AGENT) as client:
        assert client.process.wait(60) == 2


@pytest.mark.promise("agents.revoked")
def test_a_confined_view_reaches_less_than_its_principal(book):
    for space in ("team/a", "team/b"):
        book.create_space(space)
        book.grant("agent:ana", space, "admin")
    ids = {space: book.remember(f"a fact of {space}", space=space).id for space in ("team/a", "team/b")}
    view = book.acting_as("agent:ana", space="team/a", within=["team/a"])
    assert view.default_space == "team/a"
    assert view.get(ids["team/a"]).id == ids["team/a"]
    with pytest.raises(NotFound):
        view.get(ids["team/b"])
    with pytest.raises(NotAllowed):
        view.remember("x", space="team/b")
    with pytest.raises(NotAllowed):
        view.share(ids["team/a"], "team/b")
    with pytest.raises(NotAllowed):
        view.grant("agent:ben", "team/b", "reader")
    with pytest.raises(NotAllowed):
        view.create_key("agent:ana")
    assert view.create_space("team/a/below").name == "team/a/below"
    assert [space.name for space in view.spaces()] == ["team/a", "team/a/below"]
    assert book.acting_as("agent:ana").get(ids["team/b"])


def test_the_owner_cannot_be_confined(book, home):
    with pytest.raises(BadInput):
        book.acting_as("user:local", within=["team"])


def test_the_book_is_opened_by_the_first_call(home):
    source = LocalBook(Settings.load(home), "user:local")
    assert not home.exists()
    with pytest.raises(Exception, match="no home"):
        source.book(changes=True)
    assert not home.exists()


@pytest.mark.promise("agents.reach")
def test_an_injected_prompt_gets_nothing_of_other_spaces_through_any_tool(book, tmp_path, monkeypatch):
    let_in(book)
    mine = book.remember("The dog is called Rex", space="personal").id
    secrets: list[str] = []
    for space in ("team/salaries", "projects/other"):
        old = book.remember(f"SECRET of {space}", title=f"SECRET title of {space}", space=space).id
        new = book.remember(f"SECRET news of {space}", space=space).id
        thought = book.reflect(f"SECRET thought of {space}", on=[old], space=space).id
        book.supersede(old, new, reason="SECRET reason")
        book.append(f"talk-{space.replace('/', '-')}", [f"SECRET words of {space}"], space=space)
        secrets += [old, new, thought, *(item.id for item in book.inbox(space=space).items)]
    # A copy that the owner made of a secret says nothing about where it came from.
    copy = book.share(book.remember("Tea is at four", space="team/salaries").id, "personal").id
    before = {memory: book.get(memory).version for memory in secrets}
    titles = [book.get(memory).title for memory in secrets]
    monkeypatch.chdir(repository(tmp_path / "garden"))
    with PlainClient("--as", AGENT) as client:
        heard = [json.dumps(client.request(method)) for method in ("tools/list", "resources/list", "prompts/list")]

        def attack(tool: str, **arguments: Any) -> None:
            heard.append(_without(json.dumps(client.call(tool, **arguments)), arguments))

        for name in (*secrets, secrets[0][-12:], *titles):
            attack("get", id=name)
            attack("edit", id=name, text="hacked")
            attack("delete", ids=[name])
            attack("delete", ids=[mine, name], dry_run=True)
            attack("share", id=name, to="personal")
            attack("lineage", id=name)
            attack("reflect", text="stolen", on=[name])
            attack("supersede", old=name, by=mine)
            attack("supersede", old=mine, by=name)
            attack("triage", id=name, verdict="retract")
            attack("remember", text="stolen", replaces=name)
            uri = f"commonbook://memory/{name}"
            heard.append(_without(json.dumps(client.request("resources/read", uri=uri)), {"uri": uri}))
        for space in ("team/", "team/salaries", "projects", "projects/other", "/"):
            attack("recall", query="SECRET", spaces=[space], include=["superseded", "expired", "notices"])
            attack("recall", spaces=[space])
            attack("remember", text="planted", space=space)
            attack("inbox", space=space)
            attack("share", id=mine, to=space)
            talk = f"talk-{space.replace('/', '-')}"
            attack("append", session=talk, messages=[{"text": "planted"}], space=space)
            attack("append", session="mine", messages=[{"text": "x"}], parent=talk)
            attack("switch", old=talk, new="mine", space=space)
            attack("switch", old="mine", new=talk, space=space)
            attack("recall", query="SECRET words", session=talk)
        attack("recall", query="SECRET", author="user:local")
        attack("lineage", id=copy)
        attack("status")
        attack("inbox")
        heard.append(json.dumps(client.request("prompts/get", name="start", arguments={"topic": "of private"})))
    assert [words for words in heard if "SECRET" in words] == []
    # Names of other spaces are told only to those who named them.
    assert not any("salaries" in words for words in (heard[0], heard[1], heard[2], *heard[-4:]))
    assert {memory: book.get(memory).version for memory in secrets} == before
    planted = {"team/salaries", "projects/other", "team", "projects"}
    assert not [memory for memory in book.list(limit=100).items if memory.author == AGENT and memory.space in planted]
    assert all(session.author != AGENT for space in planted for session in _messages(book, space))


def _without(words: str, arguments: dict[str, Any]) -> str:
    """An answer without what the agent itself has said in its call, which errors repeat."""
    for value in arguments.values():
        for each in value if isinstance(value, list) else [value]:
            words = words.replace(each, "") if isinstance(each, str) else words
    return words


def _messages(book: Any, space: str) -> list[Any]:
    if space not in {each.name for each in book.spaces()}:
        return []
    return [
        message for session in book.sessions(space=space) for message in book.messages(session.id, space=space).items
    ]
