"""Every scenario gives the same results through every interface."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import commonbook
from commonbook.book.book import Book
from tests.support import scenarios
from tests.support.scenarios import SCENARIOS, errors_of, normalized


@pytest.fixture
def library(tmp_path_factory) -> Iterator[Book]:
    """Another empty book, used through the library."""
    with commonbook.open(tmp_path_factory.mktemp("library") / "home", create=True) as book:
        yield book


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_http_gives_the_results_of_the_library(book, library, scenario):
    from commonbook.interfaces.http.app import make_app

    expected, found = scenarios.through_the_library(library), scenarios.through_http(book, make_app(book))
    scenario(expected)
    scenario(found)
    assert normalized(found.transcript) == normalized(expected.transcript)
    assert found.state() == expected.state()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_command_line_gives_the_results_of_the_library(book, library, scenario):
    expected, found = scenarios.through_the_library(library), scenarios.through_the_command_line(book)
    scenario(expected)
    scenario(found)
    assert errors_of(found.transcript) == errors_of(expected.transcript)
    assert found.state() == expected.state()
