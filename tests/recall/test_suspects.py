"""Recall among suspect memories: the same marks and scores as a read."""

from __future__ import annotations

import pytest

from commonbook.values.memory import Draft

NUMBERS = range(30)


def thoughts(book, ground, numbers=NUMBERS):
    """Add thoughts on a ground, and as many facts that depend on nothing."""
    drafts = [
        Draft(f"thought {number} on otters and rivers", space="team", links=(("reflects_on", ground),))
        for number in numbers
    ]
    facts = [Draft(f"fact {number} about otters and rivers", space="team") for number in numbers]
    return [memory.id for memory in book.remember_many([*drafts, *facts])]


def suspects(*books):
    """Return the memories that are suspect, by reading them; every recall of every book must say the same."""
    read = {one.id for one in books[0].list(limit=100).items if "suspect" in one.marks}
    for book in books:
        hits = book.recall("otters and rivers", spaces=["team"], k=100, min_confidence=0).hits
        assert {hit.id for hit in hits if hit.suspect} == read
        assert {hit.id for hit in hits if "suspect" in hit.parts} == read
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        for k in (1, 7, 20):
            assert book.recall("otters and rivers", spaces=["team"], k=k, min_confidence=0).hits == hits[:k]
    return read


@pytest.mark.parametrize("indexed", [False, True])
def test_recall_knows_at_once_what_has_become_suspect_and_what_no_longer_is(open_book, indexed):
    with open_book() as book, open_book() as other:
        old, new, third = (book.remember(text, space="vault").id for text in ("high", "low", "mid"))
        ids = thoughts(book, old)

        def found():
            if indexed:
                book.reindex()
            return suspects(book, other)

        assert found() == set()
        book.supersede(old, new)
        assert found() == set(ids[:30])
        for memory, verdict in zip(ids[3:6], ("keep", "dismiss", "retract"), strict=True):
            book.triage(memory, verdict)
        assert found() == set(ids[:30]) - {ids[3], ids[4], ids[5]}
        # A second cause: those with a decision about the first one are suspect again.
        book.supersede(new, third)
        book.link(ids[3], "derived_from", new)
        assert found() == set(ids[:30]) - {ids[4], ids[5]}
        book.reinstate(new)
        assert found() == set(ids[:30]) - {ids[3], ids[4], ids[5]}
        book.reinstate(old)
        assert found() == set()
