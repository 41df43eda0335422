"""Fixtures for every test.

A test with the fixture `book`, `open_book`, `place` or `chosen` runs twice: with the book in a home, and on PostgreSQL.
A test that also has `home` is about files, or about something independent of the engine, and runs in a home only.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

import commonbook
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.compose.databases import make_keys
from commonbook.core.settings.settings import Settings
from commonbook.engines.process import SystemClock
from commonbook.service.book import Book
from tests.support import new_databases
from tests.support.places import in_memory
from tests.support.postgres_server import TEMPLATE, Server, rows_of

pytest.register_assert_rewrite("tests.support.hermes", "tests.support.index_contract")

pytest_plugins = ("tests.support.no_skips", "pytester")

# Random tests run the same examples in the same order each time; COMMONBOOK_EXPLORE=1 tries new ones.
EXPLORES: Final = os.environ.get("COMMONBOOK_EXPLORE") == "1"
os.environ.setdefault("COMMONBOOK_SEED", str(time.time_ns()) if EXPLORES else "1")

# On a busy machine one example may wait for seconds for the processor: that says nothing about the code.
hypothesis.settings.register_profile(
    "commonbook",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=not EXPLORES,
)
hypothesis.settings.load_profile("commonbook")

OpenBook = Callable[[], Book]
Folder = Callable[[], Path]
Stored = Callable[[], dict[str, bytes]]

_FOLDERS: Final[deque[Path]] = deque()
_MAX_FOLDERS: Final = 300
ENGINES: Final = ("sqlite", "postgres")
_MIGRATED: Final = "migrated"
_SETTINGS: Final = (
    "HOME", "SPACE", "ZONE", "BUSY_SECONDS", "EMBEDDER", "EMBEDDER_URL", "EMBEDDER_KEY", "DATABASE", "KEYS",
    "CONNECTIONS", "RECALL_MB", "OUTBOX", "KEY", "URL",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the files of the tests in memory, if there is room: no test needs them after a power cut.

    On a disk, a test run waits for syncs about as long as it computes. PYTEST_DEBUG_TEMPROOT=/tmp puts them there.
    """
    if not EXPLORES and config.getoption("randomly_seed", None) == "default":
        config.option.randomly_seed = 1
    place = in_memory()
    if place is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each worker begin with its share of the slow tests: one of them at the end would let the others wait for it.

    With `--dist worksteal` the workers get equal stretches of this list, and then take tests from each other.
    """
    workers = int(getattr(config, "workerinput", {}).get("workercount", 1))
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    fast = [item for item in items if item.get_closest_marker("slow") is None]
    items[:] = [item for at in range(workers) for item in (*_stretch(slow, at, workers), *_stretch(fast, at, workers))]


def _stretch(items: list[pytest.Item], at: int, count: int) -> list[pytest.Item]:
    return items[len(items) * at // count : len(items) * (at + 1) // count]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use a book on both engines, unless they are about files."""
    if "engine" in metafunc.fixturenames and "home" not in metafunc.fixturenames:
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use a working directory outside of any project, and no settings of the machine."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in _SETTINGS:
        monkeypatch.delenv(f"COMMONBOOK_{name}", raising=False)
    # A command that takes more than a second shows its progress, and on a busy machine any command may.
    monkeypatch.setattr("commonbook.interfaces.cli.output._LINE_INTERVAL_SECONDS", 3600.0)


@pytest.fixture(autouse=True)
def _little_room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Remove the files of a test that passed, long after it: a thread or process of it may still end meanwhile."""
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed == failed:
        _FOLDERS.append(tmp_path)
    if len(_FOLDERS) > _MAX_FOLDERS:
        shutil.rmtree(_FOLDERS.popleft(), ignore_errors=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """Where the book of this test is: `sqlite` or `postgres`."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def chosen(engine: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of this test's book, also set in the environment for other processes.

    A book on PostgreSQL has a home too, for its outbox and configuration: a temporary one, not that of the developer.
    """
    monkeypatch.setenv("COMMONBOOK_HOME", str(tmp_path / "home"))
    if engine == "sqlite":
        return Settings.load(tmp_path / "home")
    address, keys = request.getfixturevalue("postgres_book")
    monkeypatch.setenv("COMMONBOOK_DATABASE", address)
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    return Settings.load()


@pytest.fixture
def place(chosen: Settings) -> Path | str:
    """The argument for `commonbook.open` in any process: a home, or the address of a server."""
    return chosen.database.address if chosen.database else Path(chosen.home)


@pytest.fixture
def open_book(chosen: Settings) -> Iterator[OpenBook]:
    """Open the book as another process would: each call returns a new book, closed at the end."""
    opened: list[Book] = []

    def opening() -> Book:
        with new_databases.copied():
            opened.append(commonbook.open(None if chosen.database else chosen.home, create=True))
        return opened[-1]

    yield opening
    for book in opened:
        book.close()


@pytest.fixture
def book(open_book: OpenBook) -> Book:
    """An empty book."""
    return open_book()


@pytest.fixture
def provider(chosen: Settings, tmp_path: Path) -> Iterator[CommonbookMemoryProvider]:
    """The memory provider of a Hermes whose folder is `hermes`, with long time-outs; shut down at the end."""
    provider = CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes"))
    provider.save_config({"write_seconds": 60, "recall_seconds": 7}, str(tmp_path / "hermes"))
    yield provider
    provider.shutdown()


@pytest.fixture
def folder(book: Book, tmp_path: Path) -> Folder:
    """The current Markdown files of the book: its home, or an export from a server."""

    def now() -> Path:
        if os.path.isdir(book.home):
            return Path(book.home)
        shutil.rmtree(tmp_path / "exported", ignore_errors=True)
        book.export(str(tmp_path / "exported"))
        return tmp_path / "exported"

    return now


@pytest.fixture
def stored(chosen: Settings) -> Stored:
    """Everything that the book stores now, byte by byte: by file, or by table of a server."""

    def now() -> dict[str, bytes]:
        if chosen.database:
            return rows_of(chosen.database.address)
        home = Path(chosen.home)
        return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}

    return now


# --- PostgreSQL


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The PostgreSQL server of this test run: one for each xdist worker, started at the first use."""
    with Server.started() as server:
        server.make_template()
        yield server


@pytest.fixture(scope="module")
def postgres_database(postgres: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database of this test module, with the extension `vector` and nothing else in it."""
    name = request.module.__name__.rpartition(".")[2]
    yield postgres.make_database(name, template=TEMPLATE)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def postgres_keys(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder with the keys of books on PostgreSQL."""
    folder = str(tmp_path_factory.mktemp("keys") / "keys")
    make_keys(folder)
    return folder


@pytest.fixture(scope="session")
def postgres_migrated(postgres: Server) -> str:
    """The name of a database that is copied for each test, which is faster than making its tables."""
    from commonbook.engines.postgres.database import PostgresDatabase
    from commonbook.engines.postgres.migrations import MIGRATIONS

    address = postgres.make_database(_MIGRATED, template=TEMPLATE)
    PostgresDatabase(address, migrations=MIGRATIONS, clock=SystemClock(), busy_seconds=10).close()
    return _MIGRATED


@pytest.fixture
def postgres_book(postgres: Server, postgres_migrated: str, postgres_keys: str) -> Iterator[tuple[str, str]]:
    """The address and the keys of a book of this test alone."""
    yield postgres.make_database("book", template=postgres_migrated), postgres_keys
    postgres.drop_database("book")
