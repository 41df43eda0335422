"""The relation by which a proposed memory would supersede others: only the book writes it, and only for proposals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commonbook.errors import BadInput
from commonbook.service.book import Book
from commonbook.values.memory import Draft

BOB = "user:bob"
LINK = "would_supersede"

WRITES: dict[str, Callable[[Book, str, str], object]] = {
    "remember": lambda bob, own, target: bob.remember("a lie", links=[(LINK, target)]),
    "remember many": lambda bob, own, target: bob.remember_many([Draft("a lie", links=((LINK, target),))]),
    "link": lambda bob, own, target: bob.link(own, LINK, target),
}


@pytest.fixture
def bob(book: Book) -> Book:
    """Bob writes to one space, and reads another."""
    for space, role in (("a", "writer"), ("sec", "reader")):
        book.create_space(space)
        book.grant(BOB, space, role)  # type: ignore[arg-type]
    return book.acting_as(BOB, space="a")


@pytest.mark.promise("review.supersedes")
@pytest.mark.parametrize("write", WRITES)
def test_no_caller_writes_what_a_proposal_would_supersede(book, bob, write):
    own, target = bob.remember("mine").id, book.remember("The truth", space="sec").id
    for caller in (bob, book.acting_as("user:local", space="a")):
        with pytest.raises(BadInput, match="only the book"):
            WRITES[write](caller, own, target)
    assert (book.get(own).links, [memory.id for memory in book.list().items]) == ((), [target, own])
