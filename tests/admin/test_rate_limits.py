"""Rate limits: actions of a principal are counted for all processes together, and a refusal says when to retry."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from commonbook.errors import BadInput, NotAllowed, NotFound, TooMany
from commonbook.interfaces.cli.exit_codes import exit_code
from commonbook.model.memory import Filter
from tests.support.writers_child import together

ALICE, BOB = "user:alice", "user:bob"


@pytest.fixture
def notes(book):
    """Five memories that Alice and Bob may read, and a space of each one's own."""
    for who in (ALICE, BOB):
        book.grant(who, "personal", "reader")
        book.grant(who, who[5:], "admin")
        book.grant(who, "team", "admin")
    return [book.remember(f"note {at}", space="personal").id for at in range(5)]


@pytest.fixture
def at(book, monkeypatch):
    """Set the clock to a number of seconds after the beginning of the test."""
    begun = datetime.now(UTC).replace(microsecond=0)

    def moved(seconds):
        monkeypatch.setattr(book._engines.clock, "now", lambda: begun + timedelta(seconds=seconds), raising=False)

    return moved


def test_the_one_too_many_is_refused_and_told_when_to_come_back(book, notes, at):
    book.set_limit("share", 3)
    alice = book.acting_as(ALICE)
    for second in (1, 11, 21):
        at(second)
        alice.share(notes[second // 10], "alice")
    at(31)
    with pytest.raises(TooMany, match="3 times a minute") as refused:
        alice.share(notes[3], "alice")
    assert refused.value.retry_after == 31
    assert "31 seconds" in refused.value.fix
    assert exit_code(refused.value) == 1
    at(61)
    with pytest.raises(TooMany) as refused:
        alice.share(notes[3], "alice")
    assert refused.value.retry_after == 1
    at(62)
    assert alice.share(notes[3], "alice").new
    with pytest.raises(TooMany) as refused:
        alice.share(notes[4], "alice")
    assert refused.value.retry_after == 10
    assert len(book.list(Filter(space="alice")).items) == 4


def test_every_way_to_share_counts_and_what_failed_does_not(book, notes):
    book.set_limit("share", 4)
    alice = book.acting_as(ALICE)
    for _ in range(10):
        with pytest.raises(NotAllowed):
            alice.share(notes[0], "bob")
        with pytest.raises(NotFound):
            alice.share("0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e", "alice")
    alice.share(notes[0], "alice")
    alice.pull(notes[1], "alice")
    alice.share_with(notes[2], BOB)
    receipts = alice.share_many(notes[3:], "alice")
    assert [(one.new, one.error.partition(":")[0]) for one in receipts] == [(True, ""), (False, "too_many")]
    with pytest.raises(TooMany):
        alice.share(notes[0], "alice")


def test_each_principal_has_its_own_count_and_the_owner_none(book, notes):
    book.set_limit("share", 1)
    for who in (ALICE, BOB):
        book.acting_as(who).share(notes[0], who[5:])
        with pytest.raises(TooMany):
            book.acting_as(who).share(notes[1], who[5:])
    secret = book.create_key(ALICE).secret
    with pytest.raises(TooMany):
        book.with_key(secret).share(notes[1], "alice")
    for note in notes:
        book.share(note, "elsewhere")


def test_asking_has_a_limit_of_its_own(book, notes):
    book.set_limit("request", 2)
    book.create_space("board")
    book.grant(ALICE, "board", "reader")
    alice = book.acting_as(ALICE)
    for note in notes[:2]:
        alice.request_share(note, "board")
    with pytest.raises(TooMany):
        alice.request_share(notes[2], "board")
    assert alice.share(notes[2], "alice").new
    assert len(book.pending()) == 2


def test_a_principals_own_limit_counts_before_everybodys_and_both_before_ours(book, notes):
    alice = book.acting_as(ALICE)
    limits = {(one.principal, one.action): one.per_minute for one in alice.limits()}
    assert limits == {("*", "share"): 600, ("*", "request"): 60}
    book.set_limit("share", 0)
    assert book.set_limit("share", 2, principal=ALICE).per_minute == 2
    assert {(one.principal, one.per_minute) for one in book.limits()} == {("*", 0), ("*", 60), (ALICE, 2)}
    assert [one.per_minute for one in book.acting_as(BOB).limits()] == [0, 60]
    with pytest.raises(TooMany) as refused:
        book.acting_as(BOB).share(notes[0], "bob")
    assert refused.value.retry_after == 60
    alice.share(notes[0], "alice")
    assert book.set_limit("share", None, principal=ALICE).per_minute == 0
    with pytest.raises(TooMany):
        alice.share(notes[1], "alice")
    assert book.set_limit("share", None).per_minute == 600
    assert alice.share(notes[1], "alice").new


def test_only_the_owner_sets_limits_and_it_stands_in_the_log(book, notes):
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).set_limit("share", 10_000, principal=ALICE)
    book.set_limit("share", 5, principal=ALICE)
    (entry,) = [one for one in book.log(space="_home") if one.action == "limit"]
    assert json.loads(entry.payload) == {"principal": ALICE, "what": "share", "per_minute": 5}
    assert book.verify_log().findings == ()


@pytest.mark.parametrize("wrong", [("share", -1), ("share", 1_000_001), ("breathe", 5), ("share", True)])
def test_a_limit_that_cannot_be_is_refused(book, wrong):
    with pytest.raises(BadInput):
        book.set_limit(*wrong)
    with pytest.raises(BadInput):
        book.set_limit("share", 5, principal="alice")
    assert {one.per_minute for one in book.limits()} == {600, 60}


def test_a_clock_that_went_back_locks_nobody_out(book, notes, at):
    book.set_limit("share", 1)
    at(100_000)
    book.acting_as(ALICE).share(notes[0], "alice")
    at(0)
    assert book.acting_as(ALICE).share(notes[1], "alice").new


# --- with several processes


def test_the_limit_holds_over_several_processes(place, book, notes):
    book.set_limit("share", 7, principal=ALICE)
    results = together("share_as", place, processes=4, threads=2, times=5, principal=ALICE, memories=notes)
    made = [one for one in results if isinstance(one, str)]
    refused = [one for one in results if not isinstance(one, str)]
    assert (len(made), len(refused)) == (7, 33)
    assert all(0 < wait <= 61 for wait in refused)
    assert len(book.list(Filter(space="team/")).items) == 7
    assert book.verify_log().findings == ()
