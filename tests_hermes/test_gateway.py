"""The gateway of the real Hermes: an agent for each request, many people, and nothing that grows.

COMMONBOOK_REQUESTS   how many requests the gateway gets (200)
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from operator import sub
from pathlib import Path
from typing import NamedTuple

import pytest

import commonbook
from commonbook.values.memory import Draft
from tests_hermes.real_hermes import HERMES, LIMIT, RealHermes

KEY = "a-fake-key-of-the-api-server-for-tests"
REQUESTS = int(os.environ.get("COMMONBOOK_REQUESTS", "200"))
BUSY = "hermes/default/api_server"
HERON, QUESTION = "please note that the heron nests behind the old mill", "where does the heron nest"


class Resources(NamedTuple):
    """The open files, the threads and the megabytes of a process that has released what it does not need.

    Pages of mapped files are the system's cache, and are not counted.
    """

    files: int
    threads: int
    megabytes: float


MARGIN = Resources(files=4, threads=2, megabytes=6)
"""A book may need so much more than after its first twenty turns, however many there are.

The lock of the index is opened when that is first written. Three caches fill up, and none of them grows for ever: the
pages and statements of SQLite, NumPy's free blocks of less than a kilobyte (four megabytes at most), and the newest
part of the index. Together they were 3.7 and 3.8 megabytes; 33 KB a request would be too many.
"""


class Gateway:
    """A running gateway of Hermes with its API server."""

    def __init__(self, hermes: RealHermes, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._released = hermes.home / f"released{self.port}"
        env = {
            **hermes.env,
            "API_SERVER_ENABLED": "true",
            "API_SERVER_KEY": KEY,
            "API_SERVER_PORT": str(self.port),
            "PYTHONPATH": str(Path(__file__).parent / "released_memory"),
            "COMMONBOOK_RELEASED": str(self._released),
            # Each thread of Hermes leaves up to three megabytes in an arena of malloc, and chance decides in how many:
            # the same Hermes grew by 4 to 9 megabytes.
            "MALLOC_ARENA_MAX": "1",
        }
        self._log = (hermes.home / f"gateway{self.port}.log").open("w+")
        self._process = subprocess.Popen(
            [str(HERMES), *options, "gateway", "run"],
            env=env, cwd=hermes.project, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        self._until(self._answers)

    def _until(self, condition) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            if self._process.poll() is not None or time.monotonic() > end:
                self._log.seek(0)
                raise AssertionError(self._log.read()[-4000:])
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def ask(self, text: str, session: str, user: str = "") -> str:
        """Send one request of a chat, and return the answer."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "X-Hermes-Session-Id": session}
        if user:
            headers["X-Hermes-Session-Key"] = user
        body = {"model": "hermes-agent", "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return str(json.load(answer)["choices"][0]["message"]["content"])

    def resources(self) -> Resources:
        """Return the resources of the process, once it is quiet and has released what it does not need."""
        # Agents that were collected are released by other threads, and Hermes is never quite at rest.
        kilobytes = min(self._released_kilobytes() for _ in range(4))
        folder = Path("/proc") / str(self._process.pid)
        counts: list[tuple[int, int]] = []
        while len(counts) < 3 or counts[-1] != counts[-2]:
            time.sleep(0.5)
            counts.append((len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir()))))
        return Resources(*counts[-1], kilobytes / 1024)

    def _released_kilobytes(self) -> int:
        self._released.unlink(missing_ok=True)
        time.sleep(1)
        self._process.send_signal(signal.SIGUSR2)
        self._until(self._released.exists)
        return int(self._released.read_text(encoding="ascii"))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(LIMIT)
        self._log.close()


@pytest.fixture
def hermes(tmp_path):
    agent = RealHermes(tmp_path, [])
    yield agent
    agent.close()


