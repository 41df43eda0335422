"""Segments and their search, against a model in plain Python: the layout of passages must never matter."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commonbook.engines.index import array_files, mapped_index, postings, segments
from commonbook.engines.index import search as index_search
from commonbook.engines.index.search import Part, search
from commonbook.engines.index.segments import (
    Segment,
    build,
    hash_text,
    merge,
    quantise,
    sketch,
    tag_term,
    tie_break_of,
    with_zero_vectors,
)
from commonbook.ports.index import FOREVER, HAS_DECISIONS, IS_COPY, IS_MESSAGE, Delta, IndexedPassage, IndexQuery
from commonbook.values.memory import KINDS
from tests.support.index_worlds import (
    DIMENSIONS,
    MARKER,
    NOWHERE,
    SPACES,
    WORDS,
    Answer,
    Laid,
    Maker,
    answer,
    entry,
    expected,
    laid_out,
    memory_id,
    order_of,
    same_places,
    vector,
)

pytestmark = pytest.mark.promise("recall.spaces")

ALL = frozenset(SPACES)
Lay = Callable[..., Laid]
NOBODY = np.zeros(0, np.uint64)
_settings = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def lay(tmp_path, monkeypatch) -> Lay:
    """Lay out changes as an index; how durable that is does not matter here, and takes long."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    folder = tmp_path / "indexes"
    folder.mkdir()

    def lay_out(layers: Sequence[Delta], unwritten: int = 0) -> Laid:
        return laid_out(folder, layers, unwritten=unwritten)

    return lay_out


def _spread(entries: Sequence[IndexedPassage], pieces: int = 1, seed: int = 0) -> list[Delta]:
    """Spread entries, owner by owner, over so many layers."""
    dice = random.Random(seed)
    held: list[list[IndexedPassage]] = [[] for _ in range(pieces)]
    where: dict[str, int] = {}
    for one in entries:
        held[where.setdefault(one.owner, dice.randrange(pieces))].append(one)
    return [Delta(tuple(some)) for some in held]


def _found(laid: Laid, sought: IndexQuery) -> Answer:
    return answer(laid.search(sought), sought)


def _check(found: Answer, wanted: Answer) -> None:
    assert (found.total, found.document_frequencies) == (wanted.total, wanted.document_frequencies)
    assert found.rows - wanted.rows == Counter(), "rows that should not be there, or are there otherwise"
    assert wanted.rows - found.rows == Counter(), "rows that are missing"
    assert same_places(found.places, wanted.places)


# --- a search finds what the model finds, however the passages are laid out


@_settings
@given(seed=st.integers(0, 10**9), owners=st.integers(0, 40))
def test_a_search_finds_what_a_look_at_every_passage_finds(lay, seed, owners):
    maker = Maker(seed)
    entries = [one for passages in maker.world(owners).values() for one in passages]
    parts = lay(_spread(entries))
    for _ in range(4):
        sought = maker.sought()
        _check(_found(parts, sought), expected(entries, sought))
        newest = maker.sought(terms=(), expansion_terms=(), vector=None, newest=True)
        _check(_found(parts, newest), expected(entries, newest))


@pytest.mark.slow
@_settings
@given(
    seed=st.integers(0, 10**9),
    owners=st.integers(0, 25),
    steps=st.sampled_from([1, 3, 10]),
    few=st.sampled_from([2, 3, 100]),
    unwritten=st.sampled_from([0, 1, 3]),
)
def test_neither_segments_nor_merges_nor_a_tail_change_what_is_found(
    lay, monkeypatch, seed, owners, steps, few, unwritten
):
    maker = Maker(seed)
    world = maker.world(owners)
    entries = [one for passages in world.values() for one in passages]
    monkeypatch.setattr(mapped_index, "_MERGE_FACTOR", few)
    monkeypatch.setattr(index_search, "_MAX_SEPARATE_DELTAS", few)
    monkeypatch.setattr(mapped_index, "_SMALLEST_TIER_ROWS", maker.dice.choice((1, 4, 256)))
    parts = lay(maker.history(world, steps), unwritten=min(unwritten, steps))
    whole = lay(_spread(entries))
    newest = {"terms": (), "expansion_terms": (), "vector": None, "newest": True}
    for given_ in ({}, {}, {}, newest):
        sought = maker.sought(**given_)
        found = _found(parts, sought)
        _check(found, expected(entries, sought))
        assert found == _found(whole, sought), "not to the last bit, or not in the same order"


