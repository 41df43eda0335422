"""Measures sharing: an edit until its live copies have followed, lineage, and recall among copies."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final

import commonbook
from benchmarks.bare import BareLoop
from benchmarks.bench import Bench
from benchmarks.figures import AT_MOST, Bar, Figure, in_turns
from benchmarks.library import shelves
from benchmarks.recalling import recall_times
from commonbook.core.text.space_names import PERSONAL
from commonbook.service.book import Book
from commonbook.values.ids import new_id
from commonbook.values.memory import Draft

_BAR: Final = Bar(AT_MOST, 1.3)
_SHARE_COPIED: Final = 0.3
_ELSEWHERE: Final = "elsewhere"
_TIME: Final = "2026-11-15T20:18:24.123456Z"
_CHAIN_SQL: Final = """
    WITH RECURSIVE chain (id) AS (
      VALUES (?)
      UNION ALL SELECT target FROM chain JOIN link ON link.source = chain.id AND relation = 'shared_from')
    SELECT memory.id, title FROM chain JOIN place ON place.id = chain.id
      JOIN memory ON memory.space = place.space AND memory.id = place.id"""
_COPIES_SQL: Final = (
    "SELECT memory.* FROM copy JOIN memory ON memory.space = copy.space AND memory.id = copy.memory"
    " WHERE copy.source = ? ORDER BY copy.memory"
)


def edit_shared(bench: Bench) -> Iterator[Figure]:
    """Measure an edit until all live copies have followed, beside as many rows in one commit and their files."""
    for n in bench.scale.copies:
        home = bench.fresh("shared")
        with commonbook.open(home, create=True) as book, closing(BareLoop(bench.fresh("bare"))) as loop:
            source = _with_copies(book, home, n)
            new_texts = (f"text {number}" for number in count())
            ours, reference = in_turns(
                bench.scale.start_rounds if n < 100 else bench.scale.batch_rounds,
                partial(_edit, book, source, new_texts),
                partial(_write, loop, new_texts, n + 1),
            )
        yield Figure(
            benchmark="edit_shared",
            what="edit, until n live copies have followed",
            n=n,
            unit="ms",
            ours_rounds=ours,
            reference_rounds=reference,
        )


def _with_copies(book: Book, home: str, n: int) -> str:
    """Return a memory with so many live copies, each in its own space, created as files."""
    source = book.remember("the text of the source", space=PERSONAL).id
    for at in range(n):
        book.create_space(f"team/s{at}")
    _copy_by_hand(home, [(new_id(), source, source, f"team/s{at}") for at in range(n)])
    book.sync()
    assert len(book.adopt_all()) == n
    return source


def _copy_by_hand(home: str, copies: list[tuple[str, str, str, str]]) -> None:
    for own, source, root, space in copies:
        folder = Path(home, space, "2026-11")
        folder.mkdir(parents=True)
        (folder / f"the-text-of-the-source--{own[-8:]}.md").write_text(
            f"---\nid: {own}\ntitle: the text of the source\ntype: note\ncreated: {_TIME}\n"
            f"author: user:local\nlinks:\n  - shared_from {source}\nshared: live {root} user:local {_TIME}\n"
            "---\n\nthe text of the source\n"
        )


def _edit(book: Book, source: str, new_texts: Iterator[str]) -> float:
    begun = time.perf_counter()
    book.edit(source, text=next(new_texts))
    while book.work():
        pass
    return (time.perf_counter() - begun) * 1_000


def _write(loop: BareLoop, new_texts: Iterator[str], rows: int) -> float:
    begun = time.perf_counter()
    loop.add_many([next(new_texts)] * rows)
    return (time.perf_counter() - begun) * 1_000


def lineage(bench: Bench) -> Iterator[Figure]:
    """Measure the lineage of the last of a chain, and all copies of one source, beside one query for the same rows."""
    n = bench.scale.chain
    home = bench.fresh("chain")
    with commonbook.open(home, create=True) as book:
        chain = [book.remember("the text of the source", space=PERSONAL).id, *(new_id() for _ in range(n))]
        _copy_by_hand(home, [(chain[at], chain[at - 1], chain[0], f"chain/s{at}") for at in range(1, n + 1)])
        book.sync()
        yield _lineage(bench, book, home, chain[-1], n=n, what="lineage at the end of a chain of n", sql=_CHAIN_SQL)
    n = bench.scale.fan
    home = bench.fresh("fan")
    with commonbook.open(home, create=True) as book:
        source = _with_copies(book, home, n)
        yield _lineage(bench, book, home, source, n=n, what="copies of a source that has n", sql=_COPIES_SQL)


def _lineage(bench: Bench, book: Book, home: str, memory: str, *, n: int, what: str, sql: str) -> Figure:
    with closing(sqlite3.connect(Path(home, ".commonbook", "state.db"))) as bare:
        ours, reference = in_turns(
            bench.scale.start_rounds,
            lambda: _timed(lambda: book.lineage(memory)) * 1_000,
            lambda: _timed(lambda: bare.execute(sql, (memory,)).fetchall()) * 1_000,
        )
    return Figure(benchmark="lineage", what=what, n=n, unit="us", ours_rounds=ours, reference_rounds=reference)


def _timed(ask: Callable[[], object]) -> float:
    begun = time.perf_counter()
    ask()
    return (time.perf_counter() - begun) * 1_000


def recall_copies(bench: Bench) -> Iterator[Figure]:
    """Measure recall in a space with three copies in ten memories, beside the same texts without copies."""
    n = bench.scale.shared
    notes = list(islice((shelf.draft.text for shelf in shelves(2 * n) if len(shelf.passages) == 1), n))
    with (
        commonbook.open(bench.fresh("copies"), create=True) as book,
        commonbook.open(bench.fresh("none"), create=True) as plain,
    ):
        for target in (book, plain):
            sources = target.remember_many(
                [Draft(text, space=_ELSEWHERE) for text in notes[: round(n * _SHARE_COPIED)]]
            )
            target.remember_many([Draft(text, space=PERSONAL) for text in notes[len(sources) :]])
            if target is book:
                for source in sources:
                    target.share(source.id, PERSONAL)
            else:
                target.remember_many([Draft(text, space=PERSONAL) for text in notes[: len(sources)]])
            target.reindex(anew=True)
        ours, reference = recall_times(bench, book, plain)
    yield Figure(
        benchmark="recall_copies",
        what="recall among n, three in ten copies",
        n=n,
        unit="ms",
        ours_rounds=ours,
        reference_rounds=reference,
        bar=_BAR,
    )
