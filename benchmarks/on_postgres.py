"""Measures recall on PostgreSQL beside bare queries for its candidates, and the speed of indexing.

The server is that of the tests, but it syncs to disk and has memory for the index. The bare queries are those of a
plain program on the same tables: the best rows by terms, with the term weights computed in the query, and the nearest
by vector, by comparing all. Neither returns a text, a neighbour or a score.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple

import psycopg

import commonbook
from benchmarks.bench import Bench
from benchmarks.figures import AT_MOST, Bar, Figure
from benchmarks.library import by_frequency, shelves
from benchmarks.recalling import percentile
from commonbook.compose.databases import make_keys
from commonbook.core.text import terms
from commonbook.core.text.space_names import PERSONAL
from commonbook.engines.embedders.static_table import StaticTable
from commonbook.engines.postgres.index import CREATE_INDEXES
from commonbook.engines.postgres.passage_rows import signed_hash
from commonbook.service.book import Book
from commonbook.subjects.recall import indexed_passages
from tests.support.postgres_server import TEMPLATE, Server

_K: Final = 10
_CANDIDATES: Final = 50
_TWICE: Final = Bar(AT_MOST, 2.0)
_BARRED: Final = 100_000
_WARM_UP: Final = 20
_UNTIL_CACHED: Final = 200
"""Enough queries that each of the teams was searched several times, and its space is cached."""

_TEAMS: Final = 50
_SEARCHED: Final = 3
_SMALL_SPACES: Final = 500
_SMALL_FRACTION: Final = 5_000
_BATCH: Final = 1_000
_SETTINGS: Final = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "'512MB'", "max_wal_size": "'2GB'"}

_BY_TERMS: Final = """
    WITH matched AS MATERIALIZED (
      SELECT space, term, id FROM recall_posting
      WHERE space = ANY(%(spaces)s::bigint[]) AND term = ANY(%(terms)s::bigint[])
    ), rarity AS MATERIALIZED (
      SELECT term, ln(1 + (%(total)s - count(*) + 0.5) / (count(*) + 0.5))::float8 AS idf FROM matched GROUP BY term
    )
    SELECT space, id, sum(idf) FROM matched JOIN rarity USING (term) GROUP BY space, id
    ORDER BY 3 DESC, id LIMIT %(most)s
"""
_BY_VECTOR: Final = """
    SELECT space, id FROM recall_passage WHERE space = ANY(%(spaces)s::bigint[]) AND v IS NOT NULL
    ORDER BY v <=> %(vector)s::halfvec LIMIT %(most)s
