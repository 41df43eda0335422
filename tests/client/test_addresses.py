"""Addresses of a server: which are accepted, and which one is asked next."""

from __future__ import annotations

import pytest

from commonbook.client.addresses import Address, AddressChoice, parse_addresses, pause_seconds, rest_seconds
from commonbook.errors import BadInput

A, B, C = (Address("https", host, 443) for host in "abc")


def test_several_addresses_are_given_as_a_list_or_with_commas():
    both = (Address("https", "a.example", 443, "/book"), Address("http", "127.0.0.1", 7373))
    assert parse_addresses("https://a.example/book/, http://127.0.0.1:7373") == both
    assert parse_addresses(["https://A.example/book", "http://127.0.0.1:7373/", "http://127.0.0.1:7373"]) == both
    assert str(both[0]) == "https://a.example:443/book"
    assert Address("http", "::1", 80).origin == "http://[::1]:80"


@pytest.mark.parametrize(
    "address",
    [
        "",
        ",",
        "a.example",
        "ftp://a.example",
        "https://",
        "https://user:secret@a.example",
        "https://a.example?key=secret",
        "https://a.example#secret",
        "https://a.example:99999",
        "https://[::1",
        "https://a.exämple",
        "https://a.ex\nample/",
    ],
)
def test_anything_else_than_an_address_is_refused_and_not_repeated(address):
    with pytest.raises(BadInput) as refused:
        parse_addresses([address])
    assert "secret" not in refused.value.message + refused.value.fix


def test_a_key_goes_unencrypted_to_this_machine_alone():
    for address in ("http://localhost:1", "http://127.0.0.9:1", "http://[::1]:1"):
        assert parse_addresses(address)[0].is_loopback
    for address in ("http://memory.example.com", "http://10.0.0.1", "http://localhost.example.com"):
        with pytest.raises(BadInput, match="not encrypted"):
            parse_addresses(address)
        assert parse_addresses(address, allow_http=True)


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def choice(clock: Clock) -> AddressChoice:
    return AddressChoice([A, B, C], now=clock, share=lambda: 1.0)


def test_the_address_that_answered_last_is_asked_first(choice):
    assert choice.order() == (A, B, C)
    choice.answered(C)
    assert choice.order() == (C, A, B)


def test_an_address_that_did_not_answer_rests_and_is_asked_last(choice, clock):
    choice.failed(A)
    assert choice.order() == (B, C, A)
    clock.time += 0.4
    choice.failed(B)
    assert choice.order() == (C, A, B)
    assert not choice.all_rest
    choice.failed(C)
    assert choice.all_rest
    clock.time += 0.1
    assert not choice.all_rest
    assert choice.order() == (A, B, C)


def test_a_rest_gets_longer_until_an_answer_comes(choice, clock):
    for _ in range(3):
        choice.failed(A)
    clock.time += 1.9
    assert choice.order()[0] == B
    clock.time += 0.1
    assert choice.order()[0] == A
    choice.answered(A)
    choice.failed(A)
    clock.time += 0.5
    assert choice.order()[0] == A


def test_rests_and_pauses_have_a_limit_and_a_random_part():
    assert rest_seconds(0, share=0.0) == rest_seconds(0, share=1.0) / 2
    assert rest_seconds(10_000, share=1.0) == 30.0
    assert pause_seconds(10_000, share=1.0) == 5.0
    assert pause_seconds(0, share=0.0, retry_after=7.0) == 7.0
