"""The vector index of one space on PostgreSQL: made and dropped by a person, and searches use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import psycopg
import pytest

import commonbook
from commonbook.errors import BadInput
from commonbook.interfaces.cli.main import main
from commonbook.ports.index import Delta, IndexedPassage, IndexQuery
from commonbook.values.memory import Draft
from commonbook.values.reports import no_progress
from tests.support.crowds import until
from tests.support.index_worlds import entry, hang_up, marker, memory_id, opened

pytestmark = pytest.mark.promise("recall.vector-index")

DIMENSIONS = 48
OURS = frozenset({"ours"})
BOTH = frozenset({"ours", "theirs"})
_NUMBERS = count()
_NAMES_HERE = """
    SELECT relname FROM pg_class WHERE starts_with(relname::text, 'recall_vectors')
      AND relnamespace = current_schema()::regnamespace
"""


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    yield
    hang_up()


@pytest.fixture
def place(postgres_database: str) -> str:
    """The address of an index that nobody has made yet, in a schema of its own."""
    name = f"vectors_{next(_NUMBERS)}"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres_database}&options=-csearch_path%3D{name},public"


def directions(number: int, *, seed: int = 1, dimensions: int = DIMENSIONS) -> Any:
    """Return vectors as texts have them: around some subjects, none quite like another."""
    dice = np.random.default_rng(seed)
    subjects = np.random.default_rng(7).standard_normal((40, dimensions))
    near = subjects[dice.integers(0, len(subjects), number)] + 0.8 * dice.standard_normal((number, dimensions))
    return near.astype(np.float32)


def passages(vectors: Any, *, first: int = 1, **given: Any) -> tuple[IndexedPassage, ...]:
    return tuple(entry(first + at, vector=vector, **given) for at, vector in enumerate(vectors))


def add(
    index: Any, entries: Sequence[IndexedPassage], gone: frozenset[str] = frozenset(), *, anew: bool = False
) -> None:
    with index.writing(wait=60) as writer:
        if anew:
            writer.clear()
        writer.add(Delta(tuple(entries), gone))
        writer.commit(marker(1))


@pytest.fixture
def index(place: str) -> Any:
    """An index with a space of 2,000 passages and one of 200; neither has a vector index yet."""
    index = opened(place)
    add(index, (*passages(directions(2_000)), *passages(directions(200, seed=2), first=5_000, space="theirs")))
    return index


@pytest.fixture
def by_index(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The searches that use a vector index."""
    return _record(monkeypatch, "halfvec(")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The spaces whose vectors are all compared, search by search."""
    return _record(monkeypatch, "v IS NOT NULL")


def _record(monkeypatch: pytest.MonkeyPatch, words: str) -> list[str]:
    found: list[str] = []
    execute = psycopg.Connection.execute

    def executing(connection: Any, statement: Any, params: Any = None, **options: Any) -> Any:
        if words in statement and params and params.get("spaces") != "{}":
            found.append(params["spaces"])
        return execute(connection, statement, params, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", executing)
    return found


def near(vector: Any, **given: Any) -> IndexQuery:
    return IndexQuery((), vector=vector, **{"spaces": OURS, "max_candidates": 60, "reach": 0, **given})


def names(index: Any, query: IndexQuery, pending: Sequence[Delta] = ()) -> set[str]:
    pool = index.view().search(query, tuple(pending)).pool
    return {pool.ids_of(row)[1] for row in range(len(pool.positions)) if pool.eligible[row]}


def test_a_space_is_searched_by_its_vector_index_until_that_is_dropped(index, place, by_index):
    queries = [near(vector, spaces=BOTH) for vector in directions(10, seed=3)]
    exact = [names(index, query) for query in queries]
    assert by_index == []
    seen: list[int] = []
    index.make_vector_index("ours", lambda _what, done, _total: seen.append(done))
    assert seen
    # Another server learns of it by itself.
    other = opened(place)
    for searched in (index, other):
        shares = [len(names(searched, query) & wanted) / 60 for query, wanted in zip(queries, exact, strict=True)]
        assert np.mean(shares) >= 0.95
    assert len(by_index) == 20
    index.drop_vector_index("ours")
    assert [names(other, query) for query in queries] == exact
    with psycopg.connect(place, autocommit=True) as connection:
        assert connection.execute(_NAMES_HERE).fetchall() == []


def test_the_database_uses_the_index_of_the_space(index, place):
    index.make_vector_index("ours", no_progress)
    names(index, near(directions(1)[0]))
    names(index, near(directions(1)[0], since=0, kinds=frozenset({"note"})))
    # The statistics are complete when the connections have ended.
    hang_up()
    with psycopg.connect(place, autocommit=True) as connection:
        scans = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelid = to_regclass(%s)"
        ((name,),) = connection.execute(_NAMES_HERE).fetchall()
        until(lambda: connection.execute(scans, (name,)).fetchone() == (2,))


@pytest.mark.parametrize(
    ("needle", "filters"),
    [
        ({"tags": ("red",)}, {"tags": ("red",)}),
        ({"kind": "fact"}, {"kinds": frozenset({"fact"})}),
        ({"time": 9_000}, {"since": 8_000}),
        ({"valid_from": -100}, {"as_of": -50}),
    ],
)
def test_what_a_filter_lets_through_is_found_behind_thousands_that_are_nearer(index, needle, filters):
    vectors = directions(2_000)
    add(index, passages([-vectors[0]], first=9_000, **needle))
    index.make_vector_index("ours", no_progress)
    assert names(index, near(vectors[0], max_candidates=5, **filters)) == {memory_id(9_000)}


def test_what_is_pending_and_replaced_takes_nobodys_place(index):
    vectors = directions(2_000)
    pending = [Delta((), frozenset(names(index, near(vectors[0], max_candidates=300))))]
    exact = names(index, near(vectors[0]), pending)
    index.make_vector_index("ours", no_progress)
    found = names(index, near(vectors[0]), pending)
    assert len(found) == 60
    assert len(found & exact) >= 57


def test_an_index_made_anew_has_no_vector_index_of_before(index, compared):
    index.make_vector_index("ours", no_progress)
    vectors = directions(400, dimensions=64)
    add(index, passages(vectors), anew=True)
    compared.clear()
    assert memory_id(8) in names(index, near(vectors[7]))
    assert len(compared) == 1
    index.make_vector_index("ours", no_progress)
    index.make_vector_index("ours", no_progress)
    assert memory_id(8) in names(index, near(vectors[7]))
    assert index.damage() == []


@pytest.mark.parametrize("dimensions", [1_500, 4_001])
def test_vectors_of_any_length_are_found(place, dimensions):
    index: Any = opened(place)
    vectors = directions(300, dimensions=dimensions)
    add(index, passages(vectors))
    if dimensions > 4_000:
        with pytest.raises(BadInput, match="cannot be indexed"):
            index.make_vector_index("ours", no_progress)
    else:
        index.make_vector_index("ours", no_progress)
    assert memory_id(8) in names(index, near(vectors[7]))


def test_a_person_makes_and_drops_a_vector_index(postgres_book, monkeypatch):
    address, keys = postgres_book
    monkeypatch.setenv("COMMONBOOK_KEYS", keys)
    monkeypatch.setenv("COMMONBOOK_DATABASE", address)
    words = ("harbour", "lantern", "orchard", "violin", "glacier", "saddle", "pepper", "window", "thunder", "ribbon")
    drafts = [
        Draft(f"The {words[at % 10]} of the {words[at // 10 % 10]} is number {at}.", space="large") for at in range(150)
    ]
    with commonbook.open(address) as book:

        def hits() -> list[tuple[str, float]]:
            return [(hit.id, hit.score) for hit in book.recall("violin in the harbour", spaces="large").hits]

        book.remember_many(drafts)
        before = hits()
        assert main(["database", "index", "large"]) == 0
        assert hits() == before
        assert main(["database", "index", "large", "--drop"]) == 0
        assert hits() == before
        assert not book.doctor()
