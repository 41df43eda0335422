"""Names in English texts: which queries ask for one, and which passages have one."""

from __future__ import annotations

import pytest

from commonbook.core.text.terms import asks_for_name, tells_name


@pytest.mark.parametrize(
    "text",
    [
        "Who fixed the boiler?",
        "Whose bike is it?",
        "Where did we meet?",
        "What is the dog called?",
        "Which city did she move to?",
        "What old towns has he seen?",
        "What book did Ben read?",
    ],
)
def test_a_question_asks_for_a_name(text):
    assert asks_for_name(text)


@pytest.mark.parametrize("text", ["When did we meet?", "How many eggs are left?", "why was the release late", ""])
def test_other_questions_ask_for_none(text):
    assert not asks_for_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "I went to Graz with a friend.",
        "it was (Olga) who came",
        "We saw \u201cThe Third Man\u201d again.",
        'Just finished "Momo", it was lovely.',
        'Ich habe "Momo" gelesen, und es war sehr gut.',
    ],
)
def test_a_passage_tells_a_name(text):
    assert tells_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "Maybe tomorrow. Then we can go.",
        "Thanks, Ann! That was kind.",
        "Hey Ann, how are you?",
        "It was on a Monday in June.",
        'She said "maybe" and left.',
        "Wann war die Prüfung in der Schule, und wer hat sie bestanden?",
        "",
    ],
)
def test_capitals_of_sentences_of_those_addressed_and_of_other_languages_are_no_names(text):
    assert not tells_name(text)
