"""Login codes: exchanged once, within ten minutes, for a second secret of their key."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from commonbook.errors import BadInput, NotAllowed, NotFound

ALICE = "user:alice"


@pytest.fixture
def team(book):
    book.remember("billing is Alice's", space="team/backend")
    book.remember("lunch is at noon", space="team/lunch")
    book.grant(ALICE, "team", "writer")
    return book


def texts(book):
    return {memory.text for memory in book.list().items}


@pytest.mark.promise("access.login")
def test_a_login_code_is_exchanged_once_for_a_secret_of_its_key(team):
    made = team.create_key(ALICE, limits=[("team/backend", "writer")])
    login = team.create_login(made.key.id)
    assert login.key == made.key
    new = team.exchange_login(f" {login.code.lower()} ")
    assert new.key == made.key
    assert new.secret not in (made.secret, login.code)
    for secret in (made.secret, new.secret):
        alice = team.with_key(secret)
        assert alice.actor == ALICE
        assert texts(alice) == {"billing is Alice's"}
    with pytest.raises(NotAllowed, match="the code opens nothing here"):
        team.exchange_login(login.code)
    team.revoke_key(made.key.id)
    for secret in (made.secret, new.secret):
        with pytest.raises(NotAllowed):
            team.with_key(secret)


@pytest.mark.promise("access.login")
def test_a_new_login_ends_the_secret_of_the_one_before(team):
    key = team.create_key(ALICE).key.id
    first = team.exchange_login(team.create_login(key).code).secret
    unused = team.create_login(key).code
    second = team.exchange_login(team.create_login(key).code).secret
    with pytest.raises(NotAllowed):
        team.with_key(first)
    with pytest.raises(NotAllowed):
        team.exchange_login(unused)
    assert team.with_key(second).actor == ALICE


@pytest.mark.promise("access.login")
def test_a_login_code_ends_after_ten_minutes_and_with_its_key(team, monkeypatch):
    key = team.create_key(ALICE).key.id
    login = team.create_login(key)
    now = team._engines.clock.now()
    assert timedelta(minutes=9) < login.expires - now <= timedelta(minutes=10)
    team.revoke_key(key)
    with pytest.raises(NotAllowed):
        team.exchange_login(login.code)
    with pytest.raises(BadInput):
        team.create_login(key)
    late = team.create_login(team.create_key(ALICE).key.id)
    monkeypatch.setattr(team._engines.clock, "now", lambda: late.expires + timedelta(seconds=1), raising=False)
    with pytest.raises(NotAllowed):
        team.exchange_login(late.code)


@pytest.mark.parametrize("code", ["", "AAAAAA-AAAAAA-AAAAAA-AAAAAA", "\udcff", "x" * 10_000])
def test_any_other_login_code_gets_one_answer(team, code):
    team.create_login(team.create_key(ALICE).key.id)
    with pytest.raises(NotAllowed, match="the code opens nothing here"):
        team.exchange_login(code)


@pytest.mark.promise("access.login")
def test_a_login_whose_answer_was_lost_is_repeated_by_its_nonce_alone(team, open_book, monkeypatch):
    key = team.create_key(ALICE).key.id
    login = team.create_login(key)
    secret = team.exchange_login(login.code, nonce="of the first client").secret
    logged = len(team.log(space="_home", limit=500))
    assert team.exchange_login(login.code, nonce="of the first client").secret == secret
    assert open_book().exchange_login(login.code, nonce="of the first client").secret == secret
    for nonce in (None, "of another client"):
        with pytest.raises(NotAllowed, match="the code opens nothing here"):
            team.exchange_login(login.code, nonce=nonce)
    assert team.with_key(secret).actor == ALICE
    assert len(team.log(space="_home", limit=500)) == logged
    other = team.exchange_login(team.create_login(key).code, nonce="of the first client").secret
    assert other != secret
    with pytest.raises(NotAllowed):
        team.exchange_login(login.code, nonce="of the first client")
    last = team.create_login(key)
    team.exchange_login(last.code, nonce="of the first client")
    monkeypatch.setattr(team._engines.clock, "now", lambda: last.expires + timedelta(seconds=1), raising=False)
    with pytest.raises(NotAllowed):
        team.exchange_login(last.code, nonce="of the first client")


@pytest.mark.parametrize("nonce", ["", "too short", "x" * 201, "\udcff" * 20])
def test_a_nonce_that_could_be_guessed_is_refused(team, nonce):
    login = team.create_login(team.create_key(ALICE).key.id)
    with pytest.raises(BadInput, match="a nonce has 16 to 200 characters"):
        team.exchange_login(login.code, nonce=nonce)
    assert team.exchange_login(login.code).key == login.key


@pytest.mark.promise("access.login")
def test_of_two_who_exchange_one_login_code_one_gets_a_secret(team, open_book):
    code = team.create_login(team.create_key(ALICE).key.id).code
    books = [team, open_book()]
    with ThreadPoolExecutor() as pool:
        secrets = [secret for secret in pool.map(lambda book: _exchanged(book, code), books) if secret]
    assert len(secrets) == 1
    assert team.with_key(secrets[0]).actor == ALICE


def _exchanged(book, code):
    try:
        return book.exchange_login(code).secret
    except NotAllowed:
        return None


@pytest.mark.promise("access.login")
def test_neither_a_login_code_nor_its_secret_is_stored(team, stored):
    key = team.create_key(ALICE).key.id
    login = team.create_login(key)
    new = team.exchange_login(login.code)
    entries = team.log(space="_home")[-2:]
    assert [(entry.action, entry.actor, json.loads(entry.payload)["key"]) for entry in entries] == [
        ("key.login_code", "user:local", key),
        ("key.login", ALICE, key),
    ]
    waiting = team.create_login(key).code
    answers = [team.keys(), team.status(), [team.log(space=space.name) for space in team.spaces()]]
    team.close()
    for secret in (login.code, new.secret, waiting):
        assert secret not in repr(answers)
        assert [name for name, data in stored().items() if secret.encode() in data] == []


def test_those_make_login_codes_who_may_make_the_key(team):
    alice = team.acting_as(ALICE)
    own, other = team.create_key(ALICE), team.create_key("user:bob")
    assert team.exchange_login(alice.create_login(own.key.id).code).key.principal == ALICE
    with pytest.raises(NotFound):
        alice.create_login(other.key.id)
    with pytest.raises(NotAllowed):
        team.with_key(own.secret).create_login(own.key.id)
