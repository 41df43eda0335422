"""Questions that share no word with their answer: see `paraphrases`."""

from __future__ import annotations

import socket

import pytest

from commonbook.core.text import terms
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from tests.support.paraphrases import ASKED, OTHERS

MEMORIES = [memory for memory, _ in ASKED] + list(OTHERS)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every attempt to reach a network fail the test."""

    def no_network(*args: object, **more: object) -> None:
        raise AssertionError("recall tried to use the network")

    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.setattr(socket, "create_connection", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)


def content_terms(text: str) -> set[str]:
    return {term for _, term in terms.query_words(text)}


def test_there_are_sixty_memories_and_thirty_questions_without_a_shared_content_word():
    assert (len(set(MEMORIES)), len(ASKED)) == (60, 30)
    shared = {question: content_terms(question) & content_terms(memory) for memory, question in ASKED}
    assert not {question: terms for question, terms in shared.items() if terms}


def test_two_thirds_of_the_paraphrased_questions_find_their_memory_among_the_first_three(book: Book):
    book.remember_many([Draft(text=memory) for memory in MEMORIES])
    answers = {question: [hit.text for hit in book.recall(question).hits[:3]] for _, question in ASKED}
    missed = [question for memory, question in ASKED if memory not in answers[question]]
    assert len(missed) <= 10, missed