@pytest.mark.slow
@_settings
@given(seed=st.integers(0, 10**9), owners=st.integers(1, 25), steps=st.sampled_from([1, 3]))
def test_what_the_asked_spaces_do_not_hold_changes_nothing(lay, seed, owners, steps):
    maker = Maker(seed)
    world = maker.world(owners)
    ours = {owner: passages for owner, passages in world.items() if passages[0].space == "ours"}
    mixed, alone = lay(maker.history(world, steps)), lay(maker.history(ours, steps))
    for _ in range(3):
        sought = maker.sought(spaces=frozenset({"ours"}))
        assert _found(mixed, sought) == _found(alone, sought)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_of_many_equal_matches_the_newest_are_the_candidates_in_any_layout(lay, steps):
    maker = Maker(steps)
    near = maker.directions[0]
    entries = [
        entry(
            number,
            position=position,
            terms={"apple": 1, **({"brook": 1} if number % 2 else {})},
            vector=near if number % 5 else maker.directions[number % 3],
        )
        for number in range(1, 701)
        for position in (0, 50)
    ]
    world = {memory_id(number): tuple(entries[2 * number - 2 : 2 * number]) for number in range(1, 701)}
    parts = lay(maker.history(world, steps))
    for terms, query_vector, first in (
        (("apple",), None, 50),
        (("apple", "brook"), None, 51),
        (("brook", "cedar"), near, 333),
        ((), near, 50),
        (("apple",), -near, 1000),
    ):
        sought = IndexQuery(terms, vector=query_vector, spaces=ALL, max_candidates=first, reach=4)
        _check(_found(parts, sought), expected(entries, sought))
    newest = _found(parts, IndexQuery(("apple",), spaces=ALL, max_candidates=3, reach=0))
    assert {row[0] for row in newest.rows} == {
        f"{memory_id(700)}#0",
        f"{memory_id(700)}#50",
        f"{memory_id(699)}#0",
    }


def test_the_nearest_by_vector_are_found_among_more_than_a_first_look_keeps(lay):
    dice = np.random.default_rng(7)
    vectors = dice.standard_normal((1_500, DIMENSIONS)).astype(np.float32)
    entries = [entry(number, vector=vectors[number]) for number in range(1_500)]
    for steps in (1, 10):
        parts = lay(_spread(entries, steps))
        for target in (3, 700, 1_499):
            sought = IndexQuery((), vector=vectors[target], spaces=ALL, max_candidates=20, reach=0)
            found = _found(parts, sought)
            _check(found, expected(entries, sought))
            assert f"{memory_id(target)}#0" in {row[0] for row in found.rows}


_ZIPF = [f"word{rank}" for rank in range(60)]


def _by_frequency(dice: random.Random, count: int) -> list[str]:
    return dice.choices(_ZIPF, [1 / (rank + 1) for rank in range(len(_ZIPF))], k=count)


@pytest.mark.slow
@_settings
@given(seed=st.integers(0, 10**9), pieces=st.sampled_from([1, 3]), first=st.sampled_from([1, 4, 20]))
def test_common_words_that_need_not_be_read_change_no_candidate(lay, seed, pieces, first):
    dice = random.Random(seed)
    entries = [
        entry(number, position=part, terms=Counter(_by_frequency(dice, 6)))
        for number in range(150)
        for part in range(dice.choice([1, 1, 5]))
    ]
    laid = lay(_spread(entries, pieces, seed))
    for _ in range(4):
        terms = tuple(dict.fromkeys(_by_frequency(dice, 5)))
        sought = IndexQuery(terms=terms, spaces=ALL, max_candidates=first, reach=0, tags=())
        _check(_found(laid, sought), expected(entries, sought))


@pytest.mark.slow
@_settings
@given(seed=st.integers(0, 10**9), pieces=st.sampled_from([1, 3]))
def test_a_guess_where_the_first_pass_ends_changes_no_candidate(lay, monkeypatch, seed, pieces):
    dice = random.Random(seed)
    entries = [entry(number, vector=vector(*(dice.gauss(0, 1) for _ in range(DIMENSIONS)))) for number in range(600)]
    laid = lay(_spread(entries, pieces, seed))
    sought = IndexQuery(
        terms=(), vector=vector(*(dice.gauss(0, 1) for _ in range(DIMENSIONS))), spaces=ALL, max_candidates=10
    )
    with monkeypatch.context() as patched:
        patched.setattr(index_search, "_FIRST_PASS_ROWS", 100)
        found = []
        for guessed in (index_search._estimate_cutoff, lambda _distances, nowhere: nowhere - 1, lambda *_: 0):
            patched.setattr(index_search, "_estimate_cutoff", guessed)
            found.append(_found(laid, sought))
    assert found[0] == found[1] == found[2]


def test_a_nearest_passage_that_a_filter_leaves_out_takes_nobodys_place(lay):
    """Filters hold inside the search: the first look at sketches must not be filled by what may not be found."""
    near, far = vector(1, 1, 1), vector(-1, 1, 1, -1)
    entries = [entry(number, kind="notice", vector=near) for number in range(1_000)]
    entries += [entry(2_000 + number, vector=far, terms={"apple": 1}) for number in range(3)]
    parts = lay(_spread(entries, 3))
    sought = IndexQuery(
        ("apple",), vector=near, spaces=ALL, excluded_kinds=frozenset({"notice"}), max_candidates=5, reach=0
    )
    found = _found(parts, sought)
    assert {row[0] for row in found.rows} == {f"{memory_id(2_000 + number)}#0" for number in range(3)}
    # And yet they are counted: how rare a term is does not depend on the question.
    assert found.total == 1_003


@pytest.mark.slow
@_settings
@given(seed=st.integers(0, 10**9), spread=st.sampled_from([0.0, 0.02, 1.0]))
def test_rough_sums_leave_out_nobody_who_is_among_the_nearest(seed, spread):
    """Of hundreds of rows only some are compared to the last digit: many that hardly differ are the hardest."""
    dice = random.Random(seed)
    middle = [dice.gauss(0, 1) for _ in range(DIMENSIONS)]
    entries = [
        entry(number, position=0, vector=vector(*(one + dice.gauss(0, spread) for one in middle)))
        for number in range(400)
    ]
    part = Part(built := build(entries, killed=NOBODY, dimensions=DIMENSIONS), np.ones(400, np.bool_))
    query_vector = vector(*middle)
    sought = IndexQuery(terms=(), vector=query_vector, spaces=ALL, max_candidates=dice.choice([1, 7, 40]), reach=0)
    found = answer(search([part], sought, exactly=True), sought)
    cosines = index_search.cosines(built.vectors, query_vector)
    best = np.lexsort((built.thread, ~built.order, -cosines))[: sought.max_candidates]
    assert {row[0] for row in found.rows} == {built.passage(row) for row in best}