"""


class _Case(NamedTuple):
    """The spaces of a recall, and its bar."""

    what: str
    n: int
    spaces: Callable[[random.Random], list[str]]
    bar: Bar | None
    warm_up: int = _WARM_UP
    """The number of queries before the measurement."""
    kept: bool = True
    """Whether the process caches small spaces; if not, each query is like the first in them."""


def postgres_recall(bench: Bench) -> Iterator[Figure]:
    """Measure recall in one large space, in a few of many, and in hundreds of small ones; and indexing."""
    n = bench.scale.passages[-1]
    bar = _TWICE if n >= _BARRED else None
    cases = (
        _Case("in one space of n", n, lambda _: [PERSONAL], bar),
        _Case(f"in {_SEARCHED} of {_TEAMS} spaces of n, kept", n // _TEAMS, _some_teams, bar, warm_up=_UNTIL_CACHED),
        _Case(f"in {_SEARCHED} of {_TEAMS} spaces of n, none kept", n // _TEAMS, _some_teams, None, kept=False),
        _Case(f"in {_SMALL_SPACES} spaces of n", max(n // _SMALL_FRACTION, 1), lambda _: ["small/"], None),
    )
    with book_on_postgres(bench) as (book, address, _):
        _fill(book, n)
        yield _measure_indexing(book, address)
        with closing(_Bare(address)) as bare:
            for case in cases:
                os.environ["COMMONBOOK_RECALL_MB"] = "" if case.kept else "0"
                with commonbook.open(address) as asker:
                    yield from _recall(bench, asker, bare, case)


def _recall(bench: Bench, book: Book, bare: _Bare, case: _Case) -> Iterator[Figure]:
    chance = random.Random(f"questions {case.what} {case.n}")

    def measure(questions: int) -> tuple[list[float], list[float]]:
        """Ask both the same questions, each as often first as second."""
        ours: list[float] = []
        reference: list[float] = []
        for at in range(questions):
            question, spaces = by_frequency(chance), case.spaces(chance)
            if at % 2:
                reference.append(bare.ask(question, spaces))
            begun = time.perf_counter()
            book.recall(question, spaces=spaces, k=_K)
            ours.append((time.perf_counter() - begun) * 1_000)
            if not at % 2:
                reference.append(bare.ask(question, spaces))
        return ours, reference

    measure(case.warm_up)
    rounds = [measure(bench.scale.questions // 2) for _ in range(bench.scale.question_rounds)]
    for share in (50, 95):
        yield Figure(
            benchmark="postgres_recall",
            what=f"recall {case.what}, p{share}",
            n=case.n,
            unit="ms",
            ours_rounds=tuple(percentile(ours, share) for ours, _ in rounds),
            reference_rounds=tuple(percentile(reference, share) for _, reference in rounds),
            bar=case.bar,
        )


def _measure_indexing(book: Book, address: str) -> Figure:
    """Measure indexing everything, beside copying the tables of the index within the database."""
    begun = time.perf_counter()
    book.reindex(anew=True)
    took = time.perf_counter() - begun
    with psycopg.connect(address, autocommit=True) as connection:
        (passages,) = connection.execute("SELECT count(*) FROM recall_passage").fetchone() or (0,)
        connection.execute("CREATE SCHEMA bare; SET search_path TO bare, public")
        begun = time.perf_counter()
        for table in ("recall_passage", "recall_posting"):
            connection.execute(f"CREATE TABLE bare.{table} AS TABLE public.{table}")
        connection.execute(CREATE_INDEXES)
        reference = passages / (time.perf_counter() - begun)
        connection.execute("DROP SCHEMA bare CASCADE")
    return Figure(
        benchmark="postgres_recall",
        what="passages indexed, beside tables copied",
        n=passages,
        unit="/s",
        ours_rounds=(passages / took,),
        reference_rounds=(reference,),
    )


class _Bare:
    """The bare queries, on a connection of their own."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)
        self._table = StaticTable()
        rows = self._connection.execute(
            "SELECT s.name, r.space, r.passages FROM space s JOIN recall_space r ON r.name = s.id"
        )
        self._spaces = {name: (number, passages) for name, number, passages in rows}

    def ask(self, question: str, names: Sequence[str]) -> float:
        """Return the duration of both queries together."""
        spaces = [
            number_and_passages
            for name in names
            for known, number_and_passages in self._spaces.items()
            if known == name or (name.endswith("/") and known.startswith(name))
        ]
        vector = self._table.embed([indexed_passages.embedding_input(question)])[0].tolist()
        parameters: dict[str, Any] = {
            "spaces": [number for number, _ in spaces],
            "total": sum(passages for _, passages in spaces),
            "terms": [signed_hash(term) for _, term in terms.query_words(question)],
            "vector": "[" + ",".join(map(str, vector)) + "]",
            "most": _CANDIDATES,
        }
        took = 0.0
        for statement in (_BY_TERMS, _BY_VECTOR):
            begun = time.perf_counter()
            self._connection.cursor(binary=True).execute(statement, parameters).fetchall()
            took += time.perf_counter() - begun
        return took * 1_000

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


# --- the book


@contextmanager
def book_on_postgres(bench: Bench) -> Iterator[tuple[Book, str, str]]:
    """Open an empty book on its own server, which syncs to disk; yield it, its address and its keys folder."""
    folder = os.path.join(bench.fresh("keys"), "keys")
    make_keys(folder)
    with Server.started(**_SETTINGS) as server:
        server.make_template()
        address = server.make_database("bench", template=TEMPLATE)
        os.environ["COMMONBOOK_KEYS"] = folder
        try:
            with commonbook.open(address) as book:
                yield book, address, folder
        finally:
            del os.environ["COMMONBOOK_KEYS"]
            os.environ.pop("COMMONBOOK_RECALL_MB", None)


def _fill(book: Book, n: int) -> None:
    spaces = {PERSONAL: n}
    spaces |= {_team(at): n // _TEAMS for at in range(_TEAMS)}
    spaces |= {f"small/{at}": max(n // _SMALL_FRACTION, 1) for at in range(_SMALL_SPACES)}
    for space, passages in spaces.items():
        source = shelves(passages)
        while batch := list(islice(source, _BATCH)):
            book.remember_many([shelf.draft._replace(space=space) for shelf in batch])


def _some_teams(chance: random.Random) -> list[str]:
    return [_team(at) for at in chance.sample(range(_TEAMS), k=_SEARCHED)]


def _team(number: int) -> str:
    return f"team/{number}"
