"""Marks, recall, copies and invalidations use one rule of supersession: live, not itself, the newest."""

from __future__ import annotations

from commonbook.service.book import Book


def answers(book: Book, old: str, copy: str, dependent: str) -> tuple[object, ...]:
    """Return the answers about a memory: its mark, recall, the state of its copy, and what invalidates a dependent."""
    marked, copied = book.get(old), book.get(copy)
    recalled = {hit.memory for hit in book.recall("oil", spaces=["facts"]).hits}
    assert (marked.superseded_by is not None) == ("superseded" in marked.marks)
    invalidating = {cause.invalidating for cause in book.get(dependent).invalidations}
    return marked.superseded_by, old in recalled, copied.freshness, copied.successor, invalidating


def test_every_part_of_the_book_agrees_on_what_supersedes_a_memory(book: Book):
    old = book.remember("oil is dear", space="facts").id
    copy = book.share(old, "team").id
    dependent = book.reflect("we cannot fry", [old], space="team").id
    first = book.remember("oil is cheap", space="facts").id
    second = book.remember("oil is free", space="other").id
    assert answers(book, old, copy, dependent) == (None, True, "fresh", None, set())
    book.supersede(old, by=second)
    book.supersede(old, by=first)
    assert answers(book, old, copy, dependent) == (second, False, "source_superseded", second, {first, second})
    book.delete(second)
    assert answers(book, old, copy, dependent) == (first, False, "source_superseded", first, {first})
    book.delete(first)
    assert answers(book, old, copy, dependent) == (None, True, "fresh", None, set())
