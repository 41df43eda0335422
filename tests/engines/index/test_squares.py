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
from commonbook.subjects.recall import scoring
from tests.support.index_worlds import WORDS, Laid, Maker, entry, laid_out, memory_id, vector

_settings = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
APPLES = IndexQuery(terms=("apple",), vector=vector(1, 2), spaces=frozenset({"ours"}), reach=scoring.REACH)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # How durable an index is does not matter here, and takes long.
    monkeypatch.setattr("os.fsync", lambda _fd: None)
    return tmp_path


def computed(pool: CandidatePool) -> Any:
    """Return the squared norms of pooled vectors as ranking computes them from the pool alone."""
    assert pool.vectors is not None
    assert pool.scales is not None
    slots = scoring.slots_of(pool.threads, pool.positions)
    return scoring.pooled_squares(pool.vectors, pool.scales.astype(np.float64), slots)


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
    query = Maker(seed).sought(terms=(WORDS[seed % len(WORDS)],), vector=vector(1, 2, 3), reach=scoring.REACH)
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


@pytest.mark.parametrize("at_once", [5, 7, 4096])
def test_norms_do_not_depend_on_how_many_rows_are_pooled_at_once(monkeypatch, at_once):
    dice = np.random.default_rng(1)
    vectors, scales = dice.integers(-127, 128, (60, 16)).astype(np.int8), dice.random(60).astype(np.float32)
    threads = np.sort(dice.integers(0, 6, 60)).astype(np.uint64) * 2**60
    positions = np.concatenate(
        [np.cumsum(dice.integers(1, 7, int((threads == one).sum()))) for one in np.unique(threads)]
    )
    whole = scoring.pooled_squares(
        vectors, scales.astype(np.float64), scoring.slots_of((threads // 2**60).astype(np.int64), positions)
    )
    monkeypatch.setattr(scoring, "_ROWS_AT_ONCE", at_once)
    np.testing.assert_allclose(scoring.squares_of_rows(vectors, scales, threads, positions), whole, rtol=1e-12)
