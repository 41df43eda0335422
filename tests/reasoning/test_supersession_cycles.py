"""No verb lets memories supersede each other in turn: none of them would be recalled."""

from __future__ import annotations

import pytest

from commonbook.errors import Conflict
from commonbook.service.book import Book

pytestmark = pytest.mark.promise("supersede.cycles")


def recalled(book: Book) -> set[str]:
    return {hit.memory for hit in book.recall("oil", spaces="/").hits}


def test_a_deleted_memory_between_them_counts(book: Book):
    first = book.remember("oil costs five", space="a").id
    second = book.remember("oil costs six", space="a", replaces=first).id
    third = book.remember("oil costs seven", space="a", replaces=second).id
    book.delete(second)
    with pytest.raises(Conflict, match="supersede each other"):
        book.supersede(third, by=first)
    assert recalled(book) == {third}
    book.undelete(second)
    assert recalled(book) == {third}
    book.reinstate(first)
    book.supersede(third, by=first)
    assert recalled(book) == {first}


def test_a_copy_does_not_supersede_what_supersedes_its_source(book: Book):
    source = book.remember("oil costs five", space="a").id
    copy = book.share(source, "team").id
    below = book.share(copy, "others").id
    new = book.remember("oil costs six", space="a", replaces=source).id
    for one in (copy, below):
        with pytest.raises(Conflict, match="supersede each other"):
            book.supersede(new, by=one)
    assert recalled(book) == {new}
    book.detach(copy)
    book.supersede(new, by=copy)
    assert copy in recalled(book)


def test_what_a_copy_supersedes_does_not_supersede_its_source(book: Book):
    source = book.remember("oil costs five", space="a").id
    copy = book.share(source, "team").id
    old = book.remember("oil costs four", space="a").id
    book.supersede(old, by=copy)
    with pytest.raises(Conflict, match="supersede each other"):
        book.link(old, "supersedes", source)
    assert old not in recalled(book)
    assert book.get(copy).marks == ()


def test_each_copy_of_a_chain_may_supersede_its_own_source(book: Book):
    source = book.remember("oil costs five", space="a").id
    copy = book.share(source, "team").id
    below = book.share(copy, "others").id
    book.supersede(copy, by=below)
    book.supersede(source, by=copy)
    assert book.get(below).marks == ()
    assert recalled(book) == {below}


def test_a_copy_is_not_tied_to_a_source_that_it_supersedes_in_turn(book: Book):
    root = book.remember("oil costs five", space="a").id
    between = book.share(root, "desk").id
    copy = book.share(root, "team").id
    new = book.remember("oil costs six", space="a", replaces=between).id
    book.supersede(new, by=copy)
    book.delete(root)
    with pytest.raises(Conflict, match="supersede each other"):
        book.share(between, "team")
    assert recalled(book) == {copy}
    book.reinstate(new)
    assert book.share(between, "team").retied
    assert recalled(book) == {new}
