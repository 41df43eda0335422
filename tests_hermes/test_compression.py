"""Compression by the real Hermes: what it folds into a summary is stored before, and nothing twice."""

from __future__ import annotations

import pytest

from tests_hermes.real_hermes import RealHermes
from tests_hermes.test_chat import GIVES_TRANSCRIPTS
from tests_hermes.test_sessions import (
    ANSWERS,
    EAT,
    FEED,
    FLY,
    NEST,
    SLEEP,
    SUMMARY,
    TELLS_UNDO,
    command,
    started,
    turns,
)

pytestmark = pytest.mark.promise("hermes.once")

LOOK = {"call": "commonbook_recall", "arguments": {"query": "herons"}, "text": "Let me look."}
FULL = LOOK | {"prompt_tokens": 98_000}
"""The model is told that the prompt is nearly full, so Hermes compresses before it asks again."""


def was_compressed(agent: RealHermes) -> bool:
    """Tell whether the last request has the summary in place of the first question."""
    prompt = str(agent.requests()[-1]["body"]["messages"])
    return SUMMARY in prompt and f"'{NEST}'" not in prompt


def test_a_compressed_conversation_has_each_message_once(hermes, assert_stored):
    agent, chat = started(hermes)
    for question in (NEST, FEED, EAT, SLEEP):
        chat.turn(question)
    command(agent, chat, "/compress")
    chat.turn(FLY)
    chat.exit()
    assert was_compressed(agent)
    assert_stored(agent, *turns(*ANSWERS))


def test_a_compression_within_a_turn_has_each_message_once(hermes, assert_stored):
    answers = [{"text": answer} for answer in ANSWERS.values()]
    agent = hermes(
        *answers[:3], LOOK, LOOK | {"text": "Let me look again."}, FULL | {"text": "Once more."}, *answers[3:]
    )
    agent.script.side = SUMMARY
    chat = agent.chat()
    for each in ANSWERS:
        chat.turn(each)
    chat.exit()
    assert agent.returned("on_pre_compress")
    assert was_compressed(agent)
    looked = [("assistant", words) for words in ("Let me look.", "Let me look again.", "Once more.")]
    question, answer = turns(SLEEP)
    assert_stored(agent, *turns(NEST, FEED, EAT), question, *looked, answer, *turns(FLY))


def test_words_of_a_turn_that_is_killed_while_it_is_compressed_are_kept(hermes, assert_stored):
    answers = [{"text": answer} for answer in ANSWERS.values()]
    agent = hermes(*answers[:3], FULL, *answers[4:])
    agent.script.side = lambda body: {"hang": True} if "summar" in str(body).lower() else "Herons"
    chat = agent.chat()
    for question in (NEST, FEED, EAT):
        chat.turn(question)
    chat.type(SLEEP)
    chat.wait(lambda: agent.returned("on_pre_compress") > 0)
    chat.wait(agent.script.hanging.is_set)
    chat.kill()
    agent.script.side = SUMMARY
    kept = [*turns(NEST, FEED, EAT), ("user", SLEEP), ("assistant", "Let me look.")]
    assert_stored(agent, *kept)
    chat = agent.chat("--continue")
    chat.turn(FLY)
    chat.exit()
    assert_stored(agent, *kept, *turns(FLY))


def test_an_answer_that_is_retried_after_a_compression_is_replaced(hermes, assert_stored):
    agent, chat = started(hermes)
    agent.script.add({"text": "To the river."})
    for question in (NEST, FEED, EAT, SLEEP):
        chat.turn(question)
    command(agent, chat, "/compress")
    chat.turn(FLY)
    chat.turn("/retry")
    chat.exit()
    assert was_compressed(agent)
    # Without the transcript, a retry is the same question once more.
    discarded = [] if GIVES_TRANSCRIPTS else turns(FLY)
    kept = turns(NEST, FEED, EAT, SLEEP)
    assert_stored(agent, *kept, *discarded, ("user", FLY), ("assistant", "To the river."))


def test_a_turn_that_is_undone_after_a_compression_is_gone(hermes, assert_stored):
    agent, chat = started(hermes)
    for question in (NEST, FEED, EAT):
        chat.turn(question)
    command(agent, chat, "/compress")
    chat.turn(SLEEP)
    chat.type("/undo")
    chat.wait(lambda: "remaining in history" in chat.screen)
    chat.clear()
    chat.turn(FLY)
    chat.exit()
    assert was_compressed(agent)
    # Hermes 0.13 tells nobody.
    assert_stored(agent, *turns(NEST, FEED, EAT, FLY) if TELLS_UNDO else turns(*ANSWERS))


def test_a_compressed_conversation_goes_on_in_another_process(hermes, assert_stored):
    agent, chat = started(hermes)
    for question in (NEST, FEED, EAT, SLEEP):
        chat.turn(question)
    command(agent, chat, "/compress")
    chat.exit()
    chat = agent.chat("--continue")
    chat.turn(FLY)
    chat.exit()
    assert was_compressed(agent)
    assert_stored(agent, *turns(*ANSWERS))


def test_the_same_words_before_and_after_a_compression_are_all_kept(hermes, assert_stored):
    agent = hermes(*[{"text": "Done."}] * 6)
    agent.script.side = SUMMARY
    chat = agent.chat()
    for _ in range(4):
        chat.turn("go on")
    command(agent, chat, "/compress")
    for number in (5, 6):
        chat.turn("go on")
        assert_stored(agent, *[("user", "go on"), ("assistant", "Done.")] * number)
    chat.exit()
    assert SUMMARY in str(agent.requests()[-1]["body"]["messages"])
    assert_stored(agent, *[("user", "go on"), ("assistant", "Done.")] * 6)


def test_a_summary_is_nobodys_words_in_a_book_that_has_nothing_of_the_conversation(hermes, assert_stored):
    agent, chat = started(hermes)
    for question in (NEST, FEED, EAT, SLEEP):
        chat.turn(question)
    command(agent, chat, "/compress")
    chat.exit()
    agent.forget_book()
    chat = agent.chat("--continue")
    chat.turn(FLY)
    chat.exit()
    assert was_compressed(agent)
    # Hermes 0.13 shows what it had before only at the end, when the new turn is stored already.
    assert_stored(agent, *turns(SLEEP, FLY) if GIVES_TRANSCRIPTS else turns(FLY))
