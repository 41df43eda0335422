"""Refusals: every verb refuses in the same way, the log gets a bounded number, and rights follow a memory's history."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from commonbook.core.tables.rate_counts import MAX_LOGGED_REFUSALS
from commonbook.errors import NotAllowed, NotFound
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from tests.support.writers_child import together

ALICE, EVE = "user:alice", "user:eve"

Verb = Callable[[Book, dict[str, str]], Any]

# What a writer may do with a memory, a copy, a suspect memory or a session of a space, by its id.
WRITES: dict[str, Verb] = {
    "edit": lambda book, ids: book.edit(ids["memory"], text="changed"),
    "move": lambda book, ids: book.move(ids["memory"], "mine"),
    "delete": lambda book, ids: book.delete(ids["memory"]),
    "undelete": lambda book, ids: book.undelete(ids["memory"]),
    "delete, dry run": lambda book, ids: book.delete(ids["memory"], dry_run=True),
    "link": lambda book, ids: book.link(ids["memory"], "related_to", ids["mine"]),
    "link supersedes": lambda book, ids: book.link(ids["mine"], "supersedes", ids["memory"]),
    "unlink": lambda book, ids: book.unlink(ids["memory"], "related_to", ids["copy"]),
    "remember replaces": lambda book, ids: book.remember("so", space="mine", replaces=ids["memory"]),
    "remember supersedes": lambda book, ids: book.remember("so", space="mine", links=[("supersedes", ids["memory"])]),
    "supersede": lambda book, ids: book.supersede(ids["memory"], ids["mine"]),
    "supersede by it": lambda book, ids: book.supersede(ids["mine"], ids["memory"]),
    "reinstate": lambda book, ids: book.reinstate(ids["superseded"]),
    "triage": lambda book, ids: book.triage(ids["suspect"], "keep"),
    "triage a notice": lambda book, ids: book.triage(ids["notice"], "dismiss"),
    "triage by it": lambda book, ids: book.triage(ids["my suspect"], "supersede", by=ids["memory"]),
    "unshare": lambda book, ids: book.unshare(ids["copy"]),
    "refresh": lambda book, ids: book.refresh(ids["copy"]),
    "detach": lambda book, ids: book.detach(ids["copy"]),
    "adopt": lambda book, ids: book.adopt(ids["copy"]),
}
# The same for sessions. Without the right, a session that is named without its space may be one of another space.
SESSION_WRITES: dict[str, Verb] = {
    "append": lambda book, ids: book.append("talk", ["more"], space="team"),
    "rewind": lambda book, ids: book.rewind("talk", 0),
    "settle": lambda book, ids: book.settle("talk"),
    "close_session": lambda book, ids: book.close_session("talk"),
    "move_session": lambda book, ids: book.move_session("talk", "mine"),
    "switch": lambda book, ids: book.switch("talk", "other"),
}


@pytest.fixture
def ids(book: Book) -> dict[str, str]:
    """Memories of `team`, each in another state, and one of `mine`, which Alice and Eve administer."""
    for who in (ALICE, EVE):
        book.grant(who, "mine", "admin")
    book.grant(ALICE, "team", "reader")
    ids = {"memory": book.remember("the weir leaks", space="team").id, "mine": book.remember("my own", space="mine").id}
    ids["copy"] = book.share(book.remember("the boat is here", space="personal").id, "team").id
    book.link(ids["memory"], "related_to", ids["copy"])
    ids["superseded"] = book.remember("oil costs five", space="team").id
    ids["suspect"] = book.reflect("oil is cheap", [ids["superseded"]], space="team").id
    ids["my suspect"] = book.reflect("oil is fine", [ids["superseded"]], space="mine").id
    book.supersede(ids["superseded"], book.remember("oil costs nine", space="team").id)
    ids["notice"] = next(item.id for item in book.inbox().items if item.dependent.id == ids["suspect"])
    book.append("talk", ["one", "two"], space="team")
    return ids


def entries(book: Book, space: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the log entries about refusals."""
    logged = book.log(space=space, limit=1000)
    return [(one.actor, one.action, json.loads(one.payload)) for one in logged if one.action.startswith("refused")]


@pytest.mark.promise("access.errors")
@pytest.mark.parametrize("verb", WRITES)
def test_a_reader_is_not_allowed_and_a_stranger_finds_nothing(book: Book, ids: dict[str, str], verb: str):
    before = {one.id: one.version for one in book.list(Filter(space="team"), limit=100).items}
    with pytest.raises(NotAllowed, match="team"):
        WRITES[verb](book.acting_as(ALICE), ids)
    with pytest.raises(NotFound):
        WRITES[verb](book.acting_as(EVE), ids)
    assert {one.id: one.version for one in book.list(Filter(space="team"), limit=100).items} == before


