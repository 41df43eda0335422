"""Recall limited to a session or an author: the limit applies inside the search, before the best are chosen."""

from __future__ import annotations

import pytest

from commonbook.errors import BadInput
from commonbook.service.book import Book
from commonbook.values.session import NewMessage


@pytest.fixture(params=["pending", "indexed"])
def settle(request, book):
    """Leave everything as pending deltas, or write it into the index."""
    return (lambda: book.reindex()) if request.param == "indexed" else (lambda: None)


def texts(book: Book, query: str = "otter", **options):
    return sorted(hit.passage for hit in book.recall(query, **options).hits)


def talk(book: Book) -> None:
    book.append("s", [NewMessage("the otter swims", author="user:ana"), NewMessage("the otter eats", role="assistant")])
    book.append("t", [NewMessage("the otter sleeps", author="user:ana")])
    book.remember("the otter lives here")


def test_a_session_limits_recall_to_its_messages_before_and_after_settling(book: Book, settle):
    talk(book)
    settle()
    expected = ["the otter eats", "the otter swims"]
    assert texts(book, session="s") == expected
    assert texts(book, "", session="s") == expected
    book.close_session("s")
    settle()
    assert texts(book, session="s") == expected
    assert {hit.session for hit in book.recall("otter", session="s").hits} == {"s"}
    assert texts(book, session="nobody") == []


def test_a_session_brings_the_episode_that_a_person_has_rewritten(book: Book, settle):
    talk(book)
    (episode,) = book.close_session("s").episodes
    book.edit(episode, text="Ana watched an otter")
    settle()
    assert texts(book, session="s") == ["Ana watched an otter"]


def test_a_session_of_the_same_name_in_another_space_is_another_one(book: Book, settle):
    talk(book)
    book.append("s", ["the otter of the team"], space="team")
    (moved,) = book.close_session("t").episodes
    book.move(moved, "team")
    settle()
    assert texts(book, session="s", spaces="team") == ["the otter of the team"]
    assert texts(book, session="s", spaces="/") == ["the otter eats", "the otter of the team", "the otter swims"]
    assert texts(book, session="t", spaces="/") == [], "an episode in another space is no part of the session"


def test_an_author_limits_recall_to_messages_and_memories_of_that_author(book: Book, settle):
    talk(book)
    book.grant("user:bob", "personal", "writer")
    book.acting_as("user:bob").remember("the otter of Bob", space="personal")
    settle()
    assert texts(book, author="user:ana") == ["the otter sleeps", "the otter swims"]
    assert texts(book, author="user:bob") == ["the otter of Bob"]
    assert texts(book, author="user:local") == ["the otter lives here"]
    assert texts(book, author="user:ana", session="t") == ["the otter sleeps"]
    for session in ("s", "t"):
        book.close_session(session)
    settle()
    assert texts(book, author="user:ana") == ["the otter sleeps", "the otter swims"]
    assert {hit.author for hit in book.recall("otter", author="user:ana").hits} == {"user:ana"}


@pytest.mark.promise("recall.filters")
def test_the_limit_applies_before_the_best_are_chosen(book: Book, settle):
    for number in range(60):
        book.append("loud", [f"otter otter otter {number}"])
    book.append("quiet", ["once there was an otter, long ago and far away"])
    settle()
    (hit,) = book.recall("otter", session="quiet", k=1).hits
    assert hit.session == "quiet"


def test_a_tag_is_never_taken_for_a_limit(book: Book, settle):
    book.remember("the otter lives here", tags=["session s", "author user:ana"])
    settle()
    assert texts(book, session="s") == texts(book, author="user:ana") == []


@pytest.mark.parametrize("wrong", [{"session": ""}, {"session": 5}, {"author": ""}, {"author": 5}, {"author": "a\nb"}])
def test_a_limit_that_names_nobody_is_refused(book: Book, wrong):
    with pytest.raises(BadInput):
        book.recall("otter", **wrong)
