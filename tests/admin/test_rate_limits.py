"""Rate limits: actions of a principal are counted for all processes together, and a refusal says when to retry."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from commonbook.errors import BadInput, NotAllowed, NotFound, TooMany
from commonbook.interfaces.cli.main import exit_code
from commonbook.values.memory import Draft, Filter
from tests.admin.test_grants import recorded
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
    assert limits == {("*", "share"): 600, ("*", "request"): 60, ("*", "write"): None, ("*", "recall"): None}
    book.set_limit("share", 0)
    assert book.set_limit("share", 2, principal=ALICE).per_minute == 2
    assert {(one.principal, one.per_minute) for one in book.limits()} == {("*", 0), ("*", 60), ("*", None), (ALICE, 2)}
    assert [one.per_minute for one in book.acting_as(BOB).limits()] == [0, 60, None, None]
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


@pytest.mark.parametrize(
    "wrong",
    [
        ("share", -1),
        ("share", 1_000_001),
        ("breathe", 5),
        ("share", True),
        ("write", 1.5),
        ("write", 2.0),
        ("write", "3"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(book, wrong):
    with pytest.raises(BadInput):
        book.set_limit(*wrong)
    with pytest.raises(BadInput):
        book.set_limit("share", 5, principal="alice")
    assert {one.per_minute for one in book.limits()} == {600, 60, None}


def test_a_clock_that_went_back_locks_nobody_out(book, notes, at):
    book.set_limit("share", 1)
    at(100_000)
    book.acting_as(ALICE).share(notes[0], "alice")
    at(0)
    assert book.acting_as(ALICE).share(notes[1], "alice").new


# --- classes of verbs

WRITES = {
    "remember": lambda alice, ids: alice.remember("more", space="alice"),
    "remember_many": lambda alice, ids: alice.remember_many([Draft("more", space="alice"), Draft("x", space="alice")]),
    "edit": lambda alice, ids: alice.edit(ids["memory"], text="changed"),
    "move": lambda alice, ids: alice.move(ids["memory"], "team"),
    "link": lambda alice, ids: alice.link(ids["memory"], "related_to", ids["other"]),
    "unlink": lambda alice, ids: alice.unlink(ids["other"], "related_to", ids["memory"]),
    "delete": lambda alice, ids: alice.delete(ids["memory"]),
    "undelete": lambda alice, ids: alice.undelete(ids["memory"]),
    "delete_where": lambda alice, ids: alice.delete_where(Filter(space="alice")),
    "reflect": lambda alice, ids: alice.reflect("so it is", [ids["memory"]], space="alice"),
    "supersede": lambda alice, ids: alice.supersede(ids["memory"], ids["other"]),
    "reinstate": lambda alice, ids: alice.reinstate(ids["old"]),
    "triage": lambda alice, ids: alice.triage(ids["suspect"], "keep"),
    "set_depth": lambda alice, ids: alice.set_depth("alice", 5),
    "set_review": lambda alice, ids: alice.set_review("alice", "agents"),
    "share": lambda alice, ids: alice.share(ids["memory"], "team"),
    "share_with": lambda alice, ids: alice.share_with(ids["memory"], BOB),
    "pull": lambda alice, ids: alice.pull(ids["memory"], "team"),
    "unshare": lambda alice, ids: alice.unshare(ids["copy"]),
    "refresh": lambda alice, ids: alice.refresh(ids["copy"]),
    "detach": lambda alice, ids: alice.detach(ids["copy"]),
    "adopt": lambda alice, ids: alice.adopt(ids["copy"]),
    "add_rule": lambda alice, ids: alice.add_rule("alice", "team"),
    "request_share": lambda alice, ids: alice.request_share(ids["memory"], "team"),
    "create_space": lambda alice, ids: alice.create_space("alice/new"),
    "rename_space": lambda alice, ids: alice.rename_space("alice/old", "alice/new"),
    "grant": lambda alice, ids: alice.grant(BOB, "alice", "reader"),
    "create_key": lambda alice, ids: alice.create_key(ALICE),
    "append": lambda alice, ids: alice.append("talk", ["more"], space="alice"),
    "rewind": lambda alice, ids: alice.rewind("talk", 1),
    "settle": lambda alice, ids: alice.settle("talk"),
    "switch": lambda alice, ids: alice.switch("talk", "other", space="alice"),
    "close_session": lambda alice, ids: alice.close_session("talk"),
    "move_session": lambda alice, ids: alice.move_session("talk", "alice/old"),
}


@pytest.fixture
def ids(book, notes):
    """Memories of Alice in every state that a verb needs, and a session of hers."""
    alice = book.acting_as(ALICE)
    book.create_space("alice/old")
    names = ("memory", "other", "old", "new")
    ids = {name: alice.remember(f"the {name} note", space="alice").id for name in names}
    alice.link(ids["other"], "related_to", ids["memory"])
    ids["copy"] = alice.share(notes[0], "alice").id
    ids["suspect"] = alice.reflect("so it was", [ids["old"]], space="alice").id
    alice.supersede(ids["old"], ids["new"])
    alice.append("talk", ["one", "two"], space="alice")
    return ids


@pytest.mark.promise("limits.classes")
def test_every_verb_that_writes_counts_as_a_write(book, ids, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_SPACE", "alice")
    alice = book.acting_as(ALICE)
    book.set_limit("write", 0, principal=ALICE)
    before = recorded(book)
    for verb, call in WRITES.items():
        with pytest.raises(TooMany, match="write 0 times a minute"):
            call(alice, ids)
        assert recorded(book) == before, verb
    assert [one.error.partition(":")[0] for one in alice.share_many([ids["memory"]], "team")] == ["too_many"]
    assert alice.get(ids["memory"]).text == "the memory note"
    assert alice.recall("memory note", spaces=["alice"]).hits
    book.edit(ids["memory"], text="changed by the owner")


def test_writes_of_all_kinds_have_one_count(book, ids, at):
    alice = book.acting_as(ALICE)
    book.set_limit("write", 3, principal=ALICE)
    at(0)
    alice.edit(ids["memory"], text="changed")
    alice.append("talk", ["three"], space="alice")
    for _ in range(5):
        with pytest.raises(NotFound):
            alice.edit("0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e", text="nothing")
    alice.share(ids["memory"], "team")
    with pytest.raises(TooMany) as refused:
        alice.append("talk", ["four"], space="alice")
    assert refused.value.retry_after == 61
    assert book.acting_as(BOB).remember("mine", space="bob").new
    at(62)
    assert alice.append("talk", ["four"], space="alice").messages[0].new


@pytest.mark.promise("limits.classes")
def test_the_appends_of_others_are_stored_when_one_is_over_its_limit(book, place, notes):
    book.set_limit("write", 2, principal=ALICE)
    results = together("append_as", place, processes=2, threads=4, times=4, principals=[ALICE, BOB])
    stored = [who for who, was_stored in results if was_stored]
    assert stored.count(ALICE) == 2
    assert stored.count(BOB) == sum(who == BOB for who, _ in results)
    assert book.verify_log().findings == ()


@pytest.mark.promise("limits.shared")
@pytest.mark.parametrize("exists", [True, False])
def test_a_refused_attempt_that_is_logged_counts_as_a_write(book, ids, exists, at):
    at(0)
    book.set_limit("write", 2, principal=ALICE)
    aimed_at = book.remember("hidden", space="vault").id if exists else "0192f3a1-5c2e-7b1d-9a3f-4e6d7f3a9c2e"
    alice = book.acting_as(ALICE)
    with pytest.raises(NotFound):
        alice.supersede(aimed_at, ids["memory"])
    with pytest.raises(NotFound):
        alice.reinstate(aimed_at)
    for _ in range(3):
        with pytest.raises(TooMany):
            alice.reinstate(aimed_at)
    with pytest.raises(TooMany):
        alice.edit(ids["memory"], text="changed")
    if exists:
        assert [one.actor for one in book.log(space="vault") if one.action == "refused"] == [ALICE, ALICE]
    at(62)
    assert alice.edit(ids["memory"], text="changed").version == 2


@pytest.mark.promise("limits.classes")
def test_recall_has_a_limit_of_its_own(book, ids, at):
    alice = book.acting_as(ALICE)
    book.set_limit("recall", 2)
    at(0)
    assert alice.recall("memory note", spaces=["alice"]).hits
    assert alice.recall(spaces=["alice"]).hits
    with pytest.raises(TooMany) as refused:
        alice.recall("memory note", spaces=["alice"])
    assert refused.value.retry_after == 61
    assert alice.edit(ids["memory"], text="changed").version == 2
    for _ in range(4):
        assert book.recall("memory note", spaces=["alice"]).hits
    at(62)
    assert alice.recall("memory note", spaces=["alice"]).hits


# --- with several processes


@pytest.mark.promise("limits.shared")
def test_the_limit_holds_over_several_processes(place, book, notes):
    book.set_limit("share", 7, principal=ALICE)
    results = together("share_as", place, processes=4, threads=2, times=5, principal=ALICE, memories=notes)
    made = [one for one in results if isinstance(one, str)]
    refused = [one for one in results if not isinstance(one, str)]
    assert (len(made), len(refused)) == (7, 33)
    assert all(0 < wait <= 61 for wait in refused)
    assert len(book.list(Filter(space="team/")).items) == 7
    assert book.verify_log().findings == ()
