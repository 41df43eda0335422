"""API keys: shown once, kept as a hash, limited, revocable."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from commonbook import masking
from commonbook.errors import BadInput, NotAllowed, NotFound
from commonbook.model import Filter

ALICE = "user:alice"


@pytest.fixture
def team(book):
    book.remember("billing is Alice's", space="team/backend")
    book.remember("lunch is at noon", space="team/lunch")
    book.grant(ALICE, "team", "writer")
    return book


def texts(book):
    return {memory.text for memory in book.list().items}


def test_a_key_opens_what_its_principal_may(team):
    made = team.create_key(ALICE, label="laptop")
    alice = team.with_key(made.secret)
    assert alice.actor == ALICE
    assert texts(alice) == {"billing is Alice's", "lunch is at noon"}
    assert team.get(alice.remember("from the laptop", space="team/backend").id).author == ALICE


def test_a_key_with_limits_opens_nothing_beside_them_and_gives_no_higher_role(team):
    made = team.create_key(ALICE, limits=[("team/backend", "reader")])
    alice = team.with_key(made.secret)
    assert texts(alice) == {"billing is Alice's"}
    with pytest.raises(NotAllowed):
        alice.remember("no", space="team/backend")
    with pytest.raises(NotAllowed):
        alice.recall("lunch", spaces=["team/lunch"])
    admin = team.create_key(ALICE, limits=[("team", "admin")])
    with pytest.raises(NotAllowed):
        team.with_key(admin.secret).grant("user:bob", "team", "reader")


def test_limits_hold_for_a_key_of_the_owner_too(team):
    made = team.create_key("user:local", limits=[("team/lunch", "reader")])
    owner = team.with_key(made.secret)
    assert texts(owner) == {"lunch is at noon"}
    for refused in (owner.sync, owner.doctor, lambda: owner.acting_as(ALICE), lambda: owner.create_key(ALICE)):
        with pytest.raises(NotAllowed):
            refused()


def test_a_revoked_key_opens_nothing_also_in_books_that_are_open(team):
    made = team.create_key(ALICE)
    alice = team.with_key(made.secret)
    assert team.revoke_key(made.key.id).revoked
    assert texts(alice) == set()
    with pytest.raises(NotAllowed):
        alice.remember("no", space="team/backend")
    with pytest.raises(NotAllowed):
        alice.keys()
    with pytest.raises(NotAllowed):
        team.with_key(made.secret)
    assert team.revoke_key(made.key.id) == team.keys()[0]


def test_a_key_ends_when_it_expires(team, monkeypatch):
    later = datetime.now(UTC) + timedelta(hours=1)
    made = team.create_key(ALICE, expires=later)
    alice = team.with_key(made.secret)
    monkeypatch.setattr(team._parts.clock, "now", lambda: later + timedelta(seconds=1), raising=False)
    assert texts(alice) == set()
    with pytest.raises(NotAllowed):
        team.with_key(made.secret)


@pytest.mark.parametrize("secret", ["", "cbk_", "cbk_wrong", "wrong", "cbk_\udcff", "cbk_" + "a" * 43])
def test_any_other_secret_gets_one_answer(team, secret):
    team.create_key(ALICE)
    with pytest.raises(NotAllowed, match="the key opens nothing here"):
        team.with_key(secret)


def test_the_secret_is_nowhere_but_in_the_answer(team, stored):
    made = team.create_key(ALICE, label="laptop", limits=[("team", "reader")])
    team.with_key(made.secret).list()
    team.revoke_key(made.key.id)
    told = [team.keys(), team.grants(), team.status(), [team.log(space=space.name) for space in team.spaces()]]
    assert made.secret not in repr(told)
    team.close()
    assert [name for name, data in stored().items() if made.secret.encode() in data] == []


def test_a_secret_that_is_said_in_a_session_is_masked(team):
    made = team.create_key(ALICE)
    said, masked = masking.mask(f"my key is {made.secret}, keep it")
    assert masked == 1
    assert made.secret not in said


def test_making_and_revoking_keys_stands_in_the_log(team):
    made = team.create_key(ALICE)
    team.revoke_key(made.key.id)
    said = team.log(space="_home")[-2:]
    assert [(entry.action, json.loads(entry.payload)["key"]) for entry in said] == [
        ("key.create", made.key.id),
        ("key.revoke", made.key.id),
    ]
    assert team.verify_log().findings == ()


def test_others_make_keys_for_themselves_alone_and_never_with_a_key(team):
    alice = team.acting_as(ALICE)
    made = alice.create_key(ALICE)
    team.create_key("user:bob")
    (own,) = alice.keys()
    assert own.principal == ALICE
    assert len(team.keys()) == 2
    with pytest.raises(NotAllowed):
        alice.create_key("user:bob")
    with pytest.raises(NotAllowed):
        team.with_key(made.secret).create_key(ALICE)
    with pytest.raises(NotFound):
        alice.revoke_key(team.keys()[1].id)
    with pytest.raises(BadInput):
        team.create_key("alice")
    with pytest.raises(NotAllowed):
        alice.create_key(ALICE, limits=[("elsewhere", "reader")])


def test_nothing_of_the_log_of_keys_is_seen_by_others(team):
    team.create_key(ALICE)
    alice = team.acting_as(ALICE)
    assert "_home" not in [space.name for space in alice.spaces()]
    with pytest.raises((NotAllowed, BadInput)):
        alice.log(space="_home")
    assert team.list(Filter(space="/")).items
