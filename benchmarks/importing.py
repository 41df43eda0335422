"""Measures an import of notes of 1.2 kB: its speed, and the bytes on disk by table and index."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import commonbook
from benchmarks.bare import BareLoop
from benchmarks.bench import ROOT, Bench, environment, python, rate
from benchmarks.figures import AT_LEAST, AT_MOST, Bar, Figure, in_turns
from benchmarks.library import prose

NOTE_BYTES: Final = 1_200
_ROUNDS: Final = 2
_SPEED: Final = Bar(AT_LEAST, 1 / 4)
_AS_BEFORE: Final = Bar(AT_LEAST, 1.0)

_MAX_NOTE_BYTES: Final = 5_000
_SIZE: Final = Bar(AT_MOST, 1.0)
_BARRED_NOTES: Final = 10_000
"""With fewer notes, the first page of every table counts too much."""

_BYTES_BY_TABLE: Final = (
    "SELECT coalesce(made.tbl_name, used.name), sum(used.pgsize) FROM dbstat AS used"
    " LEFT JOIN sqlite_master AS made ON made.name = used.name GROUP BY 1 ORDER BY 2 DESC LIMIT 10"
)


_TIMED_IMPORT: Final = """
import inspect, sys, time, commonbook
home, folder = sys.argv[1:]
# An earlier version made every home.
create = {"create": True} if "create" in inspect.signature(commonbook.open).parameters else {}
with commonbook.open(home, **create) as book:
    begun = time.perf_counter()
    book.import_folder(folder)
    print(time.perf_counter() - begun)
"""


def importing(bench: Bench) -> Iterator[Figure]:
    """Measure `import_folder` against rows in one commit and as many files, and the bytes a note against their limit.

    Parts of the bytes stand beside those of the text.
    """
    n = bench.scale.large
    folder = bench.fresh("vault")
    notes = _write_notes(folder, n)
    homes = [bench.fresh("imported") for _ in range(_ROUNDS)]
    speeds = [(_import_ours(home, folder, n), _add_bare(bench.fresh("bare"), notes)) for home in homes]
    yield Figure(
        benchmark="importing",
        what="import of n notes of 1.2 kB",
        n=n,
        unit="/s",
        ours_rounds=tuple(ours for ours, _ in speeds),
        reference_rounds=tuple(bare for _, bare in speeds),
        bar=_SPEED,
    )
    if bench.before:
        yield _compared(bench, bench.before, folder, n)
    note_bytes = sum(len(note.encode()) for note in notes) / n
    for what, size, bar in _sizes(homes[0]):
        yield Figure(
            benchmark="importing",
            what=what,
            n=n,
            unit="B/note",
            ours_rounds=(size / n,),
            reference_rounds=(note_bytes if bar is None else _MAX_NOTE_BYTES,),
            bar=bar if n >= _BARRED_NOTES else None,
        )


def _write_notes(folder: str, n: int) -> list[str]:
    """Write a vault of notes with the word frequencies of English, and return their texts."""
    chance = random.Random("vault")
    notes = []
    for number in range(n):
        note = f"# Note {number}\n"
        while len(note) < NOTE_BYTES:
            note += f"\n{prose(chance)}\n"
        notes.append(note[: NOTE_BYTES - 1].rstrip() + "\n")
        Path(folder, f"note {number}.md").write_text(notes[-1], encoding="utf-8")
    return notes


def _import_ours(home: str, folder: str, n: int) -> float:
    with commonbook.open(home, create=True) as book:
        begun = time.perf_counter()
        book.import_folder(folder)
        took = time.perf_counter() - begun
        book.reindex()
    return rate(n, took)


def _compared(bench: Bench, before: str, folder: str, n: int) -> Figure:
    """Measure the import of this version and of an earlier one, each in processes of their own, in turns."""
    ours, reference = in_turns(
        _ROUNDS,
        lambda: _import_by(ROOT, bench.fresh("ours"), folder, n),
        lambda: _import_by(before, bench.fresh("before"), folder, n),
    )
    return Figure(
        benchmark="importing",
        what="import of n notes, beside an earlier version",
        n=n,
        unit="/s",
        ours_rounds=ours,
        reference_rounds=reference,
        bar=_AS_BEFORE,
    )


def _import_by(checkout: str, home: str, folder: str, n: int) -> float:
    source = os.path.join(os.path.abspath(checkout), "src")
    command, variables = python(_TIMED_IMPORT, home, folder), environment(PYTHONPATH=source)
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return rate(n, float(done.stdout))


def _add_bare(folder: str, notes: list[str]) -> float:
    with closing(BareLoop(folder)) as loop:
        begun = time.perf_counter()
        loop.add_many(notes)
        return rate(len(notes), time.perf_counter() - begun)


def _sizes(home: str) -> Iterator[tuple[str, int, Bar | None]]:
    """Yield the bytes of database and index together, of each, and of the largest tables with their indexes."""
    hidden = Path(home, ".commonbook")
    database, index = os.path.getsize(hidden / "state.db"), _bytes_below(hidden / "index")
    yield "database and index", database + index, _SIZE
    yield "index", index, None
    yield "database", database, None
    with closing(sqlite3.connect(hidden / "state.db")) as connection:
        for table, size in connection.execute(_BYTES_BY_TABLE):
            yield f"database: {table}", size, None


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
