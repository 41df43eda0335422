"""API keys: shown once, stored as a hash, limited and revocable."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from commonbook.core.text import masking
from commonbook.errors import BadInput, NotAllowed, NotFound
from commonbook.values.memory import Draft, Filter
from commonbook.values.spaces import Actor
from tests.support.stored import stored

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


@pytest.mark.promise("access.keys")
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


@pytest.mark.promise("access.keys")
@pytest.mark.parametrize("principal", [ALICE, "user:local"])
def test_a_key_with_limits_lists_only_itself(team, principal):
    limited = team.create_key(principal, limits=[("team/backend", "reader")])
    whole = team.create_key(principal)

    own, (listed,) = team.with_key(whole.secret).keys(), team.with_key(limited.secret).keys()
    assert listed.id == limited.key.id
    assert {limited.key.id, whole.key.id} <= {key.id for key in own}


@pytest.mark.promise("access.keys")
def test_limits_hold_for_a_key_of_the_owner_too(team):
    made = team.create_key("user:local", limits=[("team/lunch", "reader")])
    owner = team.with_key(made.secret)
    assert texts(owner) == {"lunch is at noon"}
    for refused in (owner.sync, owner.doctor, lambda: owner.acting_as(ALICE), lambda: owner.create_key(ALICE)):
        with pytest.raises(NotAllowed):
            refused()


@pytest.mark.promise("access.keys")
def test_a_key_of_the_owner_without_limits_is_the_owner(team):
    made = team.create_key("user:local")
    owner = team.with_key(made.secret)
    assert owner.doctor() == ()
    owner.reindex(anew=True)
    owner.set_limit("recall", 100, principal=ALICE)
    owner.create_space("sales")
    assert owner.remember("where the server runs does not matter").space == "personal"
    helper = owner.create_key(ALICE)
    owner.revoke_key(helper.key.id)
    with pytest.raises(NotAllowed):
        team.with_key(helper.secret)


@pytest.mark.promise("access.keys")
def test_a_revoked_key_of_the_owner_ends_at_once_in_books_that_are_open(team):
    made = team.create_key("user:local")
    owner = team.with_key(made.secret)
    team.revoke_key(made.key.id)
    assert texts(owner) == set()
    for refused in (
        owner.doctor,
        lambda: owner.reindex(anew=True),
        lambda: owner.acting_as(ALICE),
        lambda: owner.create_key(ALICE),
        lambda: owner.create_space("sales"),
        lambda: owner.set_limit("recall", 100, principal=ALICE),
        lambda: owner.remember("no"),
        lambda: owner.remember("no", space="new"),
    ):
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
    monkeypatch.setattr(team._engines.clock, "now", lambda: later + timedelta(seconds=1), raising=False)
    assert texts(alice) == set()
    with pytest.raises(NotAllowed):
        team.with_key(made.secret)


@pytest.mark.parametrize("secret", ["", "cbk_", "cbk_wrong", "wrong", "cbk_\udcff", "cbk_" + "a" * 43])
def test_any_other_secret_gets_one_answer(team, secret):
    team.create_key(ALICE)
    with pytest.raises(NotAllowed, match="the key opens nothing here"):
        team.with_key(secret)


@pytest.mark.promise("access.secret")
def test_the_secret_is_nowhere_but_in_the_answer(team, stored):
    made = team.create_key(ALICE, label="laptop", limits=[("team", "reader")])
    team.with_key(made.secret).list()
    team.revoke_key(made.key.id)
    answers = [team.keys(), team.grants(), team.status(), [team.log(space=space.name) for space in team.spaces()]]
    assert made.secret not in repr(answers)
    team.close()
    assert [name for name, data in stored().items() if made.secret.encode() in data] == []


def test_a_secret_that_is_said_in_a_session_is_masked(team):
    made = team.create_key(ALICE)
    text, masked = masking.mask(f"my key is {made.secret}, keep it")
    assert masked == 1
    assert made.secret not in text


def test_making_and_revoking_keys_stands_in_the_log(team):
    made = team.create_key(ALICE)
    team.revoke_key(made.key.id)
    entries = team.log(space="_home")[-2:]
    assert [(entry.action, json.loads(entry.payload)["key"]) for entry in entries] == [
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


# --- actors: a principal and its key


def test_an_actor_with_a_key_differs_from_its_principal_without_one(team):
    alice = team.acting_as(ALICE)
    keyed = [team.with_key(team.create_key(ALICE).secret) for _ in range(2)]
    assert {book.actor for book in (alice, *keyed)} == {ALICE}
    assert len({book._actor for book in (alice, *keyed)}) == 3
    assert alice._actor == Actor(ALICE)
    assert f"{keyed[0]._actor}" == ALICE


def test_only_the_name_of_the_principal_is_stored_logged_and_shown(team):
    made = team.create_key(ALICE, limits=[("team/backend", "writer")])
    alice = team.with_key(made.secret)
    memory_id = alice.remember("by a key", space="team/backend", key="once").id
    assert team.acting_as(ALICE).remember("by a key", space="team/backend", key="once").id == memory_id
    alice.edit(memory_id, text="edited by a key")
    memory = team.get(memory_id)
    assert (memory.author, stored(team, memory.id).revised_by) == (ALICE, ALICE)
    assert [entry.actor for entry in team.log(space="team/backend")][-2:] == [ALICE, ALICE]
    with pytest.raises(NotAllowed) as refused:
        alice.remember("no", space="team/lunch")
    assert refused.value.message == f"{ALICE} may not use the space 'team/lunch'"
    assert team.verify_log().findings == ()


def test_a_copy_follows_its_source_in_the_name_of_the_sharer_without_its_key(team):
    made = team.create_key(ALICE, limits=[("team/backend", "reader"), ("team/lunch", "writer")])
    source = team.remember("the plan", space="team/backend").id
    copy = team.with_key(made.secret).share(source, "team/lunch").id
    assert team.get(copy).shared.by == ALICE
    team.revoke_key(made.key.id)
    assert team.edit(source, text="the new plan").copies == 1
    followed = team.get(copy)
    assert (followed.text, stored(team, followed.id).revised_by, followed.freshness) == ("the new plan", ALICE, "fresh")
    team.revoke(ALICE, "team")
    team.edit(source, text="a secret plan")
    assert team.get(copy).text == "the new plan"


def test_what_happens_in_the_name_of_a_principal_widens_no_key_of_it_in_the_same_transaction(team):
    alice = team.acting_as(ALICE)
    source = team.remember("the plan", space="team/backend").id
    copy = alice.share(source, "team/lunch").id
    team.grant(ALICE, "team/lunch", "admin")
    alice.add_rule("team/lunch", "team/backend")
    limited = team.with_key(team.create_key(ALICE, limits=[("team/backend", "writer")]).secret)
    assert limited.edit(source, text="the new plan").copies == 0, "counts the copies that the key may read"
    assert team.get(copy).text == "the new plan"
    limited.remember("taken in by the rule", space="team/backend")
    assert "taken in by the rule" in {memory.text for memory in team.list(Filter(space="team/lunch")).items}
    assert texts(limited) == {"billing is Alice's", "the new plan", "taken in by the rule"}
    drafts = [Draft("allowed", space="team/backend"), Draft("refused", space="team/lunch")]
    for batch in (drafts, drafts[::-1]):
        with pytest.raises(NotAllowed):
            limited.remember_many(batch)
    with pytest.raises(NotFound):
        limited.edit(copy, text="out of reach")
    assert "allowed" not in texts(team)


def test_an_approval_shares_in_the_name_of_the_rules_maker_and_not_by_the_key_of_the_approver(team):
    team.grant(ALICE, "team/lunch", "admin")
    team.acting_as(ALICE).add_rule("team/lunch", "team/backend", approval=True)
    source = team.remember("for lunch", space="team/backend").id
    reads, decides = (
        team.with_key(team.create_key(ALICE, limits=[("team/lunch", role)]).secret) for role in ("writer", "admin")
    )
    (waiting,) = team.pending()
    with pytest.raises(NotFound):
        reads.approve(waiting.id)
    copy = decides.approve(waiting.id).copy
    assert team.get(copy).shared.by == ALICE
    with pytest.raises(NotFound):
        decides.get(source)
    team.revoke_key(decides._actor.key_id)
    assert team.edit(source, text="for dinner").copies == 1
