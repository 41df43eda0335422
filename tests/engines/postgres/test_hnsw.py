"""HNSW graphs of large spaces, on a real server: built and dropped in the background, and searches use them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import commonbook
from commonbook.engines.postgres import hnsw
from commonbook.engines.postgres.hnsw import _plan
from commonbook.engines.postgres.passage_rows import signed_hash
from commonbook.engines.postgres.pipeline import Pipeline, _number_parameters
from commonbook.model.memory import Draft
from commonbook.ports.index import Delta, IndexedPassage, IndexQuery
from tests.support.crashing import environment
from tests.support.index_worlds import answer, entry, hang_up, marker, memory_id, opened

ABOVE = 300
DIMENSIONS = 48
OURS = frozenset({"ours"})
BOTH = frozenset({"ours", "theirs"})
_NUMBERS = count()
_GRAPHS = """
    SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass('recall_passage') AND c.relname LIKE 'recall_graph%'
"""
_BUILDERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE '%CREATE INDEX CONCURRENTLY%' AND pid <> pg_backend_pid()
      AND state = 'active'
"""


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    yield
    hang_up()


@pytest.fixture
def place(postgres_database: str) -> str:
    """The address of an index that nobody has made yet, in a schema of its own."""
    name = f"graph_{next(_NUMBERS)}"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres_database}&options=-csearch_path%3D{name},public"


