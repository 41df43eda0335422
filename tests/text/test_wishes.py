"""Standing wishes in texts: sentences that were collected before the patterns, and others that were kept aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from commonbook.core.text.wishes import asks_for_advice, wishes_in

_SENTENCES = Path(__file__).parents[1] / "data" / "wishes"


def _lines(name):
    return (_SENTENCES / name).read_text(encoding="utf-8").splitlines()


@pytest.mark.promise("recall.wishes")
@pytest.mark.parametrize(("name", "least"), [("wishes.txt", 50), ("held_out_wishes.txt", 25)])
def test_most_wishes_are_recognised(name, least):
    recognised = [line for line in _lines(name) if wishes_in(line)]
    assert len(recognised) >= least


@pytest.mark.promise("recall.wishes")
@pytest.mark.parametrize(("name", "most"), [("no_wishes.txt", 5), ("held_out_no_wishes.txt", 2)])
def test_few_other_sentences_with_the_same_words_are_taken_for_wishes(name, most):
    mistaken = [line for line in _lines(name) if wishes_in(line)]
    assert len(mistaken) <= most, mistaken


def test_a_wish_is_the_sentence_of_a_text_that_says_it():
    text = 'Thanks.\n\n- Never use tabs.\n- The "always save" box is new.\nDo you always do that? I prefer tea.'
    assert wishes_in(text) == ["Never use tabs.", "I prefer tea."]


def test_code_and_quoted_lines_have_no_wishes():
    text = (
        "```python\nAlways use tabs.\n```\n> Always use tabs.\n# Always use tabs.\n`Use no tabs.`\nAlways use spaces."
    )
    assert wishes_in(text) == ["Always use spaces."]


def test_a_long_sentence_is_cut_around_its_wish():
    wish = wishes_in("I have a small app " + "with many parts " * 20 + ", so I prefer simple tools, what now?")
    assert wish == ["I prefer simple tools, what now?"]


@pytest.mark.parametrize(
    "question",
    [
        "How should I list my sources?",
        "Can you recommend a hotel?",
        "What do you suggest for dinner?",
        "Can you help me write a letter?",
        "write a haiku about rain",
        "Wie soll ich das machen?",
        "Kannst du mir ein Hotel empfehlen?",
        "Schreib eine Mail an Bob.",
    ],
)
def test_these_questions_ask_for_advice(question):
    assert asks_for_advice(question)


@pytest.mark.parametrize(
    "question",
    ["When did we meet?", "In which order did I visit them?", "Who wrote the letter?", "Wann war die Prüfung?", ""],
)
def test_these_questions_ask_for_facts(question):
    assert not asks_for_advice(question)
