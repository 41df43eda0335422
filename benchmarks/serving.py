"""Measures the server over HTTP under load: recalls and appends by 1 and 32 connections, and an hour of soak.

The client is an asyncio program in a process of its own. The reference is an empty FastAPI route with the same models:
what is compared with it is the time of a request less the time that the book itself takes, measured beside it through
the facade. Every request must succeed.

COMMONBOOK_SOAK_SECONDS   how long `soak` runs (3600); it runs only when it is named
COMMONBOOK_SOAK_RATE      how many requests a second it sends (as many as are answered)
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from math import inf
from typing import IO, Any, Final, NamedTuple
from urllib.parse import urlsplit

import psutil

import commonbook
from benchmarks.bench import ROOT, Bench, environment
from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure
from benchmarks.library import SHARED, as_in_a_chat, shelves
from benchmarks.processes import Process, done, ready

_SELF: Final = "benchmarks.serving"
_CONNECTIONS: Final = (1, 32)
_HALF: Final = Bar(AT_LEAST, 0.5)
_NO_MORE: Final = Bar(AT_MOST, 1.0)
_NO_GROWTH: Final = Bar(AT_MOST, 1.1)
_K: Final = 10
_SPACE: Final = "team"
_SESSIONS: Final = 64
_PASSAGES_OF_EMPTY: Final = 200
_REQUESTS_PER_QUESTION: Final = 4
_SOAK_SECONDS: Final = 3600.0
_BARRED_SECONDS: Final = 1800.0
"""A shorter soak has no bar: in minutes, caches still fill, and the stored data grows by a multiple."""

_SAMPLES: Final = 60
_SOAK_CONNECTIONS: Final = 4


# --- the benchmarks


def http(bench: Bench) -> Iterator[Figure]:
    """Measure recalls among n memories, and appends, over HTTP."""
    passages = bench.scale.passages[-1]
    home = bench.library_to_write(passages)
    requests = bench.scale.questions * _REQUESTS_PER_QUESTION
    with (
        _serving(home) as (url, key, _),
        closing(Process(_SELF, "facade", home)) as facade,
        _empty_routes(bench.fresh("empty")) as empty,
        closing(Process(_SELF, "client", url, key)) as client,
        closing(Process(_SELF, "client", empty, "none")) as client_of_empty,
    ):
        measured = _Measured(facade, client, client_of_empty, requests)
        for kind in ("recall", "append"):
            for connections in _CONNECTIONS:
                yield _beside_an_empty_route(bench, measured, kind, connections, passages)
        yield _transactions(bench, home, measured)


def soak(bench: Bench) -> Iterator[Figure]:
    """Measure whether the memory of a server grows while it is used for an hour."""
    seconds = float(os.environ.get("COMMONBOOK_SOAK_SECONDS", _SOAK_SECONDS))
    rate = float(os.environ.get("COMMONBOOK_SOAK_RATE", "inf"))
    with _serving(bench.library_to_write(bench.scale.passages[0])) as (url, key, process):
        sizes, answered = _soak(url, key, process, seconds, rate)
    quarter = max(1, len(sizes) // 4)
    yield Figure(
        benchmark="soak",
        what=f"memory after {answered:,} requests, of the server",
        n=int(seconds),
        unit="MB",
        ours_rounds=tuple(sizes[-quarter:]),
        # The first quarter fills caches and pools.
        reference_rounds=tuple(sizes[quarter : 2 * quarter] or sizes[:1]),
        bar=_NO_GROWTH if seconds >= _BARRED_SECONDS else None,
    )


class _Measured(NamedTuple):
    """The processes that do the same: the facade, a client of the server, and a client of the empty routes."""

    facade: Process
    client: Process
    client_of_empty: Process
    requests: int

    def seconds(self, process: Process, kind: str, connections: int) -> float:
        """Return the time of one request, or one call, of many that are made at once."""
        process.tell(f"{kind}-{connections}", self.requests)
        begun, ended = process.answer()
        return (ended - begun) / self.requests


def _beside_an_empty_route(bench: Bench, of: _Measured, kind: str, connections: int, passages: int) -> Figure:
    """Return the requests a second without the time of the book, beside those of an empty route."""
    ours, reference = [], []
    for _ in range(bench.scale.question_rounds):
        processes = (of.facade, of.client, of.client_of_empty)
        of_book, of_request, of_empty = (of.seconds(process, kind, connections) for process in processes)
        reference.append(1 / of_empty)
        # A server that hides the whole time of the book does as well as the empty route.
        ours.append(1 / max(of_request - of_book, of_empty))
        print(f"{kind}, {connections}: {1 / of_request:,.0f}/s, facade {1 / of_book:,.0f}/s", file=sys.stderr)
    return Figure(
        benchmark="http",
        what=f"{kind} over HTTP, {connections} connection{'s' if connections > 1 else ''}, less the facade",
        n=passages,
        unit="/s",
        ours_rounds=tuple(ours),
        reference_rounds=tuple(reference),
        bar=_HALF if connections > 1 else None,
    )


def _transactions(bench: Bench, home: str, of: _Measured) -> Figure:
    """Return how many transactions an append takes with 32 connections, beside 32 threads of the facade."""
    ours, reference = [], []
    with commonbook.open(home) as book:
        for _ in range(bench.scale.question_rounds):
            before = book.log_size()
            of.seconds(of.facade, "append", 32)
            reference.append(_transactions_of_appends(book, before))
            before = book.log_size()
            of.seconds(of.client, "append", 32)
            ours.append(_transactions_of_appends(book, before))
    return Figure(
        benchmark="http",
        what="transactions for 100 appends, 32 connections",
        n=of.requests,
        unit="",
        ours_rounds=tuple(ours),
        reference_rounds=tuple(reference),
        bar=_NO_MORE,
    )


def _transactions_of_appends(book: commonbook.Book, size_before: int) -> float:
    """Return the transactions of the last appends: what one transaction logs has one time."""
    entries: list[commonbook.LogEntry] = []
    after = 0
    while page := book.log(space=_SPACE, after=after, limit=1000):
        entries += page
        after = page[-1].seq
    new = [entry for entry in entries[-(book.log_size() - size_before) :] if entry.action == "append"]
    return 100 * len({entry.time for entry in new}) / len(new)


# --- the processes


@contextmanager
def _serving(home: str) -> Iterator[tuple[str, str, psutil.Process]]:
    """Run `commonbook serve` on a home; yield its URL, the owner's key, and its process."""
    command = [sys.executable, "-m", "commonbook", "serve", "--home", home, "--port", "0", "--json", "--no-request-log"]
    server = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        answer = json.loads(server.stdout.readline())
        with open(answer["key"], encoding="ascii") as file:
            key = file.read().strip()
        yield answer["url"], key, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.communicate()


