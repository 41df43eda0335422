"""The guards refuse what no client of ours would send, and say so in problem details."""

from __future__ import annotations

import json
import logging
from ipaddress import ip_network

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from commonbook.interfaces.http.error_answers import BadShape, error_answer
from commonbook.interfaces.http.guards.config import GuardConfig
from commonbook.interfaces.http.guards.stack import guarded, require_depth
from tests.support.best_of import seconds, takes_less_than

SECRET = "cbk_a-secret-that-no-log-has"


async def echo(request: Request):
    try:
        body = await request.body()
    except BadShape as error:
        return error_answer(error, request)
    host = request.client.host if request.client else None
    return JSONResponse({"bytes": len(body), "client": host, "scheme": request.url.scheme})


async def health(request: Request):
    return PlainTextResponse("")


async def failing_app(scope, receive, send):
    raise RuntimeError(f"a memory says {SECRET}")


LOOPBACK = GuardConfig()


def client(config: GuardConfig = LOOPBACK, *, peer: str = "127.0.0.1", base: str = "http://127.0.0.1:7373"):
    routes = [Route("/echo", echo, methods=["GET", "POST"]), Route("/health/live", health)]
    return TestClient(guarded(Starlette(routes=routes), config), base_url=base, client=(peer, 50000))


# --- Host and Origin


@pytest.mark.parametrize("host", ["127.0.0.1:7373", "localhost", "LOCALHOST:80", "[::1]:7373", "localhost.:7373"])
def test_a_server_on_loopback_answers_to_names_of_loopback(host):
    assert client().get("/echo", headers={"Host": host}).status_code == 200


@pytest.mark.promise("web.rebinding")
@pytest.mark.parametrize(
    "host", ["evil.example:7373", "127.0.0.1.evil.example", "", "localhost:7373:1", "a b", "localhost@evil.example"]
)
def test_another_host_is_refused_against_dns_rebinding(host):
    answer = client().get("/echo", headers={"Host": host})
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"
    assert "--allowed-host" in answer.json()["fix"]


def test_a_name_that_was_allowed_is_answered_to_and_loopback_is_not():
    config = GuardConfig(allowed_hosts=frozenset({"book.example"}))
    assert client(config).get("/echo", headers={"Host": "book.example"}).status_code == 200
    assert client(config).get("/echo", headers={"Host": "localhost"}).status_code == 421


@pytest.mark.promise("web.origin")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8000"},
        {"Origin": "http://localhost:7373"},
        {"Origin": "https://127.0.0.1:7373"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:7373", "Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_page_of_another_origin_is_refused_also_of_another_port(method, headers):
    answer = client().request(method, "/echo", headers=headers)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://127.0.0.1:7373", "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}]
)
def test_an_own_page_and_a_typed_address_are_answered(headers):
    assert client().post("/echo", headers=headers).status_code == 200


def test_health_is_answered_under_any_name():
    assert client().get("/health/live", headers={"Host": "10.1.2.3"}).status_code == 200


# --- proxies


@pytest.mark.promise("connect.proxy")
def test_without_proxies_nobody_is_believed_where_a_request_came_from():
    headers = {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "https"}
    assert client().get("/echo", headers=headers).json() == {"bytes": 0, "client": "127.0.0.1", "scheme": "http"}


@pytest.mark.promise("connect.proxy")
def test_behind_a_proxy_its_own_word_counts_and_not_what_its_client_claims():
    config = GuardConfig(frozenset({"book.example"}), proxies=(ip_network("10.0.0.0/24"),))
    proxied = client(config, peer="10.0.0.7", base="http://book.example")
    headers = {"X-Forwarded-For": "6.6.6.6, 9.9.9.9", "X-Forwarded-Proto": "http, https"}
    answer = proxied.get("/echo", headers=headers)
    assert answer.json() == {"bytes": 0, "client": "9.9.9.9", "scheme": "https"}
    assert "strict-transport-security" in answer.headers
    assert proxied.post("/echo", headers={**headers, "Origin": "https://book.example"}).status_code == 200
    assert proxied.post("/echo", headers={**headers, "Origin": "http://book.example"}).status_code == 403


@pytest.mark.promise("connect.encrypted")
def test_behind_a_proxy_nobody_else_is_answered_but_this_machine_and_for_health():
    config = GuardConfig(frozenset({"book.example"}), proxies=(ip_network("10.0.0.7/32"),))
    stranger = client(config, peer="10.0.0.8", base="http://book.example")
    assert stranger.get("/echo", headers={"X-Forwarded-For": "10.0.0.7"}).status_code == 403
    assert stranger.get("/health/live").status_code == 200
    assert client(config, peer="127.0.0.1", base="http://book.example").get("/echo").status_code == 200
    mapped = client(config, peer="::ffff:10.0.0.7", base="http://book.example")
    assert mapped.get("/echo").status_code == 200


# --- bodies


@pytest.mark.promise("malformed.size")
def test_a_body_above_the_limit_is_refused_whether_it_is_announced_or_not():
    small = client(GuardConfig(max_body_bytes=1000))
    assert small.post("/echo", content=b"x" * 1000).json()["bytes"] == 1000
    for content in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):
        answer = small.post("/echo", content=content)
        assert answer.status_code == 413
        assert answer.json()["type"] == "too_large"


