"""Grants decide which principal reads and writes which space, and every verb checks them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from commonbook.errors import BadInput, CommonbookError, NotAllowed, NotFound
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from commonbook.values.session import PromptPassage

ALICE, BOB = "user:alice", "agent:bob"
SECRET = "the heron stands on the green weir"


@pytest.fixture
def shared(book):
    """A book with memories and a session in a space of the team's and one of the owner's."""
    book.remember(SECRET, space="personal", tags=["hidden"])
    book.remember("billing is Alice's", space="team/backend")
    book.append("talk", ["the otter sleeps below the bridge"], space="personal")
    return book


def texts(book, **filters):
    return {memory.text for memory in book.list(Filter(**filters)).items}


# --- roles


def test_nobody_reads_a_space_that_was_not_granted(shared):
    alice = shared.acting_as(ALICE)
    assert alice.spaces() == ()
    assert texts(alice) == set()
    with pytest.raises(NotAllowed):
        alice.recall("heron", spaces=["personal"])
    with pytest.raises(NotAllowed):
        alice.remember("hello", space="personal")


@pytest.mark.promise("access.errors")
def test_a_space_that_is_not_there_is_answered_like_one_that_may_not_be_read(shared):
    alice = shared.acting_as(ALICE)
    with pytest.raises(NotAllowed) as there:
        alice.recall("heron", spaces=["personal"])
    with pytest.raises(NotAllowed) as missing:
        alice.recall("heron", spaces=["elsewhere"])
    assert str(there.value).replace("personal", "elsewhere") == str(missing.value)


@pytest.mark.promise("access.errors")
def test_an_id_that_may_not_be_read_is_not_found_like_one_that_is_not_there(shared):
    (hidden,) = shared.list(Filter(tags=("hidden",))).items
    alice = shared.acting_as(ALICE)
    with pytest.raises(NotFound) as there:
        alice.get(hidden.id)
    shared.delete(hidden.id)
    with pytest.raises(NotFound) as missing:
        alice.get(hidden.id)
    assert str(there.value) == str(missing.value)


def test_a_reader_reads_and_does_not_write(shared):
    shared.grant(ALICE, "team/backend", "reader")
    alice = shared.acting_as(ALICE)
    assert texts(alice) == {"billing is Alice's"}
    assert [hit.passage for hit in alice.recall("billing", spaces=["team/backend"]).hits] == ["billing is Alice's"]
    (memory,) = alice.list().items
    for refused in (
        lambda: alice.remember("more", space="team/backend"),
        lambda: alice.edit(memory.id, text="less"),
        lambda: alice.delete(memory.id),
        lambda: alice.link(memory.id, "related_to", memory.id),
    ):
        with pytest.raises(NotAllowed):
            refused()
    assert shared.get(memory.id).version == 1


def test_a_writer_writes_in_its_own_name_and_grants_nothing(shared):
    shared.grant(ALICE, "team", "writer")
    alice = shared.acting_as(ALICE)
    written = alice.remember("the deploy runs on Fridays", space="team/backend")
    assert shared.get(written.id).author == ALICE
    with pytest.raises(NotAllowed):
        alice.grant(BOB, "team/backend", "reader")
    with pytest.raises(NotAllowed):
        alice.remember("a space of my own", space="team/frontend")
    with pytest.raises(NotAllowed):
        alice.rename_space("team/backend", "team/rear")


def test_an_admin_makes_spaces_below_its_own_grants_them_and_renames_them(shared):
    shared.grant(ALICE, "team", "admin")
    alice, bob = shared.acting_as(ALICE), shared.acting_as(BOB)
    alice.create_space("team/frontend")
    alice.grant(BOB, "team/frontend", "writer")
    bob.remember("buttons are blue", space="team/frontend")
    alice.rename_space("team/frontend", "team/front")
    assert texts(bob) == {"buttons are blue"}
    for refused in (
        lambda: alice.create_space("mine"),
        lambda: alice.rename_space("team/front", "front"),
        lambda: alice.grant(BOB, "personal", "reader"),
        lambda: bob.grant(BOB, "team", "reader"),
    ):
        with pytest.raises(NotAllowed):
            refused()


def test_a_grant_counts_for_everything_below_and_nothing_beside(shared):
    shared.remember("beside", space="teammates")
    shared.grant(ALICE, "team", "reader")
    assert texts(shared.acting_as(ALICE)) == {"billing is Alice's"}


def test_the_higher_of_two_grants_counts_and_a_new_one_takes_the_place_of_the_old(shared):
    shared.grant(ALICE, "team", "writer")
    shared.grant(ALICE, "team/backend", "reader")
    alice = shared.acting_as(ALICE)
    alice.remember("by the grant above", space="team/backend")
    shared.grant(ALICE, "team", "reader")
    with pytest.raises(NotAllowed):
        alice.remember("no longer", space="team/backend")
    assert [(one.space.name, one.role) for one in shared.grants()] == [("team", "reader"), ("team/backend", "reader")]


@pytest.mark.promise("access.revoked")
def test_what_is_revoked_ends_at_once_for_books_that_are_open(shared):
    shared.grant(ALICE, "team", "reader")
    alice = shared.acting_as(ALICE)
    assert texts(alice)
    shared.revoke(ALICE, "team")
    assert not texts(alice)
    with pytest.raises(NotFound):
        shared.revoke(ALICE, "team")


def test_a_grant_ends_when_it_expires(shared, monkeypatch):
    later = datetime.now(UTC) + timedelta(hours=1)
    shared.grant(ALICE, "team", "reader", expires=later)
    alice = shared.acting_as(ALICE)
    assert texts(alice)
    monkeypatch.setattr(shared._engines.clock, "now", lambda: later + timedelta(seconds=1), raising=False)
    assert not texts(alice)
    with pytest.raises(BadInput, match="past"):
        shared.grant(ALICE, "team", "reader", expires=later)


@pytest.mark.parametrize("principal", ["alice", "user:", "user:Alice", "robot:x", "user:a/b", "user:local", ""])
def test_only_principals_are_granted_anything(shared, principal):
    with pytest.raises(BadInput):
        shared.grant(principal, "team", "reader")
    with pytest.raises(BadInput):
        shared.grant(ALICE, "team", "owner")
    assert shared.grants() == ()


def test_grants_are_seen_by_those_who_decide_and_by_those_they_concern(shared):
    shared.grant(ALICE, "team", "admin")
    shared.grant(BOB, "team/backend", "reader")
    everything = [(ALICE, "team"), (BOB, "team/backend")]
    assert [(one.principal, one.space.name) for one in shared.grants()] == everything
    assert [(one.principal, one.space.name) for one in shared.acting_as(ALICE).grants()] == everything
    bob = shared.acting_as(BOB)
    assert [(one.principal, one.space.name) for one in bob.grants()] == everything[1:]
    with pytest.raises(NotAllowed):
        bob.grants(space="team/backend")


def test_granting_and_revoking_stand_in_the_log_of_the_space(shared):
    shared.grant(ALICE, "team", "reader")
    shared.revoke(ALICE, "team")
    entries = [entry for entry in shared.log(space="team") if entry.action in ("grant", "revoke")]
    assert [entry.action for entry in entries] == ["grant", "revoke"]
    assert [json.loads(entry.payload)["principal"] for entry in entries] == [ALICE, ALICE]
    assert shared.verify_log().findings == ()


def test_only_the_owner_lends_the_book(shared):
    alice = shared.acting_as(ALICE)
    with pytest.raises(NotAllowed):
        alice.acting_as("user:local")
    alice.close()
    assert texts(shared), "closing a lent book closes the book itself"


# --- what scores and counts tell


def test_hits_and_scores_are_the_same_with_and_without_what_one_may_not_read(shared):
    for number in range(40):
        shared.remember(f"billing note {number} on invoices and the weir", space="team/backend")
    shared.grant(ALICE, "team", "reader")
    alice = shared.acting_as(ALICE)
    options = {"spaces": ["team/"], "k": 20, "explain": True}
    before = [(hit.id, hit.score, hit.parts) for hit in alice.recall("billing invoices on the weir", **options).hits]
    for number in range(60):
        shared.remember(f"billing secret {number} invoices weir", space="personal")
    shared.reindex(anew=True)
    after = [(hit.id, hit.score, hit.parts) for hit in alice.recall("billing invoices on the weir", **options).hits]
    assert before == after
    assert before


def test_a_status_counts_what_one_may_read_alone(shared):
    shared.grant(ALICE, "team", "reader")
    status = shared.acting_as(ALICE).status()
    assert (status.memories, status.messages, status.spaces) == (1, 0, 2)
    assert (status.home, status.database_bytes, status.markdown_bytes) == ("", None, None)
    assert status.log_entries < shared.status().log_entries


# --- every verb

OWNERS = {
    "sync",
    "set_limit",
    "watching",
    "import_folder",
    "export",
    "rebuild",
    "reindex",
    "accept_deletions",
    "doctor",
    "log_size",
    "metrics",
}
HARMLESS = {
    "actor",
    "adopt_all",
    "changes",
    "close",
    "default_space",
    "space_for_writing",
    "find_id",
    "grants",
    "home",
    "keys",
    "limits",
    "list",
    "pending",
    "prefetch",
    "inbox",
    "moved_to",
    "prefetched",
    "rules",
    "schema_migration",
    "sessions",
    "share_many",
    "spaces",
    "status",
    "verify_log",
    "with_key",
    "work",
    "working",
    "whoami",
}
"""Verbs that answer everybody with what the actor may see, which must be nothing."""


def calls(
    memory: str, session: str, rule: str = "", request: str = ""
) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return, for each verb that must refuse a stranger, its arguments for memories of others."""
    return {
        "accept_deletions": ((), {}),
        "acting_as": (("user:local",), {}),
        "add_rule": (("team", "personal"), {}),
        "append": ((session, ["more"]), {}),
        "approve": ((request,), {}),
        "close_session": ((session,), {}),
        "move_session": ((session, "team"), {}),
        "create_key": (("user:local",), {}),
        "create_login": ((memory,), {}),
        "create_sign_in": ((), {}),
        "exchange_login": (("a code that nobody made",), {}),
        "create_space": (("team/new",), {}),
        "delete": ((memory,), {}),
        "undelete": ((memory,), {}),
        "delete_where": ((Filter(space="personal"),), {}),
        "doctor": ((), {}),
        "edit": ((memory,), {"text": "changed"}),
        "export": (("somewhere",), {}),
        "get": ((memory,), {}),
        "grant": (("user:eve", "personal", "admin"), {}),
        "history": ((memory,), {}),
        "import_folder": ((".",), {}),
        "link": ((memory, "related_to", memory), {}),
        "links": ((memory,), {}),
        "log": ((), {"space": "personal"}),
        "log_size": ((), {}),
        "metrics": ((), {}),
        "messages": ((session,), {}),
        "move": ((memory, "team"), {}),
        "rebuild": ((), {}),
        "recall": (("heron",), {"spaces": ["personal"]}),
        "reindex": ((), {}),
        "reject": ((request,), {"note": "no"}),
        "remember": (("hello",), {"space": "personal"}),
        "remember_many": (([],), {}),
        "remove_rule": ((rule,), {}),
        "rename_space": (("team", "mine"), {}),
        "request_share": ((memory, "team"), {}),
        "revoke": (("user:alice", "team"), {}),
        "revoke_key": ((memory,), {}),
        "rewind": ((session, 0), {}),
        "set_limit": (("share", 1), {}),
        "settle": ((session,), {}),
        "share": ((memory, "team"), {}),
        "share_with": ((memory, "user:mallory"), {}),
        "pull": ((memory, "team"), {}),
        "unshare": ((memory,), {}),
        "refresh": ((memory,), {}),
        "set_refresh": ((memory, "lazy"), {}),
        "detach": ((memory,), {}),
        "adopt": ((memory,), {}),
        "lineage": ((memory,), {}),
        "copies": ((memory,), {}),
        "record_uses": ((session, [PromptPassage(memory, "0" * 64)]), {}),
        "uses": ((memory,), {}),
        "session_uses": ((session,), {}),
        "reflect": (("so it is", [memory]), {"space": "personal"}),
        "supersede": ((memory, memory), {}),
        "reinstate": ((memory,), {}),
        "dependents": ((memory,), {}),
        "triage": ((memory, "keep"), {}),
        "set_depth": (("personal", 2), {}),
        "set_review": (("personal", "agents"), {}),
        "switch": ((session, "other"), {"space": "personal"}),
        "sync": ((), {}),
        "unlink": ((memory, "related_to", memory), {}),
        "watching": ((), {}),
    }


