"""Processes on one PostgreSQL die under load, a standby takes over, and nothing is lost or doubled.

COMMONBOOK_LOAD_SECONDS   how long the load lasts before and after each blow (2; the full setting is 20)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import commonbook
from commonbook.values.memory import Filter
from tests.support import capture_child
from tests.support.capture_child import logs_of, wrong_with
from tests.support.postgres_server import TEMPLATE, USER, Server, wait_for_transactions
from tests.support.writers_child import do, operations, start_load

SECONDS = float(os.environ.get("COMMONBOOK_LOAD_SECONDS", "2"))
_MORE_ANSWERS = 6
_PATIENCE = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180 + 10 * SECONDS)]


class Load:
    """Some processes that write all the time, and the answers that each of them got."""

    def __init__(self, place: str, names: list[str]) -> None:
        self.children = {name: start_load(place, name) for name in names}
        self.answers: dict[str, list[Any]] = {name: [] for name in names}
        self._readers = [threading.Thread(target=self._read, args=(name,)) for name in names]
        for child in self.children.values():
            assert child.stdout
            assert json.loads(child.stdout.readline()) == "ready"
        for reader, child in zip(self._readers, self.children.values(), strict=True):
            assert child.stdin
            child.stdin.write(b"go\n")
            child.stdin.flush()
            reader.start()

    def _read(self, name: str) -> None:
        out = self.children[name].stdout
        assert out
        for line in out:
            if line.endswith(b"\n"):
                self.answers[name].append(json.loads(line))

    def go_on(self) -> None:
        """Let every process write for a while, and until each has got more answers, however slow the machine is."""
        goal = {
            name: len(answers) + _MORE_ANSWERS
            for name, answers in self.answers.items()
            if self.children[name].poll() is None
        }
        time.sleep(SECONDS)
        until = time.monotonic() + _PATIENCE
        while behind := {name for name, count in goal.items() if len(self.answers[name]) < count}:
            assert time.monotonic() < until, f"not everybody went on: {behind}"
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        self.children[name].send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Let every process finish its current operation; all but the killed ones exit normally."""
        for child in self.children.values():
            assert child.stdin
            child.stdin.close()
        for reader in self._readers:
            reader.join()
        for child in self.children.values():
            assert child.wait(60) in {0, -signal.SIGKILL}
            assert child.stdout
            child.stdout.close()

    def under_way(self, name: str) -> Iterator[Any]:
        """Yield the operation that a killed process may or may not have completed."""
        done = len(self.answers[name])
        rounds = [op for number in range(done // 2, done // 2 + 2) for op in operations(name, number)]
        yield rounds[done % 2]


@contextmanager
def loaded(place: str, names: list[str]) -> Iterator[Load]:
    load = Load(place, names)
    try:
        yield load
    finally:
        for child in load.children.values():
            child.kill()


def _wrong_with_load(place: str, load: Load, killed: list[str]) -> list[str]:
    """Compare the acknowledged operations with the contents of the book."""
    wrong = []
    with closing(commonbook.open(place, create=True)) as book:
        again = [(op, do(book, op)) for name in killed for op in load.under_way(name)]
        acknowledged = [(op, answer) for answers in load.answers.values() for op, answer in answers]
        logs = logs_of(book)
        messages = {item.client_id: item for log in logs.values() for item in log.messages}
        memories = {memory.text: memory.id for memory in _every(book)}
        expected = 0
        for (verb, what, more), answer in (*acknowledged, *again):
            if verb == "remember":
                wrong += [] if memories.get(what) == answer[0] else [f"{what} is lost or another"]
                continue
            expected += len(more)
            for (text, client_id), (id_, seq) in zip(more, answer, strict=True):
                found = messages.get(client_id)
                if found is None or (found.text, found.id, found.seq) != (text, id_, seq):
                    wrong.append(f"{text} is lost or another")
        if sum(len(log.messages) for log in logs.values()) != expected:
            wrong.append("there are more messages than were sent")
        if len(memories) != sum(op[0] == "remember" for op, _ in (*acknowledged, *again)):
            wrong.append("there are more memories than were sent")
        wrong += [str(item) for item in book.verify_log().findings]
    return wrong + wrong_with(place)


def _every(book: Any) -> list[Any]:
    found: list[Any] = []
    after = None
    while True:
        page = book.list(Filter(space="team"), limit=1000, after=after)
        found += page.items
        after = page.next
        if after is None:
            return found


def _workers(place: str, count: int) -> list[subprocess.Popen[bytes]]:
    children = [capture_child.start("worker", place) for _ in range(count)]
    for child in children:
        assert capture_child.answer(child) == "ready"
    return children


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def _keys(postgres_keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMONBOOK_KEYS", postgres_keys)


@pytest.mark.usefixtures("_keys")
def test_of_three_servers_and_two_workers_one_each_is_killed_and_nothing_is_lost_or_doubled():
    with Server.started(fsync="on") as server:
        server.make_template()
        place = server.make_database("book", template=TEMPLATE)
        commonbook.open(place, create=True).close()
        workers = _workers(place, 2)
        try:
            with loaded(place, ["a", "b", "c"]) as load:
                load.go_on()
                load.kill("b")
                workers[0].send_signal(signal.SIGKILL)
                load.children["b"].wait(60)
                load.go_on()
                load.end()
        finally:
            _end(workers)
        wait_for_transactions(place)
        assert _wrong_with_load(place, load, ["b"]) == []


@pytest.mark.promise("postgres.failover")
@pytest.mark.usefixtures("_keys")
def test_a_standby_that_is_promoted_has_everything_that_was_acknowledged():
    with Server.started(fsync="on") as one:
        one.make_template()
        one.make_database("book", template=TEMPLATE)
        two = one.standby(one.folder.parent / "two")
        two.start()
        one.configure(synchronous_standby_names="'FIRST 1 (two)'")
        one.reload()
        _wait_for_sync(one)
        place = (
            f"postgresql://{USER}@/book?host={quote(f'{one.folder},{two.folder}', safe='')}&port={one.port},{two.port}"
        )
        commonbook.open(place, create=True).close()
        workers = _workers(place, 1)
        try:
            with loaded(place, ["a", "b", "c"]) as load:
                load.go_on()
                one.kill()
                time.sleep(0.5)
                two.promote()
                load.go_on()
                load.end()
        finally:
            _end(workers)
        wait_for_transactions(place)
        assert _wrong_with_load(place, load, []) == []
        two.stop()


def _wait_for_sync(server: Server) -> None:
    until = time.monotonic() + _PATIENCE
    with psycopg.connect(server.address(), autocommit=True) as connection:
        while connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall() != [("sync",)]:
            assert time.monotonic() < until, "the standby does not follow"
            time.sleep(0.05)
