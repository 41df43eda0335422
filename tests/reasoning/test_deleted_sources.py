"""Deleted sources: a copy keeps the doubts and the ends of its source, and says that the source is gone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commonbook.engines.process import SystemClock
from commonbook.service.book import Book
from tests.support.lost_databases import lose_database


class Doubted(NamedTuple):
    """A suspect memory, its ground and what superseded that, its copy, and the copy of that copy."""

    ground: str
    newer: str
    source: str
    copy: str
    below: str


@pytest.fixture
def doubted(book: Book) -> Doubted:
    ground = book.remember("a litre of oil costs five", space="facts").id
    source = book.reflect("oil is cheap", [ground], space="a").id
    copy = book.share(source, "team").id
    below = book.share(copy, "others").id
    return Doubted(ground, book.remember("it costs seven", space="facts", replaces=ground).id, source, copy, below)


def marks(book: Book, *ids: str) -> list[set[str]]:
    return [set(book.get(id_).marks) for id_ in ids]


def waiting(book: Book) -> set[tuple[str, str]]:
    return {(one.dependent.id, one.invalidated.id) for one in book.inbox(limit=100).items}


def recalled(book: Book, query: str = "oil", **options: Any) -> set[str]:
    """Recall in each space by itself, and return the memories of all hits."""
    names = [space.name for space in book.spaces()]
    return {hit.memory for name in names for hit in book.recall(query, spaces=[name], **options).hits}


# --- doubt


@pytest.mark.promise("copies.no-better")
def test_a_copy_stays_suspect_when_its_suspect_source_is_deleted(book, doubted):
    assert waiting(book) == {(doubted.source, doubted.ground)}
    book.delete(doubted.source)
    assert marks(book, doubted.copy, doubted.below) == [{"suspect"}, {"suspect"}]
    assert waiting(book) == {(doubted.copy, doubted.ground)}
    (notice,) = book.inbox().items
    assert (notice.space, notice.depth, notice.path) == ("team", 1, (doubted.ground, doubted.source, doubted.copy))
    (cause,) = book.get(doubted.below).invalidations
    assert cause.path == (doubted.ground, doubted.source, doubted.copy, doubted.below)
    book.unshare(doubted.copy)
    assert marks(book, doubted.below) == [{"suspect"}]
    assert waiting(book) == {(doubted.below, doubted.ground)}
    assert book.triage(doubted.below, "keep").resolved == 1
    assert (marks(book, doubted.below), waiting(book)) == ([set()], set())


def test_a_decision_about_a_copy_of_a_deleted_source_holds_for_the_copies_below(book, doubted):
    book.delete(doubted.source)
    book.triage(doubted.copy, "dismiss")
    assert (marks(book, doubted.copy, doubted.below), waiting(book)) == ([set(), set()], set())


def test_what_was_decided_before_the_source_was_deleted_stays_decided(book, doubted):
    book.triage(doubted.source, "keep")
    book.delete(doubted.source)
    assert (marks(book, doubted.copy, doubted.below), waiting(book)) == ([set(), set()], set())


@pytest.mark.promise("copies.no-better")
def test_a_ground_that_changes_after_the_source_was_deleted_reaches_its_copies(book, doubted):
    book.delete(doubted.source)
    book.reinstate(doubted.ground)
    assert (marks(book, doubted.copy, doubted.below), waiting(book)) == ([set(), set()], set())
    book.delete(doubted.ground)
    assert marks(book, doubted.copy, doubted.below) == [{"suspect"}, {"suspect"}]
    assert waiting(book) == {(doubted.copy, doubted.ground)}


def test_a_source_that_comes_back_has_its_doubt_itself(book, home, doubted):
    path = Path(home) / book.get(doubted.source).path
    text = path.read_bytes()
    book.delete(doubted.source)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    book.sync()
    assert marks(book, doubted.source, doubted.copy) == [{"suspect"}, {"suspect"}]
    assert waiting(book) == {(doubted.source, doubted.ground)}


def test_a_detached_copy_of_a_deleted_source_is_not_in_doubt(book, doubted):
    book.delete(doubted.source)
    book.detach(doubted.copy)
    assert (marks(book, doubted.copy), waiting(book)) == ([set()], set())


@pytest.mark.promise("lost.doubts")
@pytest.mark.parametrize("verdict", ["keep", "retract", "dismiss"])
def test_the_doubt_of_a_copy_outlives_the_database_that_knew_its_source(book, home, open_book, doubted, verdict):
    book.delete(doubted.source)
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    assert marks(book, doubted.copy, doubted.below) == [{"suspect"}, {"suspect"}]
    # A change of the copy looks at its notices again: this one is all that is left of the doubt.
    book.edit(doubted.copy, expires="in 30 days")
    assert waiting(book) == {(doubted.copy, doubted.ground)}
    assert book.triage(doubted.copy, verdict).resolved == 1
    assert "suspect" not in book.get(doubted.below).marks
    assert waiting(book) == set()


def test_a_doubt_that_only_its_notice_knows_ends_with_its_cause(book, home, open_book, doubted):
    book.delete(doubted.source)
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    book.reinstate(doubted.ground)
    book.edit(doubted.copy, expires="in 30 days")
    assert (marks(book, doubted.copy), waiting(book)) == ([set()], set())


# --- ends


@pytest.fixture
def superseded(book: Book) -> Doubted:
    """A superseded memory with a copy and a copy of that; it has no ground."""
    source = book.remember("oil costs five", space="facts").id
    copy = book.share(source, "team").id
    below = book.share(copy, "others").id
    newer = book.remember("fat costs seven", space="facts", replaces=source).id
    return Doubted("", newer, source, copy, below)


@pytest.mark.promise("copies.no-better")
def test_a_copy_of_a_deleted_source_is_superseded_as_long_as_the_successor_stands(book, superseded):
    book.delete(superseded.source)
    for id_ in (superseded.copy, superseded.below):
        assert (book.get(id_).marks, book.get(id_).superseded_by) == (("superseded",), superseded.newer)
    assert not recalled(book) & {superseded.copy, superseded.below}
    book.delete(superseded.newer)
    assert marks(book, superseded.copy, superseded.below) == [{"successor_ended"}, {"successor_ended"}]
    assert recalled(book) == {superseded.copy, superseded.below}
    assert waiting(book) == {(superseded.copy, superseded.newer)}


@pytest.mark.promise("copies.no-better")
def test_a_copy_keeps_waiting_for_a_decision_about_a_successor_when_its_source_is_deleted(book, superseded):
    book.delete(superseded.newer)
    book.delete(superseded.source)
    assert marks(book, superseded.copy, superseded.below) == [{"successor_ended"}, {"successor_ended"}]
    (notice,) = book.inbox().items
    assert (notice.dependent.id, notice.successor_ended) == (superseded.copy, True)
    assert notice.path == (superseded.newer, superseded.source, superseded.copy)
    assert f"which superseded a source of {superseded.copy}" in book.get(notice.id).text
    assert book.triage(notice.id, "keep").resolved == 1
    assert (marks(book, superseded.copy, superseded.below), waiting(book)) == ([set(), set()], set())


@pytest.mark.promise("lost.doubts")
def test_a_copy_is_superseded_after_the_database_that_knew_its_source_was_lost(book, home, open_book, superseded):
    book.delete(superseded.source)
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    for id_ in (superseded.copy, superseded.below):
        assert (book.get(id_).marks, book.get(id_).superseded_by) == (("superseded",), superseded.newer)
    assert not recalled(book) & {superseded.copy, superseded.below}
    book.edit(superseded.newer, expires=SystemClock().now() - timedelta(seconds=1))
    assert recalled(book) == {superseded.copy, superseded.below}
    assert waiting(book) == {(superseded.copy, superseded.newer)}


@pytest.mark.promise("lost.doubts")
def test_a_copy_of_a_deleted_source_whose_successor_ended_says_so_after_the_database_was_lost(
    book, home, open_book, superseded
):
    book.delete(superseded.newer)
    book.delete(superseded.source)
    book.close()
    lose_database(home)
    book = open_book()
    book.sync()
    assert marks(book, superseded.copy, superseded.below) == [{"successor_ended"}, {"successor_ended"}]
    assert waiting(book) == {(superseded.copy, superseded.newer)}


# --- freshness


def freshness(book: Book, *ids: str) -> set[tuple[str | None, ...]]:
    """Return the freshness of each memory by every way of reading: the same, if there is one result."""
    listed = {one.id: one.freshness for one in book.list(limit=100).items}
    hits = {hit.memory: hit.freshness for space in book.spaces() for hit in book.recall("", spaces=[space.name]).hits}
    return {
        tuple(book.get(id_).freshness for id_ in ids),
        tuple(listed[id_] for id_ in ids),
        tuple(hits[id_] for id_ in ids),
        tuple(book.lineage(id_).freshness for id_ in ids),
    }


@pytest.mark.promise("copies.marked")
@pytest.mark.parametrize("mode", ["live", "lazy", "snapshot"])
def test_a_chain_of_copies_whose_root_is_deleted_says_so_to_its_end(book, mode):
    root = book.remember("oil costs five", space="facts").id
    middle = book.share(root, "team", refresh=mode).id
    last = book.share(middle, "others", refresh=mode).id
    assert freshness(book, middle, last) == {("fresh", "fresh")}
    book.delete(root)
    assert freshness(book, middle, last) == {("source_deleted", "source_deleted")}
    assert [one.freshness for one in book.copies(root)] == ["source_deleted", "source_deleted"]
    # The source of the last one is here: it can still be followed.
    book.edit(middle, text="oil costs seven")
    book.refresh(last)
    assert (book.get(last).text, book.get(last).freshness) == ("oil costs seven", "source_deleted")
    book.detach(middle)
    assert freshness(book, middle, last) == {("detached", "fresh")}


def test_a_lazy_copy_of_a_copy_whose_root_is_deleted_still_follows(book):
    root = book.remember("oil costs five", space="facts").id
    middle = book.share(root, "team").id
    last = book.share(middle, "others", refresh="lazy").id
    book.delete(root)
    book.edit(middle, text="oil costs seven")
    assert book.get(last).text == "oil costs seven"


@pytest.mark.promise("copies.marked")
def test_a_chain_of_copies_whose_root_is_superseded_says_so_to_its_end(book):
    root = book.remember("oil costs five", space="facts").id
    middle = book.share(root, "team").id
    last = book.share(middle, "others").id
    newer = book.remember("oil costs seven", space="facts", replaces=root).id
    for id_ in (middle, last):
        assert (book.get(id_).freshness, book.get(id_).successor) == ("source_superseded", newer)
    book.edit(middle, text="we pay six for oil")
    assert [book.get(id_).freshness for id_ in (middle, last)] == ["diverged", "fresh"]
