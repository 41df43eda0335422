"""A remote book has the verbs, results and errors of the local one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import commonbook
from commonbook.errors import (
    BadInput,
    BadText,
    BadTime,
    CommonbookError,
    NotAllowed,
    NotFound,
    SpaceExists,
    Unreachable,
    VersionConflict,
)
from commonbook.values.memory import Draft, Filter
from commonbook.values.session import NewMessage

pytestmark = pytest.mark.promise("client.same")


def test_memories_are_stored_and_read_as_in_the_local_book(book, remote):
    when = datetime(2026, 3, 1, 12, tzinfo=UTC)
    receipt = remote.remember(
        "Alice owns the billing service", tags=["billing"], occurred=when, metadata={"ticket": "A-1", "open": True}
    )
    memory = remote.get(receipt.id)
    assert memory == book.get(receipt.id)
    assert (memory.occurred, memory.metadata, memory.author) == (when, {"ticket": "A-1", "open": True}, "user:local")
    assert remote.list(Filter(tags=("billing",))).items == (memory,)
    remote.edit(receipt.id, text="Bob owns it", tags=[], expected_version=receipt.version)
    assert book.get(receipt.id).text == "Bob owns it"
    assert [revision.text for revision in remote.history(receipt.id)] == [
        "Alice owns the billing service",
        "Bob owns it",
    ]
    other = remote.remember_many([Draft("one"), Draft("two", space="team")])
    assert [book.get(one.id).text for one in other] == ["one", "two"]
    remote.link(receipt.id, "related_to", other[0].id)
    assert remote.links(receipt.id) == book.links(receipt.id)
    assert set(remote.delete(other[0].id, other[1].id).ids) == {one.id for one in other}
    assert remote.undelete(other[0].id).id == other[0].id


def test_a_remote_book_tells_whom_it_acts_for(book, server, connect):
    book.create_space("team")
    book.grant("user:bob", "team", "admin")
    secret = book.create_key("user:bob", limits=[("team", "writer")], space="team").secret
    assert connect(server.url, secret).whoami() == book.with_key(secret).whoami()


def test_half_a_character_is_refused_as_by_the_local_book(book, remote):
    memory, half = book.remember("whole").id, "half \ud800"
    calls: list[Callable[[Any], object]] = [
        lambda book: book.remember(half),
        lambda book: book.remember("x", title=half),
        lambda book: book.remember("x", tags=["\ud800"]),
        lambda book: book.remember_many([Draft(half)]),
        lambda book: book.edit(memory, text=half),
        lambda book: book.append("talk", [half]),
        lambda book: book.list(Filter(tags=("\ud800",))),
    ]
    for call in calls:
        for each in (book, remote):
            with pytest.raises(BadText):
                call(each)
    assert [item.id for item in remote.list().items] == [memory]


def test_standing_wishes_are_those_of_the_local_book(book, remote):
    remote.append("s", [NewMessage("Never deploy on Fridays. What is next?")])
    found = remote.recall("the weather in Graz", include=["wishes"])
    assert [wish.text for wish in found.wishes] == ["Never deploy on Fridays."]
    assert found.wishes == book.recall(include=["wishes"]).wishes
    assert "Never deploy on Fridays." in found.as_prompt(max_tokens=200)


def test_recall_finds_what_the_local_book_finds(book, remote):
    book.remember("The drawbridge is up at night", space="castle", tags=["bridge"])
    book.remember("The drawbridge is down at noon", space="castle")
    for options in ({"k": 1}, {"tags": ["bridge"]}, {"explain": False, "spaces": "castle"}):
        assert remote.recall("drawbridge", **{"spaces": ["castle"], **options}).hits == (
            book.recall("drawbridge", **{"spaces": ["castle"], **options}).hits
        )
    assert remote.prefetch("s", "drawbridge", spaces="castle", k=1)
    assert len(remote.prefetched("s", "drawbridge", wait=30).hits) == 1


def test_sessions_work_as_in_the_local_book(book, remote):
    receipt = remote.append("talk", ["hello", NewMessage("hi", role="assistant"), {"role": "user", "content": "bye"}])
    assert receipt.searchable
    assert [message.seq for message in receipt.messages] == [1, 2, 3]
    assert receipt.space == "personal"
    assert remote.messages("talk") == book.messages("talk")
    assert [message.text for message in book.messages("talk").items] == ["hello", "hi", "bye"]
    assert [message.text for message in remote.rewind("talk", 2)] == ["bye"]
    assert remote.switch("talk", "talk-2").session == "talk"
    assert remote.sessions() == book.sessions()


@pytest.mark.promise("secrets.client")
def test_secrets_in_messages_are_masked_and_counted(book, remote):
    receipt = remote.append("talk", ["the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"])
    assert receipt.messages[0].masked == 1
    (stored,) = book.messages("talk").items
    assert "abcdefghij" not in stored.text
    assert stored.masked == 1
    again = NewMessage(stored.text, client_id="given", masked=3)
    assert remote.append("talk", [again]).messages[0].masked == 3
    assert remote.append("talk", [again]).messages[0].masked == 3
    assert book.messages("talk").items[1].masked == 3


@pytest.mark.promise("secrets.client")
def test_secrets_in_messages_that_had_to_wait_are_counted_too(book, server, serve, connect, key):
    server.kill()
    here = connect(server.url, key)
    receipt = here.append("talk", ["the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD", "nothing"])
    assert [message.masked for message in receipt.messages] == [1, 0]
    serve(port=server.port)
    assert here.outbox.flush(60)
    assert [message.masked for message in book.messages("talk").items] == [1, 0]


@pytest.mark.parametrize("masked", [-1, True, "1", 1 << 40])
def test_a_number_of_masked_secrets_that_is_none_is_refused(book, remote, masked):
    for here in (book, remote):
        with pytest.raises(BadInput):
            here.append("talk", [{"text": "hello", "masked": masked}])


def test_sharing_reasoning_and_rights_work_as_in_the_local_book(book, remote):
    source = remote.remember("the plan", space="team").id
    copy = remote.share(source, "office")
    assert remote.lineage(copy.id) == book.lineage(copy.id)
    reflection = remote.reflect("so it is", [source], space="team").id
    remote.supersede(source, remote.remember("the new plan", space="team").id, reason="better")
    assert remote.inbox() == book.inbox()
    remote.triage(reflection, "keep", note="still holds")
    assert remote.dependents(source) == book.dependents(source)
    remote.grant("user:bob", "team", "reader", expires="2999-01-01")
    assert remote.grants(space="team") == book.grants(space="team")
    assert remote.revoke("user:bob", "team") is None
    assert remote.spaces() == book.spaces()
    assert remote.limits() == book.limits()


def test_properties_and_reports_are_those_of_the_local_book(book, remote):
    remote.remember("one")
    assert (remote.actor, remote.default_space, remote.home) == (book.actor, book.default_space, book.home)
    assert remote.schema_migration is None
    assert remote.status().memories == book.status().memories
    assert remote.doctor(progress=lambda *_: None) == ()
    assert remote.verify_log().ok
    assert remote.log(space="personal") == book.log(space="personal")
    assert remote.work(seconds=5) >= 0


def raised(kind: type[CommonbookError], call: Callable[[], object]) -> CommonbookError:
    with pytest.raises(kind) as caught:
        call()
    error: CommonbookError = caught.value
    return error


def test_errors_are_those_of_the_local_book(book, remote):
    memory = remote.remember("one")
    missing = "01a1e813-0000-7000-8000-000000000000"
    calls = [
        (NotFound, lambda here: here.get(missing)),
        (BadInput, lambda here: here.get("")),
        (BadInput, lambda here: here.get(f"{memory.id}/history")),
        (BadInput, lambda here: here.share("a/b", "team")),
        (BadInput, lambda here: here.remember("x", kind="thought")),
        (BadInput, lambda here: here.append("talk", [])),
        (VersionConflict, lambda here: here.edit(memory.id, text="two", expected_version=9)),
        (SpaceExists, lambda here: here.create_space("personal")),
    ]
    for kind, call in calls:
        found = []
        for here in (book, remote):
            error = raised(kind, partial(call, here))
            found.append((type(error), error.message, error.fix, error.item))
        assert found[0] == found[1]
    with pytest.raises(VersionConflict) as conflict:
        remote.edit(memory.id, text="two", expected_version=9)
    assert (conflict.value.memory, conflict.value.expected, conflict.value.found) == (memory.id, 9, memory.version)


def test_a_time_without_zone_and_half_a_character_are_refused_as_by_the_local_book(book, remote):
    noon = datetime(2026, 3, 1, 12)  # noqa: DTZ001 - as a caller may give it
    for here in (book, remote):
        assert "has no zone" in raised(BadTime, partial(here.remember, "x", occurred=noon)).message
        raised(BadInput, partial(here.messages, "\ud800"))
        raised(BadInput, partial(here.find_id, "\ud800"))
    assert book.list().items == ()


def test_a_key_gives_its_own_rights_and_no_others(book, server, connect):
    book.remember("for the team", space="team")
    book.remember("for nobody else", space="personal")
    book.grant("user:alice", "team", "writer")
    alice = connect(server.url, book.create_key("user:alice", space="team").secret)
    assert (alice.actor, alice.default_space) == ("user:alice", "team")
    assert [memory.text for memory in alice.list().items] == ["for the team"]
    assert book.get(alice.remember("from alice").id).space == "team"
    with pytest.raises(NotAllowed):
        alice.remember("no", space="personal")
    with pytest.raises(NotAllowed):
        alice.doctor()
    with pytest.raises(NotAllowed, match="the key opens nothing here"):
        connect(server.url, "cbk_wrong").list()


def test_the_space_of_a_connection_is_that_of_calls_that_name_none(book, server, connect, key):
    here = connect(server.url, key, space="team/backend")
    assert here.default_space == "team/backend"
    assert book.get(here.remember("in the team").id).space == "team/backend"
    assert here.append("talk", ["hello"]).space == "team/backend"
    assert [hit.title for hit in here.recall("in the team").hits][:1] == ["in the team"]
    with pytest.raises(BadInput):
        connect(server.url, key, space="../x").status()


def test_without_a_server_every_verb_but_append_says_so(book, server, connect, key):
    here = connect(server.url, key, patience_seconds=0.5)
    server.kill()
    with pytest.raises(Unreachable) as caught:
        here.remember("x")
    assert key not in caught.value.message + caught.value.fix
    with pytest.raises(Unreachable):
        here.recall("x")


def test_a_connection_needs_an_address_and_a_key(monkeypatch):
    with pytest.raises(BadInput, match="address"):
        commonbook.connect()
    with pytest.raises(BadInput, match="no key"):
        commonbook.connect("http://127.0.0.1:1")
    monkeypatch.setenv("COMMONBOOK_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("COMMONBOOK_KEY", "cbk_x")
    commonbook.connect().close()


def test_a_closed_remote_book_says_so(remote):
    remote.close()
    remote.close()
    with pytest.raises(commonbook.HomeError, match="closed"):
        remote.list()
