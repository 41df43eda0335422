"""Fixtures of remote books: real servers in processes of their own, and books that are connected to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import commonbook
from commonbook.core.settings.settings import Settings
from commonbook.remote.remote_book import RemoteBook
from commonbook.service.book import Book
from tests.support.http_servers import ServerProcess

Connect = Callable[..., RemoteBook]
Serve = Callable[..., ServerProcess]


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use folders of this test for saved keys and outboxes."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("COMMONBOOK_URL", raising=False)


@pytest.fixture
def serve(chosen: Settings, book: Book) -> Iterator[Serve]:
    """Start servers of this test's book; all are killed at the end."""
    started: list[ServerProcess] = []

    def start(**options: Any) -> ServerProcess:
        started.append(ServerProcess(**options))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def server(serve: Serve) -> ServerProcess:
    """A server of this test's book."""
    return serve()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to servers; all books are closed at the end."""
    opened: list[RemoteBook] = []

    def make(*args: Any, **options: Any) -> RemoteBook:
        opened.append(commonbook.connect(*args, **options))
        return opened[-1]

    yield make
    for remote in opened:
        remote.close()


@pytest.fixture
def key(book: Book) -> str:
    """A key of the owner."""
    return book.create_key("user:local").secret


@pytest.fixture
def remote(server: ServerProcess, connect: Connect, key: str) -> RemoteBook:
    """This test's book, over HTTP, for its owner."""
    return connect(server.url, key)
