"""The index stores the norms of vectors that are pooled with their neighbours', where the query sees all of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonbook.engines.index.segments import POSITION_BITS, hash_text
from commonbook.ports.index import CandidatePool, Delta, IndexedPassage, IndexQuery
from commonbook.recall import neighbours, scoring
from tests.support.index_worlds import WORDS, Laid, Maker, entry, laid_out, memory_id, vector

_settings = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
APPLES = IndexQuery(terms=("apple",), vector=vector(1, 2), spaces=frozenset({"ours"}), reach=neighbours.REACH)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # How durable an index is does not matter here, and takes long.
    monkeypatch.setattr("os.fsync", lambda _fd: None)
    return tmp_path


def computed(pool: CandidatePool) -> Any:
    """Return the squared norms of pooled vectors as ranking computes them from the pool alone."""
    assert pool.vectors is not None
    assert pool.scales is not None
    slots = neighbours.slots_of(pool.threads, pool.positions)
    return neighbours.pooled_squares(pool.vectors, pool.scales.astype(np.float64), slots)


def talk(*positions: int, number: int = 1, owners: bool = False, **more: Any) -> list[IndexedPassage]:
    """Return the messages of one thread, with a vector each; with `owners`, each can be deleted by itself."""
    return [
        entry(
            number + at * owners,
            position=position,
            passage=f"message {number} {position}",
            thread=f"talk {number}",
            terms={"apple": 1},
            vector=vector(1 + position % 3, 1, position % 2),
            **more,
        )
        for at, position in enumerate(positions)
    ]


def known_positions(laid: Laid, query: IndexQuery = APPLES) -> list[int]:
    """Return the positions of the rows whose norm the index knows."""
    pool = laid.search(query).pool
    assert pool.squares is not None
    known = ~np.isnan(pool.squares)
    np.testing.assert_allclose(pool.squares[known], computed(pool)[known], rtol=1e-12)
    return sorted(pool.positions[known].tolist())


def pool_of(seed: int, laid: Laid) -> CandidatePool:
    query = Maker(seed).sought(terms=(WORDS[seed % len(WORDS)],), vector=vector(1, 2, 3), reach=neighbours.REACH)
    return laid.search(query).pool


@_settings
@given(
    seed=st.integers(0, 10**9),
    owners=st.integers(1, 25),
    steps=st.sampled_from([1, 3, 10]),
    unwritten=st.sampled_from([0, 1, 3]),
)
def test_a_known_norm_is_what_the_pool_gives_in_any_layout(folder, seed, owners, steps, unwritten):
    maker = Maker(seed)
    layers = maker.history(maker.world(owners), steps)
    pool = pool_of(seed, laid_out(folder, layers, unwritten=min(unwritten, steps)))
    assert pool.squares is not None
    known = pool.eligible & ~np.isnan(pool.squares)
    np.testing.assert_allclose(pool.squares[known], computed(pool)[known], rtol=1e-12)


@_settings
@given(seed=st.integers(0, 10**9), owners=st.integers(1, 25), unwritten=st.sampled_from([0, 1, 3]))
def test_scores_are_the_same_with_and_without_stored_norms(folder, seed, owners, unwritten):
    maker = Maker(seed)
    pool = pool_of(seed, laid_out(folder, maker.history(maker.world(owners), 3), unwritten=unwritten))
    query = scoring.QueryFeatures(idf=[1.0], vector=vector(1, 2, 3))
    rows, scores = scoring.rank(query, pool)
    others, without = scoring.rank(query, pool._replace(squares=None))
    assert rows.tolist() == others.tolist()
    assert scores.total[pool.eligible].tolist() == without.total[pool.eligible].tolist()


def test_where_nothing_has_changed_every_norm_is_known(folder):
    passages = [*talk(*range(12)), *talk(3, number=50), *talk(0, 4, 9, number=70)]
    assert len(known_positions(laid_out(folder, [Delta(tuple(passages))]))) == len(passages)


def test_a_norm_is_unknown_near_a_deleted_passage(folder):
    layers = [Delta(tuple(talk(*range(12), owners=True))), Delta((), frozenset({memory_id(1 + 6)}))]
    assert known_positions(laid_out(folder, layers)) == [0, 1, 11]


def test_a_norm_is_unknown_near_a_passage_of_a_space_that_is_not_searched(folder):
    passages = [*talk(*range(6)), *talk(*range(6, 12), space="theirs")]
    laid = laid_out(folder, [Delta(tuple(passages))])
    assert known_positions(laid) == [0, 1]
    both = frozenset({"ours", "theirs"})
    assert known_positions(laid, APPLES._replace(spaces=both)) == list(range(12))


def test_a_norm_is_unknown_where_the_thread_goes_on_in_another_segment(folder):
    written = Delta((*talk(*range(6)), *talk(*range(20, 24), number=50)))
    further = [message._replace(thread="talk 1") for message in talk(*range(6, 9), number=90)]
    for unwritten in (0, 1):
        laid = laid_out(folder, [written, Delta(tuple(further))], unwritten=unwritten)
        # The messages of the other talk have no neighbours but those that the index has known together.
        assert known_positions(laid) == [20, 21, 22, 23]


def test_two_threads_whose_hashes_begin_alike_have_no_norms_where_their_rows_alternate(folder):
    """Rows are sorted by the first bits of the hash of their thread, and then by position."""
    threads = [memory_id(0x000F2292), memory_id(0x001125CE)]
    assert len({hash_text(thread) >> POSITION_BITS for thread in threads}) == 1, "their hashes no longer begin alike"
    twins = [message._replace(thread=thread) for thread in threads for message in talk(*range(6))]
    apart = [message._replace(thread=threads[0]) for message in talk(*range(20, 22), number=90)]
    assert known_positions(laid_out(folder, [Delta((*twins, *talk(*range(40, 43), number=50)))])) == [40, 41, 42]
    single = [twins[0], *(message._replace(thread=threads[1]) for message in talk(*range(10, 13), number=70)), *apart]
    # The second thread lies between two parts of the first: its own rows lie together.
    assert known_positions(laid_out(folder, [Delta(tuple(single))])) == [10, 11, 12]


def test_near_two_rows_of_one_position_no_norm_is_told():
    vectors = np.ones((30, 8), np.int8)
    positions = np.array([*range(15), 14, *range(15, 29)])
    squares = neighbours.squares_of_rows(vectors, np.ones(30, np.float32), np.zeros(30, np.uint64), positions)
    assert np.flatnonzero(np.isnan(squares)).tolist() == list(range(14 - 8, 14 + 10))


def test_of_rows_that_are_not_sorted_no_norm_is_told():
    vectors, threads = np.ones((4, 8), np.int8), np.zeros(4, np.uint64)
    assert np.isnan(neighbours.squares_of_rows(vectors, np.ones(4, np.float32), threads, np.array([0, 2, 1, 3]))).all()


@pytest.mark.parametrize("at_once", [5, 7, 4096])
def test_norms_do_not_depend_on_how_many_rows_are_pooled_at_once(monkeypatch, at_once):
    dice = np.random.default_rng(1)
    vectors, scales = dice.integers(-127, 128, (60, 16)).astype(np.int8), dice.random(60).astype(np.float32)
    threads = np.sort(dice.integers(0, 6, 60)).astype(np.uint64) * 2**60
    positions = np.concatenate(
        [np.cumsum(dice.integers(1, 7, int((threads == one).sum()))) for one in np.unique(threads)]
    )
    whole = neighbours.pooled_squares(
        vectors, scales.astype(np.float64), neighbours.slots_of((threads // 2**60).astype(np.int64), positions)
    )
    monkeypatch.setattr(neighbours, "_ROWS_AT_ONCE", at_once)
    np.testing.assert_allclose(neighbours.squares_of_rows(vectors, scales, threads, positions), whole, rtol=1e-12)
