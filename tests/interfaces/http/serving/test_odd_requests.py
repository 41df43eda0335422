"""Requests as a stranger may write them byte by byte: each is refused or harmless, and the server goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from tests.support.servers import Server, serving

BODY = json.dumps({"text": "smuggled", "space": "personal"})
CHUNKED = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("book") / "home") as server:
        yield server


def answers(server: Server, *parts: str | bytes) -> bytes:
    """Send bytes on a connection of their own; return all that comes until the server closes it."""
    with closing(socket.create_connection(("127.0.0.1", port_of(server)), timeout=60)) as connection:
        received = b""
        # The server does not read what comes after an error.
        with suppress(ConnectionError):
            for part in parts:
                connection.sendall(part.encode("latin-1") if isinstance(part, str) else part)
        with suppress(ConnectionError):
            while data := connection.recv(65536):
                received += data
        return received


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def head(server: Server, method: str = "POST", path: str = "/v1/memories", **headers: str) -> str:
    """The head of a request with the owner's key, without its last line."""
    fields = {"Host": f"localhost:{port_of(server)}", "Authorization": f"Bearer {server.key}", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}"


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["", "\r\n", '\r\n{"text": "half'], ids=["half a head", "no body", "half a body"])
def test_a_request_that_is_half_sent_does_not_hold_the_end_of_a_server(tmp_path, rest):
    with serving(tmp_path / "home", "--no-request-log") as server:
        with closing(socket.create_connection(("127.0.0.1", port_of(server)), timeout=60)) as connection:
            connection.sendall((head(server, Content_Type="application/json", Content_Length="500") + rest).encode())
            # An answer to a later request shows that the server has read this one.
            assert count(server) == 0
            assert server.end() == 0
        assert "half" not in server.log.read_text()


def count(server: Server) -> int:
    with server.client() as client:
        return int(client.get("/v1/status").json()["memories"])


JSON = {"Content_Type": "application/json"}


@pytest.mark.promise("malformed.smuggling")
@pytest.mark.parametrize(
    ("lengths", "body"),
    [
        ("Content-Length: {size}\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
        ("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", CHUNKED),
        ("Content-Length: {size}\r\nContent-Length: 5\r\n", BODY),
        ("Content-Length: +{size}\r\n", BODY),
        ("Content-Length: -1\r\n", BODY),
        ("Content-Length: 99999999999999999999999\r\n", BODY),
        ("Content-Length: 0x{size:x}\r\n", BODY),
        ("Transfer-Encoding: chunked, identity\r\n", CHUNKED),
        ("Transfer-Encoding: identity\r\n", CHUNKED),
        ("Transfer-Encoding : chunked\r\n", CHUNKED),
        ("Transfer-Encoding: chunked\r\n", "zz\r\n" + CHUNKED),
        ("Transfer-Encoding: chunked\r\n", "5;" + "a" * 200_000 + "\r\n"),
    ],
)
def test_a_request_whose_end_is_unclear_smuggles_nothing(server, lengths, body):
    before = count(server)
    request = head(server, **JSON) + lengths.format(size=len(BODY)) + "\r\n" + body
    # The second request is what a proxy would have taken for a part of the first, or the first for a part of this.
    found = answers(server, request + head(server, **JSON) + f"Content-Length: {len(BODY)}\r\n\r\n" + BODY)
    assert found.startswith(b"HTTP/1.1 400 "), found[:300]
    assert found.count(b"HTTP/1.1 ") == 1
    assert server.key.encode() not in found
    assert count(server) == before


@pytest.mark.promise("malformed.bytes")
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /v1/memories HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/memories HTTP/1.1\r\n\r\n",
        b"GET /v1/memories HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/memories HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /v1/memories HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 40_000 + b"\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_its_connection_closed(server, request_bytes):
    found = answers(server, request_bytes)
    # A head that is too long is refused while it is still being sent: then the answer may be lost with the connection.
    assert found.startswith(b"HTTP/1.1 400 ") or (not found and len(request_bytes) > 100_000)
    assert found.count(b"HTTP/1.1 ") <= 1


@pytest.mark.promise("malformed.bytes")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/v1/memories", 405),
        ("OPTIONS", "/v1/memories", 405),
        ("OPTIONS", "*", 404),
        ("TRACE", "/v1/memories", 405),
        ("CONNECT", "evil.example:80", 404),
        ("GET", "http://evil.example/v1/memories", 404),
        ("GET", "//evil.example/v1/memories", 404),
        ("GET", "/v1/../v1/memories", 404),
        ("GET", "/v1/%2e%2e/etc/passwd", 404),
        ("GET", "/" + "a" * 50_000, 404),
    ],
)
def test_another_method_or_form_of_path_opens_nothing(server, method, path, status):
    found = answers(server, head(server, method, path, Connection="close") + "\r\n")
    assert found.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"access-control-allow" not in found.lower()
    assert server.key.encode() not in found
    assert (b"\r\n\r\n{" in found) == (method != "HEAD")


