"""Ranking: score the passages of a candidate pool by a sum of features, the same on every engine.

Pure arithmetic. The lexical feature is BM25-like: inverse document frequency, saturation and length normalisation, with
counts of query terms and expansion terms pooled over neighbouring passages. Semantic similarity and features of the
passage are added to it. The score is absolute: it depends on the query, the passage and its neighbours, and on how many
passages of the searched spaces have each term, but not on the other candidates. docs/decisions/0006 explains the weight
of each feature.

Pools the values and the vectors of passages with their neighbours' in the same session or memory. Passages lie in a
row of slots: neighbours are as far apart as in their thread, and other passages are out of reach of each other. So a
sum over neighbours is a sum along the row, weighted by a kernel. Vectors are signed bytes with a scale. Their products
are whole numbers, which floats add up exactly in any order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from commonbook.ports.index import BY_USER, IS_MESSAGE, IS_QUESTION, IS_WISH, TELLS_NAME, TELLS_TIME, CandidatePool
from commonbook.subjects.recall.confidence import QueryRarity

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
ExpandedTerm: TypeAlias = tuple[int, int, float]
"""(place of a query term, place of a term near it among query and expansion terms, their cosine)."""

RowParts: TypeAlias = Mapping[str, float]
"""The parts of the score of one passage, by feature."""

_PIVOT_LENGTH: Final = 28.0
_LENGTH_SLOPE: Final = 0.75
_MAX_LENGTH: Final = 2000
"""The length in words at which length normalisation stops: a word in a very long text is still found."""

_LONG_PASSAGE: Final = 50
"""The length in words from which on a passage lends less to its neighbours, and names in it count less.

A long answer has every word of its subject, and mostly some name.
"""

_SATURATION: Final = 0.8
MIN_NEAR_COSINE: Final = 0.4
"""The cosine from which on two words count as near in meaning."""

_EXPANSION_WEIGHT: Final = 0.5
_MAX_EXPANSIONS: Final = 8
"""The number of expansion terms that count for one query term."""

_EPSILON: Final = 1e-9

_SEMANTIC_WEIGHT: Final = 0.25
_SPEAKER_WEIGHT: Final = 0.13
_QUESTION_WEIGHT: Final = -0.04
_LENGTH_WEIGHT: Final = 0.10
_FULL_LENGTH: Final = 60
_TIME_WEIGHT: Final = 0.10
_TOLD_NAME_WEIGHT: Final = 0.05
_DATE_WEIGHT: Final = 0.25
_NAME_WEIGHT: Final = 0.30
_PHRASE_WEIGHT: Final = 0.50
_WISH_WEIGHT: Final = 0.15

MIN_SCORE: Final = 0.04
"""The lowest score of hits, unless the request sets a confidence."""

_FULL_EVIDENCE: Final = 0.15
"""The score of lexical, semantic and date features from which on the supporting features count fully."""

_FIRST_PERSON: Final = frozenset({"i", "my", "me", "mine", "we", "our", "us"})
_ROLES: Final = frozenset({"user", "agent", "assistant", "system", "tool", "human", "ai", "local", "filesystem"})

PARTS: Final = (
    "lexical", "meaning", "speaker", "question", "length", "time", "told_name", "date", "name", "phrase", "wish",
)  # fmt: skip
"""The features whose sum is the score."""


class QueryFeatures(NamedTuple):
    """A query: the inverse document frequency of each term, and all its words as they stand, lower-cased."""

    idf: Sequence[float]
    words: frozenset[str] = frozenset()
    asks_when: bool = False
    asks_for_name: bool = False
    asks_for_advice: bool = False
    vector: Floats | None = None
    name_place: int | None = None
    """The place, among query and expansion terms, of the term that memories with the query as a name have."""


class Scores(NamedTuple):
    """The score of every passage of a pool, and its parts: a row for each feature of PARTS; none without a query.

    `coverage` has a row for each passage and a column for each query term: how much of the term the passage has, by
    itself, by near terms and by its neighbours, from 0 to 1.
    """

    total: Numbers
    parts: Numbers
    rarity: QueryRarity = QueryRarity()
    coverage: Numbers = np.zeros((0, 0))

    def parts_of(self, row: int) -> RowParts:
        """Return the parts of a passage's score."""
        return dict(zip(PARTS, self.parts[:, row].tolist(), strict=False))


