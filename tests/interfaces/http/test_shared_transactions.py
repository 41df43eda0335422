"""Concurrent appends over HTTP share a transaction, and none waits for long for another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from commonbook.interfaces.http.app import make_app
from commonbook.interfaces.http.routes import view_of
from commonbook.interfaces.http.threads import ServerConfig
from commonbook.service.book import Book
from tests.support.crowds import until

pytestmark = pytest.mark.promise("sessions.group-commit")

REQUESTS = 12


def append_at_once(client: TestClient) -> list[tuple[int, bool]]:
    """Send appends to three sessions; return the status and whether the message is new, for each."""

    def append(number: int) -> tuple[int, bool]:
        body = {"messages": [{"text": f"message {number}"}], "space": "s"}
        path, headers = f"/v1/sessions/talk-{number % 3}/messages", {"Idempotency-Key": f"key {number}"}
        answer = client.post(path, json=body, headers=headers)
        return answer.status_code, answer.json()["messages"][0]["new"]

    with ThreadPoolExecutor(REQUESTS) as pool:
        return list(pool.map(append, range(REQUESTS)))


def served(book: Book, threads: int) -> Iterator[TestClient]:
    """Yield a client of an app with so many threads, after the sessions have begun."""
    for number in range(3):
        book.append(f"talk-{number}", ["Good morning."], space="s")
    key = book.create_key("user:local").secret
    # Entered, so that all requests come to one event loop.
    with TestClient(
        make_app(book, ServerConfig(threads=threads)), headers={"Authorization": f"Bearer {key}"}
    ) as client:
        yield client


def append_times(book: Book) -> list[str]:
    return [entry.time for entry in book.log(space="s", limit=1000) if entry.action == "append"][3:]


def test_appends_that_have_arrived_share_one_transaction(book, monkeypatch):
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._ARRIVAL_SECONDS", 60.0)
    group_commit = book._appender.group_commit

    def view_when_all_are_there(*given: Any) -> Book:
        until(lambda: all_are_there.is_set() or len(group_commit._announced) == REQUESTS)
        all_are_there.set()
        return view_of(*given)

    all_are_there = threading.Event()
    monkeypatch.setattr("commonbook.interfaces.http.routes.view_of", view_when_all_are_there)
    for client in served(book, threads=REQUESTS):
        assert append_at_once(client) == [(200, True)] * REQUESTS
    times = append_times(book)
    assert (len(times), len(set(times))) == (REQUESTS, 1)
    assert group_commit._announced == set()


@pytest.mark.parametrize("threads", [1, 2])
def test_appends_that_wait_for_a_thread_are_not_waited_for_without_end(book, threads):
    for client in served(book, threads=threads):
        assert append_at_once(client) == [(200, True)] * REQUESTS
    assert len(append_times(book)) == REQUESTS


def test_a_refused_append_is_not_waited_for(book, monkeypatch):
    monkeypatch.setattr("commonbook.subjects.sessions.group_commit._ARRIVAL_SECONDS", 60.0)
    for client in served(book, threads=4):
        path, body = "/v1/sessions/talk-0/messages", {"messages": [{"text": "hello"}], "space": "s"}
        assert client.post(path, json=body | {"colour": "red"}).status_code == 422
        assert client.post(path, json=body, headers={"Authorization": "Bearer cb_none"}).status_code == 401
        assert client.post(path, json=body).status_code == 200
    assert book._appender.group_commit._announced == set()
