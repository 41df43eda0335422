"""Keys: every route refuses strangers, and does for a key what the book does for its principal."""

from __future__ import annotations

import io
import zipfile
from typing import Any, Final

import pytest
from httpx2 import Response
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from commonbook.interfaces.http.serving import server
from commonbook.interfaces.http.serving.addresses import ServeOptions
from commonbook.service.book import Book
from commonbook.verbs.declaration import Verb
from commonbook.verbs.requests import VERBS, fields_of_verb, request_of
from tests.interfaces.http.test_idempotency import ARGUMENTS

OPEN: Final = frozenset({"/openapi.json", "/health/live", "/health/ready", "/v1/login", "/sign-in"})
"""The paths that need no key: each answers a stranger, and tells nothing of the book."""

PAGES: Final = frozenset({"/", "/sign-out"})
"""The pages, which need a signed-in browser; see `tests/interfaces/http/pages`."""

_ZIP = io.BytesIO()
with zipfile.ZipFile(_ZIP, "w") as archive:
    archive.writestr("a.md", "a")

OWNERS_ALONE: Final = frozenset(
    {"sync", "rebuild", "reindex", "accept_deletions", "doctor", "metrics", "set_limit", "import_folder"}
    | {"export", "log_size"}
)
"""The verbs that only the owner may use."""

FOR_ANYBODY: Final = frozenset(
    {"actor", "home", "default_space", "schema_migration", "spaces", "grants", "keys", "limits", "rules", "pending"}
    | {
        "moved_to",
        "whoami",
        "inbox",
        "sessions",
        "status",
        "list",
        "recall",
        "verify_log",
        "work",
        "prefetch",
        "prefetched",
        "changes",
    }
)
"""The verbs that answer anybody with a key: about what its principal may see, which may be nothing."""

READS: Final[dict[str, dict[str, Any]]] = {
    "recall": {"query": "memory", "spaces": ["s"]},
    "messages": {"session": "talk", "space": "s"},
    "session_uses": {"session": "talk", "space": "s"},
    "log": {"space": "s"},
    "prefetch": {"session": "talk", "query": "memory", "space": "s"},
    "prefetched": {"session": "talk", "query": "memory", "space": "s"},
}


WITH_KEY: Final = tuple(verb for verb in VERBS.values() if not verb.without_key)

FOR_READERS: Final = {verb.name for verb in WITH_KEY if not verb.changes} - OWNERS_ALONE - FOR_ANYBODY
"""The verbs that a reader of the space may use, beside those for anybody: all that change nothing."""


def all_routes(served: Starlette) -> list[tuple[str, str]]:
    routes = [route for route in served.router.routes if isinstance(route, Route) and route.path not in OPEN | PAGES]
    return [(method, route.path) for route in routes for method in sorted((route.methods or set()) - {"HEAD"})]


def send(client: TestClient, verb: Verb, arguments: dict[str, Any]) -> Response:
    if verb.name == "import_folder":
        return client.post(verb.path, content=_ZIP.getvalue())
    request = request_of(verb, arguments)
    return client.request(request.method, request.path, params=list(request.query), content=request.body)


def stranger_keys(book: Book) -> dict[str, str | None]:
    """Return secrets that open nothing, each with the reason."""
    revoked = book.create_key("user:local")
    book.revoke_key(revoked.key.id)
    expired = book.create_key("user:local", expires="in 1 minute")
    past = "UPDATE api_key SET expires = '2020-01-01T00:00:00.000000Z' WHERE id = :id"
    book._engines.db.write(lambda tx: tx.run(past, id=expired.key.id))
    return {
        "none": None,
        "unknown": "cbk_" + "A" * 43,
        "no key at all": "hello",
        "revoked": revoked.secret,
        "expired": expired.secret,
    }


@pytest.fixture
def served(book: Book, monkeypatch: pytest.MonkeyPatch) -> Starlette:
    """The app as `commonbook serve` has it, with all its routes, without the guards around it."""
    monkeypatch.setattr(server, "guarded", lambda app, *_: app)
    app = server._Process(book, ServeOptions())._book_app()
    assert isinstance(app, Starlette)
    return app


@pytest.mark.promise("http.keys")
def test_every_route_refuses_every_stranger(book, served, subtests):
    routes = all_routes(served)
    assert {path for _, path in routes} >= {verb.template for verb in WITH_KEY} | {"/metrics", "/v1/changes"}
    for reason, secret in stranger_keys(book).items():
        client = TestClient(served, headers={} if secret is None else {"Authorization": f"Bearer {secret}"})
        for method, path in routes:
            with subtests.test(f"{reason}: {method} {path}"):
                # A stream of changes has a route of its own, by what the caller accepts.
                accept = "text/event-stream" if path == "/v1/changes" else "*/*"
                answer = client.request(method, path, content=b"{not json", headers={"Accept": accept})
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == 'Bearer realm="commonbook"'
                assert answer.json()["type"] == "not_allowed"


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic {0}", "{0}", "Bearer {0} x", "Bearer\t", "Bearer cbk_\xff", "Token {0}"],
)
def test_a_header_that_is_no_bearer_key_is_refused(book, app, header):
    secret = book.create_key("user:local").secret
    client = TestClient(app)
    value = header.format(secret).encode("latin-1")
    assert client.get("/v1/status", headers={b"Authorization": value}).status_code == 401