def test_a_long_memory_whose_parts_are_all_nearest_leaves_room_for_others_among_many():
    near, less = vector(1, 1, 1), vector(1, 1, 0.5)
    entries = [entry(1, position=at, vector=near) for at in range(300)]
    entries += [entry(2 + number, vector=less) for number in range(300)]
    built = build(entries, killed=NOBODY, dimensions=DIMENSIONS)
    sought = IndexQuery(terms=(), vector=near, spaces=ALL, max_candidates=10, reach=0)
    found = answer(search([Part(built, np.ones(600, np.bool_))], sought, exactly=True), sought)
    assert len({row[1] for row in found.rows}) == 1 + 10 - index_search.MAX_PARTS_PER_MEMORY


# --- of one memory a few parts


def _names(found: Answer) -> set[object]:
    return {row[0] for row in found.rows}


@pytest.mark.parametrize(
    "query", [IndexQuery(("apple",)), IndexQuery((), vector=vector(1, 1))], ids=["by words", "by vector"]
)
@pytest.mark.parametrize("pieces", [1, 5])
def test_a_long_memory_takes_nobodys_place(lay, query, pieces):
    """Three of its parts are candidates, however many would do; what else is there is found beside them."""
    entries = [entry(9, position=50 * at, terms={"apple": 1}, vector=vector(1, 1)) for at in range(500)]
    entries += [entry(number, terms={"apple": 1}, vector=vector(1, 1)) for number in range(1, 6)]
    sought = query._replace(spaces=ALL, max_candidates=8, reach=0)
    found = _found(lay(_spread(entries, pieces)), sought)
    _check(found, expected(entries, sought))
    assert _names(found) == {f"{memory_id(9)}#{at}" for at in (0, 50, 100)} | {
        f"{memory_id(number)}#0" for number in range(1, 6)
    }


def test_the_best_parts_of_a_memory_are_its_candidates(lay):
    terms = [{"apple": 1}, {"apple": 1, "brook": 1}, {"apple": 1}, {"apple": 1, "brook": 1}, {"apple": 1}]
    entries = [entry(1, position=50 * at, terms=term_counts) for at, term_counts in enumerate(terms)] + [entry(2)]
    found = _found(lay(_spread(entries)), IndexQuery(("apple", "brook"), spaces=ALL, reach=0))
    assert {row[4] for row in found.rows} == {0, 50, 150}


def test_every_message_of_a_talk_may_be_a_candidate(lay):
    entries = [entry(1, position=50 * at, terms={"apple": 1}, flags=IS_MESSAGE) for at in range(20)]
    assert len(_found(lay(_spread(entries)), IndexQuery(("apple",), spaces=ALL, reach=0)).rows) == 20


def test_parts_of_one_thread_are_a_few_also_when_they_lie_in_several_segments(lay):
    entries = [entry(number, thread="shared", position=50 * number, terms={"apple": 1}) for number in range(1, 9)]
    for pieces in (1, 3, 8):
        found = _found(lay(_spread(entries, pieces)), IndexQuery(("apple",), spaces=ALL, reach=0))
        assert _names(found) == {f"{memory_id(number)}#{50 * number}" for number in (6, 7, 8)}


@pytest.mark.parametrize("query", [IndexQuery(("apple", "brook", "cedar")), IndexQuery((), vector=vector(1))])
def test_parts_that_a_copy_in_another_segment_replaces_leave_their_places_to_others(lay, query):
    """One part of the copy comes before three of its root, which the first look took for candidates."""
    copy: dict[str, Any] = {"space": "theirs", "root": memory_id(9), "wording": "same", "flags": IS_COPY}
    best, good, fair, poor = (
        {"terms": dict.fromkeys(terms, 1), "vector": vector(1, at)}
        for at, terms in enumerate((("apple", "brook", "cedar"), ("apple", "brook"), ("brook",), ("apple",)))
    )
    ours = [entry(9, position=50 * at, wording="same", **good) for at in range(3)]
    ours += [entry(number, **fair) for number in range(1, 6)]
    theirs = [entry(20, **copy, **best), *(entry(number, space="theirs", **poor) for number in range(10, 18))]
    sought = query._replace(spaces=ALL, max_candidates=3, reach=0)
    for layers in ([ours, theirs], [theirs, ours], [ours + theirs]):
        laid = lay([Delta(tuple(layer)) for layer in layers])
        _check(_found(laid, sought), expected(ours + theirs, sought))
    assert _names(_found(laid, sought)) == {f"{memory_id(number)}#0" for number in (20, 5, 4)}


# --- neighbours