def cosine(parts: RowParts) -> float:
    """Return the cosine between the query's vector and the vector of a passage with its neighbours."""
    return parts["meaning"] / _SEMANTIC_WEIGHT


def word_share(parts: RowParts) -> float:
    """Return the share of the query that a passage has by its words, or as a phrase."""
    return max(parts["lexical"], parts["phrase"] / _PHRASE_WEIGHT)


def named_share(parts: RowParts) -> float:
    """Return the share of the query that a passage has by its words, as a phrase or as a name."""
    return word_share(parts) + parts["name"]


def evidence(parts: RowParts) -> float:
    """Return the part of a score that a query's words, meaning and dates give."""
    return parts["lexical"] + parts["meaning"] + parts["date"]


def idf(passages: int, having: int) -> float:
    """Return the inverse document frequency of a term that `having` of `passages` passages contain."""
    return log(1 + (passages - having + 0.5) / (having + 0.5))


def share(count: float, length: float) -> float:
    """Return a term's count normalised by the passage's length: in a long passage every term is more frequent."""
    return count / length_norm(length)


def length_norm(length: float) -> float:
    """Return the number by which counts in a passage of this length are divided."""
    return 1 - _LENGTH_SLOPE + _LENGTH_SLOPE * min(length, _MAX_LENGTH) / _PIVOT_LENGTH


def word_weights(words: Sequence[str], small: frozenset[str]) -> dict[str, float]:
    """Return the words that are not stop words (`small`), each with its normalised count, for an embedder."""
    counts = Counter([word for word in words if word not in small])
    norm = length_norm(len(words))
    return {word: count / norm for word, count in counts.items()}


def to_bytes(vector: Floats) -> bytes:
    """Encode a vector for storage: little-endian 32-bit floats."""
    return vector.astype("<f4").tobytes()


def from_bytes(vector: bytes | None) -> Floats | None:
    """Decode a stored vector; None if there is none."""
    return None if vector is None else np.frombuffer(vector, "<f4").astype(np.float32)


def is_short_question(text: str, words: int) -> bool:
    """Return whether a passage of that many words is a short question: it asks instead of telling."""
    return words <= _PIVOT_LENGTH and text.rstrip().endswith(("?", "\uff1f", "\u061f"))


def rank(
    query: QueryFeatures,
    pool: CandidatePool,
    *,
    expansions: Iterable[ExpandedTerm] = (),
    date_matches: Numbers | None = None,
    phrase_matches: Numbers | None = None,
) -> tuple[npt.NDArray[np.intp], Scores]:
    """Score a pool; return its eligible rows, best first, and the scores. Of equal scores the newest comes first.

    `expansions` lists for each query term the nearest first. `date_matches` says how well each passage's day matches
    the dates that the query names, `phrase_matches` how much of its phrase each passage has.
    """
    slots = slots_of(pool.threads, pool.positions)
    # The part of a feature that the query does not ask for stays zero.
    parts = np.zeros((len(PARTS), len(pool.positions)))
    coverage = _coverage(query, pool, slots, expansions)
    parts[0] = _lexical(query, coverage)
    parts[1] = _SEMANTIC_WEIGHT * _semantic(query, pool, slots)
    parts[2] = _SPEAKER_WEIGHT * _by_asked_speaker(query, pool)
    parts[3] = _QUESTION_WEIGHT * _has_flag(pool, IS_QUESTION)
    parts[4] = _LENGTH_WEIGHT * _length_feature(pool) * _has_flag(pool, IS_MESSAGE)
    if query.asks_when:
        parts[5] = _TIME_WEIGHT * _has_flag(pool, TELLS_TIME)
    if query.asks_for_name:
        parts[6] = _TOLD_NAME_WEIGHT * _has_flag(pool, TELLS_NAME) * _brevity(pool)
    if date_matches is not None:
        parts[7] = _DATE_WEIGHT * date_matches
    parts[8, _named_rows(query, pool)] = _NAME_WEIGHT
    if phrase_matches is not None:
        parts[9] = _PHRASE_WEIGHT * phrase_matches
    if query.asks_for_advice:
        parts[10] = _WISH_WEIGHT * _has_flag(pool, IS_WISH)
    # Supporting features count only in proportion to the evidence: the right speaker alone answers nothing.
    parts[[2, 3, 4, 5, 6, 10]] *= np.clip((parts[0] + parts[1] + parts[7]) / _FULL_EVIDENCE, 0, 1)
    # Six digits: the last ones of a float depend on the order of the additions.
    parts = np.round(parts, 6) + 0.0
    total = np.round(parts.sum(axis=0), 6)
    rows = np.flatnonzero(pool.eligible)
    # The sort is stable, and a pool is sorted by thread and position.
    best = np.lexsort((~pool.orders[rows], -total[rows]))
    return rows[best], Scores(total, parts, coverage=coverage)


