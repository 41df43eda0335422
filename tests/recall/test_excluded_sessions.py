"""`exclude_session`: what is said in a session is left out of a recall, all of it or its last messages."""

from __future__ import annotations

from typing import Any

import pytest

from commonbook.errors import BadInput
from commonbook.service.book import Book


@pytest.fixture
def two_talks(book: Book) -> Book:
    for space in ("personal", "team"):
        book.append("tea", [f"Green tea of {space}, cup {number}" for number in range(1, 7)], space=space)
    book.append("other", ["Black tea in a pot"], space="personal")
    book.remember("Green tea is in the tin", space="personal")
    return book


def found(book: Book, **options: Any) -> set[tuple[str, str | None, int | None]]:
    options = {"spaces": ["personal", "team"], "k": 50, "min_confidence": 0, **options}
    return {(hit.space, hit.session, hit.seq) for hit in book.recall("green tea", **options).hits}


OTHERS = {("personal", "other", 1), ("personal", None, None)}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_the_messages_of_a_session_can_be_left_out_all_or_the_last(two_talks, settled, indexed, monkeypatch):
    book = two_talks
    # PostgreSQL then searches by SQL, and not in its cache of few spaces.
    monkeypatch.setattr("commonbook.engines.postgres.search.MAX_SPACES", 0)
    if settled:
        for space in ("personal", "team"):
            book.settle("tea", space=space)
    if indexed:
        book.reindex()
    everything = found(book)
    assert len(everything) == 14
    assert found(book, exclude_session="nobody") == found(book, exclude_session="nobody", exclude_last=3) == everything
    assert found(book, exclude_session="tea") == OTHERS
    for last, kept in ((1, 5), (4, 2), (6, 0), (99, 0)):
        of_tea = {(space, "tea", seq) for space in ("personal", "team") for seq in range(1, kept + 1)}
        assert found(book, exclude_session="tea", exclude_last=last) == OTHERS | of_tea
    # Before the best are chosen, so that others take their places.
    hits = book.recall("green tea cup", k=2, exclude_session="tea", min_confidence=0).hits
    assert {hit.session for hit in hits} == {"other", None}
    assert {hit.session for hit in book.recall(k=2, exclude_session="tea").hits} == {"other", None}


def test_the_last_messages_are_those_that_are_not_rewound(two_talks):
    two_talks.rewind("tea", after=4, space="personal")
    kept = found(two_talks, spaces=["personal"], exclude_session="tea", exclude_last=1)
    assert kept == OTHERS | {("personal", "tea", seq) for seq in (1, 2, 3)}


@pytest.mark.parametrize(
    "given", [{"exclude_last": 1}, {"exclude_session": "tea", "exclude_last": 0}, {"exclude_session": "a b"}]
)
def test_a_wrong_exclusion_is_refused(book, given):
    with pytest.raises(BadInput):
        book.recall("tea", **given)


def test_a_prefetch_leaves_out_the_same(two_talks):
    assert two_talks.prefetch("tea", "green tea", space="personal", spaces=["personal"], exclude_session="tea", k=50)
    result = two_talks.prefetched("tea", "green tea", space="personal", wait=60)
    assert "tea" not in {hit.session for hit in result.hits}
