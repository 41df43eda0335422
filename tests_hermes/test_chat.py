"""Chats with the real Hermes: each thing that was said is stored once, in the words that the person typed."""

from __future__ import annotations

import json

import pytest

from tests_hermes.test_commands import has

GIVES_TRANSCRIPTS = has("_provider_sync_accepts_messages", "agent/memory_manager.py")
NEST, FEED, EAT = "where does the heron nest", "when does it feed", "what does it eat"
COUNT = "please count every reed in the pond"


@pytest.mark.promise("hermes.interrupted")
def test_words_of_an_interrupted_turn_are_kept(hermes, assert_stored):
    agent = hermes({"text": "By the mill."}, {"hang": True}, {"text": "At noon."}, {"text": "Fish."})
    chat = agent.chat()
    chat.turn(NEST)
    chat.type(COUNT)
    chat.wait(agent.script.hanging.is_set)
    chat.turn(f"stop, {FEED}")
    chat.turn(EAT)
    chat.exit()
    assert_stored(
        agent,
        ("user", NEST),
        ("assistant", "By the mill."),
        ("user", COUNT),
        ("user", f"stop, {FEED}"),
        ("assistant", "At noon."),
        ("user", EAT),
        ("assistant", "Fish."),
    )


@pytest.mark.promise("hermes.interrupted")
def test_words_of_a_killed_turn_are_kept(hermes, assert_stored):
    agent = hermes({"text": "By the mill."}, {"hang": True}, {"text": "Fish."})
    chat = agent.chat()
    chat.turn(NEST)
    chat.type(COUNT)
    chat.wait(agent.script.hanging.is_set)
    chat.kill()
    assert agent.stored()[-1] == ("user", COUNT)
    chat = agent.chat("--continue")
    chat.turn(EAT)
    chat.exit()
    assert_stored(
        agent, ("user", NEST), ("assistant", "By the mill."), ("user", COUNT), ("user", EAT), ("assistant", "Fish.")
    )


@pytest.mark.promise("hermes.once")
def test_a_retried_answer_is_replaced(hermes, assert_stored):
    agent = hermes({"text": "By the mill."}, {"text": "At noon."}, {"text": "At dawn."}, {"text": "Fish."})
    chat = agent.chat()
    chat.turn(NEST)
    chat.turn(FEED)
    chat.turn("/retry")
    chat.turn(EAT)
    chat.exit()
    # Without the transcript, a retry is the same question once more.
    discarded = [] if GIVES_TRANSCRIPTS else [("user", FEED), ("assistant", "At noon.")]
    assert_stored(
        agent,
        ("user", NEST),
        ("assistant", "By the mill."),
        *discarded,
        ("user", FEED),
        ("assistant", "At dawn."),
        ("user", EAT),
        ("assistant", "Fish."),
    )


@pytest.mark.promise("hermes.once")
def test_a_continued_answer_is_one_answer(hermes, assert_stored):
    agent = hermes({"text": "The heron nests", "finish": "length"}, {"text": " by the mill."}, {"text": "At noon."})
    chat = agent.chat()
    chat.turn(NEST)
    chat.turn(FEED)
    chat.exit()
    assert_stored(
        agent,
        ("user", NEST),
        ("assistant", "The heron nests by the mill."),
        ("user", FEED),
        ("assistant", "At noon."),
    )


@pytest.mark.promise("hermes.typed")
def test_files_and_skills_are_references(hermes, assert_stored):
    agent = hermes({"text": "On reeds."}, {"text": "Deployed."}, {"text": "Deployed it."}, {"text": "Fine."})
    (agent.project / "notes.md").write_text("Reeds are cut in March.\n" * 20)
    skill = agent.hermes_home / "skills" / "deploy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: deploy\ndescription: Deploy the site\n---\n# Deploy\nRun the script with care.\n")
    chat = agent.chat()
    chat.turn("summarise @file:notes.md for me")
    chat.type("/deploy")
    chat.wait(lambda: "Deployed." in chat.screen)
    chat.turn("/deploy the mill page")
    chat.turn("thank you")
    chat.exit()
    assert_stored(
        agent,
        ("user", "summarise for me\n@file:notes.md"),
        ("assistant", "On reeds."),
        ("user", "/deploy"),
        ("assistant", "Deployed."),
        ("user", "/deploy the mill page"),
        ("assistant", "Deployed it."),
        ("user", "thank you"),
        ("assistant", "Fine."),
    )


@pytest.mark.promise("hermes.typed")
def test_a_standing_goal_is_not_typed_again(hermes, assert_stored):
    agent = hermes({"text": "Counted half."}, {"text": "Counted all. The goal is complete."}, {"text": "Fine."})
    verdicts = ['{"verdict": "continue", "done": false, "reason": "half"}', '{"verdict": "done", "done": true}']
    agent.script.side = lambda body: verdicts.pop(0) if "judge" in json.dumps(body) and verdicts else "Reeds"
    chat = agent.chat()
    chat.turn("/goal count the reeds", turns=2)
    chat.turn("thank you")
    chat.exit()
    assert_stored(
        agent,
        ("user", "count the reeds"),
        ("assistant", "Counted half."),
        ("assistant", "Counted all. The goal is complete."),
        ("user", "thank you"),
        ("assistant", "Fine."),
    )


@pytest.mark.promise("hermes.once")
def test_the_same_words_queued_twice_are_two_turns(hermes, assert_stored):
    agent = hermes({"text": "Done."}, {"text": "Done."}, {"text": "Done."})
    chat = agent.chat()
    chat.turn("go on")
    chat.type("/queue go on")
    chat.turn("/queue go on")
    chat.wait(lambda: agent.returned("sync_turn") == 3)
    assert agent.stored() == [("user", "go on"), ("assistant", "Done.")] * 3
    chat.exit()
    assert_stored(agent, *[("user", "go on"), ("assistant", "Done.")] * 3)
