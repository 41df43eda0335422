"""The change feed: what changed in the readable spaces since a position, and figures about pending work."""

from __future__ import annotations

import pytest

from commonbook.core.log import chain
from commonbook.errors import BadInput, NotAllowed

ALICE = "user:alice"


def actions(page):
    return [(event.space, event.action) for event in page.items]


def test_a_page_has_the_changes_since_the_position_and_nothing_twice(book):
    book.remember("before", space="team")
    start = book.changes()
    assert start.items == ()
    receipt = book.remember("after", space="team")
    book.edit(receipt.id, text="after all")
    page = book.changes(after=start.next)
    assert actions(page) == [("team", "remember"), ("team", "edit")]
    assert [event.subjects[0] for event in page.items] == [receipt.id, receipt.id]
    assert {event.actor for event in page.items} == {"user:local"}
    assert book.changes(after=page.next).items == ()


@pytest.mark.promise("log.changes")
def test_small_pages_together_are_all_changes_of_all_spaces_each_in_its_order(book):
    for number in range(6):
        book.remember(f"memory {number}", space=f"team/{number % 3}")
    book.append("talk", ["hello"], space="team/0")
    position, seen = chain.FIRST_POSITION, []
    while (page := book.changes(after=position, space="team/", limit=2)).items:
        assert len(page.items) <= 2
        seen += page.items
        position = page.next
    for name in ("team/0", "team/1", "team/2"):
        numbers = [event.number for event in seen if event.space == name]
        assert numbers == [entry.seq for entry in book.log(space=name)]
    assert seen == sorted(seen, key=lambda event: event.time)


def test_a_space_that_becomes_readable_is_read_from_its_beginning(book):
    book.remember("plans", space="team")
    book.grant(ALICE, "team", "reader")
    book.remember("secret plans", space="board")
    alice = book.acting_as(ALICE)
    start = alice.changes().next
    assert [event for event in alice.changes(after="0").items if event.space == "board"] == []
    book.grant(ALICE, "board", "reader")
    seen = actions(alice.changes(after=start))
    assert ("board", "remember") in seen
    assert ("team", "remember") not in seen


@pytest.mark.promise("log.changes")
def test_a_space_that_is_lost_is_counted_and_its_changes_are_not_shown(book):
    book.remember("plans", space="team")
    book.grant(ALICE, "team", "reader")
    alice = book.acting_as(ALICE)
    start = alice.changes().next
    book.remember("more plans", space="team")
    book.revoke(ALICE, "team")
    page = alice.changes(after=start)
    assert (page.items, page.lost_spaces) == ((), 1)
    assert alice.changes(after=page.next).lost_spaces == 0


def test_a_revoked_key_reads_no_changes(book):
    book.remember("plans", space="team")
    made = book.create_key("user:local")
    by_key = book.with_key(made.secret)
    start = by_key.changes().next
    book.revoke_key(made.key.id)
    with pytest.raises(NotAllowed):
        by_key.changes(after=start)


@pytest.mark.parametrize("position", ["1", "x", "", "AAAA", "AQID", "ÄÖ", "A" * 99, "AQ" + "_" * 40])
def test_any_other_text_is_no_position(book, position):
    with pytest.raises(BadInput):
        book.changes(after=position)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_has_a_limit(book, limit):
    with pytest.raises(BadInput):
        book.changes(limit=limit)


def test_a_position_has_large_numbers_and_many_spaces():
    numbers = {f"0193a000-0000-7000-8000-{number:012x}": 3**number for number in range(30)}
    assert chain.parse_position(chain.format_position(numbers)) == numbers


def test_the_size_of_the_log_grows_with_every_change_also_of_keys_and_grants(book):
    sizes = [book.log_size()]
    book.remember("plans", space="team")
    sizes.append(book.log_size())
    made = book.create_key(ALICE)
    sizes.append(book.log_size())
    book.revoke_key(made.key.id)
    sizes.append(book.log_size())
    book.grant(ALICE, "team", "reader")
    sizes.append(book.log_size())
    book.revoke(ALICE, "team")
    sizes.append(book.log_size())
    assert sizes == sorted(set(sizes))
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).log_size()


def test_metrics_count_what_is_pending(book):
    assert set(book.metrics()) == {0}
    premise = book.remember("Alice owns billing", space="team")
    copy = book.share(premise.id, to="sales", refresh="snapshot")
    book.edit(premise.id, text="Bob owns billing")
    book.reflect("Ask Bob", on=[premise.id], space="team")
    book.supersede(premise.id, by=book.remember("Carla owns billing", space="team").id)
    book.append("talk", ["hello", "again"])
    figures = book.metrics()
    assert (figures.stale_copies, figures.open_notices, figures.unsettled_messages) == (1, 1, 2)
    assert figures.waiting_jobs == 1
    assert figures.index_lag > 0
    book.reindex()
    book.refresh(copy.id)
    book.settle("talk")
    figures = book.metrics()
    assert (figures.stale_copies, figures.unsettled_messages) == (0, 0)
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).metrics()


def test_the_age_of_the_queue_is_that_of_the_oldest_job_that_is_due(book, monkeypatch):
    from datetime import timedelta

    book.append("talk", ["hello"])
    now = book._engines.clock.now()
    assert book.metrics().queue_age_seconds == 0
    monkeypatch.setattr(book._engines.clock, "now", lambda: now + timedelta(hours=3), raising=False)
    assert 7000 < book.metrics().queue_age_seconds < 7300
