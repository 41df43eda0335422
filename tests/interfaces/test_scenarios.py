"""Every scenario gives the same results through every interface."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import uvicorn

import commonbook
from commonbook.interfaces.http.app import make_app
from commonbook.remote.remote_book import RemoteBook
from commonbook.service.book import Book
from commonbook.values.memory import Draft
from tests.support import scenarios
from tests.support.scenarios import SCENARIOS, World, errors_of, normalized

pytestmark = pytest.mark.promise("http.same")


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


@pytest.mark.promise("http.same")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_mcp_gives_the_results_of_the_library(book, library, scenario):
    expected, found = scenarios.through_the_library(library), scenarios.through_mcp(book)
    scenario(expected)
    scenario(found)
    assert errors_of(found.transcript) == errors_of(expected.transcript)
    assert normalized(found.state()) == normalized(expected.state())


@pytest.fixture(params=["library", "http", "remote book", "command line", "mcp"])
def world(request, book, tmp_path) -> Iterator[World]:
    """The same book through each interface."""
    if request.param != "remote book":
        through = {
            "library": scenarios.through_the_library,
            "http": lambda book: scenarios.through_http(book, make_app(book)),
            "command line": scenarios.through_the_command_line,
            "mcp": scenarios.through_mcp,
        }
        yield through[request.param](book)
        return
    opened: list[RemoteBook] = []
    url = request.getfixturevalue("url")

    def connect(secret: str) -> RemoteBook:
        opened.append(commonbook.connect(url, secret, outbox=tmp_path / f"outbox-{len(opened)}.db"))
        return opened[-1]

    yield scenarios.through_remote_books(book, connect)
    for remote in opened:
        remote.close()


def shown(hits: Sequence[Any], *, like: Sequence[Any] | None = None) -> list[tuple[str, object]]:
    """Return ids and scores; a tool of MCP tells an agent no scores."""
    with_scores = all(hasattr(hit, "score") for hit in (hits if like is None else like))
    return [(hit.id, hit.score if with_scores else None) for hit in hits]


def test_the_one_memory_with_a_tag_is_found_among_eighty_through_every_interface(book, world):
    book.remember_many([Draft(text=f"kite kite kite number {number}", space="s", tags=("z",)) for number in range(80)])
    memory = book.remember(
        "In a long talk about the weather, of all things, somebody saw a kite.", space="s", tags=["y"]
    )
    assert memory.id not in [hit.id for hit in book.recall("kite number", spaces=["s"], k=5).hits]
    expected = book.recall("kite number", spaces=["s"], k=5, tags=["y"]).hits
    hits = world().recall("kite number", spaces=["s"], k=5, tags=["y"]).hits
    assert shown(hits) == shown(expected, like=hits)
    assert [hit.id for hit in hits] == [memory.id]


def test_spaces_that_one_may_not_read_are_refused_through_every_interface_and_change_no_answer(book, world):
    book.grant("agent:ana", "own", "reader")
    book.remember_many([Draft(text=f"a kite over field {number}", space="own") for number in range(20)])
    ana = world("agent:ana")

    def answer() -> list[tuple[str, object]]:
        return shown(ana.recall("kite field", spaces=["own"], k=5).hits)

    alone = answer()
    assert len(alone) == 5
    others = [book.remember(f"kite field {number}, of others", space="secret").id for number in range(30)]
    assert answer() == alone
    book.delete(*others)
    assert answer() == alone
    book.remember("a kite that stays", space="secret")
    ana.recall("kite", spaces=["secret"])
    assert world.transcript[-1][-1]["refused"]["type"] == "not_allowed"
