"""Recall without a query: the newest first, as a query would find it, before and after settling."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from commonbook.values.session import NewMessage

pytestmark = pytest.mark.promise("recall.newest")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DIFFERENT = {"memory", "title", "path", "revision"}
"""The fields of a hit that tell of a message's episode; all others are the message's own."""


def at(minute):
    return NOON + timedelta(minutes=minute)


def own_fields(hits):
    return [{name: value for name, value in hit._asdict().items() if name not in DIFFERENT} for hit in hits]


def texts(book, **filters):
    return [hit.text for hit in book.recall("", **filters).hits]


@pytest.fixture
def mixed(book):
    """Two sessions and some notes, one after the other; nothing is settled yet."""
    book.append("s", [NewMessage("one", time=at(1)), NewMessage("four", time=at(4))], tags=["x"])
    book.remember("two", occurred=at(2), tags=["x"])
    book.append("t", [NewMessage("three", time=at(3)), NewMessage("six", time=at(6))])
    book.remember("five", occurred=at(5))
    return book


def test_messages_are_among_the_newest_before_and_after_settling(mixed):
    before = mixed.recall("").hits
    assert [hit.text for hit in before] == ["six", "five", "four", "three", "two", "one"]
    mixed.settle("s")
    assert own_fields(mixed.recall("").hits) == own_fields(before)
    mixed.settle("t")
    assert own_fields(mixed.recall("").hits) == own_fields(before)
    mixed.rebuild()
    assert own_fields(mixed.recall("").hits) == own_fields(before)
    assert [hit.type for hit in mixed.recall("").hits] == [
        "message",
        "memory",
        "message",
        "message",
        "memory",
        "message",
    ]


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
def test_filters_and_the_cut_hold_for_messages_too(mixed, settled):
    if settled:
        mixed.settle("s")
        mixed.settle("t")
    assert texts(mixed, k=2) == ["six", "five"]
    assert texts(mixed, tags=["x"]) == ["four", "two", "one"]
    assert texts(mixed, kinds=["episode"], k=3) == ["six", "four", "three"]
    assert texts(mixed, since=at(2), until=at(4)) == ["four", "three", "two"]
    assert texts(mixed, spaces="team") == []


def test_of_what_was_said_at_one_moment_the_last_said_comes_first(book):
    book.append("s", [f"number {number}" for number in range(300)])
    newest = [f"number {number}" for number in range(299, 99, -1)]
    assert texts(book, k=200) == newest
    book.settle("s")
    assert texts(book, k=200) == newest


def test_of_messages_found_by_a_question_tags_and_times_do_not_change_with_settling(book):
    book.append("s", [NewMessage("the walrus sleeps", time=at(1))], tags=["x", "y"])
    (before,) = book.recall("walrus", tags=["y"]).hits
    assert (before.tags, before.created, before.occurred) == (("x", "y"), at(1), at(1))
    book.settle("s")
    (after,) = book.recall("walrus", tags=["y"]).hits
    assert own_fields([after]) == own_fields([before])


def test_a_message_leaves_the_newest_with_its_line_its_episode_or_a_rewind(book):
    book.append("s", ["one", "two", "three"])
    (episode,) = book.settle("s").episodes
    book.append("s", ["four", "five"])
    book.rewind("s", 4)
    assert texts(book) == ["four", "three", "two", "one"]
    book.rewind("s", 2)
    assert texts(book) == ["two", "one"]
    book.edit(episode, text=book.get(episode).text.replace("two", "second"))
    assert texts(book) == ["second", "one"]
    book.delete(episode)
    assert texts(book) == []


def test_a_long_memory_is_among_the_newest_once(book):
    book.remember("short", occurred=at(1))
    long = book.remember("\n\n".join(f"Paragraph {n}. " + "words " * 120 for n in range(30)), occurred=at(2)).id
    hits = book.recall("", k=5).hits
    assert [hit.id == long for hit in hits] == [True, False]
    assert hits[0].passage.startswith("Paragraph 0.")
