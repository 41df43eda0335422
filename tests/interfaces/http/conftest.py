"""Fixtures of tests over HTTP: the app of a book, and clients with the keys of several principals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from commonbook.interfaces.http.app import make_app
from commonbook.service.book import Book

ClientOf = Callable[[str | None], TestClient]


@pytest.fixture
def app(book: Book) -> Starlette:
    """The app of an empty book."""
    return make_app(book)


@pytest.fixture
def client_of(app: Starlette) -> Iterator[ClientOf]:
    """Make a client that sends a key, or none."""
    made: list[TestClient] = []

    def client(secret: str | None) -> TestClient:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        made.append(TestClient(app, headers=headers))
        return made[-1]

    yield client
    for each in made:
        each.close()


@pytest.fixture
def client(book: Book, client_of: ClientOf) -> TestClient:
    """A client with a key of the owner."""
    return client_of(book.create_key("user:local").secret)
