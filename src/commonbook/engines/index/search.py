"""Searches segments: filters rows, counts terms, picks candidates by terms (MaxScore) and by vector, gathers features.

The result depends neither on how passages are spread over segments, nor on passages outside the spaces of the query.
Therefore ties of one score break by id, and the first pass over vectors keeps all rows up to a distance. MaxScore:
selects the rows with the largest sums of the weights of their terms, without reading all lists of rows. Compares
quantised vectors with a query: Hamming distance of sketches, approximate cosines, and exact cosines. A vector is
stored as signed bytes, and its signs as a sketch of one bit for each dimension. The result for a passage never depends
on which other passages are compared. Overlays deltas on segments: each delta becomes a segment, and masks the rows
that it replaces in older ones. Selects the best rows of segments: by score, then by the order of ids. Of one memory,
at most a few parts are kept. Of a root and its copies that have the same words, one memory is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from commonbook.engines.index.postings import Rows, TermRows
from commonbook.engines.index.segments import (
    Bools,
    Floats,
    Hashes,
    Segment,
    build,
    hash_text,
    merge,
    quantise,
    sketch,
    tag_term,
    with_zero_vectors,
)
from commonbook.ports.index import (
    FOREVER,
    HAS_DECISIONS,
    IS_COPY,
    IS_MESSAGE,
    MAX_FURTHER_CANDIDATES,
    CandidatePool,
    Delta,
    IndexQuery,
    IndexResult,
    PendingDeltas,
)
from commonbook.values.memory import KINDS

_NEAR_ROWS_FACTOR: Final = 2
"""How many rows, as a multiple of those needed, are compared in full after the first pass over sketches."""

_ROUGH_ROWS_FACTOR: Final = 4
"""This many times the rows needed are compared exactly, if there are more."""


class Part(NamedTuple):
    """A segment and the mask of its live rows."""

    segment: Segment
    alive: Bools


class TermCounts(NamedTuple):
    """The number of live passages in the spaces of the query, and of those that have each term."""

    total: int
    document_frequencies: tuple[int, ...]

    @property
    def weights(self) -> list[float]:
        """The inverse document frequency of each term, as BM25 has it."""
        return [float(np.log(1 + (self.total - df + 0.5) / (df + 0.5))) for df in self.document_frequencies]


def count(parts: Sequence[Part], query: IndexQuery) -> TermCounts:
    """Count the live passages in the spaces of the query, whether they pass its filters or not."""
    views = [_view_segment(part, query) for part in parts]
    return _count_terms(views, _postings(views, query), query)


def search(
    parts: Sequence[Part], query: IndexQuery, counts: TermCounts | None = None, *, exactly: bool = False
) -> IndexResult:
    """Return the candidates with all features that scoring needs.

    `counts` replaces the counts of these parts when they are only some of all. With `exactly`, vectors are compared
    without the first pass over sketches, which these parts need not have.
    """
    views = [_view_segment(part, query) for part in parts]
    postings = _postings(views, query)
    term_counts = counts or _count_terms(views, postings, query)
    chosen = _choose(views, postings, term_counts, query, exactly=exactly)
    return IndexResult(term_counts.total, term_counts.document_frequencies, gather(views, chosen, query))


def candidates(parts: Sequence[Part], query: IndexQuery, counts: TermCounts) -> list[tuple[int, int]]:
    """Return the threads and positions of the candidates in these parts, by the counts of all."""
    views = [_view_segment(part, query) for part in parts]
    chosen = _choose(views, _postings(views, query), counts, query, exactly=True)
    return [
        key
        for view, rows in zip(views, chosen, strict=True)
        for key in zip(view.segment.thread[rows].tolist(), view.segment.position[rows].tolist(), strict=True)
    ]


def _postings(views: Sequence[SegmentView], query: IndexQuery) -> list[TermRows]:
    return [view.segment.with_terms(query.terms) for view in views]


def _count_terms(views: Sequence[SegmentView], postings: Sequence[TermRows], query: IndexQuery) -> TermCounts:
    total, having = 0, [0] * len(query.terms)
    for view, term_rows in zip(views, postings, strict=True):
        visible_rows = int(np.count_nonzero(view.visible))
        total += visible_rows
        # Usually every row is visible: then the rows of the terms need not be tested.
        all_visible = visible_rows == view.segment.rows
        for at, size in enumerate(term_rows.sizes):
            having[at] += size if all_visible else _count_visible(view, term_rows, at)
    return TermCounts(total, tuple(having))


def _count_visible(view: SegmentView, term_rows: TermRows, at: int) -> int:
    mask = term_rows.mask(at, view.segment.rows)
    seen = view.visible[term_rows.rows(at)] if mask is None else view.visible & mask
    return int(np.count_nonzero(seen))


def _choose(
    views: Sequence[SegmentView],
    postings: Sequence[TermRows],
    counts: TermCounts,
    query: IndexQuery,
    *,
    exactly: bool,
) -> list[Rows]:
    if query.newest:
        return _candidates_by_time(views, query)
    by_terms = _candidates_by_terms(views, postings, counts.weights, query)
    by_vector = _candidates_by_vector(views, query, exactly=exactly)
    sorts = ((_candidates_by_phrase, query.phrase_terms), (_candidates_of_spans, query.spans))
    further = [find(views, query) for find, wanted in sorts if wanted]
    return [np.concatenate(rows).astype(np.intp) for rows in zip(by_terms, by_vector, *further, strict=True)]


def _view_segment(part: Part, query: IndexQuery) -> SegmentView:
    segment, alive = part
    spaces = np.array([space in query.spaces for space in segment.table("space")], np.bool_)
    if not len(spaces) or not spaces.any():
        nothing = np.zeros(segment.rows, np.bool_)
        return SegmentView(segment, alive, nothing, nothing)
    visible = alive if spaces.all() else alive & spaces[segment.column("space")]
    wanted = visible
    for condition in _filter_masks(segment, query):
        wanted = wanted & condition
    return SegmentView(segment, alive, visible, wanted)


def _filter_masks(segment: Segment, query: IndexQuery) -> list[Bools]:
    """Return a mask for each filter of the query, except those that all rows are known to pass."""
    conditions: list[Any] = []
    if query.kinds or query.excluded_kinds:
        allowed = [(not query.kinds or kind in query.kinds) and kind not in query.excluded_kinds for kind in KINDS]
        if not all(allowed[kind] for kind in segment.bundle.about["kinds"]):
            conditions.append(np.array(allowed, np.bool_)[segment.column("kind")])
    if required := (*map(tag_term, query.tags), *query.required_terms):
        having_all = np.zeros(segment.rows, np.bool_)
        having_all[_rows_with_all(segment, required)] = True
        conditions.append(having_all)
    conditions += _exclusion_masks(segment, query)
    if query.since > -FOREVER:
        conditions.append(segment.column("time") >= query.since)
    if query.until < FOREVER:
        conditions.append(segment.column("time") <= query.until)
    if segment.bundle.about["soonest_expiry"] <= query.alive_at:
        conditions.append(segment.column("expires") > query.alive_at)
    if query.as_of is not None:
        conditions.append(segment.column("valid_from") <= query.as_of)
        conditions.append(segment.column("valid_until") > query.as_of)
    if segment.bundle.about["has_superseded"] and not query.superseded:
        at = FOREVER - 1 if query.as_of is None else query.as_of
        conditions.append((segment.column("superseded") > at) | (segment.column("superseded_until") <= query.now))
    return conditions


def _exclusion_masks(segment: Segment, query: IndexQuery) -> Iterator[Bools]:
    """Yield a mask for the excluded tag, if rows have it."""
    if query.excluded_tag and len(excluded := _rows_with_all(segment, [tag_term(query.excluded_tag)])):
        kept_until = dict(query.kept_until)
        limits = np.array([kept_until.get(space, -1) for space in segment.table("space")], np.int64)
        kept = np.ones(segment.rows, np.bool_)
        kept[excluded] = segment.position[excluded] <= limits[segment.column("space")[excluded]]
        yield kept


# --- candidates


def _candidates_by_terms(
    views: Sequence[SegmentView], postings: Sequence[TermRows], weights: Sequence[float], query: IndexQuery
) -> list[Rows]:
    """Return the rows with the largest sum of the weights of their terms, by MaxScore."""

    def select(limit: int) -> list[ScoredRows]:
        return [
            best_by_terms(view.segment, view.wanted, term_rows, weights, limit)
            for view, term_rows in zip(views, postings, strict=True)
        ]

    return merge_best([view.segment for view in views], select, query.max_candidates)


def _candidates_by_phrase(views: Sequence[SegmentView], query: IndexQuery) -> list[Rows]:
    """Return the newest rows that have all words of the phrase."""
    having_all = [_rows_with_all(view.segment, query.phrase_terms) for view in views]
    return _newest(views, [rows[view.wanted[rows]] for view, rows in zip(views, having_all, strict=True)])


def _candidates_of_spans(views: Sequence[SegmentView], query: IndexQuery) -> list[Rows]:
    """Return the newest rows whose time is in one of the spans."""
    found = []
    for view in views:
        times = view.segment.column("time")
        within = np.zeros(view.segment.rows, np.bool_)
        for first, end in query.spans:
            within |= (times >= first) & (times < end)
        found.append(np.flatnonzero(view.wanted & within))
    return _newest(views, found)


def _newest(views: Sequence[SegmentView], found: Sequence[Rows]) -> list[Rows]:
    """Return the newest of these rows, with a limited number of parts of one memory."""
    segments = [view.segment for view in views]

    def select(limit: int) -> list[ScoredRows]:
        return [
            best_of_segment(segment, rows, np.zeros(len(rows)), limit) or NO_SCORED_ROWS
            for segment, rows in zip(segments, found, strict=True)
        ]

    return merge_best(segments, select, MAX_FURTHER_CANDIDATES)


def _rows_with_all(segment: Segment, terms: Sequence[str]) -> Rows:
    """Return the rows that have all of these terms: the rows of the rarest are looked up among the others."""
    term_rows = segment.with_terms(terms)
    rows, *others = sorted((term_rows.rows(at) for at in range(len(terms))), key=len)
    for other in others:
        if not len(rows):
            break
        rows = rows[other[np.minimum(np.searchsorted(other, rows), len(other) - 1)] == rows]
    return rows


def _candidates_by_vector(views: Sequence[SegmentView], query: IndexQuery, *, exactly: bool) -> list[Rows]:
    """Return the rows nearest by vector: a first pass over sketches, then exact cosines; or only exact cosines."""
    vector = query.vector
    if vector is None or not vector.any():
        return [np.zeros(0, np.intp) for _ in views]
    if exactly:
        return _nearest_exactly(views, vector, query.max_candidates)
    segments = [view.segment for view in views]
    near = near_by_sketch([(view.segment, view.wanted) for view in views], vector)

    def select(limit: int) -> list[ScoredRows]:
        return [_nearest_of_few(segment, rows, vector, limit) for segment, rows in zip(segments, near, strict=True)]

    chosen = merge_best(segments, select, query.max_candidates)
    has_copies = any((segment.flags[rows] & IS_COPY).any() for segment, rows in zip(segments, near, strict=True))
    if has_copies and sum(map(len, chosen)) < query.max_candidates:
        # Copies took the places of others in the first pass, too.
        return _nearest_exactly(views, vector, query.max_candidates)
    return chosen


def _nearest_of_few(segment: Segment, rows: Rows, vector: Floats, limit: int) -> ScoredRows:
    """Return at least the nearest of the rows that passed the first pass."""
    vectors, best = segment.vectors[rows], NO_SCORED_ROWS
    # Mostly twice as many as are needed suffice. If parts of a memory, or copies, took the places of others: all.
    for count in (_NEAR_ROWS_FACTOR * limit, len(rows)):
        places, scores = nearest(vectors, vector, count)
        best = best_of_segment(segment, rows[places], scores, limit) or NO_SCORED_ROWS
        if len(best[0]) >= limit or len(places) == len(rows):
            break
    return best


def _nearest_exactly(views: Sequence[SegmentView], vector: Floats, max_candidates: int) -> list[Rows]:
    near = [(view.segment, rows_with_vectors(view.segment, view.wanted, vector)) for view in views]

    def select(limit: int) -> list[ScoredRows]:
        return [_nearest(segment, rows, vector, limit) for segment, rows in near]

    return merge_best([view.segment for view in views], select, max_candidates)


def _nearest(segment: Segment, rows: Rows, vector: Floats, limit: int) -> ScoredRows:
    """Return at least the nearest of these rows; of many, only those with a high rough cosine are compared."""
    rough_limit = _ROUGH_ROWS_FACTOR * limit
    rough = rough_cosines(segment, vector)[rows] if len(rows) > rough_limit else np.zeros(0)
    while True:
        compared = rows
        if len(rows) > rough_limit:
            least = -np.partition(-rough, rough_limit - 1)[rough_limit - 1]
            compared = rows[rough >= least - rough_error(vector)]
        scores = cosines(segment.vectors[compared], vector)
        best = best_of_segment(segment, compared, scores, limit) or NO_SCORED_ROWS
        if len(best[0]) >= limit or len(compared) == len(rows):
            return best
        # Parts of a long memory, or copies, took the places of others: look further down.
        rough_limit *= _ROUGH_ROWS_FACTOR


def _candidates_by_time(views: Sequence[SegmentView], query: IndexQuery) -> list[Rows]:
    """Return the newest rows: messages, and one row of each other memory. Ties of one time break by position."""
    rows_of = [_newest_of_segment(view, query.max_candidates) for view in views]
    if not rows_of:
        return rows_of
    columns = [_time_keys(view.segment, rows) for view, rows in zip(views, rows_of, strict=True)]
    keys = SortKeys(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    owners = np.repeat(np.arange(len(rows_of)), [len(rows) for rows in rows_of])
    kept = first_of_wordings(keys, np.arange(len(owners)))
    last = np.lexsort((keys.orders[kept], keys.positions[kept], keys.scores[kept]))
    newest = kept[last[::-1][: query.max_candidates]]
    rows = np.concatenate(rows_of)[newest]
    return [rows[owners[newest] == at] for at in range(len(rows_of))]


def _newest_of_segment(view: SegmentView, limit: int) -> Rows:
    """Return at least the newest rows of one segment, and few others."""
    rows = np.flatnonzero(view.wanted & (((view.segment.flags & IS_MESSAGE) > 0) | (view.segment.position == 0)))
    times = view.segment.column("time")[rows]
    depth = limit
    while True:
        newest = rows if len(rows) <= depth else rows[times >= np.partition(times, -depth)[-depth]]
        kept = first_of_wordings(_time_keys(view.segment, newest), np.arange(len(newest)))
        if len(kept) >= limit or len(newest) == len(rows):
            return newest[kept]
        # Copies took the places of others: look further down.
        depth *= 4


def _time_keys(segment: Segment, rows: Rows) -> SortKeys:
    """Return the columns by which the newest are sorted: the time stands for the score."""
    return sort_keys_of(segment, rows, segment.column("time")[rows])


_ESSENTIAL_ROWS_FACTOR: Final = 2
"""Essential terms have this many times the rows needed, before other terms are left out: a row may have several."""


def best_by_terms(
    segment: Segment, wanted: Bools, term_rows: TermRows, weights: Sequence[float], limit: int
) -> ScoredRows:
    """Return at least the wanted rows with the largest sums, with a limited number of parts of a memory."""
    essential, bound = _essential_terms(term_rows.sizes, weights, limit)
    scored = _score_rows(wanted, term_rows, weights, essential)
    best = best_of_segment(segment, *scored, limit, bound=bound)
    if best is None:
        scored = _score_rows(wanted, term_rows, weights, range(len(weights)))
        best = best_of_segment(segment, *scored, limit)
    return best or NO_SCORED_ROWS


def _essential_terms(sizes: Sequence[int], weights: Sequence[float], limit: int) -> tuple[Collection[int], float]:
    """Return the essential terms (MaxScore), and the highest score that a row without any of them can have.

    `sizes` says how many rows have each term.

    Common words are in many rows and have little weight. Where the rows of rarer words suffice, rows that have only
    common words are not read. Whether they suffice is checked afterwards, against the returned bound.
    """
    by_rarity = sorted(range(len(weights)), key=lambda at: -weights[at])
    total_rows = accumulate(sizes[at] for at in by_rarity)
    # Enough rows have at least this weight from one of the rarest terms.
    needed = _ESSENTIAL_ROWS_FACTOR * limit
    threshold = next((weights[at] for at, rows in zip(by_rarity, total_rows, strict=True) if rows >= needed), 0.0)
    essential = set(by_rarity)
    left_out = 0.0
    for at in reversed(by_rarity):
        left_out += weights[at]
        if left_out >= threshold:
            break
        essential.remove(at)
    bound = 0.0
    for at, weight in enumerate(weights):
        # Added in the same order as the scores of rows, so that the bound is exact to the last digit: Python's own
        # `sum` is more precise, and may be less.
        bound += 0.0 if at in essential else weight
    return essential, bound


def _score_rows(
    wanted: Bools, term_rows: TermRows, weights: Sequence[float], essential: Collection[int]
) -> tuple[Rows, Any]:
    """Return the wanted rows that have an essential term, and the sum of the weights of all their terms."""
    size = len(wanted)
    essential_rows = {at: term_rows.rows(at) for at in essential}
    marked = np.zeros(size, np.bool_)
    for rows in essential_rows.values():
        marked[rows] = True
    scored = np.flatnonzero(marked & wanted)
    sums = np.zeros(size)
    for at, weight in enumerate(weights):
        if at in essential:
            sums[essential_rows[at]] += weight
        elif (mask := term_rows.mask(at, size)) is not None:
            # A zero changes no sum: these are the sums that adding to the rows of the term gives.
            sums[scored] += weight * mask[scored]
        else:
            rows = term_rows.rows(at)
            sums[rows[marked[rows]]] += weight
    return scored, sums[scored]


_FIRST_PASS_ROWS: Final = 400
"""The number of passages that pass the comparison of sketches, with all others at the distance of the last."""

_SAMPLE_STEP: Final = 64
_SAMPLE_MARGIN: Final = 3
"""The cut-off of the first pass is estimated from one distance in 64, with room for 3 times the rows needed."""

_BLOCK_ROWS: Final = 256
_PLANES_PER_BYTE: Final = 3
_NO_ROWS: Final = np.zeros(0, np.int64)


def rows_with_vectors(segment: Segment, wanted: Bools, vector: Floats) -> Rows:
    """Return the wanted rows that have a vector of the same length as the query."""
    return np.flatnonzero(wanted & (segment.scales > 0) & (segment.dimensions == len(vector)))


def cosines(vectors: Any, query: Floats) -> Any:  # noqa: ANN401 - arrays
    """Return the cosine of each vector with the query, rounded; independent of the other vectors."""
    # An empty selection may come from vectors of another length than the query's, which cannot be multiplied.
    if not len(vectors):
        return np.zeros(0)
    wide, exact_query = vectors.astype(np.float64), query.astype(np.float64)
    # Row by row, so that a row's cosine does not depend on which others are compared with it.
    lengths = np.sqrt(np.vecdot(wide, wide))
    products = np.vecdot(wide, exact_query) / np.maximum(lengths, 1e-9)
    return np.round(products / max(float(np.linalg.norm(exact_query)), 1e-9), 9)


def nearest(vectors: Any, query: Floats, count: int) -> tuple[Rows, Any]:  # noqa: ANN401 - arrays
    """Return the places of the `count` nearest vectors, with all that are as near as the last, and their cosines.

    Few are compared exactly: those that are near enough by products of half the precision.
    """
    if len(vectors) <= count:
        return np.arange(len(vectors)), cosines(vectors, query)
    wide = vectors.astype(np.float32)
    unit_query = query / np.float32(max(float(np.linalg.norm(query)), 1e-9))
    rough = wide @ unit_query / np.maximum(np.sqrt(np.vecdot(wide, wide)), np.float32(1e-9))
    places = np.flatnonzero(rough >= _highest(rough, count) - rough_error(query))
    exact = cosines(wide[places], query)
    is_near = exact >= _highest(exact, count)
    return places[is_near], exact[is_near]


def _highest(scores: Any, count: int) -> float:  # noqa: ANN401 - an array
    """Return the lowest of the `count` highest scores."""
    return float(-np.partition(-scores, count - 1)[count - 1])


def rough_cosines(segment: Segment, query: Floats) -> Any:  # noqa: ANN401 - an array
    """Return the cosine of each row with the query, with an error below `rough_error`; many times faster."""
    unit_query = query / np.float32(max(float(np.linalg.norm(query)), 1e-9))
    products = np.empty(segment.rows, np.float32)
    # A few rows at a time: the converted rows are still in the processor's cache when they are multiplied.
    for start in range(0, segment.rows, _BLOCK_ROWS):
        wide = segment.vectors[start : start + _BLOCK_ROWS].astype(np.float32)
        np.matmul(wide, unit_query, out=products[start : start + _BLOCK_ROWS])
    return products / np.maximum(segment.lengths, np.float32(1e-9))


def rough_error(vector: Floats) -> float:
    """Return an upper bound of the difference at which two rough cosines may be in the wrong order."""
    return 4 * (len(vector) + 8) * float(np.finfo(np.float32).eps)


def near_by_sketch(segments: Sequence[tuple[Segment, Bools]], vector: Floats) -> list[Rows]:
    """Return the wanted rows of each segment with the smallest Hamming distances, `_FIRST_PASS_ROWS` or more."""
    # The query is quantised as passages are, so that a passage has distance 0 from itself.
    query_sketch = sketch(quantise(vector[None, :])[0])[:, 0]
    unreachable = 64 * len(query_sketch) + 1
    distances = [_distances(part, query_sketch, len(vector), unreachable) for part in segments]
    # Only rows below an estimated distance are counted; if they are too few, all rows are.
    for cutoff in (_estimate_cutoff(distances, unreachable), unreachable - 1):
        near = [np.flatnonzero(distance <= cutoff) for distance in distances]
        if sum(map(len, near)) >= _FIRST_PASS_ROWS:
            break
    near_distances = [distance[rows] for distance, rows in zip(distances, near, strict=True)]
    enough = np.flatnonzero(np.cumsum(np.bincount(np.concatenate([_NO_ROWS, *near_distances]))) >= _FIRST_PASS_ROWS)
    limit = enough[0] if len(enough) else unreachable - 1
    return [rows[distance <= limit] for distance, rows in zip(near_distances, near, strict=True)]


def _distances(part: tuple[Segment, Bools], query_sketch: Hashes, dimensions: int, unreachable: int) -> Any:  # noqa: ANN401 - an array
    """Return the Hamming distance of each row from the query; `unreachable` for rows that are not wanted."""
    segment, wanted = part
    if segment.dimensions != dimensions:
        return np.full(segment.rows, unreachable, np.uint16)
    distance = np.zeros(segment.rows, np.uint16)
    # Buffers are reused for every plane: allocating them would take as long as counting.
    differing, counted = np.empty(segment.rows, np.uint64), np.empty(segment.rows, np.uint8)
    summed = np.zeros(segment.rows, np.uint8)
    for number, (plane, bits) in enumerate(zip(segment.sketches, query_sketch, strict=True), 1):
        np.bitwise_xor(plane, bits, out=differing)
        np.bitwise_count(differing, out=counted)
        summed += counted
        # Bytes are added many times faster than they are widened, and three planes of 64 bits fit into one.
        if number % _PLANES_PER_BYTE == 0 or number == len(query_sketch):
            distance += summed
            summed[:] = 0
    if segment.bundle.about["unembedded"] or not wanted.all():
        distance[~(wanted & (segment.scales > 0))] = unreachable
    return distance


def _estimate_cutoff(distances: Sequence[Any], unreachable: int) -> int:
    """Estimate from a sample the distance at which the first pass has enough rows, and not many more."""
    sample = np.concatenate([_NO_ROWS, *(distance[::_SAMPLE_STEP] for distance in distances)])
    place = _SAMPLE_MARGIN * _FIRST_PASS_ROWS // _SAMPLE_STEP
    return min(int(np.partition(sample, place)[place]), unreachable - 1) if len(sample) > place else unreachable - 1


# --- the candidate pool: the candidates, their neighbours, and the neighbours of those


_NO_KEYS: Final = np.zeros(0, np.uint64)
_NO_NUMBERS: Final = np.zeros(0)


class SegmentView(NamedTuple):
    """A segment as one query sees it: its live rows, those in the query's spaces, and those that pass its filters."""

    segment: Segment
    alive: Bools
    visible: Bools
    wanted: Bools