@pytest.mark.promise("malformed.size")
def test_an_archive_has_a_limit_of_its_own():
    config = GuardConfig(max_body_bytes=10, max_archive_bytes=1000, archive_paths=frozenset({"/echo"}))
    zipped = {"Content-Type": "application/zip"}
    assert client(config).post("/echo", content=iter([b"x" * 900]), headers=zipped).status_code == 200
    assert client(config).post("/echo", content=iter([b"x" * 900, b"x" * 101]), headers=zipped).status_code == 413


@pytest.mark.promise("malformed.size")
def test_only_an_archive_to_import_has_the_limit_of_archives():
    config = GuardConfig(max_body_bytes=10, max_archive_bytes=1000)
    zipped = {"Content-Type": "application/zip"}
    assert client(config).post("/echo", content=b"x" * 900, headers=zipped).status_code == 413


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "9" * 30])
def test_a_length_that_is_no_number_is_refused(length):
    assert client().post("/echo", content=b"x", headers={"Content-Length": length}).status_code == 413


@pytest.mark.promise("malformed.depth")
def test_json_that_is_nested_too_deep_is_refused_before_it_is_parsed():
    deep = client(GuardConfig(max_depth=10))
    assert deep.post("/echo", content=b"[" * 10 + b"]" * 10).status_code == 200
    for body in (b"[" * 11, b'{"a":' * 11, b'["\\"]]]]]]]]]]]]",' * 11, b"[" * 5_000_000):
        assert deep.post("/echo", content=body).status_code == 400
    for body in (b"[]," * 100, b'"' + b"[{" * 100 + b'"', b'"\\"' + b"[" * 50 + b'"'):
        assert deep.post("/echo", content=body).status_code == 200


@pytest.mark.promise("malformed.depth")
@pytest.mark.parametrize("end", [b"", b"\\", b"x"])
def test_a_text_without_end_in_a_body_holds_nobody_up(end):
    body = b"[]" * 100 + b'"' + b'\\"' * 20_000 + end
    # Some milliseconds; each quote tried as the beginning of a text would take many seconds.
    takes_less_than(1, lambda: seconds(lambda: require_depth(body, 64)))


# --- answers and the log


@pytest.mark.promise("web.headers")
def test_every_answer_has_the_security_headers_and_an_id():
    answers = [client().get("/echo"), client().get("/nothing"), client().get("/echo", headers={"Host": "x"})]
    for answer in answers:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert len(answer.headers["x-request-id"]) == 36
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
    assert answers[2].json()["instance"] == answers[2].headers["x-request-id"]


@pytest.mark.promise("logs.access")
def test_the_log_has_a_line_for_each_request_without_texts_queries_paths_and_keys(caplog):
    caplog.set_level(logging.INFO)
    headers = {"Authorization": f"Bearer {SECRET}", "User-Agent": SECRET, "X-Request-ID": SECRET}
    answer = client().post(f"/echo?query={SECRET}", content=SECRET, headers=headers)
    client().get(f"/{SECRET}", headers=headers)
    client().request(SECRET.replace("_", "-"), "/echo")
    fields = [record.fields for record in caplog.records if record.name == "commonbook.core.access"]
    assert [(line["method"], line["status"]) for line in fields] == [("POST", 200), ("GET", 404), ("-", 405)]
    assert fields[0]["request"] == answer.headers["x-request-id"]
    ours = [record for record in caplog.records if record.name.startswith("commonbook")]
    assert SECRET not in json.dumps([record.__dict__ for record in ours], default=str)


@pytest.mark.promise("logs.faults")
def test_a_fault_is_answered_with_an_id_and_nobody_gets_its_text(caplog):
    caplog.set_level(logging.INFO)
    answer = TestClient(guarded(failing_app, GuardConfig()), base_url="http://localhost").get("/")
    assert answer.status_code == 500
    assert SECRET not in answer.text
    assert answer.json()["instance"] == answer.headers["x-request-id"]
    fault = next(record.fields for record in caplog.records if "error" in getattr(record, "fields", {}))
    assert (fault["request"], fault["error"]) == (answer.headers["x-request-id"], "RuntimeError")
    assert any("test_guards.py" in place for place in fault["places"])
    assert SECRET not in caplog.text


@pytest.mark.promise("malformed.slow")
def test_a_body_that_does_not_arrive_in_time_is_refused():
    import asyncio

    async def call(content_type: bytes) -> int:
        sent = []
        parts = iter([{"type": "http.request", "body": b"{", "more_body": True}])

        async def receive():
            part = next(parts, None)
            if part is None:
                await asyncio.Event().wait()
            return part

        async def send(message):
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", content_type)]
        scope = {
            "type": "http", "method": "POST", "path": "/echo", "raw_path": b"/echo", "query_string": b"",
            "scheme": "http", "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        }  # fmt: skip
        app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
        async with asyncio.timeout(20):
            await guarded(app, GuardConfig(body_seconds=0.05))(scope, receive, send)
        return int(sent[0]["status"])

    assert asyncio.run(call(b"application/json")) == 408
    assert asyncio.run(call(b"application/zip")) == 408