def used(verb: Any, *arguments: Any, **named: Any) -> None:
    """Call a verb, and enter its answer if that is a context manager."""
    answer = verb(*arguments, **named)
    if hasattr(answer, "__enter__"):
        with answer:
            pass


@pytest.mark.promise("access.granted")
def test_every_verb_is_tried_by_a_stranger():
    public = {name for name in dir(Book) if not name.startswith("_")}
    assert public == {*calls("", ""), *HARMLESS}


def recorded(book):
    """Return the log and the counts without refusals; the size of a server's files changes by itself."""
    logged = [entry for space in book.spaces() for entry in book.log(space=space.name) if entry.action != "refused"]
    return logged, book.status()._replace(database_bytes=0, log_entries=0)


@pytest.mark.promise("access.granted")
@pytest.mark.parametrize("who", ["a stranger", "somebody with another space", "somebody whose grant has ended"])
def test_no_verb_answers_without_the_right(shared, who):
    eve = shared.acting_as("user:eve")
    if who == "somebody with another space":
        shared.grant("user:eve", "elsewhere", "admin")
    if who == "somebody whose grant has ended":
        shared.grant("user:eve", "personal", "admin")
        shared.grant("user:eve", "team", "admin")
        shared.revoke("user:eve", "personal")
        shared.revoke("user:eve", "team")
    (memory,) = shared.list(Filter(tags=("hidden",))).items
    rule = shared.add_rule("team", "personal", tags=["wanted"], approval=True).id
    shared.edit(memory.id, tags=["hidden", "wanted"])
    (waiting,) = shared.pending()
    before = recorded(shared)
    for verb, (arguments, named) in calls(memory.id, "talk", rule, waiting.id).items():
        if verb == "remember_many":
            continue
        with pytest.raises((NotAllowed, NotFound)) as refused:
            used(getattr(eve, verb), *arguments, **named)
        assert SECRET not in str(refused.value)
        assert isinstance(refused.value, NotAllowed) or verb not in OWNERS
    assert eve.list().items == ()
    assert {change.space for change in eve.changes(after="0").items} <= {"elsewhere"}
    with pytest.raises(NotAllowed):
        eve.changes(space="personal")
    assert eve.sessions() == ()
    assert eve.keys() == ()
    assert eve.rules() == ()
    assert eve.pending(decided=True) == ()
    assert {one.principal for one in eve.limits()} == {"*"}
    assert eve.work() == 0
    (shared_many,) = eve.share_many([memory.id], "team")
    assert (shared_many.id, shared_many.new) == ("", False)
    assert eve.status().memories == 0
    assert eve.verify_log().findings == ()
    assert {space.name for space in eve.spaces()} <= {"elsewhere"}
    assert {role.space for role in eve.whoami().spaces} <= {"elsewhere"}
    assert not eve.prefetch("talk", "heron", spaces=["personal"]) or eve.prefetched("talk", "heron", wait=5) is None
    with pytest.raises(CommonbookError):
        eve.find_id(memory.id)
    assert recorded(shared) == before