@contextmanager
def _empty_routes(folder: str) -> Iterator[str]:
    """Run a server with empty routes; its models are made from answers of a small home."""
    command = [sys.executable, "-m", _SELF, "empty", folder]
    server = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.communicate()


def serve_facade(home: str, requests: IO[str], answers: IO[str]) -> None:
    """Run as a process with the book: read `recall-32 N`, and do this many calls in so many threads."""
    numbers = count(1)
    with commonbook.open(home) as book:
        ready(answers)
        for request in requests:
            what, number = request.split()
            kind, _, threads = what.partition("-")
            bodies = [body_of(kind, next(numbers)) for _ in range(int(number))]
            call = partial(_call, book, kind)
            with ThreadPoolExecutor(int(threads)) as pool:
                list(pool.map(call, bodies[: int(threads)]))
                begun = time.monotonic()
                list(pool.map(call, bodies))
            done(answers, begun, time.monotonic())


def _call(book: commonbook.Book, kind: str, request: tuple[str, dict[str, Any]]) -> None:
    path, body = request
    if kind == "recall":
        book.recall(body["query"], k=body["k"])
    else:
        book.append(path.split("/")[3], body["messages"], space=body["space"])


def serve_empty_routes(folder: str) -> None:
    """Run as a server with empty routes: they decode the same bodies, and answer with as much."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Route

    from commonbook.interfaces.http.serving import addresses
    from commonbook.values.encoding import dumps

    with commonbook.open(folder, create=True) as book:
        book.remember_many([shelf.draft for shelf in shelves(_PASSAGES_OF_EMPTY, SHARED)])
        answers = (book.recall(body_of("recall", number)[1]["query"], k=_K) for number in count())
        # As long as those of the server: an answer without hits would cost nothing to write.
        recalled = next(answer for answer in answers if len(answer.hits) == _K)
        found = {"recall": recalled, "append": book.append("s", ["hello"], space=_SPACE)}
    routes = [_empty_route(kind, dumps(result)) for kind, result in found.items()]
    app = Starlette(routes=[Route(path, answer, methods=["POST"]) for path, answer in routes])
    with addresses.bind("127.0.0.1", 0) as sock:
        print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False)
        asyncio.run(uvicorn.Server(config).serve(sockets=[sock]))


def _empty_route(kind: str, answer: bytes) -> tuple[str, Any]:
    from starlette.requests import Request
    from starlette.responses import Response

    from commonbook.interfaces.http.verb_calls import Call, parse_json
    from commonbook.verbs.requests import VERBS

    call = Call(VERBS[kind])

    async def empty(request: Request) -> Response:
        call.parse_body(parse_json(await request.body()))
        return Response(answer, media_type="application/json")

    return call.verb.path, empty


# --- the client


def body_of(kind: str, number: int) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request."""
    chance = random.Random(number)
    question = as_in_a_chat(chance)
    if kind == "recall":
        return "/v1/recall", {"query": question, "k": _K}
    session = f"session-{chance.randrange(_SESSIONS)}"
    return f"/v1/sessions/{session}/messages", {"messages": [{"text": question}], "space": _SPACE}


