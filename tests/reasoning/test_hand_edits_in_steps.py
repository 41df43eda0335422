"""A hand edit that a decision applies reaches live copies in the same write."""

from __future__ import annotations

from commonbook.values.memory import Filter
from tests.support.hand_edits import change


def test_the_copies_of_a_dependent_follow_its_hand_edit_in_the_write_that_applies_it(home, book):
    old, new = book.remember("milk costs one").id, book.remember("milk costs two").id
    thought = book.remember("milk is cheap", title="thought", links=[("reflects_on", old)]).id
    copy = book.share(thought, "team").id
    book.supersede(old, new)
    (notice,) = book.list(Filter(kinds=("notice",), space="/")).items
    change(home / book.get(thought).path, "milk is cheap", "milk is still cheap")
    book.triage(notice.id, "dismiss")
    assert book.get(thought).text == "milk is still cheap"
    assert (book.get(copy).text, book.get(copy).freshness) == ("milk is still cheap", "fresh")
    assert [decision.verdict for decision in book.get(thought).decisions] == ["dismiss"]
