"""The address of a server: which are accepted, and how long the client pauses before it asks again."""

from __future__ import annotations

import pytest

from commonbook.errors import BadInput
from commonbook.remote.http import Address, parse_address


def test_an_address_has_an_origin_and_a_path():
    address = parse_address(" https://A.example/book/ ")
    assert address == Address("https", "a.example", 443, "/book")
    assert str(address) == "https://a.example:443/book"
    assert Address("http", "::1", 80).origin == "http://[::1]:80"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "https://a.example,https://b.example",
        " ",
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
        parse_address(address)
    assert "secret" not in refused.value.message + refused.value.fix


@pytest.mark.promise("client.saved-key")
def test_a_key_goes_unencrypted_to_this_machine_alone():
    for address in ("http://localhost:1", "http://127.0.0.9:1", "http://[::1]:1"):
        assert parse_address(address).is_loopback
    for address in ("http://memory.example.com", "http://10.0.0.1", "http://localhost.example.com"):
        with pytest.raises(BadInput, match="not encrypted"):
            parse_address(address)
        assert parse_address(address, allow_http=True)
