"""Appends of one message on PostgreSQL by several processes, beside the bare INSERT of the same messages.

The server is the tests' own, but it syncs to disk. The bare transaction is one INSERT, sent and committed in one round
trip on a prepared statement, into a table with the columns of ours and one index. Beside it stands, without a bar, the
same INSERT between BEGIN and COMMIT, as the reference is on SQLite. All commit with the same `synchronous_commit`, by
the same processes in turns, each with one connection: what differs is what an append promises beside durability, which
is the order in a session, each message once, the number of the change and the signed log.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import IO, Final

import psycopg

import commonplace
from benchmarks.bench import Bench
from benchmarks.figures import AT_LEAST, Bar, Figure, in_turns
from benchmarks.on_postgres import book_on_postgres
from benchmarks.processes import Process, done, ready, together
from benchmarks.texts import texts
from commonplace.book import Commonplace
from commonplace.model import Message, Sent, new_id

_QUARTER: Final = Bar(AT_LEAST, 1 / 4)
_SESSIONS: Final = 50
_CASES: Final = ((1, 1, None), (4, 1, _QUARTER), (4, 50, _QUARTER))
"""So many processes, and spaces that the sessions are in."""

_ROUNDS_OF_ADDS: Final = 8
_SELF: Final = "benchmarks.capturing_on_postgres"

_TABLE: Final = """
    CREATE SCHEMA IF NOT EXISTS bare;
    CREATE TABLE bare.message (LIKE public.message, PRIMARY KEY (id))
"""
_INSERT: Final = (
    "INSERT INTO bare.message (space, session, seq, id, role, author, text, time, client_id, sent, masked)"
    " VALUES (%s, %s, %s, %s, 'user', 'user:local', %s, '2026-11-15T20:18:24.123456Z', %s, %s, 0)"
)
_DURABILITY: Final = "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
_HASH: Final = "0" * 64


def postgres_append(bench: Bench) -> Iterator[Figure]:
    """Measure appends of n processes to fifty sessions, in one space and in as many, against bare transactions."""
    each = _ROUNDS_OF_ADDS * bench.scale.adds
    for processes, spaces, bar in _CASES:
        with ExitStack() as running:
            book, address, keys = running.enter_context(book_on_postgres(bench))
            _begin(book, address, spaces)
            told = (_SELF, address, str(spaces))
            writers = [
                running.enter_context(closing(Process(*told, str(number), COMMONPLACE_KEYS=keys)))
                for number in range(processes)
            ]
            ours, reference = in_turns(
                bench.scale.write_rounds,
                partial(together, writers, "ours", each // processes),
                partial(together, writers, "bare", each // processes),
            )
            framed = [together(writers, "framed", each // processes) for _ in range(bench.scale.write_rounds + 1)]
            _check(book, each // processes * processes * (bench.scale.write_rounds + 1))
        figure = Figure(
            benchmark="postgres_append",
            what=f"append, n processes, {_SESSIONS} sessions in {spaces} space{'s' if spaces > 1 else ''}",
            n=processes,
            unit="/s",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=bar,
        )
        yield figure
        yield replace(
            figure, what=f"the same in {spaces}, beside BEGIN and COMMIT", reference_rounds=tuple(framed[1:]), bar=None
        )


def _begin(book: Commonplace, address: str, spaces: int) -> None:
    """Begin every session, so that nobody measures that."""
    for number in range(_SESSIONS):
        book.append(f"session-{number}", [Sent("Good morning.")], space=_space(number, spaces))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(_TABLE)


def _space(session: int, spaces: int) -> str:
    return f"team/{session % spaces}"


def _check(book: Commonplace, appended: int) -> None:
    """Look at every session: no message lost or doubled, none out of its order."""
    found = 0
    for number in range(_SESSIONS):
        latest: dict[str, int] = {}
        messages = list(_messages(book, f"session-{number}"))
        for at, message in enumerate(messages, 1):
            writer, _, place = (message.client_id or "begun:1").partition(":")
            if message.seq != at or int(place) <= latest.get(writer, 0):
                raise RuntimeError(f"message {message.seq} of session {number} is out of order")
            latest[writer] = int(place)
        found += len(messages) - 1
    if found != appended:
        raise RuntimeError(f"{appended} messages were acknowledged, {found} are there")


def _messages(book: Commonplace, session: str) -> Iterator[Message]:
    after: int | None = 0
    while after is not None:
        page = book.messages(session, after=after, limit=1000)
        yield from page.items
        after = page.next


def serve(address: str, spaces: int, name: str, requests: IO[str], answers: IO[str]) -> None:
    """Be a process that writes: read `ours N`, `bare N` or `framed N` and answer with when it began and ended."""
    # The same texts for all.
    waiting = {what: zip(count(1), texts(f"writer {name}"), strict=False) for what in ("ours", "bare", "framed")}
    with commonplace.open(address) as book, psycopg.connect(address, autocommit=True) as bare:
        if bare.execute(_DURABILITY).fetchone() != ("on", "on"):
            raise RuntimeError("the server does not sync every commit")
        ready(answers)
        for request in requests:
            what, number = request.split()
            chosen = list(islice(waiting[what], int(number)))
            begun = time.monotonic()
            for at, text in chosen:
                session, space, client_id = f"session-{at % _SESSIONS}", _space(at % _SESSIONS, spaces), f"{name}:{at}"
                if what == "ours":
                    book.append(session, [Sent(text, client_id=client_id)], space=space)
                else:
                    with bare.transaction() if what == "framed" else nullcontext():
                        bare.execute(_INSERT, (space, session, at, new_id(), text, client_id, _HASH))
            done(answers, begun, time.monotonic())


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.stdin, sys.stdout)
