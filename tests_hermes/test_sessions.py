"""Sessions of the real Hermes: new ones, resumed ones, branches and compressed ones have each message once."""

from __future__ import annotations

import pytest

from tests_hermes.real_hermes import Chat, RealHermes
from tests_hermes.test_commands import has

pytestmark = pytest.mark.promise("hermes.once")

NEST, FEED, EAT, SLEEP = "where does the heron nest", "when does it feed", "what does it eat", "where does it sleep"
FLY = "how far does it fly"
ANSWERS = {NEST: "By the mill.", FEED: "At noon.", EAT: "Fish.", SLEEP: "In the reeds.", FLY: "To the sea."}
TELLS_UNDO = has("rewound", "cli.py")
SUMMARY = "The user asked about herons, and was told what they do."


def started(hermes) -> tuple[RealHermes, Chat]:
    """Return an agent that answers each question once, in this order, and its chat."""
    agent = hermes(*({"text": answer} for answer in ANSWERS.values()))
    agent.script.side = SUMMARY
    return agent, agent.chat()


def turns(*questions: str) -> list[tuple[str, str]]:
    return [message for one in questions for message in (("user", one), ("assistant", ANSWERS[one]))]


def command(agent: RealHermes, chat: Chat, text: str, call: str = "on_session_switch") -> None:
    """Type a command, and wait until the provider was told."""
    before = agent.returned(call)
    chat.type(text)
    chat.wait(lambda: agent.returned(call) > before)


def test_an_undone_turn_is_gone(hermes, assert_stored):
    agent, chat = started(hermes)
    chat.turn(NEST)
    chat.turn(FEED)
    chat.type("/undo")
    chat.wait(lambda: "remaining in history" in chat.screen)
    chat.clear()
    chat.turn(EAT)
    chat.exit()
    # Hermes 0.13 tells nobody.
    assert_stored(agent, *turns(NEST, EAT) if TELLS_UNDO else turns(NEST, FEED, EAT))


def test_a_new_session_has_its_own_messages(hermes, assert_stored):
    agent, chat = started(hermes)
    chat.turn(NEST)
    chat.turn(FEED)
    command(agent, chat, "/new")
    chat.turn(EAT)
    chat.exit()
    first, second = agent.sessions()
    assert first.messages == turns(NEST, FEED)
    assert second.messages == turns(EAT)
    assert second.parent == first.id
    assert_stored(agent, *turns(NEST, FEED, EAT))


def test_a_resumed_session_goes_on(hermes, assert_stored):
    agent, chat = started(hermes)
    chat.turn(NEST)
    (first,) = agent.sessions()
    command(agent, chat, "/new")
    chat.turn(FEED)
    command(agent, chat, f"/resume {first.id}")
    chat.turn(EAT)
    chat.exit()
    chat = agent.chat("--resume", first.id)
    chat.turn(SLEEP)
    chat.exit()
    first, second = agent.sessions()
    assert first.messages == turns(NEST, EAT, SLEEP)
    assert second.messages == turns(FEED)
    assert_stored(agent, *turns(NEST, EAT, SLEEP, FEED))


def test_a_branch_has_only_what_was_said_in_it(hermes, assert_stored):
    agent, chat = started(hermes)
    chat.turn(NEST)
    chat.turn(FEED)
    (first,) = agent.sessions()
    command(agent, chat, "/branch another way")
    chat.turn(EAT)
    command(agent, chat, f"/resume {first.id}")
    chat.turn(SLEEP)
    chat.exit()
    first, second = agent.sessions()
    assert first.messages == turns(NEST, FEED, SLEEP)
    assert second.messages == turns(EAT)
    assert second.parent == first.id
    assert_stored(agent, *turns(NEST, FEED, SLEEP, EAT))