def test_a_range_and_an_upgrade_are_ignored(server):
    upgrade = {"Upgrade": "websocket", "Sec_WebSocket_Version": "13", "Sec_WebSocket_Key": "eA=="}
    for headers in ({"Range": "bytes=0-1,0-1,0-1", "Connection": "close"}, {**upgrade, "Connection": "close, upgrade"}):
        found = answers(server, head(server, "GET", **headers) + "\r\n")
        assert found.startswith(b"HTTP/1.1 200 "), found[:300]
        assert b'"items":' in found


@pytest.mark.promise("malformed.strangers")
@pytest.mark.parametrize("length", ["Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/v1/memories", "application/json"),
        ("/v1/sessions/talk/messages", "application/json"),
        ("/v1/import", "application/zip"),
        ("/mcp", "application/json"),
        ("/mcp", "application/zip"),
    ],
)
def test_nothing_of_a_large_body_is_read_for_a_key_that_opens_nothing(server, path, form, length):
    strange = head(server, path=path, Content_Type=form, Authorization="Bearer cbk_nobody", Connection="close")
    assert answers(server, strange, length, "\r\n").startswith(b"HTTP/1.1 401")


@pytest.mark.promise("malformed.strangers")
def test_nothing_of_an_archive_is_read_for_a_key_that_may_not_import(server):
    with server.client() as client:
        secret = client.post("/v1/keys", json={"principal": "user:ana"}).json()["secret"]
    fields = {"Content_Type": "application/zip", "Content_Length": "1000000", "Connection": "close"}
    request = head(server, path="/v1/import", Authorization=f"Bearer {secret}", **fields)
    assert answers(server, request, "\r\n").startswith(b"HTTP/1.1 403")


@pytest.mark.promise("malformed.strangers")
@pytest.mark.parametrize(("path", "form"), [("/v1/login", "json"), ("/sign-in", "x-www-form-urlencoded")])
def test_what_anybody_may_send_is_small(server, path, form):
    origin = f"http://localhost:{port_of(server)}"
    request = head(server, path=path, Content_Type=f"application/{form}", Origin=origin, Content_Length="100000")
    assert answers(server, request, "\r\n").startswith(b"HTTP/1.1 413")


@pytest.mark.promise("malformed.bytes")
def test_requests_in_one_packet_are_answered_in_order_and_none_after_a_refusal(server):
    texts = [json.dumps({"text": f"pipelined {number}"}) for number in range(30)]
    requests = [f"{head(server, **JSON)}Content-Length: {len(text)}\r\n\r\n{text}" for text in texts]
    last = head(server, "GET", "/v1/memories?limit=1&space=personal", Connection="close") + "\r\n"
    found = answers(server, "".join(requests) + last)
    assert found.count(b"HTTP/1.1 200 ") == 31
    assert b"pipelined 29" in found.rpartition(b"HTTP/1.1 200 ")[2]
    before = count(server)
    foreign = f"GET /v1/memories HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {server.key}\r\n\r\n"
    found = answers(server, foreign + "".join(requests))
    assert found.startswith(b"HTTP/1.1 421 ")
    assert found.count(b"HTTP/1.1 ") == 1
    assert count(server) == before


@pytest.mark.promise("malformed.bytes")
def test_none_of_this_made_the_server_fail_or_write_a_key_into_its_log(server):
    chunks = b"1\r\n[\r\n" * 2000
    chunked = head(server, **JSON, Connection="close", Transfer_Encoding="chunked") + "\r\n"
    answers(server, chunked, chunks + b"0\r\n\r\n")
    with closing(socket.create_connection(("127.0.0.1", port_of(server)), timeout=60)) as connection:
        connection.sendall(chunked.encode() + chunks)
    with server.client() as client:
        assert client.get("/health/ready").status_code == 200
    log = server.log.read_text()
    assert server.key not in log
    assert "smuggled" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    assert not [line for line in lines if line["level"] in {"error", "critical"}]
