"""A fleet on one book, in a home or on PostgreSQL: of three servers and two workers, one each is killed under load."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage
from tests.support.http_servers import Cable
from tests.support.servers import Server, serving

pytestmark = pytest.mark.slow
DEADLINE = 90.0
MORE = 8


class Writer(threading.Thread):
    """A client that remembers and appends, one after the other, through whichever server answers."""

    def __init__(self, name: str, book: Any) -> None:
        super().__init__(name=name)
        self.book = book
        self.memories: dict[str, str] = {}
        self.messages: list[str] = []
        self.errors: list[Exception] = []
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        try:
            while not self.stop.is_set():
                number += 1
                text = f"{self.name} remembers {number}"
                self.memories[text] = self.book.remember(text, space="team").id
                message = f"{self.name} says {number}"
                self.book.append(self.name, [NewMessage(message, client_id=message)], space="team")
                self.messages.append(message)
        except Exception as error:  # noqa: BLE001 - it is looked at by the test
            self.errors.append(error)


def go_on(writers: list[Writer]) -> None:
    """Wait until every writer has got more answers, however slow the machine is."""
    goal = {writer: len(writer.messages) + MORE for writer in writers}
    until = time.monotonic() + DEADLINE
    while behind := [writer for writer, count in goal.items() if len(writer.messages) < count]:
        assert not any(writer.errors for writer in writers), [writer.errors for writer in writers]
        assert time.monotonic() < until, behind
        threading.Event().wait(0.05)


def start_worker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "commonbook", "worker", "--every", "0.2"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.promise("servers.fleet")
def test_of_three_servers_and_two_workers_one_each_is_killed_and_nothing_is_lost_or_doubled(book, tmp_path):
    with ExitStack() as stack:
        servers: list[Server] = [stack.enter_context(serving(None, "--no-worker")) for _ in range(3)]
        workers = [start_worker(), start_worker()]
        for worker in workers:
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        writers = [Writer(name, connected(stack, servers, at, tmp_path)) for at, name in enumerate("abc")]
        for writer in writers:
            writer.start()
        go_on(writers)
        servers[1].process.send_signal(signal.SIGKILL)
        workers[0].send_signal(signal.SIGKILL)
        go_on(writers)
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join(DEADLINE)
            assert writer.errors == []
            report = writer.book.close_session(writer.name, space="team")
            assert report.unsettled == 0
    stored = {memory.text: memory.id for memory in all_memories(book)}
    assert stored == {text: id_ for writer in writers for text, id_ in writer.memories.items()}
    for writer in writers:
        page = book.messages(writer.name, space="team", limit=1000)
        assert [message.text for message in page.items] == writer.messages
        assert all(message.episode for message in page.items)
    assert book.verify_log().ok
    assert book.doctor() == ()


def connected(stack: ExitStack, servers: list[Server], at: int, tmp_path: Path) -> Any:
    """Connect a client through a load balancer of its own, which prefers another server each."""
    balancer = Cable(*(int(server.url.rpartition(":")[2]) for server in (*servers[at:], *servers[:at])))
    stack.callback(balancer.close)
    outbox = tmp_path / f"outbox-{at}.db"
    return stack.enter_context(commonbook.connect(balancer.url, servers[at].key, outbox=outbox, answer_seconds=30))


def all_memories(book: commonbook.Book) -> list[commonbook.Memory]:
    found: list[commonbook.Memory] = []
    after = None
    while True:
        page = book.list(Filter(space="team", kinds=("note",)), limit=1000, after=after)
        found += page.items
        after = page.next
        if after is None:
            return found