@pytest.fixture
def gateway(hermes):
    started: list[Gateway] = []

    def start(*options):
        started.append(Gateway(hermes, *options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def prompt(hermes: RealHermes) -> str:
    """Return the last request that the model got."""
    return json.dumps(hermes.requests()[-1]["body"]["messages"], ensure_ascii=False)


@contextmanager
def serving(folder: Path, provider: str) -> Iterator[tuple[RealHermes, Gateway]]:
    """Run a gateway with a memory provider, or with Hermes' own memory alone; a book has been in use before."""
    agent = RealHermes(folder, [{"text": f"Answer {number}."} for number in range(3 * REQUESTS)])
    config = agent.hermes_home / "config.yaml"
    config.write_text(config.read_text().replace("{provider: commonbook}", f"{{provider: '{provider}'}}"))
    if provider:
        with commonbook.open(agent.place, create=True) as book:
            # So many that the index is in files, as it is in a book that somebody uses.
            book.remember_many([Draft(f"Heron {number} nests in alder {7 * number}", BUSY) for number in range(400)])
            book.recall(QUESTION)
    server = Gateway(agent)
    try:
        yield agent, server
    finally:
        server.stop()
        agent.close()


@pytest.mark.timeout(3600)
def test_two_hundred_requests_need_what_twenty_needed_beyond_what_hermes_itself_needs(tmp_path):
    with (
        serving(tmp_path / "with", "commonbook") as (hermes, with_book),
        serving(tmp_path / "without", "") as (_, without_book),
    ):
        seen: list[tuple[Resources, Resources]] = []
        for number in range(REQUESTS):
            for server in (with_book, without_book):
                # Hermes' background review asks the model too, and takes some of the answers.
                assert server.ask(question(number), f"talk-{number % 10}").startswith("Answer")
            if number + 1 in {20, REQUESTS} or (number + 1) % 60 == 0:
                seen.append((with_book.resources(), without_book.resources()))
                print(f"after {number + 1}: with the book {seen[-1][0]}, without {seen[-1][1]}")
        grown, grown_without = (
            Resources(*map(sub, last, first)) for first, last in zip(seen[0], seen[-1], strict=True)
        )
        for name, more, more_without, margin in zip(Resources._fields, grown, grown_without, MARGIN, strict=True):
            assert more <= max(0, more_without) + margin, name
        words = [text for role, text in hermes.stored() if role == "user"]
    assert sorted(words) == sorted(question(number) for number in range(REQUESTS))


def question(number: int) -> str:
    """Return a question; its words that nobody knows are looked up in the whole vocabulary, from the first on."""
    return f"question {number} of the heronsnest"


@pytest.mark.promise("hermes.people")
def test_users_of_the_api_are_kept_apart(hermes, gateway, assert_stored):
    hermes.script.add(*[{"text": text} for text in ("Noted.", "I do not know.", "Behind the mill.", "I do not know.")])
    server = gateway()
    server.ask(HERON, "talk-1", "Bob")
    server.ask(QUESTION, "talk-2", "bob")
    assert "mill" not in prompt(hermes)
    server.ask(QUESTION, "talk-3", "Bob")
    assert "behind the old mill" in prompt(hermes)
    server.ask(QUESTION, "talk-4")
    assert "mill" not in prompt(hermes)
    with commonbook.open(hermes.place) as book:
        spaces = {one.id: one.space.name for one in book.sessions()}
    assert spaces["talk-1"] == spaces["talk-3"]
    assert len(set(spaces.values())) == 3
    assert spaces["talk-2"] == "hermes/default/api_server.bob"
    texts = [HERON, "Noted.", QUESTION, "I do not know.", QUESTION, "Behind the mill.", QUESTION, "I do not know."]
    assert_stored(hermes, *zip(["user", "assistant"] * 4, texts, strict=True))


@pytest.mark.promise("hermes.people")
def test_profiles_are_kept_apart(hermes):
    hermes.script.add(*[{"text": text} for text in ("Noted.", "I do not know.", "Behind the mill.")])
    coder = hermes.hermes_home / "profiles" / "coder"
    coder.mkdir(parents=True)
    (coder / "config.yaml").write_bytes((hermes.hermes_home / "config.yaml").read_bytes())
    (coder / "plugins").symlink_to(hermes.hermes_home / "plugins")
    hermes.once(HERON)
    hermes.once(QUESTION, "-p", "coder")
    assert "mill" not in prompt(hermes)
    hermes.once(QUESTION)
    assert "behind the old mill" in prompt(hermes)
    with commonbook.open(hermes.place) as book:
        assert {one.space.name for one in book.sessions()} == {"hermes/default/local", "hermes/coder/local"}
