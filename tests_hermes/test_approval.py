"""The write approval of the real Hermes, for memories that the model stores and for entries of Hermes' own memory."""

from __future__ import annotations

import json

import pytest

import commonbook
from tests_hermes.real_hermes import RealHermes
from tests_hermes.test_commands import has

HAS_APPROVAL = has("write_approval", "tools/write_approval.py")
TEA, MILK = "The user takes tea without sugar", "The user takes milk with tea"
NO_APPROVAL = "this Hermes has no write approval"
ONCE, DENY = "1", "3"


def remember(text: str) -> dict[str, object]:
    return {"call": "commonbook_remember", "arguments": {"text": text, "kind": "preference"}}


@pytest.fixture
def asking(hermes):
    """Return a function that makes an agent whose Hermes asks for approval."""

    def make(*steps):
        agent = hermes(*steps)
        config = agent.hermes_home / "config.yaml"
        config.write_text(
            config.read_text().replace("{provider: commonbook}", "{provider: commonbook, write_approval: true}")
        )
        return agent

    return make


def texts(agent: RealHermes) -> list[str]:
    with commonbook.open(agent.place) as book:
        return [memory.text.strip() for memory in book.list().items if memory.kind != "episode"]


def waiting(agent: RealHermes) -> dict[str, str]:
    """Return the ids of the proposed memories by their texts, as `hermes commonbook pending` shows them."""
    shown = json.loads(agent.run("commonbook", "pending", "--json"))
    return {one["text"].strip(): one["id"] for one in shown}


@pytest.mark.promise("hermes.approval")
def test_a_memory_waits_and_is_approved_or_rejected(asking):
    agent = asking(remember(TEA), {"text": "Noted."}, remember(MILK), {"text": "Noted."}, {"text": "Without sugar."})
    agent.once("remember how I take my tea")
    if not HAS_APPROVAL:
        assert texts(agent) == [TEA]
        pytest.skip(NO_APPROVAL)
    assert "Staged for approval" in str(agent.requests()[-1]["body"])
    agent.once("remember the milk too")
    assert texts(agent) == []
    ids = waiting(agent)
    assert set(ids) == {TEA, MILK}
    agent.run("commonbook", "approve", ids[TEA])
    agent.run("commonbook", "reject", ids[MILK])
    assert waiting(agent) == {}
    assert texts(agent) == [TEA]
    agent.once("how do I take my tea, with sugar or without")
    prompt = str(agent.requests()[-1]["body"]["messages"])
    assert TEA in prompt
    with commonbook.open(agent.place) as book:
        (memory,) = (one for one in book.list().items if one.text.strip() == TEA)
    assert (memory.space, memory.kind, memory.author) == ("hermes/default/local", "preference", "agent:hermes")


@pytest.mark.promise("hermes.approval")
def test_a_person_at_the_terminal_is_asked_at_once(asking, assert_stored):
    if not HAS_APPROVAL:
        pytest.skip(NO_APPROVAL)
    agent = asking(remember(TEA), {"text": "Noted."}, remember(MILK), {"text": "It was denied."})
    chat = agent.chat()
    for question, key in (("remember how I take my tea", ONCE), ("remember the milk too", DENY)):
        shown = chat.screen.count("Save to memory")
        chat.type(question)
        chat.wait(lambda shown=shown: chat.screen.count("Save to memory") > shown)
        chat.press(key)
        turns = 1 + (key == DENY)
        chat.wait(lambda turns=turns: agent.returned("sync_turn") >= turns)
    chat.exit()
    assert texts(agent) == [TEA]
    assert waiting(agent) == {}
    assert "denied by user" in str(agent.requests()[-1]["body"])
    assert_stored(
        agent,
        ("user", "remember how I take my tea"),
        ("assistant", "Noted."),
        ("user", "remember the milk too"),
        ("assistant", "It was denied."),
    )


def test_entries_of_hermes_own_memory_are_mirrored_when_they_are_approved(asking):
    if not HAS_APPROVAL:
        pytest.skip(NO_APPROVAL)
    entries = [
        {"call": "memory", "arguments": {"action": "add", "target": "memory", "content": text}} for text in (TEA, MILK)
    ]
    agent = asking(entries[0], {"text": "Noted."}, entries[1], {"text": "Noted."}, {"text": "Fine."})
    agent.once("note how I take my tea")
    agent.once("note the milk too")
    assert texts(agent) == []
    pending = {path.stem: path.read_text() for path in (agent.hermes_home / "pending" / "memory").glob("*.json")}
    (tea,) = (name for name, text in pending.items() if TEA in text)
    (milk,) = (name for name, text in pending.items() if MILK in text)
    chat = agent.chat()
    chat.type(f"/memory approve {tea}")
    chat.wait(lambda: "Approved 1 memory write" in chat.screen)
    chat.type(f"/memory reject {milk}")
    chat.wait(lambda: "Rejected pending memory write" in chat.screen)
    chat.turn("thank you")
    chat.exit()
    assert texts(agent) == [TEA]
