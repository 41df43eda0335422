"""What every test may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import commonplace
from commonplace.adapters.hermes.provider import CommonplaceMemoryProvider
from commonplace.book import Commonplace

pytest.register_assert_rewrite("tests.hermes")

pytest_plugins = ("tests.no_skips", "pytester")

OpenBook = Callable[[], Commonplace]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work where no project decides the space, and with no settings of the machine's own."""
    desk = tmp_path / "desk"
    desk.mkdir()
    monkeypatch.chdir(desk)
    for name in ("HOME", "SPACE", "ZONE", "BUSY_SECONDS", "EMBEDDER", "EMBEDDER_URL", "EMBEDDER_KEY"):
        monkeypatch.delenv(f"COMMONPLACE_{name}", raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that nobody has opened yet."""
    return tmp_path / "home"


@pytest.fixture
def open_book(home: Path) -> Iterator[OpenBook]:
    """Open the home as another process would: each call is a book of its own, closed at the end."""
    opened: list[Commonplace] = []

    def opening() -> Commonplace:
        opened.append(commonplace.open(home))
        return opened[-1]

    yield opening
    for book in opened:
        book.close()


@pytest.fixture
def book(open_book: OpenBook) -> Commonplace:
    """A book of the home."""
    return open_book()


@pytest.fixture
def provider(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommonplaceMemoryProvider]:
    """The memory provider of a Hermes whose folder is `hermes`, on the home, with patience; shut down at the end."""
    monkeypatch.setenv("COMMONPLACE_HOME", str(home))
    made = CommonplaceMemoryProvider(hermes_home=str(tmp_path / "hermes"))
    made.save_config({"write_seconds": 60, "recall_seconds": 7}, str(tmp_path / "hermes"))
    yield made
    made.shutdown()