# --- the lexical feature


def _coverage(query: QueryFeatures, pool: CandidatePool, slots: Ints, expansions: Iterable[ExpandedTerm]) -> Numbers:
    """Return the saturated counts of the query terms in each passage."""
    rows, terms, counts = pool.entries
    size = len(pool.positions)
    lengths = np.minimum(pool.lengths[rows], _MAX_LENGTH)
    shares = counts / (1 - _LENGTH_SLOPE + _LENGTH_SLOPE * lengths / _PIVOT_LENGTH)
    present = np.bincount(terms, minlength=int(terms.max(initial=0)) + 1) > 0
    weights = _term_weights(len(query.idf), len(present), expansions, present)
    frequencies = _frequencies(rows, terms, shares, weights, size)
    lent = frequencies * _brevity(pool)[:, None]
    pooled = frequencies + pool_values(lent, slots) - lent
    covered: Numbers = pooled / (pooled + _SATURATION)
    return covered


def _frequencies(rows: Ints, terms: Ints, shares: Numbers, weights: Numbers, size: int) -> Numbers:
    """Return how often each passage has each query term: the sum of the weighted shares of its entries.

    Nearly every term counts for one query term only. So one count serves for all, and few are counted again.
    """
    places = len(weights)
    if not places:
        return np.zeros((size, 1))
    columns = np.arange(weights.shape[1])
    owner = weights.argmax(axis=0)
    own_weights = weights[owner, columns]
    counted = np.bincount(rows * places + owner[terms], shares * own_weights[terms], minlength=size * places)
    frequencies: Numbers = counted.astype(np.float64, copy=False).reshape(size, places)
    others = weights.copy()
    others[owner, columns] = 0.0
    for place in np.flatnonzero(others.any(axis=1)).tolist():
        frequencies[:, place] += np.bincount(rows, shares * others[place][terms], minlength=size)
    return frequencies


def _lexical(query: QueryFeatures, coverage: Numbers) -> Numbers:
    """Return how much of the query terms each passage has, weighted by idf, as a share of all idf in the query."""
    rarity = np.array(query.idf or [0.0])
    lexical: Numbers = np.einsum("ij,j->i", coverage, rarity) / max(float(rarity.sum()), 1e-9)
    return lexical


def _term_weights(
    query_terms: int, size: int, expansions: Iterable[ExpandedTerm], present: npt.NDArray[np.bool_]
) -> Numbers:
    """Return the weight of each term for each query term: 1 for itself, less for the nearest that occur in the pool."""
    weights = np.zeros((query_terms, max(size, query_terms)))
    np.fill_diagonal(weights, 1.0)
    used = [0] * query_terms
    occurring = frozenset(np.flatnonzero(present).tolist())
    for term, other, cosine in expansions:
        if other in occurring and used[term] < _MAX_EXPANSIONS:
            used[term] += 1
            weights[term, other] = max(
                weights[term, other], _EXPANSION_WEIGHT * (cosine - MIN_NEAR_COSINE) / (1 - MIN_NEAR_COSINE)
            )
    return weights


