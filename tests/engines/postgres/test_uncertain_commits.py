"""Commits whose answer is lost while the statements are still on their way: made once, however late they arrive.

A proxy between the book and the server cuts the connection when a commit is sent. The last bytes are delivered later,
when the book has connected again: the server goes on alone, as after a fault of the network.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import commonbook
from commonbook.engines.postgres.database import Backoff, TransactionRetry
from commonbook.errors import Busy, DatabaseUnreachable
from commonbook.ports.database import RetryTransaction, Transaction
from commonbook.service.book import Book
from commonbook.values.memory import Filter
from commonbook.values.session import NewMessage

pytestmark = pytest.mark.promise("postgres.retries")


class Wire:
    """A proxy that forwards both directions until it is cut: then the server gets the last bytes some time later."""

    def __init__(self, address: str, folder: Path) -> None:
        """Listen in a folder, and forward to the server at an address."""
        options = conninfo_to_dict(address)
        self._server = f"{options['host']}/.s.PGSQL.{options['port']}"
        self.address = address.replace(quote(str(options["host"]), safe=""), quote(str(folder), safe=""))
        assert self.address != address
        self.late: float | None = None
        self.delivered = threading.Event()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(f"{folder}/.s.PGSQL.{options['port']}")
        self._listening.listen()
        self._sockets = [self._listening]
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, work: Callable[..., None], *given: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=given, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                self._sockets += [client, server]
                server.connect(self._server)
                self._begin(self._forward_answer, server, client)
                self._begin(self._forward_request, client, server)

    def _forward_request(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 20):
                if self.late is not None:
                    self._cut(client, server, data)
                    return
                server.sendall(data)
        _shut(server)

    def _cut(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        late, self.late = self.late or 0.0, None
        _shut(client)
        time.sleep(late)
        server.sendall(data)
        # The server executes all of it before it notices that the client is gone.
        time.sleep(0.3)
        _shut(server)
        self.delivered.set()

    @staticmethod
    def _forward_answer(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 20):
                client.sendall(data)
        _shut(client)

    def close(self) -> None:
        for one in self._sockets:
            _shut(one)
        for thread in self._threads:
            thread.join(60)
        for one in self._sockets:
            one.close()


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire(postgres_book: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    wire = Wire(address, tmp_path)
    yield wire
    wire.close()


@pytest.fixture
def book(wire: Wire) -> Iterator[Book]:
    with commonbook.open(wire.address) as opened:
        yield opened


@pytest.fixture
def cut(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Cut the connection at the next commit of a durable write, and deliver it so many seconds later."""
    armed: list[float] = []
    run = TransactionRetry.run

    def running(retry: TransactionRetry[object], tx: Transaction) -> object:
        answer = run(retry, tx)
        # The commit of a write comes next.
        if armed:
            wire.late = armed.pop()
        return answer

    monkeypatch.setattr(TransactionRetry, "run", running)
    return armed.append


def append(book: Book) -> None:
    book.append("chat", [NewMessage("It is said once.")], space="team")


def remember(book: Book) -> None:
    book.remember("It is written once.", space="team")


def remember_elsewhere(book: Book) -> None:
    book.remember("It is written once.", space="new")


def counted(book: Book) -> tuple[int, int]:
    """How many messages there are beside the first, and how many memories."""
    return len(book.messages("chat").items) - 1, len(book.list(Filter()).items)


# At once: before the next attempt looks; later: when it waits; much later: when it would have gone on.
@pytest.mark.parametrize("late", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("change", "wanted"), [(append, (1, 0)), (remember, (0, 1)), (remember_elsewhere, (0, 1))])
def test_what_was_sent_with_a_lost_commit_is_made_once_whenever_it_arrives(book, wire, cut, late, change, wanted):
    book.append("chat", [NewMessage("Good morning.")], space="team")
    # A second time, so that the place of the session is known.
    cut(late)
    change(book)
    assert counted(book) == wanted
    assert wire.delivered.wait(60)
    assert counted(book) == wanted
    assert book.verify_log().ok


def test_one_after_the_other_each_is_made_once(book, wire, cut):
    book.append("chat", [NewMessage("Good morning.")], space="team")
    for number in range(4):
        cut(0.1 * number)
        book.append("chat", [NewMessage(f"Message {number}.")], space="team")
        assert wire.delivered.wait(60)
        wire.delivered.clear()
    assert [message.text for message in book.messages("chat").items[1:]] == [f"Message {n}." for n in range(4)]
    assert book.verify_log().ok


def test_most_changes_leave_no_mark_beside_their_entry_in_the_log(book, postgres_book):
    book.append("chat", [NewMessage("Good morning.")], space="team")
    with psycopg.connect(postgres_book[0], autocommit=True) as connection:
        before = connection.execute("SELECT count(*) FROM committed").fetchone()
        append(book)
        remember(book)
        assert connection.execute("SELECT count(*) FROM committed").fetchone() == before


def test_who_gives_up_among_others_says_so_when_nobody_knows_what_became_of_a_commit():
    attempts = TransactionRetry(lambda tx: "told", durable=True)
    attempts.begin()
    with pytest.raises(Busy, match="other transactions keep changing"):
        Backoff(-1).wait_after_collision(RetryTransaction(), attempts.explain)
    attempts.run(cast("Transaction", SimpleNamespace(commit_check=lambda tx: True)))
    attempts.connection_lost()
    with pytest.raises(DatabaseUnreachable, match=r"may have been made or not: other transactions keep changing"):
        Backoff(-1).wait_after_collision(RetryTransaction(), attempts.explain)