def test_neighbours_within_reach_may_be_found_and_theirs_only_count(lay):
    entries = [
        entry(1, position=position, passage=f"m{position}", terms={"apple": 1} if position == 20 else {})
        for position in range(41)
    ]
    for parts in (lay(_spread(entries)), lay(_spread(entries, 3))):
        found = parts.search(IndexQuery(("apple",), spaces=ALL, reach=4))
        assert found.pool.positions.tolist() == list(range(12, 29))
        assert found.pool.positions[found.pool.eligible].tolist() == list(range(16, 25))


def test_neighbours_are_found_across_segments_and_in_one_thread_alone(lay):
    entries = [entry(number, thread="thread", position=number, terms={"apple": number == 5}) for number in range(10)]
    entries = [one._replace(terms={"apple": 1} if one.position == 5 else {}) for one in entries]
    entries += [entry(100 + number, thread="another", position=number) for number in range(10)]
    for pieces in (1, 3, 10):
        found = lay(_spread(entries, pieces)).search(IndexQuery(("apple",), spaces=ALL, reach=2))
        assert [found.pool.ids_of(row)[1] for row in range(9)] == [memory_id(number) for number in range(1, 10)]
        assert len(found.pool.positions) == 9


def test_two_threads_whose_hashes_begin_alike_stay_apart(lay, monkeypatch):
    """A row's key has 40 bits of its thread's hash: where two agree in these, the whole hash decides."""
    real = hash_text

    def alike(text: str) -> int:
        return 0xABCDEF0123 << 24 | len(text) if text.startswith("thread") else real(text)

    monkeypatch.setattr(segments, "hash_text", alike)
    entries = [
        entry(100 * which + position, thread="thread" + "x" * which, position=position)
        for which in (1, 2, 3)
        for position in range(20)
    ]
    entries = [one._replace(terms={"apple": 1}) if one.passage == f"{memory_id(210)}#10" else one for one in entries]
    sought = IndexQuery(("apple",), spaces=ALL, reach=3)
    for pieces in (1, 3, 10):
        _check(_found(lay(_spread(entries, pieces)), sought), expected(entries, sought))
    monkeypatch.setattr(mapped_index, "_MERGE_FACTOR", 2)
    _check(_found(lay(_spread(entries, 10)), sought), expected(entries, sought))


def test_a_thread_at_the_end_of_all_hashes_has_its_neighbours(lay, monkeypatch):
    real = hash_text
    monkeypatch.setattr(segments, "hash_text", lambda text: 2**64 - 1 if text == "last" else real(text))
    entries = [entry(number, thread="last", position=number, terms={"apple": 1}) for number in range(8)]
    sought = IndexQuery(("apple",), spaces=ALL, max_candidates=1, reach=4)
    _check(_found(lay(_spread(entries, 3)), sought), expected(entries, sought))


