"""Every scenario gives the same results through every interface."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

import commonbook
from commonbook.book.book import Book
from commonbook.client.remote_book import RemoteBook
from commonbook.interfaces.http.app import make_app
from tests.support import scenarios
from tests.support.scenarios import SCENARIOS, errors_of, normalized


@pytest.fixture
def library(tmp_path_factory) -> Iterator[Book]:
    """Another empty book, used through the library."""
    with commonbook.open(tmp_path_factory.mktemp("library") / "home", create=True) as book:
        yield book


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_http_gives_the_results_of_the_library(book, library, scenario):
    expected, found = scenarios.through_the_library(library), scenarios.through_http(book, make_app(book))
    scenario(expected)
    scenario(found)
    assert normalized(found.transcript) == normalized(expected.transcript)
    assert normalized(found.state()) == normalized(expected.state())


@pytest.fixture
def url(book) -> Iterator[str]:
    """The address of a server of the book, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(make_app(book), log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_remote_book_gives_the_results_of_the_library(book, library, url, scenario, tmp_path):
    opened: list[RemoteBook] = []

    def connect(secret: str) -> RemoteBook:
        opened.append(commonbook.connect(url, secret, outbox=tmp_path / f"outbox-{len(opened)}.db"))
        return opened[-1]

    expected, found = scenarios.through_the_library(library), scenarios.through_remote_books(book, connect)
    scenario(expected)
    scenario(found)
    for remote in opened:
        remote.close()
    assert normalized(found.transcript, from_client=True) == normalized(expected.transcript, from_client=True)
    assert normalized(found.state(), from_client=True) == normalized(expected.state(), from_client=True)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_command_line_gives_the_results_of_the_library(book, library, scenario):
    expected, found = scenarios.through_the_library(library), scenarios.through_the_command_line(book)
    scenario(expected)
    scenario(found)
    assert errors_of(found.transcript) == errors_of(expected.transcript)
    assert normalized(found.state()) == normalized(expected.state())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_mcp_gives_the_results_of_the_library(book, library, scenario):
    expected, found = scenarios.through_the_library(library), scenarios.through_mcp(book)
    scenario(expected)
    scenario(found)
    assert errors_of(found.transcript) == errors_of(expected.transcript)
    assert normalized(found.state()) == normalized(expected.state())
