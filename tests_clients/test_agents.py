"""A day of each agent, with the real program and a scripted model."""

from __future__ import annotations

import html
import json
import os
import re
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests_clients.agents import RealAgent
from tests_clients.scripted_model import offered

CLIENTS = ("claude-code", "codex", "gemini")
TOPICS = ("roses", "tulips", "apple trees", "ivy", "beans", "compost", "hedges")
FACT = "The spare key of the greenhouse hangs behind the blue watering can"


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made() -> Iterator[list[RealAgent]]:
    agents: list[RealAgent] = []
    yield agents
    for agent in agents:
        agent.close()


def installed(made: list[RealAgent], client: str, folder: Path, steps: list[dict[str, Any]]) -> RealAgent:
    agent = RealAgent(client, folder, steps)
    made.append(agent)
    agent.book("install", client, "--yes")
    return agent


def words(request: dict[str, Any]) -> str:
    """Everything that the model was given, as one text."""
    return html.unescape(json.dumps(request["body"], ensure_ascii=False))


def blocks(request: dict[str, Any]) -> list[str]:
    """The marks of the blocks of recalled text that a request has, in order."""
    return list(
        dict.fromkeys(re.findall(r"<commonbook-recall ([0-9a-f]{32})>", words(request).replace("\\u003c", "<")))
    )


@pytest.mark.promise("hooks.once")
def test_a_day_of_twenty_prompts_in_three_sessions(client, made, tmp_path):
    steps = [{"text": f"Answer {number}."} for number in range(100)]
    agent = installed(made, client, tmp_path, steps)
    prompts = []
    for session in range(3):
        for number, topic in enumerate(TOPICS):
            prompt = f"Session {session}: tell me how to care for {topic} in our garden"
            if (session, number) == (0, 0):
                prompt = FACT
            if (session, number) == (1, 0):
                prompt = "Where does the spare key of the greenhouse hang?"
            assert agent.turn(prompt, resume=number > 0).strip()
            prompts.append(prompt)
    requests = agent.requests()
    # The first turn has the tools.
    assert any(tool["name"].endswith("recall") for tool in offered(requests[0]["body"]))
    # A fact that was told in one session is in the prompt of the next.
    asking = next(each for each in requests if prompts[len(TOPICS)] in words(each))
    assert FACT in words(asking)
    # Nothing that was injected is rewritten while a session goes on.
    assert len(requests) == len(prompts)
    for begin in range(0, len(prompts), len(TOPICS)):
        own = requests[begin : begin + len(TOPICS)]
        assert len(blocks(own[-1])) < len(own)
        for earlier, later in pairwise(own):
            assert blocks(later)[: len(blocks(earlier))] == blocks(earlier)
    listed = json.loads(agent.book("session", "list", "--json"))
    assert [each["messages"] for each in listed] == [2 * len(TOPICS)] * 3
    stored = []
    for each in reversed(listed):
        shown = json.loads(agent.book("session", "show", each["id"], "--json"))["items"]
        stored += [message["text"] for message in shown if message["role"] == "user"]
    assert stored == prompts


def without_cache_marks(value: Any) -> Any:
    """A request without the marks of the client's own that tell how far a prompt is to be cached.

    A text with a mark is a block, and one without is a plain text: both mean the same.
    """
    if isinstance(value, dict):
        kept = {name: without_cache_marks(each) for name, each in value.items() if name != "cache_control"}
        plain = isinstance(kept.get("content"), str)
        return {**kept, "content": [{"type": "text", "text": kept["content"]}]} if plain else kept
    return [without_cache_marks(each) for each in value] if isinstance(value, list) else value


@pytest.mark.promise("hooks.cacheable")
def test_a_session_of_twenty_turns_only_appends_to_the_request(made, tmp_path):
    agent = installed(made, "claude-code", tmp_path, [{"text": f"Answer {number}."} for number in range(100)])
    for topic in TOPICS:
        agent.book("remember", f"Care for {topic} in our garden is the task of Ada", "--kind", "decision")
    for turn in range(20):
        if turn == 10:
            agent.book("remember", f"{FACT}, since Monday")
        question = "where does the spare key of the greenhouse hang" if turn == 12 else "tell me how to care for"
        agent.turn(f"Turn {turn}: {question}, and {TOPICS[turn % len(TOPICS)]} in our garden?", resume=turn > 0)
    bodies = [without_cache_marks(request["body"]) for request in agent.requests()]
    assert len(bodies) == 20
    for number, (earlier, later) in enumerate(pairwise(bodies)):
        for part in ("tools", "system"):
            assert json.dumps(later[part]) == json.dumps(earlier[part]), (number, part)
        count = len(earlier["messages"])
        assert json.dumps(later["messages"][:count]) == json.dumps(earlier["messages"]), number
    # The news came with the turn that it answers, if not before, and once.
    sent = [json.dumps(body["messages"]).count(f"{FACT}, since Monday") for body in bodies]
    assert (sent[:10], sent[12:]) == ([0] * 10, [1] * 8)