def mixed_body(number: int) -> tuple[str, dict[str, Any]]:
    """Return a request of a soak: mostly recalls and appends, and some memories."""
    if number % 10 == 0:
        text = as_in_a_chat(random.Random(-number))
        return "/v1/memories", {"text": f"{text} ({number})", "space": _SPACE}
    return body_of("recall" if number % 2 else "append", number)


class Client:
    """Sends requests over so many connections, each waiting for its answer."""

    def __init__(self, url: str, key: str, rate: float = inf) -> None:
        """Connect to nothing yet; send at most so many requests a second."""
        parts = urlsplit(url)
        self._host, self._port, self._key = parts.hostname, parts.port, key
        self.answered, self.failed, self.first_failure = 0, 0, ""
        self._seconds_between, self._next_at = 1 / rate, time.monotonic()

    async def run(self, connections: int, bodies: Iterator[tuple[str, dict[str, Any]]]) -> None:
        """Send all requests."""
        await asyncio.gather(*(self._connection(bodies) for _ in range(connections)))

    async def _connection(self, bodies: Iterator[tuple[str, dict[str, Any]]]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        for path, body in bodies:
            await self._turn()
            writer.write(self._request(path, body))
            status, answer = await _answer(reader)
            self.answered += 1
            if status != 200:
                self.failed += 1
                self.first_failure = self.first_failure or f"{status} {answer[:300]!r}"
        writer.close()

    async def _turn(self) -> None:
        """Wait until the next request may be sent."""
        if self._seconds_between:
            # Requests that were late are not sent all at once.
            self._next_at = max(self._next_at, time.monotonic() - 1) + self._seconds_between
            await asyncio.sleep(self._next_at - time.monotonic())

    def _request(self, path: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAuthorization: Bearer {self._key}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    length = next(int(line.partition(":")[2]) for line in fields if line.lower().startswith("content-length:"))
    return int(status.split()[1]), await reader.readexactly(length)


def run_client(url: str, key: str, requests: IO[str], answers: IO[str]) -> None:
    """Run as the client: read `recall-32 N`, and send this many requests over so many connections; all must succeed."""
    # Other requests than those of the facade, and of other clients.
    numbers = count(random.SystemRandom().randrange(1 << 40))
    ready(answers)
    for request in requests:
        what, number = request.split()
        kind, _, connections = what.partition("-")
        client = Client(url, key)
        first = [body_of(kind, next(numbers)) for _ in range(int(connections))]
        asyncio.run(client.run(int(connections), iter(first)))
        bodies = [body_of(kind, next(numbers)) for _ in range(int(number))]
        begun = time.monotonic()
        asyncio.run(client.run(int(connections), iter(bodies)))
        ended = time.monotonic()
        if client.failed:
            raise RuntimeError(f"{client.failed} of {client.answered} requests failed: {client.first_failure}")
        done(answers, begun, ended)


def _soak(url: str, key: str, process: psutil.Process, seconds: float, rate: float) -> tuple[list[float], int]:
    """Use a server for the time of a soak; return its allocated memory in MB, sampled, and the number of answers."""
    end, sizes = time.monotonic() + seconds, list[float]()
    first = random.SystemRandom().randrange(1 << 40)

    def bodies() -> Iterator[tuple[str, dict[str, Any]]]:
        for number in count(first):
            if time.monotonic() > end:
                return
            yield mixed_body(number)

    async def sample() -> None:
        while time.monotonic() < end:
            sizes.append(_allocated_bytes(process) / 1_000_000)
            await asyncio.sleep(seconds / _SAMPLES)

    async def run() -> Client:
        client = Client(url, key, rate)
        await asyncio.gather(client.run(_SOAK_CONNECTIONS, bodies()), sample())
        return client

    client = asyncio.run(run())
    if client.failed:
        raise RuntimeError(f"{client.failed} of {client.answered} requests failed: {client.first_failure}")
    print("soak, MB:", *(round(size) for size in sizes), file=sys.stderr)
    return sizes, client.answered


def _allocated_bytes(process: psutil.Process) -> int:
    """Return the memory that a process has allocated.

    Where the system tells it, pages of mapped files are not counted: they are its cache of the index, which grows with
    the home.
    """
    try:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
            kilobytes = next(line.split()[1] for line in status if line.startswith("RssAnon:"))
    except (OSError, StopIteration):
        return int(process.memory_full_info().uss)
    return int(kilobytes) * 1024


def main(what: str, *arguments: str) -> None:
    """Run as one of the processes of the benchmark."""
    if what == "facade":
        serve_facade(arguments[0], sys.stdin, sys.stdout)
    elif what == "empty":
        serve_empty_routes(arguments[0])
    else:
        url, key = arguments
        run_client(url, key, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