@pytest.fixture
def statements(place: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(place, autocommit=True) as connection:
        yield connection


@pytest.fixture
def index(place: str) -> Any:
    return opened(place, graph_above=ABOVE)


@pytest.fixture
def exact(place: str) -> Any:
    """The same index, searched by comparing all."""
    return opened(place, graph_above=0)


def name_of(space: str, dimensions: int = DIMENSIONS) -> str:
    return hnsw._graph_name(signed_hash(space), dimensions)


def directions(number: int, *, seed: int = 1, dimensions: int = DIMENSIONS) -> Any:
    """Return vectors as texts have them: around some subjects, none quite like another."""
    dice = np.random.default_rng(seed)
    subjects = np.random.default_rng(7).standard_normal((40, dimensions))
    near = subjects[dice.integers(0, len(subjects), number)] + 0.8 * dice.standard_normal((number, dimensions))
    return near.astype(np.float32)


def passages(vectors: Any, *, first: int = 1, **given: Any) -> tuple[IndexedPassage, ...]:
    return tuple(entry(first + at, vector=vector, **given) for at, vector in enumerate(vectors))


def add(
    index: Any, entries: Sequence[IndexedPassage] = (), gone: frozenset[str] = frozenset(), *, anew: bool = False
) -> None:
    with index.writing(wait=60) as writer:
        if anew:
            writer.clear()
        writer.add(Delta(tuple(entries), gone))
        writer.commit(marker(1))


def eventually(there: Callable[[], Any], wanted: Any) -> None:
    until = time.monotonic() + 60
    while (found := there()) != wanted:
        assert time.monotonic() < until, found
        time.sleep(0.01)


@pytest.fixture
def graphs(statements: psycopg.Connection) -> Callable[[], dict[str, bool]]:
    """Returns the names of the graphs, and whether each is complete."""
    return lambda: dict(statements.execute(_GRAPHS).fetchall())


@pytest.fixture
def large(index: Any, graphs: Callable[[], dict[str, bool]]) -> Any:
    """An index with one space of 2,000 passages that has a graph, and one of 200 that has none."""
    add(index, (*passages(directions(2_000)), *passages(directions(200, seed=2), first=5_000, space="theirs")))
    eventually(graphs, {name_of("ours"): True})
    return index


def names(index: Any, sought: IndexQuery, tail: Sequence[Delta] = ()) -> set[str]:
    pool = index.view().search(sought, tuple(tail)).pool
    return {pool.ids_of(row)[1] for row in range(len(pool.positions)) if pool.eligible[row]}


def near(vector: Any, **given: Any) -> IndexQuery:
    return IndexQuery((), vector=vector, **{"spaces": OURS, "max_candidates": 60, "reach": 0, **given})


@pytest.fixture
def by_graph(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that query a graph, as the server gets them."""
    return _record_statements(monkeypatch, "halfvec(")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that compare all vectors of spaces."""
    return _record_statements(monkeypatch, "v IS NOT NULL")


def _record_statements(monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    statements: list[str] = []
    send = Pipeline.send

    def sending(pipe: Pipeline, statement: str, *arguments: Any, **options: Any) -> Any:
        if words in statement:
            statements.append(_number_parameters(statement)[0].decode())
        return send(pipe, statement, *arguments, **options)

    monkeypatch.setattr(Pipeline, "send", sending)
    return statements


def plan(connection: psycopg.Connection, statement: str, settings: str = hnsw._SETTINGS) -> str:
    with connection.transaction():
        connection.execute(settings.encode())
        return "\n".join(line for (line,) in connection.execute(f"EXPLAIN (GENERIC_PLAN) {statement}".encode()))


# --- searching


def test_a_space_beyond_the_limit_is_searched_by_its_graph_and_no_other_is(large, exact, statements, by_graph):
    for vector in directions(3, seed=3):
        assert names(large, near(vector, spaces=BOTH)) == names(exact, near(vector, spaces=BOTH))
        names(large, near(vector, spaces=frozenset({"theirs"})))
    assert len(by_graph) == 3
    assert f"Index Scan using {name_of('ours')}" in plan(statements, by_graph[0])
    (made,) = statements.execute("SELECT pg_get_indexdef(to_regclass(%s))", (name_of("ours"),)).fetchone() or ("",)
    assert f"(space = '{signed_hash('ours')}'::bigint)" in made


def test_a_graph_is_used_also_where_the_database_would_rather_compare_all(index, graphs, statements, by_graph):
    add(index, passages(directions(ABOVE + 1), time=1))
    eventually(graphs, {name_of("ours"): True})
    statements.execute("VACUUM ANALYZE recall_passage, recall_posting")
    statements.execute("SET random_page_cost = 10000")
    vector = directions(1)[0]
    for query in (near(vector), near(vector, since=0, kinds=frozenset({"note"}))):
        names(index, query)
        assert f"Index Scan using {name_of('ours')}" in plan(statements, by_graph[-1])
    assert name_of("ours") not in plan(statements, by_graph[-1], settings="SELECT 1")


def test_what_a_graph_finds_is_nearly_always_the_nearest(large, exact, by_graph, compared):
    queries = [near(vector) for vector in directions(30, seed=3)]
    wanted = [names(exact, query) for query in queries]
    names(large, queries[0])
    compared.clear()
    found = [len(names(large, query) & nearest) / 60 for query, nearest in zip(queries, wanted, strict=True)]
    assert (len(by_graph), compared) == (31, [])
    assert np.mean(found) >= 0.95
    assert min(found) >= 0.8


@pytest.mark.parametrize(
    ("needle", "filters"),
    [
        ({"tags": ("red",)}, {"tags": ("red",)}),
        ({"kind": "fact"}, {"kinds": frozenset({"fact"})}),
        ({"time": 9_000}, {"since": 8_000}),
        ({"valid_from": -100}, {"as_of": -50}),
    ],
)
def test_what_a_filter_lets_through_is_found_behind_thousands_that_are_nearer(index, graphs, needle, filters, by_graph):
    vectors = directions(1_500)
    far = -vectors[0]
    add(index, (*passages(vectors), *passages([far], first=9_000, **needle)))
    eventually(graphs, {name_of("ours"): True})
    assert names(index, near(vectors[0], max_candidates=5, **filters)) == {memory_id(9_000)}
    assert bool(by_graph) is ("tags" not in filters)


def test_half_of_a_space_can_be_filtered_without_losing_neighbours(index, graphs, exact, by_graph, compared):
    vectors = directions(2_000)
    kinds = ("note", "fact")
    add(index, [one._replace(kind=kinds[at % 2]) for at, one in enumerate(passages(vectors))])
    eventually(graphs, {name_of("ours"): True})
    queries = [near(vector, kinds=frozenset({"fact"})) for vector in directions(10, seed=3)]
    wanted = [names(exact, one) for one in queries]
    names(index, queries[0])
    compared.clear()
    found = [len(names(index, one) & nearest) / 60 for one, nearest in zip(queries, wanted, strict=True)]
    assert (len(by_graph), compared) == (11, [])
    assert np.mean(found) >= 0.95


@pytest.mark.parametrize("left_out", [100, 1_700])
def test_behind_what_is_superseded_there_are_as_many_as_are_wanted(index, graphs, exact, left_out):
    vectors = directions(2_000)
    order = np.argsort(-(vectors @ vectors[0]) / np.linalg.norm(vectors, axis=1))
    gone = set(order[:left_out].tolist())
    add(index, [one._replace(superseded=1) if at in gone else one for at, one in enumerate(passages(vectors))])
    eventually(graphs, {name_of("ours"): True})
    query = near(vectors[0])
    assert len(names(index, query)) == 60
    assert len(names(index, query) & names(exact, query)) >= 57


def test_what_a_tail_replaces_takes_nobodys_place(large, exact):
    vectors = directions(2_000)
    query = near(vectors[0])
    replaced = names(exact, near(vectors[0], max_candidates=300))
    tail = [Delta((), frozenset(replaced))]
    found = names(large, query, tail)
    assert len(found) == 60
    assert found.isdisjoint(replaced)
    assert len(found & names(exact, query, tail)) >= 57


def test_the_nearest_of_a_graph_and_of_other_spaces_are_chosen_together(large, exact):
    for vector in (*directions(5, seed=2), *directions(5)):
        query = near(vector, spaces=BOTH, max_candidates=30)
        assert answer(large.view().search(query, ()), query) == answer(exact.view().search(query, ()), query)


def test_what_other_spaces_hold_changes_nothing_to_the_last_digit(large, graphs):
    queries = [near(vector, max_candidates=20) for vector in directions(10, seed=3)]
    before = [answer(large.view().search(one, ()), one) for one in queries]
    others = passages(directions(900), first=20_000, space="theirs")
    add(large, (*others, *passages(directions(50), first=30_000, space="other")))
    eventually(graphs, {name_of("ours"): True, name_of("theirs"): True})
    assert [answer(large.view().search(one, ()), one) for one in queries] == before
    add(large, (), frozenset(one.owner for one in others))
    assert [answer(large.view().search(one, ()), one) for one in queries] == before


def test_a_graph_search_leaves_no_setting_and_no_prepared_statement_behind(large, place):
    lasting = "SELECT current_setting('enable_sort'), current_setting('jit'), current_setting('hnsw.ef_search')"
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("LOAD 'vector'")
        before = connection.execute(lasting).fetchone()
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        with Pipeline(connection) as pipe:
            search = hnsw.NearestSearch
            query = hnsw.GraphQuery(
                {"vector": str(directions(1)[0].tolist()), "embedder": "made up"}, "v", DIMENSIONS, "true", "", 60
            )
            prepared = []
            for _ in range(3):
                assert (
                    len(search(pipe, query, [signed_hash("ours")], (), lambda _: pytest.fail("not by graph")).rows())
                    == 60
                )
                prepared.append(len(pipe._prepared_names))
        assert connection.execute(lasting).fetchone() == before
        assert prepared == [4, 4, 4]


def test_vectors_too_long_for_an_index_row_have_a_graph_as_well(index, graphs, exact, by_graph):
    vectors = directions(400, dimensions=1_500)
    add(index, passages(vectors))
    eventually(graphs, {name_of("ours", 1_500): True})
    assert memory_id(8) in names(index, near(vectors[7]))
    assert len(names(index, near(vectors[7])) & names(exact, near(vectors[7]))) >= 57
    assert by_graph


def test_vectors_that_no_graph_can_hold_are_compared(index, graphs, by_graph):
    vectors = directions(ABOVE + 1, dimensions=4_001)
    add(index, passages(vectors))
    assert memory_id(8) in names(index, near(vectors[7]))
    assert (graphs(), by_graph) == ({}, [])


# --- building and dropping


@contextmanager
def reader(place: str) -> Iterator[None]:
    """Hold a snapshot of the database: meanwhile no graph can be completed."""
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1")
        yield
        connection.execute("ROLLBACK")


def builders(statements: psycopg.Connection) -> int:
    return len(statements.execute(_BUILDERS).fetchall())


def test_while_a_graph_is_made_everybody_reads_and_writes_and_all_vectors_are_compared(
    index, place, statements, graphs, exact
):
    vectors = directions(400)
    with reader(place):
        add(index, passages(vectors))
        eventually(graphs, {name_of("ours"): False})
        assert names(index, near(vectors[0])) == names(exact, near(vectors[0]))
        add(index, passages(directions(20, seed=4), first=7_000), frozenset({memory_id(1)}))
        found = names(index, near(vectors[0]))
        assert memory_id(1) not in found
        assert found == names(exact, near(vectors[0]))
    eventually(graphs, {name_of("ours"): True})
    assert memory_id(7_003) in names(index, near(directions(20, seed=4)[3]))
    assert memory_id(1) not in names(index, near(vectors[0]))


def test_a_graph_that_somebody_left_half_made_is_made_anew(index, place, statements, graphs, exact, by_graph):
    vectors = directions(400)
    with reader(place):
        add(index, passages(vectors))
        eventually(graphs, {name_of("ours"): False})
        statements.execute(f"SELECT pg_terminate_backend(pid) FROM ({_BUILDERS}) b")
        eventually(lambda: builders(statements), 0)
    assert graphs() == {name_of("ours"): False}
    assert names(index, near(vectors[0])) == names(exact, near(vectors[0]))
    assert by_graph == []
    add(opened(place, graph_above=ABOVE), passages(directions(1, seed=4), first=7_000))
    eventually(graphs, {name_of("ours"): True})


def test_two_processes_that_write_at_once_make_one_graph_and_neither_fails(exact, place, statements, graphs):
    """Short timeouts in the address break nothing off either."""
    add(exact, passages(directions(400)))
    program = (
        "import sys, time; from tests.support.index_worlds import *\n"
        "from tests.engines.postgres.test_hnsw import add, passages\n"
        "index = opened(sys.argv[1], graph_above=300); print('ready', flush=True); sys.stdin.readline()\n"
        "add(index, [entry(int(sys.argv[2]), vector=np.ones(48, np.float32))])\n"
        "graphs = index._resources.graphs; graphs._worker and graphs._worker.join(); print(graphs._not_before)"
    )
    hasty = place.replace("options=", "options=-cstatement_timeout%3D300%20-clock_timeout%3D200%20")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, hasty, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[3],
            env=environment(),
            text=True,
        )
        for number in (8_001, 8_002)
    ]
    try:
        for child in children:
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
        with reader(place):
            for child in children:
                assert child.stdin
                child.stdin.write("go\n")
                child.stdin.flush()
            eventually(graphs, {name_of("ours"): False})
            # If both have begun, the database ends one of them by its deadlock detection meanwhile.
            time.sleep(1.2)
        assert [child.communicate(timeout=60)[0] for child in children] == ["0.0\n", "0.0\n"]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    eventually(graphs, {name_of("ours"): True})
    assert builders(statements) == 0


def test_a_process_that_ends_leaves_a_graph_to_the_server(place, graphs, exact):
    add(exact, passages(directions(400)))
    program = (
        "import sys; from tests.support.index_worlds import *; from tests.engines.postgres.test_hnsw import *\n"
        "index = opened(sys.argv[1], graph_above=300); add(index, [entry(8_000)])\n"
        "there = lambda: len(psycopg.connect(sys.argv[1], autocommit=True).execute(hnsw._GRAPH_NAMES).fetchall())\n"
        "eventually(there, 1)\n"
    )
    with reader(place):
        subprocess.run(
            [sys.executable, "-c", program, place],
            cwd=Path(__file__).resolve().parents[3],
            env=environment(),
            check=True,
            timeout=120,
        )
        assert graphs() == {name_of("ours"): False}
    eventually(graphs, {name_of("ours"): True})


def test_a_graph_is_dropped_when_its_space_has_shrunk_to_half_of_the_limit(large, place, graphs, exact):
    vectors = directions(2_000)
    add(large, (), frozenset(memory_id(number) for number in range(200, 2_001)))
    assert names(large, near(vectors[0])) == names(exact, near(vectors[0]))
    eventually(lambda: graphs().keys() & {name_of("ours")} == set() or _tended(large), True)
    add(large, (), frozenset(memory_id(number) for number in range(140, 200)))
    eventually(graphs, {})
    assert names(large, near(vectors[0])) == names(exact, near(vectors[0]))


def _tended(index: Any) -> bool:
    worker = index._resources.graphs._worker
    return worker is None or not worker.is_alive()


def test_between_half_of_the_limit_and_all_of_it_a_graph_stays(large, graphs):
    add(large, (), frozenset(memory_id(number) for number in range(201, 2_001)))
    eventually(lambda: _tended(large), True)
    assert graphs() == {name_of("ours"): True}


def test_another_limit_drops_and_makes_graphs_at_the_next_write(large, place, graphs, exact, by_graph):
    query = near(directions(1)[0], spaces=BOTH)
    names(large, query)
    add(exact, [entry(8_000)])
    eventually(graphs, {})
    by_graph.clear()
    # A process that does not know yet that it is gone compares all vectors.
    assert names(large, query) == names(exact, query)
    assert names(large, query) == names(exact, query)
    assert len(by_graph) == 1
    lower: Any = opened(place, graph_above=150)
    add(lower, [entry(8_001)])
    eventually(graphs, {name_of("ours"): True, name_of("theirs"): True})


def test_an_index_made_anew_with_other_vectors_has_a_graph_of_them(large, statements, graphs, exact):
    vectors = directions(400, dimensions=64)
    with large.writing(wait=60) as writer:
        writer.clear()
        assert graphs() == {}, "new rows would be put into it one by one"
        writer.add(Delta(passages(vectors)))
        writer.commit(marker(1))
    eventually(graphs, {name_of("ours", 64): True})
    assert names(large, near(vectors[0])) == names(exact, near(vectors[0]))
    assert large.damage() == []


def test_making_the_index_anew_does_not_wait_for_a_graph_that_is_being_made(index, place, statements, graphs):
    with reader(place):
        add(index, passages(directions(400)))
        eventually(graphs, {name_of("ours"): False})
        begun = time.monotonic()
        add(index, passages(directions(350, seed=5)), anew=True)
        statements.execute("UPDATE recall_index SET format = 0")
        add(opened(place, graph_above=0), passages(directions(350, seed=5)))
        assert time.monotonic() - begun < 50
    assert graphs() == {}


def test_at_most_a_hundred_spaces_have_graphs_and_what_is_not_whole_is_of_no_use():
    large, whole = list(range(200)), [hnsw._graph_name(space, 8) for space in range(150, 300)]
    due = _plan(8, large, list(range(250)), [*whole, "recall_graph_x"], whole)
    assert due.drop == [*whole[100:], "recall_graph_x"]
    assert due.build == []
    due = _plan(8, large, large, whole[:3], whole[:2])
    assert (due.drop, due.build) == (whole[2:3], [*range(98)])


def test_a_process_that_failed_to_make_a_graph_rests_a_while(index, statements, graphs):
    add(index, [entry(1, vector=directions(1)[0])])
    name = name_of("ours")
    statements.execute(f"CREATE TABLE {name} (x int)")
    add(index, passages(directions(400)))
    eventually(lambda: _tended(index), True)
    assert index._resources.graphs._not_before > time.monotonic() + 60
    statements.execute(f"DROP TABLE {name}")
    add(index, [entry(8_000)])
    assert graphs() == {}
    index._resources.graphs._not_before = 0.0
    add(index, [entry(8_001)])
    eventually(graphs, {name: True})


# --- through the book


def test_a_book_with_a_large_space_is_recalled_by_a_graph_and_reindexed(postgres_book, monkeypatch, by_graph):
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    monkeypatch.setenv("COMMONBOOK_GRAPH_ABOVE", "100")
    words = ("harbour", "lantern", "orchard", "violin", "glacier", "saddle", "pepper", "window", "thunder", "ribbon")
    drafts = [
        Draft(f"The {words[at % 10]} of the {words[at // 10 % 10]} is number {at}.", space="large") for at in range(150)
    ]
    with commonbook.open(address) as book, psycopg.connect(address, autocommit=True) as connection:

        def whole() -> list[bool]:
            return [valid for _, valid in connection.execute(_GRAPHS).fetchall()]

        def hits() -> list[tuple[str, float]]:
            return [(hit.id, hit.score) for hit in book.recall("violin in the harbour", spaces="large").hits]

        book.remember_many(drafts)
        before = hits()
        eventually(whole, [True])
        for _ in range(4):
            assert hits() == before
        assert len(by_graph) >= 2
        book.reindex(anew=True)
        eventually(whole, [True])
        assert hits() == before
        assert not book.doctor()
