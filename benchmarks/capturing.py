"""Measures appends of one message, by one or several processes, to one or many sessions, beside recall and a worker.

At any rate, every message must be stored once, in the order of its session, and settling must keep up.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice
from typing import IO, Final

import commonbook
from benchmarks.bare import BareLog
from benchmarks.bench import Bench
from benchmarks.figures import AT_LEAST, Bar, Figure, in_turns
from benchmarks.processes import Process, done, ready, together
from benchmarks.texts import texts
from commonbook.service.book import Book
from commonbook.subjects.sessions.episode_boundaries import LIMITS
from commonbook.values.session import NewMessage

_SIXTH: Final = Bar(AT_LEAST, 1 / 6)
_CASES: Final = ((1, 1), (1, 50), (4, 1), (4, 50))
_ROUNDS_OF_ADDS: Final = 4
"""A round has four times as many appends as a round of adds, so that sessions fill up and are settled meanwhile."""

_MAX_OPEN: Final = LIMITS.messages
"""A worker that has caught up leaves no session with more open messages than one episode takes."""

_FIRST_MESSAGES: Final = _MAX_OPEN + 5
"""Every session begins with so many messages, so that each of fifty has something to settle."""

_SETTLING_SECONDS: Final = 30.0
_SELF: Final = "benchmarks.capturing"


def append(bench: Bench) -> Iterator[Figure]:
    """Measure appends of n processes on one home against n processes that write the same rows to one bare table."""
    for processes, sessions in _CASES:
        total = _ROUNDS_OF_ADDS * bench.scale.adds
        with _Run.begun(bench, processes, sessions) as run:
            ours, reference = in_turns(
                bench.scale.write_rounds,
                partial(run.measure, "ours", total // processes),
                partial(run.measure, "bare", total // processes),
            )
            run.check()
        yield Figure(
            benchmark="append",
            what=f"append, n processes, {sessions} session{'s' if sessions > 1 else ''}",
            n=processes,
            unit="/s",
            ours_rounds=ours,
            reference_rounds=reference,
            bar=_SIXTH,
        )


@dataclass(slots=True)
class _Run:
    """One case: the processes that append, the two beside them, and the number of acknowledged messages."""

    book: Book
    writers: list[Process]
    sessions: int
    appended: int = field(default=0)

    @classmethod
    @contextmanager
    def begun(cls, bench: Bench, processes: int, sessions: int) -> Iterator[_Run]:
        home, bare = bench.fresh("home"), bench.fresh("bare")
        with ExitStack() as running:
            book = running.enter_context(commonbook.open(home, create=True))
            book.remember("The on-call rota is in the handbook.", space="personal")
            # Both run all the time, so that they slow down ours and the reference alike.
            for beside in ("work", "recall"):
                running.enter_context(closing(Process(_SELF, beside, home)))
            names = [str(number) for number in range(processes)]
            writers = [
                running.enter_context(closing(Process(_SELF, "write", home, bare, str(sessions), n))) for n in names
            ]
            run = cls(book, writers, sessions)
            run.begin()
            yield run

    def begin(self) -> None:
        """Append the first messages of every session, outside of the measurement."""
        for number in range(self.sessions):
            numbered = zip(count(1), islice(texts(f"begin {number}"), _FIRST_MESSAGES), strict=False)
            sent = [NewMessage(text, client_id=f"begin-{number}:{at}") for at, text in numbered]
            self.book.append(f"session-{number}", sent, space="personal")
            self.appended += len(sent)

    def measure(self, what: str, each: int) -> float:
        """Let every process write this many; return the total number per second."""
        in_a_second = together(self.writers, what, each)
        if what == "ours":
            self.appended += each * len(self.writers)
            self._wait_for_settling()
        return in_a_second

    def _wait_for_settling(self) -> None:
        """Wait until the worker has caught up; raise an error if that takes too long."""
        until = time.monotonic() + _SETTLING_SECONDS
        while behind := [
            session.id for session in self.book.sessions(space="personal", limit=1000) if session.unsettled > _MAX_OPEN
        ]:
            if time.monotonic() > until:
                raise RuntimeError(f"settling does not keep up: {len(behind)} sessions have more than {_MAX_OPEN} open")
            time.sleep(0.02)

    def check(self) -> None:
        """Check every message: none is lost, duplicated or out of order."""
        client_ids: list[str] = []
        for session in self.book.sessions(space="personal", limit=1000):
            client_ids += _client_ids(self.book, session.id)
            if not self.book.messages(session.id, limit=1).items[0].episode:
                raise RuntimeError(f"{session.id} was never settled")
        if len(client_ids) != self.appended or len(set(client_ids)) != self.appended:
            raise RuntimeError(f"{self.appended} messages were acknowledged, {len(client_ids)} are there")
        if wrong := self.book.status().findings:
            raise RuntimeError(f"something went wrong: {wrong[0]}")


def _client_ids(book: Book, session: str) -> list[str]:
    """Return the client ids of a session's messages, if their numbers and those of each writer are without gaps."""
    client_ids, latest, after = [], dict[str, int](), 0
    while True:
        page = book.messages(session, after=after, limit=1000)
        for message in page.items:
            after += 1
            writer, _, number = (message.client_id or "").partition(":")
            if message.seq != after or int(number) <= latest.get(writer, 0):
                raise RuntimeError(f"message {message.seq} of {session} ({message.client_id}) is out of order")
            latest[writer] = int(number)
            client_ids.append(message.client_id or "")
        if page.next is None:
            return client_ids


def serve_write(home: str, bare: str, sessions: int, name: str, requests: IO[str], answers: IO[str]) -> None:
    """Run as a writing process: read `ours N` or `bare N` and answer with when it began and ended."""
    # The same texts for both.
    for_ours, for_bare = (zip(count(1), texts(f"writer {name}"), strict=False) for _ in range(2))
    with commonbook.open(home, create=True) as book, closing(BareLog(bare)) as log:
        ready(answers)
        for request in requests:
            what, number = request.split()
            chosen = list(islice(for_ours if what == "ours" else for_bare, int(number)))
            begun = time.monotonic()
            for at, text in chosen:
                session, client_id = f"session-{at % sessions}", f"{name}:{at}"
                if what == "ours":
                    book.append(session, [NewMessage(text, client_id=client_id)], space="personal")
                else:
                    log.add(session, at, text, client_id)
            done(answers, begun, time.monotonic())


def serve_recall(home: str, requests: IO[str], answers: IO[str]) -> None:
    """Run as a recalling process: one query after another with short pauses, until standard input ends."""
    with commonbook.open(home, create=True) as book:
        book.recall("who owns billing", spaces="personal")
        ready(answers)
        while not _is_closed(requests, 0.05):
            book.recall("who owns billing and the release on friday", spaces="personal")


def serve_work(home: str, requests: IO[str], answers: IO[str]) -> None:
    """Run as a worker, until standard input ends."""
    with commonbook.open(home, create=True) as book:
        ready(answers)
        while not _is_closed(requests, 0.05):
            book.work(seconds=1)


def _is_closed(requests: IO[str], seconds: float) -> bool:
    return bool(select.select([requests], [], [], seconds)[0])


def serve(what: str, arguments: Sequence[str]) -> None:
    """Run as one of the processes of the benchmark."""
    home = arguments[0]
    if what == "write":
        _, bare, sessions, name = arguments
        serve_write(home, bare, int(sessions), name, sys.stdin, sys.stdout)
    elif what == "recall":
        serve_recall(home, sys.stdin, sys.stdout)
    else:
        serve_work(home, sys.stdin, sys.stdout)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
