"""To supersede a memory again needs the same right as to supersede it, by whatever way the successor comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from commonbook.errors import NotAllowed
from commonbook.service.book import Book

pytestmark = pytest.mark.promise("access.supersede")

BOB = "user:bob"
ENDED = datetime(2020, 1, 1, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(days=30)


def ended_successor(book: Book, *, expires: datetime | None = ENDED) -> tuple[str, str]:
    """Return a memory of `vault` and its successor in `team`, which has expired; Bob may only write to `team`."""
    old = book.remember("oil costs five", space="vault").id
    new = book.remember("oil costs nine", space="team", replaces=old, expires=expires).id
    book.grant(BOB, "team", "writer")
    book.grant(BOB, "vault", "reader")
    return old, new


def refused(book: Book) -> list[str]:
    return [json.loads(entry.payload)["memory"] for entry in book.log(space="vault") if entry.action == "refused"]


def extend(book: Book, new: str) -> object:
    return book.edit(new, expires=LATER)


def end_never(book: Book, new: str) -> object:
    return book.edit(new, expires=None)


def supersede_it(book: Book, new: str) -> object:
    return book.supersede(new, by=book.remember("oil costs eight", space="team").id)


def replace_it(book: Book, new: str) -> object:
    return book.remember("oil costs eight", space="team", replaces=new)


def link_to_it(book: Book, new: str) -> object:
    return book.link(book.remember("oil costs eight", space="team").id, "supersedes", new)


WAYS = [extend, end_never, supersede_it, replace_it, link_to_it]


@pytest.mark.parametrize("way", WAYS)
def test_nobody_supersedes_again_where_they_may_not_write(book: Book, way: Callable[[Book, str], object]):
    old, new = ended_successor(book)
    before = book.get(new)
    with pytest.raises(NotAllowed, match="would supersede a memory"):
        way(book.acting_as(BOB), new)
    assert book.get(old).marks == ("successor_ended",)
    assert (book.get(new).version, book.get(new).superseded_by) == (before.version, None)
    assert refused(book) == [old]


@pytest.mark.parametrize("way", WAYS)
def test_who_may_write_to_both_supersedes_again_and_the_log_of_the_old_one_says_so(
    book: Book, way: Callable[[Book, str], object]
):
    old, new = ended_successor(book)
    book.grant(BOB, "vault", "writer")
    way(book.acting_as(BOB), new)
    assert "superseded" in book.get(old).marks
    last = [entry for entry in book.log(space="vault") if entry.action == "superseded"][-1]
    assert (json.loads(last.subjects), last.actor, refused(book)) == ([old], BOB, [])
    assert book.verify_log().ok


def test_a_retraction_of_a_successor_is_taken_back_by_those_who_may_supersede(book: Book):
    ground = book.remember("the market moved", space="team").id
    old, new = ended_successor(book, expires=None)
    book.link(new, "derived_from", ground)
    book.supersede(ground, by=book.remember("the market did not move", space="team").id)
    book.acting_as(BOB).triage(new, "retract")
    assert book.get(old).marks == ("successor_ended",)
    with pytest.raises(NotAllowed, match="would supersede a memory"):
        book.acting_as(BOB).reinstate(new)
    assert (book.get(old).marks, refused(book)) == (("successor_ended",), [old])
    book.reinstate(new)
    assert book.get(old).superseded_by == new


def test_a_successor_that_still_holds_is_edited_by_those_who_may_write_to_it_alone(book: Book):
    old, new = ended_successor(book, expires=datetime.now(UTC) + timedelta(days=1))
    bob = book.acting_as(BOB)
    bob.edit(new, expires=LATER)
    bob.edit(new, text="oil costs ten")
    newest = bob.remember("oil costs eleven", space="team", replaces=new).id
    bob.edit(newest, expires=LATER)
    assert (book.get(old).superseded_by, refused(book)) == (new, [])


def test_an_ended_memory_that_superseded_nothing_elsewhere_is_extended_freely(book: Book):
    book.grant(BOB, "team", "writer")
    bob = book.acting_as(BOB)
    old = bob.remember("oil costs five", space="team").id
    new = bob.remember("oil costs nine", space="team", replaces=old, expires=ENDED).id
    bob.edit(new, expires=LATER)
    assert book.get(old).superseded_by == new


@pytest.mark.parametrize("way", [supersede_it, replace_it, link_to_it])
def test_a_successor_that_is_a_copy_has_ended_with_its_source(book: Book, way: Callable[[Book, str], object]):
    source = book.remember("oil costs nine", space="market").id
    new = book.share(source, "team").id
    old = book.remember("oil costs five", space="vault").id
    book.supersede(old, by=new)
    book.edit(source, expires=ENDED)
    book.grant(BOB, "team", "writer")
    assert book.get(old).marks == ("successor_ended",)
    with pytest.raises(NotAllowed, match="would supersede a memory"):
        way(book.acting_as(BOB), new)
    assert (book.get(old).marks, refused(book)) == (("successor_ended",), [old])
    way(book, new)
    assert "superseded" in book.get(old).marks


def test_nobody_supersedes_again_by_tying_a_copy_to_a_source_that_holds(book: Book):
    root = book.remember("oil costs nine", space="market").id
    between = book.share(root, "desk").id
    new = book.share(between, "team").id
    old = book.remember("oil costs five", space="vault").id
    book.supersede(old, by=new)
    book.edit(between, expires=ENDED)
    book.delete(between)
    book.grant(BOB, "team", "writer")
    book.grant(BOB, "market", "reader")
    assert book.get(old).marks == ("successor_ended",)
    with pytest.raises(NotAllowed, match="would supersede a memory"):
        book.acting_as(BOB).share(root, "team")
    assert (book.get(old).marks, refused(book)) == (("successor_ended",), [old])
    assert book.share(root, "team").retied
    assert book.get(old).superseded_by == new
