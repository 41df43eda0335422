"""A browser signs in by a link, once, and does what the key of the link may, from our own pages alone."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from httpx2 import Response
from starlette.applications import Starlette
from starlette.testclient import TestClient

from commonbook.interfaces.http.app import make_app
from commonbook.interfaces.http.guards.config import GuardConfig
from commonbook.interfaces.http.guards.stack import guarded
from commonbook.interfaces.http.serving.events import ChangeStreams
from commonbook.service.book import Book
from commonbook.service.serving import end_session

pytestmark = pytest.mark.promise("access.login")

OWN_PAGE = {"Origin": "http://127.0.0.1:7373", "Sec-Fetch-Site": "same-origin"}
FOREIGN: dict[str, dict[str, str]] = {
    "no page": {},
    "another site": {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    "another port": {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-site"},
    "another port of an old browser": {"Origin": "http://127.0.0.1:8000"},
    "another scheme": {"Origin": "https://127.0.0.1:7373"},
    "another name of this machine": {"Origin": "http://localhost:7373"},
    "a sandbox": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "a sandbox of an old browser": {"Origin": "null"},
    "an address that was typed": {"Sec-Fetch-Site": "none"},
}
OTHERS = pytest.mark.parametrize("headers", FOREIGN.values(), ids=list(FOREIGN))


def browser(book: Book, *, base: str = "http://127.0.0.1:7373", config: GuardConfig | None = None) -> TestClient:
    """Return a browser without cookies, before the app with its guards."""
    app = guarded(make_app(book), config or GuardConfig())
    return TestClient(app, base_url=base, client=("127.0.0.1", 50000), follow_redirects=False)


def link_code(book: Book, principal: str = "user:local") -> str:
    return book.with_key(book.create_key(principal).secret).create_sign_in().code


def sign_in(client: TestClient, code: str, headers: dict[str, str] | None = None) -> Response:
    return client.post("/sign-in", data={"code": code}, headers=OWN_PAGE if headers is None else headers)


@pytest.fixture
def signed_in(book: Book) -> TestClient:
    """A browser that is signed in as Alice, who writes to the space `team`."""
    book.create_space("team")
    book.grant("user:alice", "team", "writer")
    client = browser(book)
    assert sign_in(client, link_code(book, "user:alice")).status_code == 303
    return client


def token_of(client: TestClient) -> str:
    found = re.search(r'name="csrf_token" value="([0-9a-f]{64})"', client.get("/").text)
    assert found
    return found[1]


def remember(client: TestClient, headers: dict[str, str]) -> Response:
    return client.post("/v1/memories", json={"text": "from a page", "space": "team"}, headers=headers)


# --- the link


def test_a_link_signs_a_browser_in_once(book):
    code = link_code(book)
    client = browser(book)
    assert client.get("/").headers["location"] == "/sign-in"
    answer = sign_in(client, code)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "user:local" in client.get("/").text
    again = browser(book)
    refused = sign_in(again, code)
    assert refused.status_code == 403
    assert "the link opens nothing here" in refused.text
    assert again.get("/").status_code == 303


def test_a_link_ends_after_a_minute_and_with_its_key(book, monkeypatch):
    made = book.create_key("user:local")
    view = book.with_key(made.secret)
    ended = view.create_sign_in()
    now = book._engines.clock.now()
    assert timedelta(seconds=50) < ended.expires - now <= timedelta(seconds=60)
    book.revoke_key(made.key.id)
    assert sign_in(browser(book), ended.code).status_code == 403
    late = book.with_key(book.create_key("user:local").secret).create_sign_in()
    monkeypatch.setattr(book._engines.clock, "now", lambda: late.expires + timedelta(seconds=1), raising=False)
    assert sign_in(browser(book), late.code).status_code == 403


def test_of_two_browsers_that_use_one_link_one_is_signed_in(book):
    code = link_code(book)
    clients = [browser(book), browser(book)]
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda client: sign_in(client, code), clients))
    assert sorted(answer.status_code for answer in answers) == [303, 403]


@pytest.mark.parametrize("code", ["", "x", "\x00", "é" * 50, "x" * 10_000])
def test_any_other_code_is_refused(book, code):
    assert sign_in(browser(book), code).status_code == 403


@pytest.mark.parametrize("body", [b"code=%ff", b"\xff", b"&".join([b"code=a"] * 100)])
def test_a_body_that_is_no_form_is_refused(book, body):
    headers = {**OWN_PAGE, "Content-Type": "application/x-www-form-urlencoded"}
    assert browser(book).post("/sign-in", content=body, headers=headers).status_code in (400, 403)
    assert browser(book).post("/sign-in", json={"code": "a"}, headers=OWN_PAGE).status_code == 400


@pytest.mark.promise("web.sign-in")
@OTHERS
def test_a_page_of_others_signs_nobody_in(book, headers):
    code = link_code(book)
    assert sign_in(browser(book), code, headers).status_code == 403
    assert sign_in(browser(book), code).status_code == 303


def test_a_book_that_was_opened_without_a_key_makes_no_link(book):
    with pytest.raises(Exception, match="a browser signs in by an API key"):
        book.create_sign_in()


@pytest.mark.promise("signin.hidden")
def test_the_code_of_a_link_and_the_secret_of_a_session_are_written_nowhere(book, open_book, stored, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("commonbook.core.access").setLevel(logging.INFO)
    code = link_code(book)
    client = browser(book)
    page = client.get("/sign-in")
    answer = sign_in(client, code)
    (secret,) = client.cookies.values()
    client.get("/")
    for text in (caplog.text, page.text, str(answer.headers.get("location")), repr(book.log(space="_home", limit=500))):
        assert code not in text
        assert secret not in text
    routes = [record.fields["route"] for record in caplog.records if hasattr(record, "fields")]
    assert routes == ["/sign-in", "/sign-in", "/"]
    for shown in (page, answer):
        assert shown.headers["cache-control"] == "no-store"
        assert shown.headers["referrer-policy"] == "no-referrer"
    actions = [entry.action for entry in book.log(space="_home", limit=500)]
    assert actions[-2:] == ["key.sign_in_code", "key.sign_in"]
    book.close()
    for text in (code, secret):
        assert [name for name, data in stored().items() if text.encode() in data] == []


@pytest.mark.promise("web.escaping")
def test_a_page_allows_its_own_script_and_nothing_else(book):
    page = browser(book).get("/sign-in")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert "src=" not in page.text


@pytest.mark.promise("web.escaping")
def test_texts_in_a_page_are_escaped(book):
    label = "<script>alert(1)</script>\"'&"
    code = book.with_key(book.create_key("user:local", label=label).secret).create_sign_in().code
    client = browser(book)
    sign_in(client, code)
    shown = client.get("/").text
    assert "<script" not in shown
    assert html.escape(label) in shown


def test_a_stranger_gets_the_sign_in_page_and_nothing_else(book):
    client = browser(book)
    client.cookies.set("commonbook-session-7373", "A" * 43)
    assert client.get("/").headers["location"] == "/sign-in"
    assert client.post("/sign-out", data={}, headers=OWN_PAGE).headers["location"] == "/sign-in"
    assert client.post("/sign-out", data={}).status_code == 403
    assert client.get("/sign-out").status_code == 405
    page = client.get("/sign-in")
    assert page.status_code == 200
    assert "user:" not in page.text


# --- the cookie


@pytest.mark.promise("web.hidden-cookie")
def test_the_cookie_is_for_this_server_and_not_for_scripts(book):
    cookie = sign_in(browser(book), link_code(book)).headers["set-cookie"]
    assert re.match(r"commonbook-session-7373=[\w-]{43}; ", cookie)
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert "secure" not in attributes
    assert not any(part.startswith("domain") for part in attributes)


@pytest.mark.promise("web.hidden-cookie")
def test_behind_https_the_cookie_is_secure(book):
    base = "https://book.example"
    client = browser(book, base=base, config=GuardConfig(allowed_hosts=frozenset({"book.example"})))
    answer = sign_in(client, link_code(book), {"Origin": base})
    assert answer.headers["set-cookie"].startswith("__Host-commonbook-session-443=")
    assert "; secure" in answer.headers["set-cookie"].lower()
    assert "user:local" in client.get("/").text


@pytest.mark.promise("signin.rights")
def test_a_session_does_what_its_key_may(signed_in):
    headers = {**OWN_PAGE, "X-CSRF-Token": token_of(signed_in)}
    assert signed_in.get("/v1/actor").json() == "user:alice"
    made = remember(signed_in, headers).json()["id"]
    assert signed_in.get(f"/v1/memories/{made}").json()["author"] == "user:alice"
    assert signed_in.post("/v1/doctor", headers=headers).status_code == 403
    assert signed_in.post("/v1/memories", json={"text": "x", "space": "other"}, headers=headers).status_code == 403


@pytest.mark.promise("web.cookie")
@OTHERS
def test_a_page_of_others_changes_nothing_with_the_cookie(book, signed_in, headers):
    answer = remember(signed_in, {**headers, "X-CSRF-Token": token_of(signed_in)})
    assert answer.status_code == 403
    assert book.list().items == ()


@pytest.mark.promise("web.cookie")
@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
def test_our_own_page_needs_the_token_of_its_session(book, signed_in, token):
    headers: Any = {**OWN_PAGE, **({} if token is None else {"X-CSRF-Token": token.encode()})}
    assert remember(signed_in, headers).status_code == 403
    other = browser(book)
    sign_in(other, link_code(book, "user:alice"))
    assert remember(signed_in, {**OWN_PAGE, "X-CSRF-Token": token_of(other)}).status_code == 403
    assert signed_in.post("/sign-out", data={"csrf_token": token or ""}, headers=OWN_PAGE).status_code == 403
    assert book.list().items == ()
    assert signed_in.get("/").status_code == 200


@pytest.mark.promise("web.cookie")
def test_every_route_that_may_change_something_needs_the_token(signed_in, subtests):
    paths = signed_in.get("/openapi.json").json()["paths"]
    unsafe = [(method, path) for path, item in paths.items() for method in item if method != "get"]
    assert len(unsafe) > 40
    for method, path in unsafe:
        if path != "/v1/login":
            with subtests.test(f"{method} {path}"):
                content_type = {"/v1/import": "application/zip"}.get(path, "application/json")
                headers = {**OWN_PAGE, "Content-Type": content_type}
                assert signed_in.request(method.upper(), path, content=b"{}", headers=headers).status_code == 403


def test_a_key_in_the_header_counts_and_not_the_cookie(book, signed_in):
    headers = {"Authorization": f"Bearer {book.create_key('user:bob').secret}"}
    assert signed_in.get("/v1/actor", headers=headers).json() == "user:bob"
    assert signed_in.get("/v1/actor", headers={"Authorization": "Bearer wrong"}).status_code == 401
    (secret,) = signed_in.cookies.values()
    assert browser(book).get("/v1/actor", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


# --- the end of a session


@pytest.mark.promise("signin.end")
def test_signing_out_ends_the_session_everywhere(book, open_book, signed_in):
    (secret,) = signed_in.cookies.values()
    answer = signed_in.post("/sign-out", data={"csrf_token": token_of(signed_in)}, headers=OWN_PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert list(signed_in.cookies.values()) == []
    for client in (browser(book), browser(open_book())):
        client.cookies.set("commonbook-session-7373", secret)
        assert client.get("/v1/actor").status_code == 401
        assert client.get("/").headers["location"] == "/sign-in"
    assert book.log(space="_home", limit=500)[-1].action == "key.sign_out"


@pytest.mark.promise("signin.end")
def test_signing_out_ends_the_streams_of_the_session(book, signed_in):
    (secret,) = signed_in.cookies.values()
    app = Starlette(routes=[ChangeStreams(book).route()])
    headers = [
        (b"host", b"127.0.0.1:7373"),
        (b"accept", b"text/event-stream"),
        (b"cookie", f"commonbook-session-7373={secret}".encode()),
    ]
    scope = {"type": "http", "scheme": "http", "method": "GET", "path": "/v1/changes", "query_string": b""}
    messages: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if not messages:
            await asyncio.to_thread(end_session, book, secret)
        messages.append(message)

    async def stream() -> None:
        async with asyncio.timeout(30):
            await app({**scope, "headers": headers}, receive, send)

    asyncio.run(stream())
    assert (messages[0]["status"], messages[-1]["more_body"]) == (200, False)


@pytest.mark.promise("signin.end")
def test_revoking_the_key_ends_the_session_at_once(book, signed_in):
    keys = {key.principal: key.id for key in [*book.keys()]}
    assert signed_in.get("/v1/actor").status_code == 200
    book.revoke_key(keys["user:alice"])
    assert signed_in.get("/v1/actor").status_code == 401
    assert signed_in.get("/").headers["location"] == "/sign-in"


def test_a_session_expires(book, signed_in, monkeypatch):
    now = book._engines.clock.now()
    monkeypatch.setattr(book._engines.clock, "now", lambda: now + timedelta(hours=11), raising=False)
    assert signed_in.get("/v1/actor").status_code == 200
    monkeypatch.setattr(book._engines.clock, "now", lambda: now + timedelta(hours=12, seconds=1), raising=False)
    assert signed_in.get("/v1/actor").status_code == 401


def test_a_session_is_valid_at_every_server_of_the_book(book, open_book, signed_in):
    (secret,) = signed_in.cookies.values()
    other = browser(open_book())
    other.cookies.set("commonbook-session-7373", secret)
    assert other.get("/v1/actor").json() == "user:alice"
    assert token_of(other) == token_of(signed_in)