@pytest.mark.promise("agents.reach")
def test_tools_are_called_and_the_log_names_the_agent(client, made, tmp_path):
    steps: list[dict[str, Any]] = [
        {"call": "remember", "arguments": {"text": "Ada likes oolong tea", "kind": "preference"}},
        {"text": "Noted."},
        {"call": "recall", "arguments": {"query": "tea"}},
        {"text": "Oolong."},
    ]
    agent = installed(made, client, tmp_path, steps)
    assert "Noted." in agent.turn("I like oolong")
    assert "Oolong." in agent.turn("What do I drink?")
    memory = json.loads(agent.book("list", "--json"))["items"][0]
    assert any("Ada likes oolong tea" in words(request) for request in agent.requests()[2:])
    assert (memory["author"], memory["space"]) == (f"agent:{client}", "projects/garden")
    before = {
        path: path.read_bytes() for path in (agent.home / ".codex/config.toml", agent.home / ".gemini/settings.json")
    }
    agent.book("uninstall", client, "--yes")
    assert json.loads(agent.book("install", "--list", "--json"))["clients"][CLIENTS.index(client)]["installed"] == []
    assert all("commonbook" not in path.read_text() for path in before)


READING: dict[str, tuple[str, str]] = {
    "claude-code": ("Read", "file_path"),
    "codex": ("exec_command", "cmd"),
    "gemini": ("read_file", "file_path"),
}
"""The tool of each agent that reads a file, and its argument."""


@pytest.mark.promise("hooks.tool-output")
def test_output_of_tools_is_stored_on_request(client, made, tmp_path):
    agent = installed(made, client, tmp_path, [])
    agent.book("install", client, "--tool-output", "--yes")
    note = agent.project / "beds.txt"
    note.write_text("The north bed has tulips.\n")
    tool, argument = READING[client]
    value = f"cat {note}" if client == "codex" else str(note)
    agent.script.add({"call": tool, "arguments": {argument: value}}, {"text": "Tulips."})
    assert "Tulips." in agent.turn("What grows in the north bed?")
    shown = agent.only_session()
    assert [message["role"] for message in shown] == ["user", "tool", "assistant"]
    assert "The north bed has tulips." in shown[1]["text"]


COMPACTIONS = {"claude-code": "/compact", "gemini": "/compress"}
"""The commands that an agent takes in a prompt; Codex has one in its terminal alone."""


@pytest.mark.promise("hooks.next-session")
@pytest.mark.parametrize("client", COMPACTIONS, indirect=True)
def test_what_was_said_before_a_compaction_is_in_the_prompt_after_it(client, made, tmp_path):
    agent = installed(made, client, tmp_path, [{"text": f"Answer {number}."} for number in range(20)])
    question = "Where does the spare key of the greenhouse hang?"
    for number, prompt in enumerate((FACT, "Tell me how to care for roses in our garden", question)):
        agent.turn(prompt, resume=number > 0)
    # It is in the conversation, so that nothing has to be added.
    assert blocks(agent.requests()[-1]) == []
    agent.turn(COMPACTIONS[client], resume=True)
    agent.turn(question, resume=True)
    last = agent.requests()[-1]
    (mark,) = blocks(last)
    added = (
        words(last)
        .replace("\\u003c", "<")
        .partition(f"<commonbook-recall {mark}>")[2]
        .partition(f"</commonbook-recall {mark}>")[0]
    )
    assert FACT in added


@pytest.mark.promise("hooks.once")
def test_an_agent_that_is_killed_in_a_turn_loses_no_prompt(client, made, tmp_path):
    agent = installed(made, client, tmp_path, [{"hang": True}])
    process = agent.start("Please remember this prompt about the greenhouse")
    assert agent.script.hanging.wait(120)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    listed = json.loads(agent.book("session", "list", "--json"))
    assert [each["messages"] for each in listed] == [1]


@pytest.mark.promise("hooks.harmless")
def test_a_broken_home_does_not_disturb(client, made, tmp_path):
    agent = installed(made, client, tmp_path, [{"text": "Answer."}] * 3)
    for path in (agent.home / "commonbook" / ".commonbook").glob("state.db*"):
        path.write_bytes(b"broken" * 1000)
    assert "Answer." in agent.turn("How do I care for roses in our garden?")


@pytest.mark.promise("hooks.harmless")
def test_two_agents_at_once_on_one_book(made, tmp_path):
    first = installed(made, "claude-code", tmp_path / "one", [{"text": "Answer."}] * 3)
    second = RealAgent("codex", tmp_path / "two", [{"text": "Answer."}] * 3)
    made.append(second)
    (second.home / "commonbook").symlink_to(first.home / "commonbook")
    second.book("install", "codex", "--yes")
    running = [agent.start("How do I care for roses in our garden?") for agent in (first, second)]
    for process in running:
        process.communicate(timeout=180)
        assert process.returncode == 0
    listed = json.loads(first.book("session", "list", "--json"))
    assert sorted(each["tags"][0] for each in listed) == ["claude-code", "codex"]
    assert [each["messages"] for each in listed] == [2, 2]