# --- the semantic feature

_RESIDUAL_SCALE: Final = 256


def _semantic(query: QueryFeatures, pool: CandidatePool, slots: Ints) -> Numbers:
    """Return the cosine between the query's vector and each passage's, pooled with its neighbours'.

    Vectors of passages are signed bytes with a scale. Their products are whole numbers, which floats add up exactly in
    any order.
    """
    size = len(pool.positions)
    if query.vector is None or pool.vectors is None or pool.scales is None or not query.vector.any():
        return np.zeros(size)
    scales = pool.scales.astype(np.float64)
    coarse, fine, step = _quantize(query.vector)
    products = (pool.vectors.astype(np.float32) @ np.stack([coarse, fine], axis=1)).astype(np.float64)
    dots = pool_values((products[:, 0] + products[:, 1] / _RESIDUAL_SCALE) * scales, slots) * step
    norms = np.sqrt(np.maximum(_pooled_squares(pool, pool.vectors, scales, slots), 0))
    query_norm = np.linalg.norm(coarse.astype(np.float64) + fine / _RESIDUAL_SCALE) * step
    cosines: Numbers = dots / np.maximum(norms * query_norm, _EPSILON)
    return np.where(norms > _EPSILON, cosines, 0)


def _quantize(vector: Floats) -> tuple[Floats, Floats, float]:
    """Return a vector as whole numbers up to 127, the residual in units of 1/_RESIDUAL_SCALE, and the step of one."""
    step = float(np.abs(vector).max()) / 127
    exact = vector.astype(np.float64) / step
    coarse = np.rint(exact)
    return coarse.astype(np.float32), np.rint((exact - coarse) * _RESIDUAL_SCALE).astype(np.float32), step


def _pooled_squares(pool: CandidatePool, vectors: npt.NDArray[np.int8], scales: Numbers, slots: Ints) -> Numbers:
    """Return the squared norm of each passage's vector, pooled with its neighbours', as far as the index knows it.

    Where it does not, the vectors of the whole thread are pooled here.
    """
    if pool.squares is None:
        return pooled_squares(vectors, scales, slots)
    unknown = np.flatnonzero(np.isnan(pool.squares) & pool.eligible)
    if not len(unknown):
        return pool.squares
    is_unknown = np.zeros(int(pool.threads[-1]) + 1, np.bool_)
    is_unknown[pool.threads[unknown]] = True
    rows = np.flatnonzero(is_unknown[pool.threads])
    squares = pool.squares.copy()
    squares[rows] = pooled_squares(vectors[rows], scales[rows], slots_of(pool.threads[rows], pool.positions[rows]))
    return squares


# --- features of a passage


def _has_flag(pool: CandidatePool, flag: int) -> Flags:
    flags: Flags = (pool.flags & flag) != 0
    return flags


def _named_rows(query: QueryFeatures, pool: CandidatePool) -> Ints:
    """Return the rows of memories whose title, alias or file name is the query."""
    rows, terms, _ = pool.entries
    return rows[terms == query.name_place] if query.name_place is not None else rows[:0]


def _brevity(pool: CandidatePool) -> Numbers:
    """Return 1 for passages that are not long, and less in proportion for others."""
    return np.minimum(1, _LONG_PASSAGE / np.maximum(pool.lengths, 1))


def _length_feature(pool: CandidatePool) -> Numbers:
    return np.minimum(1, np.log(1 + pool.lengths) / log(_FULL_LENGTH))


def _by_asked_speaker(query: QueryFeatures, pool: CandidatePool) -> Flags:
    """Tell which passages are of the only speaker that the query names.

    If it names none or several, and is in the first person, these are the passages of users.
    """
    speaker = _only_speaker(query, pool.speakers, pool.speaker)
    if speaker is not None:
        by_speaker: Flags = pool.speaker == speaker
        return by_speaker
    return _has_flag(pool, BY_USER) & (not query.words.isdisjoint(_FIRST_PERSON))


