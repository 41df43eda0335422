"""Races on PostgreSQL: spaces are renamed, created and granted at the same time, and each answer is true."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

import commonbook
from commonbook.errors import NotAllowed, NotFound
from commonbook.values.memory import Filter


@pytest.fixture
def books(postgres_book, monkeypatch, tmp_path):
    """The same book as three processes would have it."""
    address, keys = postgres_book
    for name, value in {"DATABASE": address, "KEYS": keys, "HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(f"COMMONBOOK_{name}", value)
    opened = [commonbook.open() for _ in range(3)]
    yield opened
    for book in opened:
        book.close()


@contextmanager
def held(address: str, space: str) -> Iterator[None]:
    """Lock the log of a space, so that nobody finishes a change of it before the block ends."""
    with psycopg.connect(address) as holder:
        holder.execute(
            "SELECT 1 FROM log_head JOIN space ON space.id = log_head.space WHERE name = %s FOR UPDATE", (space,)
        )
        yield


def wait_for_waiting(address: str, number: int) -> None:
    """Wait until this number of connections wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with psycopg.connect(address, autocommit=True) as connection:
        until = time.monotonic() + 60
        while connection.execute(waiting).fetchone() != (number,):
            assert time.monotonic() < until, "nobody waits"
            time.sleep(0.01)


def names(book) -> list[str]:
    return [space.name for space in book.spaces()]


def test_of_two_who_rename_a_space_at_once_the_second_finds_it_gone(books, postgres_book):
    one, two, three = books
    one.remember("the heron nests", space="a")
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], "a"):
            first = pool.submit(one.rename_space, "a", "b")
            wait_for_waiting(postgres_book[0], 1)
            second = pool.submit(two.rename_space, "a", "c")
            wait_for_waiting(postgres_book[0], 2)
        assert first.result().name == "b"
        with pytest.raises(NotFound):
            second.result()
    assert names(three) == ["b"]
    (memory,) = three.list().items
    # The folder of the month stays.
    assert memory.path.startswith(f"b/{memory.created:%Y-%m}/")
    renames = [json.loads(entry.payload) for entry in three.log(space="b") if entry.action == "space.rename"]
    assert renames == [{"old": "a", "new": "b"}]


def test_a_space_that_was_renamed_out_of_another_does_not_go_along_with_it(books, postgres_book):
    one, two, three = books
    for space in ("p", "p/c"):
        one.remember(f"in {space}", space=space)
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], "p/c"):
            first = pool.submit(one.rename_space, "p/c", "y")
            wait_for_waiting(postgres_book[0], 1)
            second = pool.submit(two.rename_space, "p", "x")
            wait_for_waiting(postgres_book[0], 2)
        assert (first.result().name, second.result().name) == ("y", "x")
    assert names(three) == ["x", "y"]
    assert {memory.text: memory.path.rsplit("/", 2)[0] for memory in three.list().items} == {"in p": "x", "in p/c": "y"}


def test_a_space_that_is_made_while_the_one_above_it_is_renamed_is_taken_along_or_made_later(books, postgres_book):
    one, two, three = books
    one.remember("in q", space="q")
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], "q"):
            renamed = pool.submit(one.rename_space, "q", "r")
            wait_for_waiting(postgres_book[0], 1)
            made = pool.submit(two.create_space, "q/c")
            # The creation waits for the renaming, which waits for us.
            wait_for_waiting(postgres_book[0], 2)
        assert (renamed.result().name, made.result().name) == ("r", "q/c")
    assert names(three) == ["q/c", "r"]


@pytest.mark.promise("access.races")
@pytest.mark.parametrize("verb", ["remember", "append", "edit", "grant"])
def test_nobody_writes_behind_its_own_revocation(books, postgres_book, verb):
    one, two, three = books
    one.grant("user:alice", "team", "admin")
    alice = two.acting_as("user:alice")
    memory = alice.remember("the heron nests", space="team").id
    deeds = {
        "remember": lambda: alice.remember("the otter swims", space="team"),
        "append": lambda: alice.append("talk", ["the otter swims"], space="team"),
        "edit": lambda: alice.edit(memory, text="the otter swims"),
        "grant": lambda: alice.grant("user:bob", "team", "reader"),
    }
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], "team"):
            revoked = pool.submit(one.revoke, "user:alice", "team")
            wait_for_waiting(postgres_book[0], 1)
            done = pool.submit(deeds[verb])
            wait_for_waiting(postgres_book[0], 2)
        revoked.result()
        with pytest.raises((NotAllowed, NotFound)):
            done.result()
    assert three.log(space="team")[-1].action == "revoke"