@_settings
@given(seed=st.integers(0, 10**9), steps=st.sampled_from([1, 3, 10]), unwritten=st.sampled_from([0, 1, 3]))
def test_a_row_is_suspect_while_a_notice_of_any_space_is_about_its_owner(lay, monkeypatch, seed, steps, unwritten):
    maker = Maker(seed)
    ids = [memory_id(number) for number in range(1, 21)]
    world = {owner: _in_doubt(maker.dice, ids, passages) for owner, passages in maker.world(20).items()}
    monkeypatch.setattr(mapped_index, "_MERGE_FACTOR", 2)
    history = maker.history(world, steps)
    changes = [
        layer._replace(entries=_in_doubt(maker.dice, ids, layer.entries)) for layer in history[: max(steps // 2, 1)]
    ]
    # The last change of each owner is the one of the world.
    layers = [*changes, *history[len(changes) :], Delta(tuple(one for owner in world.values() for one in owner))]
    doubted = {one.doubted for passages in world.values() for one in passages}
    decided = {one.passage for passages in world.values() for one in passages if one.flags & HAS_DECISIONS}
    pool = lay(layers, unwritten=min(unwritten, len(layers))).search(IndexQuery(tuple(WORDS), spaces=ALL)).pool
    ids_of = [pool.ids_of(row) for row in range(len(pool.positions))]
    assert pool.suspect.tolist() == [memory in doubted and passage not in decided for passage, memory in ids_of]


def _in_doubt(
    dice: random.Random, ids: Sequence[str], passages: Sequence[IndexedPassage]
) -> tuple[IndexedPassage, ...]:
    """Return passages of which some are of notices about these memories, and some of memories with decisions."""
    return tuple(
        one._replace(
            doubted=dice.choice(ids) if dice.random() < 0.2 else "",
            flags=one.flags | HAS_DECISIONS * (dice.random() < 0.3),
        )
        for one in passages
    )


# --- what is written comes back


def _rows(segment: Segment, alive: Any = None) -> Counter[tuple[object, ...]]:
    """Return the content of each row of a segment, without its internal indexes."""
    term, entries = segment.column("term").tolist(), segment.entries()
    terms_of: dict[int, list[tuple[int, int]]] = {}
    for row, place, count in zip(*(column.tolist() for column in entries), strict=True):
        terms_of.setdefault(row, []).append((term[place], count))
    found: Counter[tuple[object, ...]] = Counter()
    for row in np.flatnonzero(alive).tolist() if alive is not None else range(segment.rows):
        terms = tuple(sorted(terms_of.get(row, [])))
        columns = tuple(int(segment.column(name)[row]) for name, _, _ in segments._COLUMNS)
        texts = tuple(segment.table(name)[segment.column(name)[row]] for name in ("space", "speaker"))
        vectors = segment.vectors[row].tobytes(), float(segment.scales[row]), segment.sketches[:, row].tobytes()
        found[segment.passage(row), segment.memory(row), int(segment.key[row]), columns, texts, terms, vectors] += 1
    return found


def _expected_row(one: IndexedPassage) -> tuple[object, ...]:
    """Return the row that a segment must hold for a passage."""
    rounded, scale = quantise((one.vector if one.vector is not None else vector())[None, :])
    flags = one.flags | NOWHERE * (not one.memory)
    columns = (
        hash_text(one.thread), one.position, hash_text(one.owner), order_of(one), hash_text(one.wording),
        KINDS.index(one.kind), flags, one.length, one.start, one.end, one.seq, one.time, one.valid_from,
        one.valid_until, one.superseded, one.superseded_until, one.expires,
        hash_text(one.doubted) if one.doubted else 0,
    )  # fmt: skip
    terms = [(hash_text(term), min(count, 65535)) for term, count in one.terms.items()]
    terms += [(hash_text(tag_term(tag)), 1) for tag in one.tags]
    key = hash_text(one.thread) >> 24 << 24 | min(one.position, 2**24 - 1)
    vectors = rounded[0].tobytes(), float(scale[0]), sketch(rounded)[:, 0].tobytes()
    return one.passage, one.memory, key, columns, (one.space, one.speaker), tuple(sorted(terms)), vectors


def _consistent(segment: Segment) -> None:
    """Check that what follows from the rest does follow."""
    keys = segment.key.tolist()
    assert keys == sorted(keys)
    by_owner = segment.column("by_owner")
    assert sorted(by_owner.tolist()) == list(range(segment.rows))
    assert segment.column("owner")[by_owner].tolist() == sorted(segment.column("owner").tolist())
    assert segment.column("owner_sorted").tolist() == sorted(segment.column("owner").tolist())
    start, posting, terms = (segment.column(name) for name in ("posting_start", "posting_row", "term"))
    having: dict[int, set[int]] = {int(term): set() for term in terms}
    entries = segment.entries()
    assert entries.rows.tolist() == sorted(entries.rows.tolist())
    for row, place in zip(entries.rows.tolist(), entries.terms.tolist(), strict=True):
        having[int(terms[place])].add(row)
    assert terms.tolist() == sorted(having)
    for at, term in enumerate(terms.tolist()):
        rows = posting[start[at] : start[at + 1]].tolist()
        assert rows == sorted(having[term])
        assert rows, "a term that no row has"
    about = segment.bundle.about
    assert about["soonest_expiry"] == min(segment.column("expires").tolist(), default=FOREVER)
    assert about["has_superseded"] == any(one < FOREVER for one in segment.column("superseded").tolist())
    assert about["unembedded"] == int((segment.scales == 0).sum())


@_settings
@given(seed=st.integers(0, 10**9), owners=st.integers(0, 12), pieces=st.integers(1, 5))
def test_every_column_of_every_row_survives_building_and_merging(seed, owners, pieces):
    maker = Maker(seed)
    world = list(maker.world(owners).values())
    built = [
        build([one for passages in world[at::pieces] for one in passages], killed=NOBODY, dimensions=DIMENSIONS)
        for at in range(pieces)
    ]
    alive = [np.array([maker.dice.random() < 0.7 for _ in range(one.rows)], np.bool_) for one in built]
    for segment in built:
        _consistent(segment)
    all_rows = sum((_rows(segment) for segment in built), Counter())
    assert all_rows == Counter(_expected_row(one) for passages in world for one in passages)
    merged = merge(list(zip(built, alive, strict=True)), killed=np.array([5, 7], np.uint64))
    _consistent(merged)
    assert merged.killed.tolist() == [5, 7]
    kept = sum((_rows(segment, some) for segment, some in zip(built, alive, strict=True)), Counter())
    assert _rows(merged) == kept
    again = merge([(merged, np.ones(merged.rows, np.bool_))], killed=merged.killed)
    for name, array in merged.bundle.arrays.items():
        assert array.dtype == again.column(name).dtype, name
        assert array.tobytes() == again.column(name).tobytes(), name


def test_a_merge_keeps_no_term_and_no_vector_of_what_no_longer_counts():
    dead = entry(1, terms={"secret": 1}, tags=("hidden",), passage="a-dead-id", vector=vector(1))
    alive = entry(2, terms={"apple": 1})
    one = build([dead, alive], killed=NOBODY, dimensions=DIMENSIONS)
    mask = np.array([one.passage(row) != "a-dead-id" for row in range(2)], np.bool_)
    merged = merge([(one, mask)], killed=NOBODY)
    assert merged.rows == 1
    assert merged.column("term").tolist() == [hash_text("apple")]
    assert b"dead" not in merged.column("ids").tobytes()
    assert not merged.vectors.any()


@pytest.mark.parametrize("few", [2, 3, 100])
def test_a_deleted_owner_stays_deleted_through_any_merges(lay, monkeypatch, few):
    monkeypatch.setattr(mapped_index, "_MERGE_FACTOR", few)
    monkeypatch.setattr(index_search, "_MAX_SEPARATE_DELTAS", few)
    monkeypatch.setattr(mapped_index, "_SMALLEST_TIER_ROWS", 1)
    many = Delta(tuple(entry(number, terms={"apple": 1}) for number in range(1, 101)))
    gone, back = memory_id(1), memory_id(2)
    layers = [many, Delta((), frozenset({gone, back})), Delta((entry(2, terms={"brook": 1}),))]
    layers += [Delta((entry(200 + at),)) for at in range(9)]
    for upto in range(2, len(layers) + 1):
        parts = lay(layers[:upto])
        found = parts.search(IndexQuery(("apple", "brook"), spaces=ALL, max_candidates=200))
        names = [found.pool.ids_of(row)[1] for row in range(len(found.pool.positions))]
        assert gone not in names
        assert found.document_frequencies == ((98, 0) if upto < 3 else (98, 1))
        assert names.count(back) == (0 if upto < 3 else 1)


def _rows_kept(laid: Laid) -> int:
    return sum(part.segment.rows for part in laid.view.parts) - 1  # type: ignore[attr-defined]


def test_a_segment_that_is_worn_is_written_anew_without_what_is_dead(lay):
    many = Delta(tuple(entry(number) for number in range(1_000)))
    assert _rows_kept(lay([many, Delta((), frozenset(memory_id(number) for number in range(299)))])) == 1_000
    assert _rows_kept(lay([many, Delta((), frozenset(memory_id(number) for number in range(301)))])) == 699


def test_a_segment_that_is_written_anew_goes_on_killing_in_older_ones(lay):
    old = Delta(tuple(entry(number, terms={"apple": 1}) for number in range(1_000)))
    edited = Delta(tuple(entry(number, terms={"brook": 1}) for number in range(300)))
    deleted = Delta((), frozenset(memory_id(number) for number in range(100)))
    laid = lay([old, edited, deleted])
    assert _rows_kept(laid) == 1_200, "nothing was written anew, so this proves nothing"
    assert laid.search(IndexQuery(("apple", "brook"), spaces=ALL)).document_frequencies == (700, 200)


# --- odd input


@pytest.mark.parametrize("query_vector", [None, vector(1)], ids=["by words", "by vector"])
@pytest.mark.parametrize("empty", [0, 1, 3])
def test_where_there_is_nothing_nothing_is_found(lay, query_vector, empty):
    layers = [Delta()] * empty
    sought = IndexQuery(("apple",), expansion_terms=("brook",), vector=query_vector, spaces=ALL, tags=("red",), as_of=5)
    for unwritten in range(empty + 1):
        laid = lay(layers, unwritten=unwritten)
        found = laid.search(sought)
        assert (found.total, found.document_frequencies, len(found.pool.positions)) == (0, (0,), 0)
        assert found.pool.eligible.dtype == np.bool_
        assert [len(column) for column in found.pool.entries] == [0, 0, 0]
    beside = [entry(1, terms={"apple": 1}, tags=("red",), vector=vector(1))]
    _check(_found(lay([*layers, Delta(tuple(beside))]), sought), expected(beside, sought))


def test_an_empty_segment_is_searched_and_merged_as_any_other():
    empty = build((), killed=NOBODY, dimensions=DIMENSIONS)
    parts = [Part(empty, np.zeros(0, np.bool_))] * 2
    for query_vector in (None, vector(1)):
        found = search(
            parts,
            IndexQuery(("apple",), expansion_terms=("brook",), vector=query_vector, spaces=ALL, tags=("red",), as_of=5),
        )
        assert (found.total, found.document_frequencies, len(found.pool.positions)) == (0, (0,), 0)
        found = search((), IndexQuery(("apple",), vector=query_vector, spaces=ALL))
        assert (found.total, found.document_frequencies, len(found.pool.positions)) == (0, (0,), 0)
    assert merge(parts, killed=NOBODY).rows == 0


def test_odd_passages_are_kept_and_found_as_they_are(lay):
    long = "wort" * 20_000
    odd = [
        entry(1, terms={}),
        entry(2, terms={long: 1, "": 2, "語": 70_000}, tags=("", "ü")),
        entry(3, passage="ein Satz · mit 日本 und \U0001f600", owner="wem?", thread="", memory="", terms={"apple": 1}),
        entry(4, passage="x", terms={"apple": 65_535, "brook": 65_536, "cedar": 2**40}),
        entry(5, passage="doubled", terms={"apple": 1}),
        entry(6, passage="doubled", terms={"apple": 2}, space="theirs"),
        entry(6, position=1, passage="doubled", terms={"apple": 2}, space="theirs"),
        entry(7, time=-(2**62), valid_from=-FOREVER, valid_until=-(2**40), terms={"apple": 1}),
        entry(8, vector=vector(1e-30), terms={"apple": 1}),
        entry(9, vector=vector(*[-1e30] * DIMENSIONS)),
        entry(10, position=2**31 - 1, seq=-(2**63), length=2**31 - 1, start=2**31 - 1, end=2**31 - 1),
    ]
    assert _rows(build(odd, killed=NOBODY, dimensions=DIMENSIONS)) == Counter(_expected_row(one) for one in odd)
    for pieces in (1, 3, 10):
        parts = lay(_spread(odd, pieces))
        for terms in ((long, "", "語"), ("apple", "brook", "cedar"), ("nothing",), ()):
            for query_vector in (None, vector(1), vector(-1, -1)):
                sought = IndexQuery(terms, vector=query_vector, spaces=ALL, reach=2)
                _check(_found(parts, sought), expected(odd, sought))
        by_tag = IndexQuery(("語",), spaces=ALL, tags=("", "ü"))
        _check(_found(parts, by_tag), expected(odd, by_tag))


def test_a_tag_is_no_word_and_a_word_is_no_tag(lay):
    entries = [entry(1, terms={"red": 1}), entry(2, tags=("red",))]
    for pieces in (1, 3):
        found = lay(_spread(entries, pieces)).search(IndexQuery(("red",), spaces=ALL))
        assert found.document_frequencies == (1,)
        found = lay(_spread(entries, pieces)).search(IndexQuery((), spaces=ALL, tags=("red",), vector=vector(1)))
        assert len(found.pool.positions) == 0


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=DIMENSIONS, max_size=DIMENSIONS), min_size=1, max_size=2)
)
@settings(max_examples=20, deadline=None)
def test_a_vector_comes_back_from_bytes_nearly_as_it_was(numbers):
    vectors = np.array(numbers, np.float32)
    rounded, scales = quantise(vectors)
    back = rounded.astype(np.float64) * scales[:, None].astype(np.float64)
    assert (np.abs(back - vectors) <= scales[:, None] * 0.5001 + 1e-30).all()
    # Above all small numbers a vector that says something has a scale: 0 is how one that is missing is known.
    assert ((scales > 0) == (np.abs(vectors).max(axis=1) > 1e-36)).all() or np.abs(vectors).max() < 1e-36
    # One row for each word of 64 bits, so that a search goes through them one after the other.
    bits = np.unpackbits(np.ascontiguousarray(sketch(rounded).T).view(np.uint8), axis=1)
    assert (bits[:, :DIMENSIONS] == (rounded > 0)).all()
    assert not bits[:, DIMENSIONS:].any()


