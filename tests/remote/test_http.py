"""Requests of a remote book: what is sent to whom, what is sent again, and what is not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from commonbook.compose.client import exchange
from commonbook.errors import Busy, NotAllowed, NotFound, ServerFailed, TooMany, Unreachable
from commonbook.remote import http as client_http
from commonbook.remote.http import HttpCaller, Patience, parse_address
from commonbook.verbs.requests import VERBS, request_of

KEY = "cbk_secret"
SPACE = {"id": "1", "name": "team", "created": "2026-11-17T12:00:00.000000Z"}


class Reply(NamedTuple):
    """An answer of a scripted server."""

    status: int = 200
    body: Any = SPACE
    headers: Mapping[str, str] = MappingProxyType({})
    media_type: str = "application/json"


class Scripted:
    """A server that answers as it is told, and records what it got."""

    def __init__(self, *replies: Reply | Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        script, lock = list(replies), threading.Lock()
        record = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    record.append((self.command, self.path, dict(self.headers), body))
                    # The last answer is given again and again.
                    reply = script.pop(0) if len(script) > 1 else script[0]
                if not isinstance(reply, Reply):
                    reply(self)
                    return
                data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                headers = {"Content-Type": reply.media_type, "Content-Length": str(len(data)), **reply.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = answer  # noqa: N815 - as the library asks

            def log_message(self, *_args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def scripted(*scripts: list[Any]) -> Iterator[list[Scripted]]:
    servers = [Scripted(*script) for script in scripts]
    try:
        yield servers
    finally:
        for server in servers:
            server.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_http, "_FIRST_PAUSE_SECONDS", 0.01)


def problem(status: int, type_: str, **more: Any) -> Reply:
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    details = {"type": type_, "title": type_, "status": status, "detail": "as told", "fix": "do so", **more}
    return Reply(status, details, headers, "application/problem+json")


def test_a_request_has_the_key_the_space_and_an_idempotency_key_of_its_own(connect):
    with scripted([Reply()]) as [server]:
        here = connect(server.url, KEY, space="team/ä")
        here.create_space("one")
        here.create_space("two")
    (_, path, first, body), (_, _, second, _) = server.requests
    assert (path, json.loads(body)) == ("/v1/spaces", {"name": "one"})
    assert first["Authorization"] == f"Bearer {KEY}"
    assert first["Commonbook-Space"] == "team/%C3%A4"
    assert first["Idempotency-Key"] != second["Idempotency-Key"]


@pytest.mark.promise("client.once")
def test_all_attempts_of_one_call_have_one_idempotency_key(connect):
    gone = Reply(502, b"<html>", media_type="text/html")
    with scripted([gone, gone, Reply(504, b""), Reply()]) as [server]:
        assert connect(server.url, KEY).create_space("team").name == "team"
    sent = [headers["Idempotency-Key"] for _, _, headers, _ in server.requests]
    assert len(sent) == 4
    assert len(set(sent)) == 1


@pytest.mark.promise("client.saved-key")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else(connect, status):
    with (
        scripted([Reply()]) as [other],
        scripted([Reply(status, b"", {"Location": f"{other.url}/v1/spaces"})]) as [here],
    ):
        with pytest.raises(Unreachable, match="redirects"):
            connect(here.url, KEY, patience_seconds=3).create_space("team")
        assert here.requests
        assert other.requests == []


def test_a_login_at_an_address_that_redirects_is_made_once_and_one_whose_answer_is_lost_again():
    redirect, lost = Reply(302, b"", {"Location": "http://127.0.0.1:1/"}), Reply(502, b"")
    with scripted([redirect], [lost, lost, problem(400, "not_allowed")]) as [elsewhere, server]:
        with pytest.raises(Unreachable, match="redirects"):
            exchange(parse_address(elsewhere.url), "AAAAAA")
        assert len(elsewhere.requests) == 1
        with pytest.raises(NotAllowed):
            exchange(parse_address(server.url), "AAAAAA")
        assert len(server.requests) == 3


def test_a_busy_server_is_asked_again_when_it_says_so(connect):
    with scripted([problem(503, "busy"), Reply()]) as [server]:
        begun = time.monotonic()
        assert connect(server.url, KEY).create_space("team").name == "team"
        assert time.monotonic() - begun >= 1
    with scripted([problem(503, "busy")]) as [server], pytest.raises(Busy, match="as told"):
        connect(server.url, KEY, patience_seconds=0.5).create_space("team")


def test_other_errors_are_raised_at_once(connect):
    for reply, kind in (
        (problem(404, "not_found"), NotFound),
        (problem(401, "not_allowed"), NotAllowed),
        (problem(429, "too_many", retry_after=7.5), TooMany),
        (problem(500, "server_failed"), ServerFailed),
    ):
        with scripted([reply]) as [server]:
            with pytest.raises(kind, match="as told") as caught:
                connect(server.url, KEY).create_space("team")
            assert len(server.requests) == 1
            assert getattr(caught.value, "retry_after", 7.5) == 7.5


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1, 2]", b'{"id": 1}', b"\xff", b"[" * 100_000])
def test_an_answer_that_is_none_of_ours_says_so(connect, body):
    with scripted([Reply(200, body)]) as [server], pytest.raises(ServerFailed) as caught:
        connect(server.url, KEY).create_space("team")
    assert KEY not in caught.value.message + caught.value.fix


def test_a_program_that_is_no_server_of_ours_is_named(connect):
    reply = Reply(404, b"not here", media_type="text/plain")
    with scripted([reply]) as [server], pytest.raises(ServerFailed, match="no Commonbook server"):
        connect(server.url, KEY).create_space("team")


def test_an_answer_that_comes_too_slowly_counts_as_none(connect):
    def dribble(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        stop = threading.Event()
        for _ in range(2_000):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            stop.wait(0.05)

    with scripted([dribble]) as [server]:
        begun = time.monotonic()
        with pytest.raises(Unreachable, match=r"too long|in time"):
            connect(server.url, KEY, answer_seconds=1, patience_seconds=1).create_space("team")
        assert time.monotonic() - begun < 50


def test_a_key_is_shown_in_no_error_and_no_text(connect):
    here = connect("http://127.0.0.1:1", KEY, patience_seconds=0.1)
    with pytest.raises(Unreachable) as caught:
        here.status()
    assert KEY not in f"{caught.value.message} {caught.value.fix} {here!r} {here._http!r} {vars(here)!r}"


def test_an_answer_without_end_counts_as_none(monkeypatch):
    monkeypatch.setattr("commonbook.remote.http._MAX_ANSWER_BYTES", 1000)
    with scripted([Reply(body={**SPACE, "name": "x" * 2000})]) as [server]:
        http = HttpCaller(parse_address(server.url), KEY)
        with closing(http), pytest.raises(Unreachable, match="no end"):
            http.send(request_of(VERBS["create_space"], {"name": "team"}), patience=Patience(60, 60, once=True))


def test_a_proxy_of_the_system_is_no_way_to_this_machine(connect, monkeypatch):
    with scripted([Reply()], [Reply(502)]) as [server, proxy]:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert connect(server.url, KEY).create_space("team").name == "team"
        assert (len(server.requests), len(proxy.requests)) == (1, 0)
