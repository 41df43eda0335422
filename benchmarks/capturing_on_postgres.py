"""Measures appends of one message on PostgreSQL to fifty sessions, beside bare INSERTs of the same messages.

In the cases with a bar, each session has a thread in one of the processes, as in a server for agents; it sends its next
message when the last is acknowledged. In the cases without a bar, each process has one thread, which takes the sessions
in turn.

The server is that of the tests, but it syncs to disk. A bare transaction is one INSERT into a table with the same
columns and one index, sent and committed in one round trip on a prepared statement. The same threads of the same
processes run it in turns with ours, each with its own connection and the same `synchronous_commit`. The difference is
what an append guarantees beside durability: the order in a session, each message once, the number of the change, and
the signed log.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from itertools import count, islice, repeat
from typing import Final

import psycopg

import commonbook
from benchmarks.bench import Bench
from benchmarks.figures import AT_LEAST, Bar, Figure, in_turns
from benchmarks.on_postgres import book_on_postgres
from benchmarks.processes import Process, done, ready, together
from benchmarks.texts import texts
from commonbook.service.book import Book
from commonbook.values.ids import new_id
from commonbook.values.session import Message, NewMessage

_QUARTER: Final = Bar(AT_LEAST, 1 / 4)
_SESSIONS: Final = 50
_CASES: Final = (
    (1, "in turn", 1, None),
    (4, "in turn", 1, None),
    (4, "in turn", 50, None),
    (4, "at once", 1, _QUARTER),
    (4, "at once", 50, _QUARTER),
)
"""The number of processes, how they take the sessions, the number of spaces, and the bar."""

_ROUNDS_OF_ADDS: Final = 16
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
    for processes, how, spaces, bar in _CASES:
        each = _ROUNDS_OF_ADDS * bench.scale.adds // processes
        with ExitStack() as running:
            book, address, keys = running.enter_context(book_on_postgres(bench))
            _begin(book, address, spaces)
            writers = [
                running.enter_context(
                    closing(
                        Process(_SELF, address, str(spaces), how, str(number), str(processes), COMMONBOOK_KEYS=keys)
                    )
                )
                for number in range(processes)
            ]
            ours, reference = in_turns(
                bench.scale.write_rounds,
                partial(together, writers, "ours", each),
                partial(together, writers, "bare", each),
            )
            _check(book, each * processes * (bench.scale.write_rounds + 1))
        yield Figure(
            benchmark="postgres_append",
            what=f"append, n processes, {_SESSIONS} sessions {how}, {spaces} space{'s' if spaces > 1 else ''}",
            n=processes,
            unit="/s",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=bar,
        )


def _begin(book: Book, address: str, spaces: int) -> None:
    """Create every session, outside of the measurement."""
    for number in range(_SESSIONS):
        book.append(f"session-{number}", [NewMessage("Good morning.")], space=_space(number, spaces))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(_TABLE)


def _space(session: int, spaces: int) -> str:
    return f"team/{session % spaces}"


def _check(book: Book, appended: int) -> None:
    """Check every session: no message is lost, duplicated or out of order."""
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


def _messages(book: Book, session: str) -> Iterator[Message]:
    after: int | None = 0
    while after is not None:
        page = book.messages(session, after=after, limit=1000)
        yield from page.items
        after = page.next


class _Writer:
    """One thread of a process: its sessions, taken in turn, and a connection for bare transactions."""

    def __init__(self, book: Book, address: str, name: str, sessions: Sequence[int], spaces: int) -> None:
        self._book, self._name, self._sessions, self._spaces = book, name, sessions, spaces
        self._bare = psycopg.connect(address, autocommit=True)
        if self._bare.execute(_DURABILITY).fetchone() != ("on", "on"):
            raise RuntimeError("the server does not sync every commit")
        # The same texts for both.
        self._texts = {what: zip(count(1), texts(f"writer {name}"), strict=False) for what in ("ours", "bare")}

    def write(self, what: str, number: int) -> None:
        for at, text in islice(self._texts[what], number):
            chosen = self._sessions[at % len(self._sessions)]
            session, space, client_id = f"session-{chosen}", _space(chosen, self._spaces), f"{self._name}:{at}"
            if what == "ours":
                self._book.append(session, [NewMessage(text, client_id=client_id)], space=space)
            else:
                self._bare.execute(_INSERT, (space, session, at, new_id(), text, client_id, _HASH))

    def close(self) -> None:
        self._bare.close()


def serve(address: str, spaces: int, how: str, number: int, processes: int) -> None:
    """Run as a writing process: read `ours N` or `bare N` and answer with when it began and ended."""
    every = range(_SESSIONS)
    shares = [every] if how == "in turn" else [(session,) for session in every[number::processes]]
    with ExitStack() as open_, commonbook.open(address) as book:
        writers = [
            open_.enter_context(closing(_Writer(book, address, f"{number}.{at}", share, spaces)))
            for at, share in enumerate(shares)
        ]
        pool = open_.enter_context(ThreadPoolExecutor(len(writers)))
        ready(sys.stdout)
        for request in sys.stdin:
            what, wanted = request.split()
            share, rest = divmod(int(wanted), len(writers))
            numbers = [share + (at < rest) for at in range(len(writers))]
            begun = time.monotonic()
            if len(writers) == 1:
                writers[0].write(what, int(wanted))
            else:
                list(pool.map(_Writer.write, writers, repeat(what), numbers))
            done(sys.stdout, begun, time.monotonic())


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
