"""Questions about something that is known, for a fact about it that is not: their hits must not look like answers.

The memories and questions were written before the first run, and are not those that confidence was fitted on.
"""

from __future__ import annotations

from typing import Final

import pytest

from commonbook.service.book import Book
from commonbook.values.memory import Draft

MEMORIES: Final = (
    "Tom is allergic to peanuts and shellfish.",
    "Alice owns the billing service.",
    "The landlord raised the rent to 950 euros.",
    "Nina's parrot Rico can whistle two melodies.",
    "The ferry to the island leaves at a quarter past seven.",
    "Our lawyer Dr Weber is on holiday until Monday.",
    "The search index is rebuilt every Saturday.",
    "Granny keeps her passport in the sewing box.",
)

KNOWN: Final = (
    ("what is Tom allergic to", MEMORIES[0]),
    ("who owns the billing service", MEMORIES[1]),
    ("how much is the rent", MEMORIES[2]),
    ("when does the ferry leave", MEMORIES[4]),
    ("when is the search index rebuilt", MEMORIES[6]),
    ("where is Granny's passport", MEMORIES[7]),
)

UNKNOWN: Final = (
    "what is Tom's birthday",
    "what is Alice's phone number",
    "what is the landlord's surname",
    "how old is the parrot",
    "what does the ferry cost",
    "which bank does Dr Weber use",
    "who invented the search index",
    "what is Granny's favourite dish",
)


@pytest.fixture
def known(book: Book) -> Book:
    book.remember_many([Draft(text=text) for text in MEMORIES])
    return book


def best_confidence(book: Book, question: str) -> float:
    return max((hit.confidence for hit in book.recall(question).hits), default=0.0)


@pytest.mark.promise("recall.left-out")
def test_a_known_fact_has_a_high_confidence(known: Book):
    for question, memory in KNOWN:
        first = known.recall(question).hits[0]
        assert first.text == memory, question
        assert first.confidence > 0.75, question


@pytest.mark.promise("recall.left-out")
def test_another_fact_about_the_same_thing_has_a_low_confidence(known: Book):
    confidences = {question: best_confidence(known, question) for question in UNKNOWN}
    assert sum(found < 0.5 for found in confidences.values()) >= 6, confidences
    assert confidences["what is Tom's birthday"] < 0.5


@pytest.mark.promise("recall.left-out")
def test_a_hit_far_below_one_that_answers_is_left_out_and_counted(known: Book):
    result = known.recall("who owns the billing service")
    assert [hit.text for hit in result.hits] == ["Alice owns the billing service."]
    everything = known.recall("who owns the billing service", min_confidence=0)
    assert result.left_out == len(everything.hits) - 1 > 0
    assert result.nearest is None


@pytest.mark.promise("recall.left-out")
def test_a_hit_that_has_words_of_the_question_stays_beside_the_best(book: Book):
    for text in ("Mara repaired the blue kayak.", "The blue kayak lies in the boathouse.", "Soup is at noon."):
        book.remember(text)
    texts = [hit.text for hit in book.recall("where is the blue kayak").hits]
    assert set(texts) == {"Mara repaired the blue kayak.", "The blue kayak lies in the boathouse."}


@pytest.mark.promise("recall.left-out")
def test_fewer_hits_are_the_first_of_more_although_some_are_left_out(known: Book):
    for question, _ in KNOWN:
        all_of_them = [hit.id for hit in known.recall(question, k=10).hits]
        assert [hit.id for hit in known.recall(question, k=2).hits] == all_of_them[:2]