# A few speakers occur again and again.
@lru_cache(maxsize=1024)
def _name_words(name: str) -> frozenset[str]:
    """Return the words by which a query may name a speaker."""
    return frozenset(re.findall(r"\w+", name.lower())) - _ROLES


def _only_speaker(query: QueryFeatures, names: Sequence[str], spoken: Ints) -> int | None:
    """Return the one speaker whose name is in the query; None if it names none or several."""
    speakers = np.flatnonzero(np.bincount(spoken)).tolist()
    named = [speaker for speaker in speakers if query.words & _name_words(names[speaker])]
    return named[0] if len(named) == 1 else None


Bytes: TypeAlias = npt.NDArray[np.int8]

REACH: Final = 4
"""The number of neighbours on each side that count."""

_NEIGHBOUR_DECAY: Final = 0.5
_FOLLOWING_WEIGHT: Final = 0.6
_WINDOW_SPAN: Final = 2 * REACH
"""The largest distance between two neighbours of one passage."""

_BLOCK: Final = 8
_ROWS_AT_ONCE: Final = 4096
"""The number of rows of a segment that are pooled at once, which takes some megabytes."""


def _neighbour_weight(distance: int) -> float:
    return _NEIGHBOUR_DECAY ** abs(distance) * (_FOLLOWING_WEIGHT if distance > 0 else 1)


_KERNEL: Final = np.array([_neighbour_weight(distance) for distance in range(-REACH, REACH + 1)])
"""The weights of a passage's neighbours, from the first before it to the last after it."""


def slots_of(threads: Ints, positions: Ints) -> Ints:
    """Give each passage a slot in a row; they come sorted by the number of their thread, and by position.

    There are REACH empty slots before the first passage; `_scatter` adds as many after the last.
    """
    return _compact(threads * 2**50 + positions)


def _compact(places: Ints) -> Ints:
    """Shrink every gap between sorted places to at most REACH + 1, and leave REACH slots before the first."""
    return REACH + np.cumsum(np.minimum(np.diff(places, prepend=places[:1]), REACH + 1))


def _scatter(values: Numbers, slots: Ints) -> Numbers:
    """Return a row with each passage's values in its slot, and zeros elsewhere."""
    row = np.zeros((int(slots.max(initial=REACH)) + 1 + REACH, *values.shape[1:]))
    row[slots] = values
    return row


def pool_values(values: Numbers, slots: Ints) -> Numbers:
    """Return for each passage the sum of its own values and its neighbours', weighted by the kernel."""
    row = _scatter(values, slots)
    size = len(row) - _WINDOW_SPAN
    out = np.zeros((size, *values.shape[1:]))
    for offset, weight in enumerate(_KERNEL):
        out += weight * row[offset : offset + size]
    pooled: Numbers = out[slots - REACH]
    return pooled


def pooled_squares(vectors: Bytes, scales: Numbers, slots: Ints) -> Numbers:
    """Return the squared norm of each passage's vector after it was pooled with its neighbours' vectors."""
    squares = np.empty(len(slots))
    adjacent = np.zeros(len(slots) + 1, np.bool_)
    adjacent[1:-1] = slots[1:] - slots[:-1] <= REACH
    has_neighbour = adjacent[:-1] | adjacent[1:]
    alone, rows = np.flatnonzero(~has_neighbour), np.flatnonzero(has_neighbour)
    if len(alone):
        wide = vectors[alone].astype(np.float32)
        squares[alone] = np.vecdot(wide, wide) * scales[alone] * scales[alone]
    if len(rows):
        squares[rows] = _squares_of_windows(vectors, scales, rows, _compact(slots[rows]))
    return squares


