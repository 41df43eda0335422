"""A receipt names the memory that has the same text already."""

from __future__ import annotations

from commonbook import Book

ALICE = "The billing service belongs to Alice Miller."
REPORT = "".join(f"On day {day} the lock keeper counted {day * 7} herons at the weir. " for day in range(30))


def test_a_duplicate_of_a_long_text_is_found(book: Book):
    memory = book.remember(REPORT, space="notes").id
    assert book.remember(REPORT, space="notes").duplicate_of == memory
    assert book.remember(f"{REPORT}That was all.", space="notes").duplicate_of is None


def test_of_several_memories_with_one_text_the_oldest_is_named(book: Book):
    first, *_ = [book.remember(ALICE, space=space).id for space in ("notes", "notes", "team")]
    assert book.remember(ALICE, space="notes").duplicate_of == first
    book.delete(first)
    second = book.remember(ALICE, space="notes")
    assert second.duplicate_of not in {None, first}