def test_ids_of_ours_order_by_their_time_and_others_by_something_steady():
    ids = [memory_id(number) for number in (1, 2, 2**31)]
    assert sorted(ids, key=tie_break_of) == ids
    assert tie_break_of(f"{ids[0]}#7") == tie_break_of(ids[0])
    for odd in ("", "x", "日本", "ffffffff-ffff-ffff-ffff-ffffffffffff", "a" * 1_000, "a b c d e f g h i j k"):
        assert 0 <= tie_break_of(odd) < 2**64
        assert tie_break_of(odd) == tie_break_of(odd)


# --- found broken once


def test_of_passages_with_one_time_in_their_ids_the_same_are_candidates_in_any_layout(lay):
    """Two ids of one millisecond order alike once in 4,096 times: then something else has to decide, not the layout."""
    entries = [
        entry(1, passage=f"{memory}#0", memory=memory, owner=memory, thread=memory, terms={"apple": 1})
        for memory in (f"00000001-0000-7000-8000-{number:012x}" for number in range(30))
    ]
    sought = IndexQuery(("apple",), spaces=ALL, max_candidates=5, reach=0)
    found = [_found(lay(_spread(entries, pieces, seed)), sought).rows for pieces in (1, 3, 10) for seed in range(3)]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("odd", ["-5", "-1", "+5", "0x1f", "1_0", " 5"])
