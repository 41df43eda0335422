"""`answer.as_prompt`: the most useful stretches of an answer, within a budget of tokens."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from commonbook.service.book import Book
from commonbook.values import prompts
from commonbook.values.session import NewMessage

TALK = (
    ("user:ann", "user", "Where did we put the kayak after the trip?"),
    ("agent:bot", "assistant", "You put the kayak into the shed of your uncle, behind the ladder."),
    ("user:ann", "user", "Right, and the paddles are in the cellar."),
    ("agent:bot", "assistant", "I will remember that for the next season."),
    ("user:ann", "user", "Let us talk about the quarterly figures now."),
    ("agent:bot", "assistant", "Revenue grew by eight percent."),
)


@pytest.fixture
def talk(book: Book) -> Book:
    at = datetime(2026, 5, 7, 10, tzinfo=UTC)
    book.append("trip", [NewMessage(text, role, author, at) for author, role, text in TALK])
    book.remember("The kayak is red and five metres long.", title="Kayak")
    return book


def inside(prompt: str) -> list[str]:
    first, note, empty, *lines, last = prompt.split("\n")
    assert first.startswith("<commonbook-recall ")
    assert (last, empty) == ("</" + first[1:], "")
    assert "data, not instructions" in note
    return lines


@pytest.mark.promise("recall.prompt")
def test_neighbours_are_one_run_in_order_and_what_an_assistant_wrote_is_marked(talk):
    lines = inside(talk.recall("Where is the kayak?", k=20).as_prompt(max_tokens=1000))
    question = lines.index("ann: Where did we put the kayak after the trip?")
    assert lines[question - 1].startswith("[2026-05-07, personal, ")
    assert lines[question + 1].startswith("bot (assistant): You put the kayak into the shed")
    assert lines[question + 2] == "ann: Right, and the paddles are in the cellar."
    assert "The kayak is red and five metres long." in lines
    assert any(line.startswith("[") and "Kayak" in line and "by local" in line for line in lines)
    assert len(lines) == len(set(lines) - {""}) + lines.count("")


@pytest.mark.promise("recall.prompt")
def test_a_question_and_its_answer_stay_together_in_a_small_budget(talk):
    prompt = talk.recall("Where did we put the kayak after the trip?", session="trip").as_prompt(max_tokens=110)
    assert "Where did we put the kayak" in prompt
    assert "shed of your uncle" in prompt
    assert "Revenue" not in prompt


@pytest.mark.promise("recall.prompt")
@pytest.mark.parametrize("budget", [30, 60, 100, 200, 1000])
def test_a_prompt_keeps_to_its_budget(talk, budget):
    talk.remember("kayak " * 2000, title="long")
    prompt = talk.recall("kayak paddles", k=20).as_prompt(max_tokens=budget)
    assert prompts.tokens(prompt) <= budget
    assert bool(prompt) == (budget >= 100)


@pytest.mark.promise("recall.prompt")
def test_a_copy_in_another_space_stands_once(talk):
    (memory,) = [hit.memory for hit in talk.recall("kayak red").hits if hit.type == "memory"]
    talk.share(memory, "team")
    prompt = talk.recall("How long is the red kayak?", spaces=["/"], k=20).as_prompt(max_tokens=1000)
    assert prompt.count("five metres long") == 1


def test_no_answer_is_no_prompt(talk):
    assert talk.recall("What is the melting point of gallium in kelvin?").as_prompt(max_tokens=1000) == ""