def squares_of_rows(
    vectors: Bytes, scales: Floats, threads: npt.NDArray[np.uint64], positions: npt.NDArray[Any]
) -> Numbers:
    """Return the squared norms of pooled vectors for all rows of a segment, where the rows of a thread lie together.

    NaN stands for a norm that is left out: near two rows of one position, and in threads of which the rows are not
    sorted by position, or lie between rows of another thread whose hash begins alike.
    """
    squares = np.full(len(threads), np.nan)
    places, follows = positions.astype(np.int64), threads[1:] == threads[:-1]
    steps = np.diff(places)
    if bool((follows & (steps < 0)).any()):
        return squares
    for begin in range(0, len(threads), _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, len(threads))
        # With the neighbours of the first and of the last row.
        around = slice(max(begin - REACH, 0), end + REACH)
        numbers = np.cumsum(threads[around][1:] != threads[around][:-1])
        slots = slots_of(np.concatenate([[0], numbers]), places[around])
        pooled = pooled_squares(vectors[around], scales[around].astype(np.float64), slots)
        squares[begin:end] = pooled[begin - around.start : end - around.start]
    first = np.ones(len(threads), np.bool_)
    first[1:] = ~follows
    runs, count = np.unique(threads[first], return_counts=True)
    squares[np.isin(threads, runs[count > 1])] = np.nan
    for row in np.flatnonzero(follows & (steps == 0)).tolist():
        squares[max(row - _WINDOW_SPAN, 0) : row + _WINDOW_SPAN + 2] = np.nan
    return squares


def _squares_of_windows(vectors: Bytes, scales: Numbers, rows: Ints, slots: Ints) -> Numbers:
    """Return the same for passages with neighbours.

    It is the sum of the products of every two vectors in the window of a passage, weighted by the kernel.
    """
    blocks = -(-(int(slots[-1]) + 1 + REACH) // _BLOCK)
    # An empty slot may hold any row: its size is zero, so its products count nothing.
    row_in_slot = np.zeros(blocks * _BLOCK + _WINDOW_SPAN, np.intp)
    row_in_slot[slots] = rows
    sizes = np.zeros(len(row_in_slot))
    sizes[slots] = scales[rows]
    weights = sizes[:-_WINDOW_SPAN, None] * _windows(sizes, _WINDOW_SPAN + 1)
    products = _products_with_following(vectors.take(row_in_slot, axis=0).astype(np.float32), blocks) * weights
    # For each slot: its products, weighted as the first slot of a window, as the second and so on. A window's sum then
    # lies along a diagonal.
    weighted = (products @ _PAIR_WEIGHTS.T).ravel()
    diagonals = _windows(weighted, _PAIR_WEIGHTS.size)[:: _WINDOW_SPAN + 1, :: _WINDOW_SPAN + 2]
    squares: Numbers = diagonals[slots - REACH].sum(axis=1)
    return squares


def _products_with_following(row: Floats, blocks: int) -> Floats:
    """Return the dot products of each vector with itself and with those up to _WINDOW_SPAN after it, by blocks."""
    following = _windows(row, _BLOCK + _WINDOW_SPAN)[::_BLOCK]
    block_products = row[: blocks * _BLOCK].reshape(blocks, _BLOCK, -1) @ following
    products: Floats = block_products.reshape(blocks, -1)[:, _FOLLOWING].reshape(blocks * _BLOCK, _WINDOW_SPAN + 1)
    return products


def _windows(row: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return all windows of this length of a contiguous array, without a copy; the last axis runs along a window.

    `sliding_window_view` checks its arguments for longer than most products take.
    """
    shape = (len(row) - size + 1, *row.shape[1:], size)
    return np.ndarray(shape, row.dtype, row, 0, (*row.strides, row.strides[0]))


_FOLLOWING: Final = np.arange(_BLOCK)[:, None] * (_BLOCK + _WINDOW_SPAN + 1) + np.arange(_WINDOW_SPAN + 1)
"""The places, in a flattened block of products, of each vector's products with itself and with those after it."""

_PAIR_WEIGHTS: Final = np.array(
    [
        [
            _KERNEL[first] * _KERNEL[first + distance] * (1 + (distance > 0))
            if first + distance <= _WINDOW_SPAN
            else 0.0
            for distance in range(_WINDOW_SPAN + 1)
        ]
        for first in range(_WINDOW_SPAN + 1)
    ]
)
"""The weight of a product of two vectors, by the first one's place in the window and the distance between them."""
