"""The workplace of benchmarks: the sizes of a run, a folder on the disk, and homes of any size."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Final

import commonbook
from benchmarks.bare import BareLoop, BareSearch
from benchmarks.library import SHARED, shelves
from benchmarks.texts import texts
from commonbook.values.memory import Draft

ROOT: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BATCH: Final = 1_000
_MIN_PROGRESS_TOTAL: Final = 5_000
_SEARCH: Final = "search.db"
# Modules must be found from any working directory.
_MODULE_PATHS: Final = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
_DEVELOPER_VARIABLES: Final = ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME", "PYTHONPATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes and repetitions of a run."""

    small: int
    middle: int
    large: int
    batch: int
    adds: int
    processes: tuple[int, ...]
    write_rounds: int
    batch_rounds: int
    start_rounds: int
    passages: tuple[int, ...]
    questions: int
    question_rounds: int
    copies: tuple[int, ...]
    chain: int
    fan: int
    shared: int
    dependents: tuple[int, ...]


FULL: Final = Scale(
    small=5,
    middle=1_000,
    large=10_000,
    batch=1_000,
    adds=50,
    processes=(2, 4, 8),
    write_rounds=7,
    batch_rounds=4,
    start_rounds=15,
    passages=(1_000, 10_000, 100_000),
    questions=240,
    question_rounds=3,
    copies=(0, 10, 1_000),
    chain=100,
    fan=10_000,
    shared=3_000,
    dependents=(0, 100, 10_000),
)
QUICK: Final = Scale(
    small=5,
    middle=200,
    large=1_000,
    batch=200,
    adds=25,
    processes=(4,),
    write_rounds=3,
    batch_rounds=3,
    start_rounds=5,
    passages=(200, 1_000),
    questions=60,
    question_rounds=2,
    copies=(0, 10, 200),
    chain=100,
    fan=1_000,
    shared=500,
    dependents=(0, 100, 1_000),
)


@dataclass(slots=True)
class Bench:
    """A folder for one run; homes and databases that are costly to make are made once."""

    place: str
    scale: Scale
    before: str | None = None
    """A checkout of an earlier version, with which imports are compared."""
    _made: dict[tuple[str, int], str] = field(default_factory=dict)

    def home(self, n: int) -> str:
        """Return a home of this many memories, for reading only."""
        return self._make_once("home", n, _fill_home)

    def home_to_write(self, n: int) -> str:
        """Return a home that had this many memories before the first benchmark wrote to it."""
        original = self.home(n)
        return self._make_once("copy", n, lambda folder, _: _copy(original, folder))

    def bare(self, n: int) -> str:
        """Return the folder of a bare loop that had this many texts when it was made."""
        return self._make_once("bare", n, _fill_bare)

    def indexed(self, n: int) -> str:
        """Return a home of this many memories whose index is up to date, for reading only."""
        original = self.home(n)
        return self._make_once("indexed", n, lambda folder, _: _copy_indexed(original, folder))

    def library(self, passages: int, kind: str = SHARED) -> str:
        """Return a home with this many passages of realistic text and an up-to-date index, for reading only."""
        return self._make_once(f"library-{kind}", passages, partial(_fill_library, kind=kind))

    def library_to_write(self, passages: int) -> str:
        """Return a library that had this many passages before the first benchmark wrote to it."""
        original = self.library(passages)
        return self._make_once("library-copy", passages, lambda folder, _: _copy(original, folder))

    def bare_search(self, passages: int, kind: str = SHARED) -> str:
        """Return the database of a bare search over the passages of a library."""
        return os.path.join(self._make_once(f"search-{kind}", passages, partial(_fill_search, kind=kind)), _SEARCH)

    def fresh(self, name: str) -> str:
        """Return a new empty folder."""
        folder = os.path.join(self.place, f"{name}-{len(self._made)}")
        self._made[folder, 0] = folder
        os.mkdir(folder)
        return folder

    def _make_once(self, kind: str, n: int, fill: Callable[[str, int], None]) -> str:
        if (kind, n) not in self._made:
            folder = self.fresh(kind)
            fill(folder, n)
            if n >= _BATCH:
                # Pending writes would otherwise be charged to the next measurement that syncs.
                os.sync()
            self._made[kind, n] = folder
        return self._made[kind, n]


@contextmanager
def bench(scale: Scale, before: str | None = None) -> Iterator[Bench]:
    """Create the folder of a run, under TMPDIR, and remove it afterwards."""
    with TemporaryDirectory(prefix="commonbook-bench-") as place:
        yield Bench(place, scale, before)


def drafts(source: Iterator[str], n: int) -> list[Draft]:
    """Return the next drafts to remember."""
    return [Draft(text=text) for text in islice(source, n)]


def _fill_home(folder: str, n: int) -> None:
    source = texts(f"home {n}")
    with commonbook.open(folder, create=True) as book:
        for left in range(n, 0, -_BATCH):
            book.remember_many(drafts(source, min(left, _BATCH)))


def _copy(original: str, folder: str) -> None:
    """Copy a home with its file times, so that it counts as unchanged."""
    shutil.copytree(original, folder, dirs_exist_ok=True)


def _copy_indexed(original: str, folder: str) -> None:
    _copy(original, folder)
    with commonbook.open(folder) as book:
        book.reindex()


def _fill_library(folder: str, passages: int, *, kind: str) -> None:
    source, stored = shelves(passages, kind), 0
    with commonbook.open(folder, create=True) as book:
        while batch := list(islice(source, _BATCH)):
            book.remember_many([shelf.draft for shelf in batch])
            stored += sum(len(shelf.passages) for shelf in batch)
            _show_progress("storing", stored, passages)
        book.reindex(progress=_show_progress)


def _show_progress(what: str, done: int, total: int) -> None:
    """Show the progress of long preparations."""
    if total > _MIN_PROGRESS_TOTAL:
        # The next line of the table is longer and overwrites it.
        print(f"{what} {done:,} of {total:,}", end="\r", file=sys.stderr, flush=True)


def _fill_search(folder: str, passages: int, *, kind: str) -> None:
    search = BareSearch(os.path.join(folder, _SEARCH))
    search.fill(passage for shelf in shelves(passages, kind) for passage in shelf.searched)
    search.close()


def _fill_bare(folder: str, n: int) -> None:
    loop = BareLoop(folder)
    loop.fill(list(islice(texts(f"home {n}"), n)))
    loop.close()


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a user's program: without settings of ours, and with cached byte code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COMMONBOOK_")}
    kept = {name: value for name, value in kept.items() if name not in _DEVELOPER_VARIABLES}
    return kept | ({"PYTHONPATH": os.pathsep.join(_MODULE_PATHS)} if _MODULE_PATHS else {}) | more


def milliseconds(command: Sequence[str], **more: str) -> float:
    """Run a program to its end and return its duration."""
    begun = time.perf_counter()
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, check=False)
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise RuntimeError(f"{command[-1]} ended with {done.returncode}: {done.stderr.strip()}")
    return took * 1_000


def python(code: str, *arguments: str) -> list[str]:
    """Return the command that runs a piece of Python in a fresh interpreter."""
    return [sys.executable, "-c", code, *arguments]


def rate(count: int, seconds: float) -> float:
    """Return the number per second."""
    return count / seconds