@pytest.mark.parametrize("role", ["writer", None])
def test_an_admin_may_give_away_its_own_right(books, role):
    one, two, _ = books
    one.grant("user:alice", "team", "admin")
    alice = two.acting_as("user:alice")
    if role:
        alice.grant("user:alice", "team", role)
        assert alice.remember("the heron nests", space="team").new
    else:
        alice.revoke("user:alice", "team")
    with pytest.raises(NotAllowed):
        alice.grant("user:bob", "team", "reader")


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("role", ["writer", "admin"])
def test_nobody_grants_itself_what_is_taken_from_it_at_this_moment(books, postgres_book, role, below):
    one, two, _ = books
    where = "team/below" if below else "team"
    for name in ("team", "team/below"):
        one.create_space(name)
    one.grant("agent:ada", "team", "admin")
    ada = two.acting_as("agent:ada")
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], where):
            if below:
                granted = pool.submit(ada.grant, "agent:ada", where, role)
                wait_for_waiting(postgres_book[0], 1)
                revoked = pool.submit(one.revoke, "agent:ada", "team")
                revoked.result(60)
            else:
                revoked = pool.submit(one.revoke, "agent:ada", "team")
                wait_for_waiting(postgres_book[0], 1)
                granted = pool.submit(ada.grant, "agent:ada", where, role)
                wait_for_waiting(postgres_book[0], 2)
        revoked.result(60)
        with pytest.raises(NotAllowed):
            granted.result(60)
    assert [grant for grant in one.grants() if grant.principal == "agent:ada"] == []


def test_nobody_appends_behind_a_rename_that_took_the_space_out_of_its_reach(books, postgres_book):
    one, two, three = books
    one.grant("user:alice", "team", "writer")
    one.create_space("team/talks")
    alice = two.acting_as("user:alice")
    alice.append("talk", ["the heron nests"], space="team/talks")
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], "team/talks"):
            renamed = pool.submit(one.rename_space, "team/talks", "talks")
            wait_for_waiting(postgres_book[0], 1)
            appended = pool.submit(alice.append, "talk", ["the otter swims"], space="team/talks")
            wait_for_waiting(postgres_book[0], 2)
        assert renamed.result().name == "talks"
        with pytest.raises(NotAllowed):
            appended.result()
    assert [message.text for message in three.messages("talk").items] == ["the heron nests"]


@pytest.mark.promise("access.races")
def test_no_copy_follows_behind_the_revocation_of_the_one_who_shared_it(books, postgres_book):
    owner, revoker, editor = books
    memory = owner.remember("first", space="source").id
    owner.create_space("target")
    owner.grant("user:x", "source", "reader")
    owner.grant("user:x", "target", "writer")
    copy = owner.acting_as("user:x").share(memory, "target").id
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], "source"):
            revoking = pool.submit(revoker.revoke, "user:x", "source")
            wait_for_waiting(postgres_book[0], 1)
            editing = pool.submit(editor.edit, memory, text="second, secret")
            wait_for_waiting(postgres_book[0], 2)
        revoking.result(60)
        editing.result(60)
    actions = [entry.action for entry in owner.log(space="source")]
    behind = actions.index("revoke") < actions.index("edit")
    assert (owner.get(copy).text == "first") is behind
    assert owner.get(memory).text == "second, secret"


@pytest.mark.promise("access.races")
def test_no_rule_takes_in_behind_the_revocation_of_its_maker(books, postgres_book):
    owner, revoker, writer = books
    for space in ("source", "target"):
        owner.create_space(space)
        owner.grant("user:x", space, "admin")
    owner.acting_as("user:x").add_rule("target", "source")
    with ThreadPoolExecutor() as pool:
        with held(postgres_book[0], "source"):
            revoking = pool.submit(revoker.revoke, "user:x", "source")
            wait_for_waiting(postgres_book[0], 1)
            writing = pool.submit(writer.remember, "a secret", space="source")
            wait_for_waiting(postgres_book[0], 2)
        revoking.result(60)
        writing.result(60)
    actions = [entry.action for entry in owner.log(space="source")]
    behind = actions.index("revoke") < actions.index("remember")
    assert (owner.list(Filter(space="target")).items == ()) is behind
