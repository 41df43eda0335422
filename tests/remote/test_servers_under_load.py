"""Of three HTTP servers and two workers on one PostgreSQL one each is killed under load: nothing is lost or doubled.

COMMONBOOK_LOAD_SECONDS   how long the load lasts before and after the blow (2; the full setting is 20)
COMMONBOOK_LOAD_CLIENTS   how many clients write at once (4; the full setting is 32)
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import commonbook
from commonbook.remote.remote_book import RemoteBook
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage
from tests.support import capture_child
from tests.support.capture_child import logs_of, wrong_with
from tests.support.http_servers import Cable, ServerProcess
from tests.support.postgres_server import wait_for_transactions

SECONDS = float(os.environ.get("COMMONBOOK_LOAD_SECONDS", "2"))
CLIENTS = int(os.environ.get("COMMONBOOK_LOAD_CLIENTS", "4"))
DEADLINE = 60.0
_MORE_ANSWERS = 4

pytestmark = [pytest.mark.promise("servers.fleet"), pytest.mark.slow, pytest.mark.timeout(240 + 10 * SECONDS)]


class LoadClient(threading.Thread):
    """A client that appends and remembers all the time, and keeps the answers."""

    def __init__(self, name: str, remote: RemoteBook) -> None:
        super().__init__(daemon=True)
        self.who, self.remote = name, remote
        self.messages: list[tuple[str, str]] = []
        self.memories: list[tuple[str, str]] = []
        self.answers = 0
        self.error: BaseException | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            for number in range(1_000_000):
                if self.stopped.is_set():
                    return
                self._write(number)
                self.answers += 1
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def _write(self, number: int) -> None:
        sent = [NewMessage(f"{self.who} {number} {part}", client_id=f"{self.who}-{number}-{part}") for part in range(2)]
        receipt = self.remote.append(f"talk-{self.who}", sent)
        assert receipt.durable
        self.messages += [(message.text, str(message.client_id)) for message in sent]
        text = f"{self.who} remembers the number {number}"
        self.memories.append((text, self.remote.remember(text, space="team").id))


@pytest.fixture
def place(postgres_book: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    monkeypatch.setenv("COMMONBOOK_DATABASE", address)
    return address


@pytest.fixture
def machines(place: str) -> Iterator[tuple[list[ServerProcess], list[Any]]]:
    """Three servers and two workers of one book."""
    commonbook.open(place, create=True).close()
    servers = [ServerProcess(COMMONBOOK_DATABASE=place) for _ in range(3)]
    workers = [capture_child.start("worker", place) for _ in range(2)]
    try:
        assert all(capture_child.answer(worker) == "ready" for worker in workers)
        yield servers, workers
    finally:
        for server in servers:
            server.close()
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_of_three_servers_and_two_workers_one_each_is_killed_and_nothing_is_lost_or_doubled(place, machines, tmp_path):
    servers, workers = machines
    with commonbook.open(place) as book:
        key = book.create_key("user:local").secret
    # Each client has a load balancer of its own, which prefers another server.
    ports = [int(server.url.rpartition(":")[2]) for server in servers]
    balancers = [Cable(*ports[number % 3 :], *ports[: number % 3]) for number in range(CLIENTS)]
    clients = [
        LoadClient(
            f"c{number}",
            commonbook.connect(balancer.url, key, outbox=tmp_path / f"{number}.db"),
        )
        for number, balancer in enumerate(balancers)
    ]
    for client in clients:
        client.start()
    go_on(clients)
    servers[0].kill()
    workers[0].send_signal(signal.SIGKILL)
    go_on(clients)
    for client in clients:
        client.stopped.set()
    for client in clients:
        client.join(DEADLINE)
        assert client.error is None
        assert client.remote.outbox.flush(DEADLINE)
        client.remote.close()
    for balancer in balancers:
        balancer.close()
    wait_for_transactions(place)
    assert wrong_after(place, clients) == []


def go_on(clients: list[LoadClient]) -> None:
    """Let every client write for a while, and until each has got more answers, however slow the machine is."""
    goals = {client: client.answers + _MORE_ANSWERS for client in clients}
    pause = threading.Event()
    pause.wait(SECONDS)
    end = time.monotonic() + 2 * DEADLINE
    while behind := [client for client, goal in goals.items() if client.answers < goal]:
        assert not [client.error for client in behind if client.error]
        assert time.monotonic() < end, "not everybody went on"
        pause.wait(0.05)


def wrong_after(place: str, clients: list[LoadClient]) -> list[str]:
    wrong = []
    with commonbook.open(place) as book:
        logs = logs_of(book)
        for client in clients:
            found = [(message.text, message.client_id) for message in logs[f"talk-{client.who}"].messages]
            if found != client.messages:
                wrong.append(f"{client.who}: {len(client.messages)} messages were acknowledged, {len(found)} are there")
        stored = sorted((memory.text, memory.id) for memory in _all_memories(book))
        if stored != sorted(memory for client in clients for memory in client.memories):
            wrong.append("other memories than those that were acknowledged")
        wrong += [str(finding) for finding in book.verify_log().findings]
    return wrong + wrong_with(place)


def _all_memories(book: Any) -> list[Any]:
    found: list[Any] = []
    after = None
    while True:
        page = book.list(Filter(space="team"), limit=1000, after=after)
        found += page.items
        after = page.next
        if after is None:
            return found