def test_a_key_in_the_query_or_twice_is_refused(book, app):
    secret = book.create_key("user:local").secret
    client = TestClient(app)
    assert client.get(f"/v1/status?key={secret}").status_code == 401
    assert client.get(f"/v1/status?access_token={secret}").status_code == 401
    twice = [("Authorization", f"Bearer {secret}"), ("Authorization", f"Bearer {secret}")]
    assert client.get("/v1/status", headers=twice).status_code == 401


def test_the_scheme_is_read_in_any_case(book, app):
    secret = book.create_key("user:local").secret
    assert TestClient(app).get("/v1/actor", headers={"authorization": f"bEARER {secret}"}).status_code == 200


@pytest.fixture
def world(book: Book) -> str:
    """A space `s` with a memory and a session; return the id of the memory."""
    book.append("talk", ["a message"], space="s")
    book.create_space("team")
    return book.remember("a memory", space="s").id


def arguments_of(book: Book, verb: Verb, memory: str) -> dict[str, Any]:
    if verb.name in ARGUMENTS:
        return ARGUMENTS[verb.name](book)
    found = dict(READS.get(verb.name, {}))
    for argument in fields_of_verb(verb.name):
        if argument.name in ("memory_id", "part"):
            found[argument.name] = memory
    return found


@pytest.mark.promise("http.keys")
def test_a_key_without_rights_reads_and_changes_nothing(book, client_of, world, subtests):
    client = client_of(book.create_key("agent:nobody").secret)
    for verb in WITH_KEY:
        with subtests.test(verb.name):
            arguments = arguments_of(book, verb, world)
            before = [entry for space in book.spaces() for entry in book.log(space=space.name, limit=500)]
            answer = send(client, verb, arguments)
            if verb.name == "create_sign_in":
                # A browser may do what the key may, which is nothing here.
                assert answer.status_code == 200, answer.text
                continue
            if verb.name in FOR_ANYBODY and "spaces" not in arguments and "space" not in arguments:
                assert answer.status_code == 200, answer.text
                assert "a memory" not in answer.text
                assert "a message" not in answer.text
            elif verb.name == "share_many":
                assert all(receipt["error"] for receipt in answer.json())
            elif verb.name == "adopt_all":
                assert answer.json() == []
            else:
                assert answer.status_code in (403, 404), answer.text
            after = [entry for space in book.spaces() for entry in book.log(space=space.name, limit=500)]
            assert [entry for entry in after if entry not in before and not entry.action.startswith("refused")] == []


@pytest.mark.promise("keys.place")
def test_only_the_owner_learns_where_the_book_is(book, client, client_of):
    book.create_space("team")
    book.grant("user:ana", "team", "admin")
    stranger = client_of(book.create_key("user:ana").secret)
    assert client.get("/v1/home").json() == client.get("/v1/status").json()["home"] == book.home
    assert stranger.get("/v1/home").json() == stranger.get("/v1/status").json()["home"] == ""


@pytest.mark.promise("http.keys")
def test_a_readers_key_reads_and_changes_nothing(book, client_of, world, subtests):
    book.grant("agent:reader", "s", "reader")
    book.grant("agent:reader", "team", "reader")
    client = client_of(book.create_key("agent:reader").secret)
    for verb in WITH_KEY:
        with subtests.test(verb.name):
            arguments = arguments_of(book, verb, world)
            before = [entry for space in book.spaces() for entry in book.log(space=space.name, limit=500)]
            answer = send(client, verb, arguments)
            after = [entry for space in book.spaces() for entry in book.log(space=space.name, limit=500)]
            made = [entry for entry in after if entry not in before and not entry.action.startswith("refused")]
            if verb.name in FOR_ANYBODY | FOR_READERS:
                assert answer.status_code == (403 if verb.name == "space_for_writing" else 200), answer.text
            elif verb.name == "request_share":
                # A reader may ask; the space that it asks for is one that it cannot read here.
                assert answer.status_code in (403, 404), answer.text
            elif verb.name == "create_sign_in":
                # A browser may do what the key may.
                assert answer.status_code == 200, answer.text
                continue
            elif verb.name == "share_with":
                # It makes a space of its own for the two, from what it may read.
                assert answer.status_code == 200, answer.text
                continue
            elif verb.name == "share_many":
                assert all(receipt["error"] for receipt in answer.json())
            elif verb.name == "adopt_all":
                assert answer.json() == []
            else:
                assert answer.status_code in (403, 404), answer.text
            assert made == []


@pytest.mark.promise("http.keys")
def test_the_owners_verbs_are_refused_to_an_admin_of_every_space(book, client_of, world, subtests):
    for space in book.spaces():
        book.grant("agent:admin", space.name, "admin")
    client = client_of(book.create_key("agent:admin").secret)
    for name in sorted(OWNERS_ALONE):
        with subtests.test(name):
            assert send(client, VERBS[name], arguments_of(book, VERBS[name], world)).status_code == 403


def test_a_limited_key_opens_no_more_than_its_limits(book, client_of, world):
    book.remember("elsewhere", space="other")
    key, secret = book.create_key("user:local", limits=[("s", "reader")])[:2]
    client = client_of(secret)
    texts = [item["text"] for item in client.get("/v1/memories").json()["items"]]
    assert texts == ["a memory"]
    assert [each["id"] for each in client.get("/v1/keys").json()] == [key.id]
    assert client.post("/v1/memories", json={"text": "x", "space": "s"}).status_code == 403
    assert client.post("/v1/sync").status_code == 403
    assert client.post("/v1/recall", json={"query": "elsewhere", "spaces": ["other"]}).status_code in (403, 404)