def gather(views: Sequence[SegmentView], chosen: Sequence[Rows], query: IndexQuery) -> CandidatePool:
    """Gather the candidates, their neighbours, and the neighbours of those."""
    chosen_rows = [(view.segment, rows) for view, rows in zip(views, chosen, strict=True)]
    keys = _concatenate([_NO_KEYS, *(segment.key[rows] for segment, rows in chosen_rows)])
    threads = _concatenate([_NO_KEYS, *(segment.thread[rows] for segment, rows in chosen_rows)])
    positions = _positions(chosen_rows)
    near, rows_of = [], []
    for view in views:
        rows, is_near = view.segment.around(keys, threads, positions, query.reach)
        seen = view.visible[rows]
        rows_of.append(rows[seen])
        near.append(is_near[seen] & view.wanted[rows[seen]])
    return _assemble_pool(views, rows_of, near, query)


def _assemble_pool(
    views: Sequence[SegmentView], rows_of: Sequence[Rows], near: Sequence[Bools], query: IndexQuery
) -> CandidatePool:
    pairs = [(view.segment, rows) for view, rows in zip(views, rows_of, strict=True)]
    threads = _concatenate([_NO_KEYS, *(segment.thread[rows] for segment, rows in pairs)])
    positions = _positions(pairs)
    sorting = None if _is_sorted(threads, positions) else np.lexsort((positions, threads))

    def in_order(columns: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays
        column = _concatenate(columns)
        return column if sorting is None else column[sorting]

    full = [pair for pair in pairs if len(pair[1])] or pairs[:1]

    def joined(name: str) -> Any:  # noqa: ANN401 - an array
        return in_order([segment.column(name)[rows] for segment, rows in full] or [_NO_ROWS])

    id_readers = [(len(rows), segment.id_reader(rows)) for segment, rows in full]

    def ids_of(row: int) -> tuple[str, str]:
        at = row if sorting is None else int(sorting[row])
        for size, ids_at in id_readers:
            if at < size:
                return ids_at(at)
            at -= size
        raise IndexError(row)

    speakers, speaker_columns = _speakers(full)
    vector, flags = query.vector, joined("flags")
    with_vectors = bool(pairs) and vector is not None and all(part.dimensions == len(vector) for part, _ in pairs)
    return CandidatePool(
        ids_of=ids_of,
        speakers=speakers,
        speaker=in_order([_NO_ROWS, *speaker_columns]),
        eligible=in_order([np.zeros(0, np.bool_), *near]),
        threads=_number_threads(in_order([threads])),
        positions=in_order([positions]),
        orders=joined("order"),
        starts=joined("start").astype(np.int64),
        ends=joined("end").astype(np.int64),
        seqs=joined("seq"),
        times=joined("time"),
        flags=flags,
        lengths=joined("length").astype(np.int64),
        entries=_term_entries(pairs, sorting, query),
        vectors=joined("vectors") if with_vectors else None,
        scales=joined("scales") if with_vectors else None,
        suspect=_suspects(views, partial(joined, "owner"), flags),
        squares=in_order(_stored_squares(views, rows_of, query.reach)) if with_vectors else None,
    )


def _speakers(pairs: Sequence[tuple[Segment, Rows]]) -> tuple[Sequence[str], list[Any]]:
    """Return the names of speakers, and for each segment the number of each row's speaker."""
    if len(pairs) == 1:
        ((segment, rows),) = pairs
        return segment.table("speaker"), [segment.column("speaker")[rows].astype(np.int64)]
    speakers = sorted({speaker for segment, _ in pairs for speaker in segment.table("speaker")})
    numbers = {speaker: at for at, speaker in enumerate(speakers)}
    return speakers, [
        np.array([numbers[speaker] for speaker in segment.table("speaker")], np.int64)[segment.column("speaker")[rows]]
        for segment, rows in pairs
    ]


def _suspects(views: Sequence[SegmentView], owners: Callable[[], Hashes], flags: Any) -> Bools:  # noqa: ANN401 - an array
    """Tell which rows are of owners that open notices of any space are about, and that have no decisions."""
    suspect: Bools = np.zeros(len(flags), np.bool_)
    with_notices = [view for view in views if view.segment.has_notices]
    # Mostly there are none, and the owners need not be read.
    if with_notices:
        of_rows = owners()
        for view in with_notices:
            suspect |= view.segment.doubts(of_rows, view.alive)
        suspect &= (flags & HAS_DECISIONS) == 0
    return suspect


def _stored_squares(views: Sequence[SegmentView], rows_of: Sequence[Rows], reach: int) -> list[Any]:
    """Return the squared norm of each row's pooled vector, as its segment has it, by segments.

    A row has none (NaN) if its segment could not tell it, if one of its neighbours is hidden, or if its thread
    continues in another segment.
    """
    full = [(view, rows) for view, rows in zip(views, rows_of, strict=True) if len(rows)]
    squares = [_NO_NUMBERS]
    for view, rows in full:
        stored = view.segment.squares
        of_rows = np.full(len(rows), np.nan) if stored is None else stored[rows]
        if not view.visible.all():
            of_rows[_has_hidden_neighbour(view, rows, reach)] = np.nan
        others = [other.segment.thread[theirs] for other, theirs in full if other is not view]
        if others:
            of_rows[np.isin(view.segment.thread[rows], np.concatenate(others))] = np.nan
        squares.append(of_rows)
    return squares


def _has_hidden_neighbour(view: SegmentView, rows: Rows, reach: int) -> Bools:
    """Tell which rows have a row of their thread within reach that the query does not see."""
    nearest = np.clip(rows[:, None] + np.arange(-reach, reach + 1), 0, view.segment.rows - 1)
    is_hidden = ~view.visible[nearest] & (view.segment.thread[nearest] == view.segment.thread[rows][:, None])
    hidden: Bools = is_hidden.any(axis=1)
    return hidden


def _positions(rows_of: Sequence[tuple[Segment, Rows]]) -> Any:  # noqa: ANN401 - an array
    """Return the positions of rows, in a type that can be subtracted."""
    return _concatenate([_NO_ROWS, *(segment.position[rows].astype(np.int64) for segment, rows in rows_of)])


def _concatenate(columns: Sequence[Any]) -> Any:  # noqa: ANN401 - arrays
    """Concatenate columns, without a copy if only one is not empty."""
    full = [column for column in columns if len(column)]
    return full[0] if len(full) == 1 else np.concatenate(columns)


def _is_sorted(threads: Hashes, positions: Any) -> bool:  # noqa: ANN401 - an array
    """Return whether rows are sorted by thread and position, as the rows of one segment usually are."""
    same = threads[1:] == threads[:-1]
    return bool(((threads[1:] > threads[:-1]) | (same & (positions[1:] >= positions[:-1]))).all())


def _number_threads(threads: Hashes) -> Any:  # noqa: ANN401 - an array
    """Number sorted threads from 0."""
    numbers = np.zeros(len(threads), np.int64)
    np.cumsum(threads[1:] != threads[:-1], out=numbers[1:])
    return numbers


def _term_entries(
    pairs: Sequence[tuple[Segment, Rows]], sorting: Rows | None, query: IndexQuery
) -> tuple[Any, Any, Any]:
    wanted = query.terms + query.expansion_terms
    entries = [(_NO_ROWS, _NO_ROWS, _NO_ROWS)]
    row_offset = 0
    for segment, rows in pairs:
        if len(rows):
            at, term, count = segment.terms_of(rows, wanted)
            entries.append((at + row_offset, term.astype(np.int64), count))
            row_offset += len(rows)
    rows_, terms, counts = (_concatenate(columns) for columns in zip(*entries, strict=True))
    if sorting is not None:
        place = np.empty_like(sorting)
        place[sorting] = np.arange(len(sorting))
        rows_ = place[rows_]
    return rows_, terms, counts


NO_OWNERS: Final[Hashes] = np.zeros(0, np.uint64)

_MAX_SEPARATE_DELTAS: Final = 8
"""The maximum of deltas that stay separate segments; more are merged into one."""


class OverlaidIndex:
    """Segments with pending deltas on top; the segments of the last deltas are cached."""

    def __init__(self, parts: tuple[Part, ...] = ()) -> None:
        """Use these as the base."""
        self._parts: Final = parts
        self._extended: tuple[PendingDeltas, tuple[Part, ...]] = ((), parts)

    def under(self, tail: PendingDeltas) -> tuple[Part, ...]:
        """Return the base with these deltas on top; only deltas that are new since the last call are built."""
        known, overlaid = self._extended
        if len(known) > len(tail) or any(delta is not other for delta, other in zip(known, tail, strict=False)):
            known, overlaid = (), self._parts
        for delta in tail[len(known) :]:
            overlaid = add_delta(overlaid, delta)
            if len(overlaid) > len(self._parts) + _MAX_SEPARATE_DELTAS:
                overlaid = merge_from(overlaid, len(self._parts))
        self._extended = (tail, overlaid)
        return overlaid


def add_delta(parts: tuple[Part, ...], delta: Delta) -> tuple[Part, ...]:
    """Return the parts with a delta as one more, and with the rows that it replaces masked."""
    owners = delta.replaced_owners | {entry.owner for entry in delta.entries}
    owner_hashes = np.array(sorted(hash_text(owner) for owner in owners), np.uint64)
    older, killed = [], [NO_OWNERS]
    for segment, alive in parts:
        rows = segment.owned_by(owner_hashes)
        killed.append(segment.column("owner")[rows])
        older.append(Part(segment, mask_rows(alive, rows)))
    dimensions = _dimensions(parts, delta)
    newest = build(delta.entries, killed=np.unique(np.concatenate(killed)), dimensions=dimensions)
    widened_parts = (Part(with_zero_vectors(segment, dimensions), alive) for segment, alive in older)
    return (*widened_parts, Part(newest, np.ones(newest.rows, np.bool_)))


def _dimensions(parts: tuple[Part, ...], delta: Delta) -> int:
    """Return the length of vectors: as in the existing segments, else as the first new vector has it."""
    existing = max((part.segment.dimensions for part in parts), default=0)
    return existing or next((len(entry.vector) for entry in delta.entries if entry.vector is not None), 0)


def merge_from(parts: tuple[Part, ...], since: int) -> tuple[Part, ...]:
    """Return the parts with those from `since` on merged into one, which keeps their deletions in older ones."""
    killed = np.unique(np.concatenate([part.segment.killed for part in parts[since:]])) if since else NO_OWNERS
    segment = merge([(part.segment, part.alive) for part in parts[since:]], killed=killed)
    return (*parts[:since], Part(segment, np.ones(segment.rows, np.bool_)))


def mask_rows(alive: Bools, rows: Rows) -> Bools:
    """Return the mask of live rows with these rows deleted."""
    if not len(rows):
        return alive
    alive = alive.copy()
    alive[rows] = False
    return alive


MAX_PARTS_PER_MEMORY: Final = 3
"""The maximum of parts of one memory among the candidates, since it becomes one hit anyway."""

ScoredRows = tuple[Rows, Any]
"""Rows of a segment and the score of each."""

Select = Callable[[int], Sequence[ScoredRows]]
"""Returns at least this number of the best rows of each segment, or all that it has."""

NO_SCORED_ROWS: Final[ScoredRows] = (np.zeros(0, np.intp), np.zeros(0))


class SortKeys(NamedTuple):
    """The columns by which candidates are sorted."""

    scores: Any
    orders: Hashes
    threads: Hashes
    positions: Any
    flags: Any
    wordings: Hashes

    def best_first(self, rows: Rows) -> Rows:
        """Return these rows by score, then by the order of ids."""
        keys = (self.positions[rows], self.threads[rows], ~self.orders[rows], -self.scores[rows])
        sorted_rows: Rows = rows[np.lexsort(keys)]
        return sorted_rows


def sort_keys_of(segment: Segment, rows: Rows, scores: Any) -> SortKeys:  # noqa: ANN401 - an array
    """Return these columns of some rows."""
    columns = (segment.order, segment.thread, segment.position, segment.flags, segment.column("wording"))
    return SortKeys(scores, *(column[rows] for column in columns))


def merge_best(segments: Sequence[Segment], select: Select, limit: int) -> list[Rows]:
    """Merge the best rows of each segment into the best of all, by score, then by the order of ids."""
    depth = limit
    while True:
        merged, dropped = _merge(segments, select(depth), limit)
        if depth >= limit + dropped:
            return merged
        # One row of a copy may replace several of its root in another segment: look further down there.
        depth = limit + dropped


def _merge(segments: Sequence[Segment], best_of: Sequence[ScoredRows], limit: int) -> tuple[list[Rows], int]:
    """Return the best of these rows, and how many were dropped for a copy with the same words in another segment."""
    sizes = [len(rows) for rows, _ in best_of]
    # Usually one segment has all that are needed, and nothing has to be compared.
    if sum(sizes) <= limit and np.count_nonzero(sizes) <= 1:
        return [rows for rows, _ in best_of], 0
    owners = np.repeat(np.arange(len(segments)), sizes)
    rows = np.concatenate([rows for rows, _ in best_of])
    columns = [sort_keys_of(segment, *scored) for segment, scored in zip(segments, best_of, strict=True)]
    keys = SortKeys(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    parts = kept = np.arange(len(rows))
    if np.count_nonzero(sizes) > 1:
        # Parts and copies were limited per segment; a thread, or the copies of a root, may lie in several segments.
        parts = _limit_parts_of_threads(keys)
        kept = first_of_wordings(keys, parts)
    best = keys.best_first(kept)[:limit]
    return [rows[best[owners[best] == at]] for at in range(len(segments))], len(parts) - len(kept)


def extra_depth(segment: Segment, others: Sequence[Segment]) -> int:
    """Return how many more rows of a segment are needed since some may be dropped for copies in others.

    One row may replace all parts of a memory with the same words that are candidates. The same holds the other way.
    """
    has_copies = bool((segment.flags & IS_COPY).any())
    wordings = segment.column("wording")[(segment.flags & IS_MESSAGE) == 0]
    shared = [np.zeros(0, np.uint64)]
    for other in others:
        # Of two memories with the same words, one at least is a copy.
        flags = other.flags & (IS_MESSAGE if has_copies else IS_MESSAGE | IS_COPY)
        compared = flags == (0 if has_copies else IS_COPY)
        if compared.any():
            shared.append(np.intersect1d(wordings, other.column("wording")[compared]))
    return (MAX_PARTS_PER_MEMORY - 1) * len(np.unique(np.concatenate(shared)))


def best_of_segment(
    segment: Segment,
    rows: Rows,
    scores: Any,  # noqa: ANN401 - an array
    limit: int,
    *,
    bound: float = 0.0,
) -> ScoredRows | None:
    """Return at least the best rows of one segment, and few others, with a limited number of parts of one memory.

    `bound` is the highest score of rows that are not among these. Returns None if one of those might be among the best.
    """
    depth = limit
    while True:
        best, best_scores = _top_rows(segment, rows, scores, depth)
        if bound and (len(rows) <= depth or best_scores.min() <= bound):
            return None
        kept = _limit_parts(sort_keys_of(segment, best, best_scores))
        if len(kept) >= limit or (len(best) == len(rows) and not bound):
            return best[kept], best_scores[kept]
        # Parts of a long memory, or copies, took the places of others: look further down.
        depth *= 4


def _limit_parts(keys: SortKeys) -> Rows:
    """Return the places of the rows to keep: every message, and the best parts of each other memory.

    Of a root and its copies with the same words, only the first memory is kept.
    """
    return first_of_wordings(keys, _limit_parts_of_threads(keys))


def first_of_wordings(keys: SortKeys, rows: Rows) -> Rows:
    """Return the messages among these rows, and of each wording the rows of the memory that comes first.

    The first row of a wording, in the order of all rows, is among the best however many are taken. So the choice does
    not depend on how many rows an engine compares.
    """
    if not (keys.flags & IS_COPY).any():
        return rows
    best = keys.best_first(rows)
    _, first, number = np.unique(keys.wordings[best], return_index=True, return_inverse=True)
    is_first = keys.threads[best] == keys.threads[best[first]][number]
    is_message = (keys.flags[best] & IS_MESSAGE) > 0
    return np.sort(best[is_message | is_first])


def _limit_parts_of_threads(keys: SortKeys) -> Rows:
    if not _has_too_many_parts(keys):
        return np.arange(len(keys.threads))
    order = np.lexsort((keys.positions, ~keys.orders, -keys.scores, keys.threads))
    threads = keys.threads[order]
    begins = np.flatnonzero(np.concatenate([np.ones(min(len(order), 1), np.bool_), threads[1:] != threads[:-1]]))
    rank = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    is_message = (keys.flags[order] & IS_MESSAGE) > 0
    return np.sort(order[is_message | (rank < MAX_PARTS_PER_MEMORY)])


def _has_too_many_parts(keys: SortKeys) -> bool:
    """Return whether any part of a memory is in a thread with more rows than are kept; messages are kept anyway."""
    part_threads = keys.threads[(keys.flags & IS_MESSAGE) == 0]
    if len(part_threads) <= MAX_PARTS_PER_MEMORY:
        return False
    threads = np.sort(keys.threads)
    crowded = threads[MAX_PARTS_PER_MEMORY:][threads[MAX_PARTS_PER_MEMORY:] == threads[:-MAX_PARTS_PER_MEMORY]]
    if not len(crowded):
        return False
    places = np.minimum(crowded.searchsorted(part_threads), len(crowded) - 1)
    return bool((crowded[places] == part_threads).any())


def _top_rows(segment: Segment, rows: Rows, scores: Any, limit: int) -> ScoredRows:  # noqa: ANN401 - an array
    """Return the best rows; among those equal to the last of them, the newest."""
    if len(rows) <= limit:
        return rows, scores
    # Selects from the highest score down: most rows share a few of the lowest scores, where a selection is slow.
    least = -np.partition(-scores, limit - 1)[limit - 1]
    better, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    missing = limit - len(better)
    if len(equal) > missing:
        orders = segment.order[rows[equal]]
        newest = np.partition(orders, len(orders) - missing)[len(orders) - missing]
        equal = equal[orders >= newest]
    kept = np.concatenate([better, equal])
    return rows[kept], scores[kept]