@pytest.mark.parametrize("verb", SESSION_WRITES)
def test_neither_a_reader_nor_a_stranger_changes_a_session(book: Book, ids: dict[str, str], verb: str):
    before = book.messages("talk")
    for who in (ALICE, EVE):
        with pytest.raises((NotAllowed, NotFound)):
            SESSION_WRITES[verb](book.acting_as(who), ids)
    assert book.messages("talk") == before


@pytest.mark.promise("supersede.logged")
def test_a_refused_reinstate_is_logged_like_a_refused_supersede(book: Book, ids: dict[str, str]):
    for who, error in ((ALICE, NotAllowed), (EVE, NotFound)):
        with pytest.raises(error):
            book.acting_as(who).supersede(ids["superseded"], ids["mine"])
        with pytest.raises(error):
            book.acting_as(who).reinstate(ids["superseded"])
    assert entries(book, "team") == [
        (who, "refused", {"verb": verb, "memory": ids["superseded"]})
        for who in (ALICE, EVE)
        for verb in ("supersede", "reinstate")
    ]


@pytest.mark.promise("access.errors")
def test_a_refusal_does_the_same_work_whether_the_id_exists_or_not(book: Book, ids: dict[str, str]):
    free = "01a1e8af-bce1-7667-9f85-b106c71ded92"
    eve = book.acting_as(EVE)
    for aim in (ids["superseded"], free):
        with pytest.raises(NotFound):
            eve.reinstate(aim)
        with pytest.raises(NotFound):
            eve.supersede(aim, ids["mine"])
        with pytest.raises(NotFound):
            eve.link(ids["mine"], "supersedes", aim)
    logged = {
        space: [(who, action, payload["verb"]) for who, action, payload in entries(book, space)]
        for space in ("team", "_home")
    }
    assert (
        logged["team"]
        == logged["_home"]
        == [(EVE, "refused", verb) for verb in ("reinstate", "supersede", "supersede")]
    )
    with pytest.raises(NotFound):
        book.reinstate(free)
    assert len(entries(book, "_home")) == 3


# --- many refusals


