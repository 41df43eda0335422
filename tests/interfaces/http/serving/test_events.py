"""Streams of changes over real connections: complete, only of readable spaces, and ended with the right to read."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import httpx2
import pytest
from starlette.applications import Starlette

from commonbook.interfaces.http.serving.events import ChangeStreams
from tests.support.best_of import seconds, takes_less_than
from tests.support.servers import Server, serving

pytestmark = pytest.mark.slow
ALICE = "user:alice"
STREAM = {"Accept": "text/event-stream"}


class Event(NamedTuple):
    id: str
    changes: list[dict[str, Any]]


class Listener:
    """Reads a stream in a thread of its own; `events` ends with None when the server ends the stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.events: queue.Queue[Event | None] = queue.Queue()
        self.last_id = ""
        self.was_cut_off = False
        self._positioned = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for line in self.response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    self.last_id = value
                    self._positioned.set()
                elif name == "data":
                    self.events.put(Event(self.last_id, json.loads(value)))
        except httpx2.HTTPError:
            self.was_cut_off = True
        self.events.put(None)

    def next(self) -> Event:
        event = self.events.get(timeout=60)
        assert event is not None, "the stream ended"
        return event

    def wait_for_end(self) -> None:
        while self.events.get(timeout=60) is not None:
            pass

    def wait_for_position(self) -> None:
        assert self._positioned.wait(60)


@contextmanager
def listening(server: Server, key: str | None = None, **options: str) -> Iterator[Listener]:
    last = {"Last-Event-ID": options.pop("after")} if "after" in options else {}
    with (
        server.client(key) as client,
        client.stream("GET", "/v1/changes", headers={**STREAM, **last}, params=options) as response,
    ):
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        listener = Listener(response)
        listener.wait_for_position()
        yield listener


def described(event: Event) -> list[tuple[object, object]]:
    return [(change["space"], change["action"]) for change in event.changes]


@pytest.mark.promise("servers.stream")
def test_a_stream_has_each_change_once_also_after_it_was_broken_and_on_another_server(book):
    with serving(None) as first, serving(None) as second:
        with listening(first, space="team/") as listener:
            receipt = book.remember("Alice owns billing", space="team")
            event = listener.next()
            assert ("team", "remember") in described(event)
            assert event.changes[-1]["subjects"][0] == receipt.id
            assert "billing" not in json.dumps(event.changes)
        book.edit(receipt.id, text="Bob owns billing")
        with listening(second, space="team/", after=event.id) as listener:
            assert described(listener.next()) == [("team", "edit")]
            book.delete(receipt.id)
            assert described(listener.next()) == [("team", "delete")]


@pytest.mark.promise("servers.stream", "keys.streams")
def test_a_stream_has_changes_of_readable_spaces_only_and_ends_with_a_revoked_grant_or_key(book):
    book.remember("plans", space="team")
    book.grant(ALICE, "team", "reader")
    made = book.create_key(ALICE)
    with serving(None) as server:
        with listening(server, made.secret) as listener:
            book.remember("not for Alice", space="board")
            book.remember("for Alice", space="team")
            seen = described(listener.next())
            assert {space for space, _ in seen} == {"team"}
            book.revoke(ALICE, "team")
            listener.wait_for_end()
        book.grant(ALICE, "team", "reader")
        with listening(server, made.secret) as listener, listening(server) as of_owner:
            book.revoke_key(made.key.id)
            listener.wait_for_end()
            assert of_owner.next()
        with server.client(made.secret) as client:
            assert client.get("/v1/changes", headers=STREAM).status_code == 401


@pytest.mark.promise("servers.end")
def test_open_streams_end_with_the_server_in_time(home):
    def attempt() -> float:
        with serving(home) as server, listening(server) as first, listening(server) as second:
            took = seconds(lambda: codes.append(server.end()))
            for listener in (first, second):
                listener.wait_for_end()
                assert not listener.was_cut_off
        return took

    codes: list[int] = []
    takes_less_than(3, attempt)
    assert set(codes) == {0}


@pytest.mark.promise("keys.open-streams")
def test_a_principal_has_a_limited_number_of_open_streams(home):
    with serving(home) as server, server.client() as client:
        made = client.post("/v1/keys", json={"principal": ALICE}).json()["secret"]
        with ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(listening(server, made))
            with server.client(made) as another:
                refused = another.get("/v1/changes", headers=STREAM)
            assert (refused.status_code, refused.json()["type"]) == (429, "too_many")
            assert "commonbook_open_streams 20.0" in client.get("/metrics").text
            stack.enter_context(listening(server))
        deadline = time.monotonic() + 60
        while "commonbook_open_streams 0.0" not in client.get("/metrics").text:
            assert time.monotonic() < deadline


@pytest.mark.promise("keys.open-streams")
def test_streams_that_begin_at_once_do_not_exceed_the_limit(book):
    streams = ChangeStreams(book)
    app = Starlette(routes=[streams.route()])
    secret = book.create_key(ALICE).secret
    headers = [(b"accept", b"text/event-stream"), (b"authorization", f"Bearer {secret}".encode())]
    scope = {
        "type": "http",
        "scheme": "http",
        "method": "GET",
        "path": "/v1/changes",
        "query_string": b"",
        "headers": headers,
    }

    async def statuses() -> list[int]:
        found: list[int] = []
        ended = asyncio.Event()

        async def receive() -> dict[str, str]:
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            await asyncio.sleep(0)
            if message["type"] == "http.response.start":
                found.append(message["status"])
                if len(found) == 30:
                    ended.set()

        await asyncio.gather(*(app({**scope}, receive, send) for _ in range(30)))
        return found

    found = asyncio.run(statuses())
    assert Counter(found) == {200: 20, 429: 10}
    assert streams._open.total() == 0


def test_a_request_for_json_gets_a_page_and_a_wrong_one_an_error(home):
    with serving(home) as server, server.client() as client:
        client.post("/v1/memories", json={"text": "Alice owns billing"})
        page = client.get("/v1/changes", params={"after": "0", "space": "personal"}).json()
        assert [change["action"] for change in page["items"]][-1] == "remember"
        assert client.get("/v1/changes", headers={**STREAM, "Last-Event-ID": "x"}).status_code == 400
        for _ in range(2):
            documented = client.get("/openapi.json").json()["paths"]["/v1/changes"]["get"]
            assert documented["responses"]["200"]["content"].keys() == {"application/json", "text/event-stream"}
            assert [parameter["name"] for parameter in documented["parameters"]].count("Last-Event-ID") == 1
        assert client.get("/v1/changes?wrong=1", headers=STREAM).status_code == 422
        assert client.get("/v1/changes", headers={**STREAM, "Authorization": "Bearer cbk_no"}).status_code == 401
        assert httpx2.get(f"{server.url}/v1/changes", headers=STREAM, timeout=60).status_code == 401
