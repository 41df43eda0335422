"""A memory that others link to counts a little more than one that only mentions the same."""

from __future__ import annotations

import pytest

from commonbook.service.book import Book

KAYAK = "The red kayak: four metres long, for one person."


def texts(book: Book, query: str, space: str = "boats", k: int = 10) -> list[str]:
    return [hit.text for hit in book.recall(query, spaces=space, k=k, min_confidence=0).hits]


def linked_part(book: Book, text: str, *, spaces: str | list[str] = "boats") -> float:
    (hit,) = [hit for hit in book.recall("red kayak", spaces=spaces, min_confidence=0).hits if hit.text == text]
    return hit.parts.get("linked", 0.0)


@pytest.mark.promise("recall.linked")
def test_a_memory_that_others_link_to_comes_before_one_that_says_the_same(book: Book):
    older = book.remember("Trip on the lake with the red kayak, sunny", title="One", space="boats").id
    book.remember("Trip on the lake with the red kayak, rainy", title="Two", space="boats")
    before = [hit.title for hit in book.recall("trip red kayak lake", spaces="boats").hits]
    assert before == ["Two", "One"]  # Of equal scores the newest comes first.
    book.remember("Lists and plans", space="boats", links=[("related_to", older)])
    after = [hit.title for hit in book.recall("trip red kayak lake", spaces="boats").hits]
    assert after[:2] == ["One", "Two"]


@pytest.mark.promise("recall.linked")
def test_a_link_in_a_text_counts_and_each_memory_counts_once(book: Book):
    book.remember(KAYAK, title="Red kayak", space="boats")
    assert linked_part(book, KAYAK) == 0.0
    book.remember("We take [[Red kayak]] and [[Red kayak|it]] again.", space="boats")
    assert linked_part(book, KAYAK) == 0.01
    for number in range(4):
        book.remember(f"Tour {number} with [[Red kayak]].", space="boats")
    assert linked_part(book, KAYAK) == 0.03


@pytest.mark.promise("recall.linked")
def test_only_links_from_the_asked_spaces_count(book: Book):
    target = book.remember(KAYAK, title="Red kayak", space="boats").id
    book.remember("A diary entry about something else.", space="diary", links=[("related_to", target)])
    book.remember("A kayak is a boat.", space="boats")
    assert linked_part(book, KAYAK) == 0.0
    assert linked_part(book, KAYAK, spaces=["boats", "diary"]) == 0.01


def test_a_link_of_a_deleted_memory_counts_no_longer(book: Book):
    target = book.remember(KAYAK, title="Red kayak", space="boats").id
    other = book.remember("Plans for the kayak", space="boats", links=[("related_to", target)]).id
    book.remember("A kayak is a boat.", space="boats")
    assert linked_part(book, KAYAK) == 0.01
    book.delete(other)
    assert linked_part(book, KAYAK) == 0.0


def test_fewer_hits_are_the_first_of_more_with_links(book: Book):
    for number in range(14):
        book.remember(f"Red kayak trip number {number} to the lake", title=f"Trip {number}", space="boats")
    for number in (0, 5, 9):
        book.remember(f"See [[Trip {number}]].", space="boats")
    every = texts(book, "red kayak trip", k=14)
    for k in (1, 3, 8, 12):
        assert texts(book, "red kayak trip", k=k) == every[:k]