def test_whatever_a_message_is_called_its_order_is_a_number_of_64_bits(odd):
    """A transcript's ids are typed by people: `int` takes signs, and a negative number fits no column."""
    assert 0 <= tie_break_of(odd) < 2**64
    assert build([entry(1, passage=odd)], killed=NOBODY, dimensions=0).rows == 1


def test_far_down_a_long_thread_neighbours_are_still_those_within_reach(lay):
    """Beyond 2**24 all places share a key: the position itself has to decide."""
    far = 2**24 - 3
    entries = [entry(1, position=far + at, terms={"apple": 1} if at == 30 else {}) for at in range(60)]
    sought = IndexQuery(("apple",), spaces=ALL, reach=4)
    for pieces in (1, 3):
        _check(_found(lay(_spread(entries, pieces)), sought), expected(entries, sought))


def test_a_memory_whose_id_is_all_zeros_is_named(lay):
    """A person may write such an id into a file, and it is taken: `00000000-…` is not the lack of a memory."""
    nil = "00000000-0000-0000-0000-000000000000"
    one = entry(1, passage=f"{nil}#0", memory=nil, owner=nil, thread=nil, terms={"apple": 1})
    found = lay([Delta((one,))]).search(IndexQuery(("apple",), spaces=ALL))
    assert found.pool.ids_of(0) == (f"{nil}#0", nil)


def test_nothing_is_near_to_a_vector_that_says_nothing(lay):
    """The words of `the of and` have no vector: a cosine with it is no number, and numpy warns."""
    found = lay([Delta((entry(1, vector=vector(1)),))]).search(IndexQuery((), vector=vector(), spaces=ALL))
    assert len(found.pool.positions) == 0