@pytest.fixture
def at(book: Book, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the clock to a number of minutes after the beginning of an hour."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)

    def moved(minutes: int) -> None:
        monkeypatch.setattr(book._engines.clock, "now", lambda: hour + timedelta(minutes=minutes), raising=False)

    return moved


@pytest.mark.promise("log.refusals")
def test_a_stranger_grows_a_log_by_twenty_entries_and_a_summary_in_an_hour(
    book: Book, ids: dict[str, str], at: Callable[[int], None]
):
    eve = book.acting_as(EVE)
    at(1)
    for _ in range(50):
        with pytest.raises(NotFound):
            eve.supersede(ids["memory"], ids["mine"])
    with pytest.raises(NotAllowed):
        book.acting_as(ALICE).supersede(ids["memory"], ids["mine"])
    logged = entries(book, "team")
    assert [action for _, action, _ in logged] == ["refused"] * MAX_LOGGED_REFUSALS + ["refused.more", "refused"]
    assert [actor for actor, _, _ in logged] == [EVE] * (MAX_LOGGED_REFUSALS + 1) + [ALICE]
    at(59)
    with pytest.raises(NotFound):
        eve.supersede(ids["memory"], ids["mine"])
    assert entries(book, "team") == logged
    at(61)
    for _ in range(2):
        with pytest.raises(NotFound):
            eve.supersede(ids["memory"], ids["mine"])
    first, second = entries(book, "team")[len(logged) :]
    assert (first[2]["not_logged"], "not_logged" in second[2]) == (51 - MAX_LOGGED_REFUSALS, False)
    assert book.verify_log().findings == ()


@pytest.mark.promise("log.refusals")
def test_the_bound_of_refusals_holds_over_several_processes(book: Book, place: object, ids: dict[str, str]):
    together(
        "supersede_in_vain",
        place,
        processes=3,
        threads=2,
        times=8,
        principal=EVE,
        old=ids["memory"],
        by=ids["mine"],
    )
    counts = [action for _, action, _ in entries(book, "team")]
    # The hour may have changed meanwhile.
    assert counts.count("refused") in range(MAX_LOGGED_REFUSALS, 2 * MAX_LOGGED_REFUSALS + 1)
    assert counts.count("refused.more") in {1, 2}
    assert len(counts) < 3 * 2 * 8
    assert book.verify_log().findings == ()


def test_a_batch_counts_each_of_its_refusals(book: Book, ids: dict[str, str], at: Callable[[int], None]):
    at(0)
    theirs = [book.remember(f"their note {number}", space="team").id for number in range(30)]
    with pytest.raises(NotFound):
        book.acting_as(EVE).remember("so", space="mine", links=[("supersedes", id_) for id_ in theirs])
    assert len(entries(book, "team")) == MAX_LOGGED_REFUSALS + 1


# --- the history of a memory that was moved


@pytest.mark.promise("access.past-texts")
def test_a_move_does_not_show_earlier_texts_to_the_readers_of_the_new_space(book: Book):
    memory = book.remember("the code is 1234", title="the safe", space="vault").id
    book.edit(memory, text="the code is 9999")
    book.edit(memory, text="ask the owner for the code")
    book.grant(ALICE, "team", "reader")
    book.move(memory, "team")
    book.edit(memory, text="ask Bertha for the code")
    alice = book.acting_as(ALICE)
    history = alice.history(memory)
    assert [(one.revision, one.text, one.readable) for one in history] == [
        (1, "", False),
        (2, "", False),
        (3, "ask the owner for the code", True),
        (4, "ask Bertha for the code", True),
    ]
    assert [(one.title, one.author, one.how) for one in history[:2]] == [("", "", ""), ("", "", "")]
    assert [one.at for one in history] == [one.at for one in book.history(memory)]
    assert [one.text for one in book.history(memory)][:2] == ["the code is 1234", "the code is 9999"]
    book.grant(ALICE, "vault", "reader")
    assert alice.history(memory) == book.history(memory)


@pytest.mark.promise("access.past-texts")
def test_a_history_over_several_moves_needs_each_space(book: Book):
    memory = book.remember("in a", space="a").id
    for space, text in (("b", "in b"), ("c", "in c")):
        book.edit(memory, text=f"left {text}")
        book.move(memory, space)
        book.edit(memory, text=text)
    for space in ("b", "c"):
        book.grant(ALICE, space, "reader")
    assert [one.text for one in book.acting_as(ALICE).history(memory)] == ["", "left in b", "in b", "left in c", "in c"]
    book.revoke(ALICE, "b")
    assert [one.text for one in book.acting_as(ALICE).history(memory)] == ["", "", "", "left in c", "in c"]
    book.move(memory, "a")
    with pytest.raises(NotFound):
        book.acting_as(ALICE).history(memory)


# --- without a right on `personal`


@pytest.mark.promise("access.default-recall")
def test_a_recall_without_a_space_asks_those_of_the_default_that_may_be_read(book: Book):
    book.remember("the heron is mine", space="personal")
    book.remember("the heron is ours", space="team")
    alice = book.acting_as(ALICE)
    assert alice.recall("heron").hits == ()
    assert alice.recall().hits == ()
    assert alice.prefetch("talk", "heron")
    prefetched = alice.prefetched("talk", "heron", wait=30)
    assert prefetched is not None
    assert prefetched.hits == ()
    with pytest.raises(NotAllowed):
        alice.recall("heron", spaces=["personal"])
    assert alice.recall("heron").notes == ()
    book.grant(ALICE, "team", "reader")
    answer = alice.recall("heron")
    assert answer.hits == ()
    assert [note.endswith("name one: team, or / for all") for note in answer.notes] == [True]
    assert alice.recall("heron", spaces=["/"]).notes == ()
    assert {one.text for one in alice.list().items} == {"the heron is ours"}
    assert (alice.sessions(), alice.inbox().items) == ((), ())
    book.grant(ALICE, "personal", "reader")
    assert [hit.text for hit in alice.recall("heron").hits] == ["the heron is mine"]


def test_a_reader_who_writes_is_told_what_is_missing_and_a_stranger_is_not(book: Book):
    memory = book.remember("the heron is ours", space="team").id
    book.grant(ALICE, "team", "reader")
    alice, eve = book.acting_as(ALICE), book.acting_as(EVE)
    for write in (lambda: alice.remember("mine", space="team"), lambda: alice.edit(memory, text="mine")):
        with pytest.raises(NotAllowed, match="may read the space 'team', but not write to it"):
            write()
    with pytest.raises(NotAllowed, match="may not use the space 'team'"):
        eve.remember("mine", space="team")
