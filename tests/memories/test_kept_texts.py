"""Long texts that were read lately are kept in memory: none is ever out of date, and they do not become many."""

from __future__ import annotations

from commonbook import runtime
from commonbook.values.memory import Draft

ENTRY = "The lighthouse keeper wrote a long entry into the book of the lighthouse. " * 20


def test_a_text_that_another_process_has_changed_is_read_as_it_is(open_book):
    with open_book() as book, open_book() as other:
        id_ = book.remember(f"{ENTRY} samovar 0").id
        for number in range(1, 6):
            # Every second time it is the text that was there before, of which the bytes are known.
            text = f"{ENTRY} samovar {number % 2}"
            assert book.get(id_).text != text
            other.edit(id_, text=text)
            assert book.get(id_).text == text
            assert book.recall("lighthouse samovar", min_confidence=0).hits[0].text == text
        other.delete(id_)
        assert not book.recall("lighthouse samovar", min_confidence=0).hits


def test_only_some_texts_are_kept_and_none_that_is_very_long(open_book):
    with open_book() as book:
        receipts = book.remember_many([Draft(text=f"{ENTRY} {number}") for number in range(300)])
        assert [book.get(one.id).text for one in receipts] == [f"{ENTRY} {number}" for number in range(300)]
    assert len(runtime._KEPT) <= 128
    huge = "a" * 1_000_000
    stored = runtime.compress(huge)
    assert len(stored) < 8_000
    assert runtime.decompress(stored) == huge
    assert stored not in runtime._KEPT