@pytest.mark.parametrize("length", [1, 64, DIMENSIONS - 1, DIMENSIONS + 1, 256])
def test_a_vector_of_another_length_is_not_compared(lay, length):
    laid = lay([Delta((entry(1, terms={"apple": 1}, vector=vector(1)), entry(2, vector=vector(1))))])
    found = laid.search(IndexQuery(("apple",), vector=np.ones(length, np.float32), spaces=ALL))
    assert [found.pool.ids_of(row)[1] for row in range(len(found.pool.positions))] == [memory_id(1)]
    assert found.pool.vectors is None


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside others"])
def test_passages_without_vectors_are_found_by_their_words(beside):
    bare = build([entry(1, terms={"apple": 1})], killed=NOBODY, dimensions=0)
    assert (bare.dimensions, with_zero_vectors(bare, DIMENSIONS).dimensions) == (0, DIMENSIONS)
    others = [build([entry(2, vector=vector(1))], killed=NOBODY, dimensions=DIMENSIONS)] if beside else []
    assert all(with_zero_vectors(one, 8) is one for one in others)
    every = [with_zero_vectors(bare, DIMENSIONS) if beside else bare, *others]
    parts = [Part(one, np.ones(one.rows, np.bool_)) for one in every]
    found = search(parts, IndexQuery(("apple",), vector=vector(1), spaces=ALL))
    names = {found.pool.ids_of(row)[1] for row in range(len(found.pool.positions))}
    assert names == {memory_id(number) for number in range(1, 2 + beside)}
    assert merge(parts, killed=NOBODY).scales.tolist().count(0) == 1


def test_a_merge_keeps_no_name_of_a_speaker_or_a_space_that_no_longer_counts():
    """Everything else that a deleted passage said is gone after a merge; its speaker's name stays for ever."""
    both = build(
        [entry(1, speaker="user:forgotten", space="gone"), entry(2, speaker="user:kept")],
        killed=NOBODY,
        dimensions=0,
    )
    alive = np.array([both.memory(row) == memory_id(2) for row in range(2)], np.bool_)
    merged = merge([(both, alive)], killed=NOBODY)
    assert (merged.table("speaker"), merged.table("space")) == (["user:kept"], ["ours"])


@pytest.mark.parametrize(("terms", "count"), [(3, 2), (3, 300), (300, 255), (70_000, 256), (3, 70_000)])
def test_terms_rows_and_counts_are_found_whatever_types_their_numbers_need(terms, count):
    """The columns of terms get the narrowest types: one, two or four bytes."""
    small = build([entry(1, terms={"apple": 1, "pear": 2})], killed=NOBODY, dimensions=0)
    large = build(
        [entry(number, terms={f"word{at}": count for at in range(number, terms)}) for number in (2, 3)],
        killed=NOBODY,
        dimensions=0,
    )
    alive = np.ones(1, np.bool_), np.ones(2, np.bool_)
    merged = merge([(small, alive[0]), (large, alive[1])], killed=NOBODY)
    last = f"word{terms - 1}"
    for segment in (large, merged):
        term_rows = segment.with_terms([last, "word2", "nothing"])
        rows = [term_rows.rows(at) for at in range(3)]
        found = {segment.memory(row) for row in rows[0]}
        assert found == {memory_id(number) for number in (2, 3) if number < terms}
        assert [segment.memory(row) for row in rows[1]] == [memory_id(2)]
        assert not len(rows[2])
        places, _, counts = segment.terms_of(rows[0], [last])
        assert places.tolist() == list(range(len(found)))
        assert set(counts.tolist()) == {min(count, 65_535)}
    assert [merged.memory(at) for at in merged.with_terms(["pear"]).rows(0)] == [memory_id(1)]


def test_many_rows_of_one_term_are_found_in_a_large_segment():
    entries = [entry(number, terms={"common": 1, f"rare{number % 7}": 1}) for number in range(1, 66_000)]
    segment = build(entries, killed=NOBODY, dimensions=0)
    term_rows = segment.with_terms(["common", "rare6"])
    assert len(term_rows.rows(0)) == segment.rows == 65_999
    assert {segment.memory(row) for row in term_rows.rows(1)} == {memory_id(number) for number in range(6, 66_000, 7)}


def test_rows_with_common_words_are_found_and_scored_as_without_their_masks(monkeypatch):
    dice = random.Random("masks")
    words = [f"word{number}" for number in range(12)]
    # The first words are in nearly all rows, the last ones in a few.
    entries = [
        entry(number, terms={word: 1 for at, word in enumerate(words) if dice.random() < 0.9**at / (at + 1)})
        for number in range(1, 600)
    ]
    parts = [Part(build(entries, killed=NOBODY, dimensions=0), np.ones(len(entries), np.bool_))]
    queries = [IndexQuery(tuple(dice.sample(words, 5)), spaces=ALL, max_candidates=20) for _ in range(40)]

    def found() -> list[object]:
        results = [search(parts, query) for query in queries]
        pools = [[result.pool.ids_of(row) for row in range(len(result.pool.flags))] for result in results]
        return [(result.document_frequencies, pool) for result, pool in zip(results, pools, strict=True)]

    with_masks = found()
    monkeypatch.setattr(postings, "_COMMON_TERM_PART", 0)
    assert found() == with_masks


def test_there_are_never_many_segments_nor_is_everything_written_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    written = 0
    names: set[str] = set()
    for at in range(120):
        index = mapped_index.MappedIndex(str(tmp_path / "index"))
        with index.writing(wait=60) as writer:
            writer.add(Delta(tuple(entry(100 * at + number) for number in range(20))))
            writer.commit(MARKER)
        paths = (tmp_path / "index").glob("*.segment")
        there = {path.name: len(array_files.read(str(path)).arrays["thread"]) for path in paths}
        written += sum(rows for name, rows in there.items() if name not in names)
        names |= there.keys()
        assert len(there) <= 16
    found = index.view().search(IndexQuery((), spaces=ALL), ())
    assert found.total == 2_400
    assert written < 5 * sum(there.values()), "small segments were merged into large ones again and again"
