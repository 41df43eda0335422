"""Which passages answer a question best: pure arithmetic over what an engine found, the same on every engine.

The score is absolute: it depends on the question, the passage and its neighbours, and on how many passages of the asked
spaces have each term, but not on what else was found. docs/decisions/0006 says what each part is worth.
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
from numpy.lib.stride_tricks import sliding_window_view

from commonbook.ports.index import BY_USER, IS_CHAT, IS_QUESTION, TELLS_TIME, CandidatePool

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]
Near: TypeAlias = tuple[int, int, float]
"""(place of an asked term, place of another term among asked and near ones, how near they are)."""

REACH: Final = 4
"""How many neighbours on each side count."""

_DECAY: Final = 0.5
_AFTER: Final = 0.6
_PIVOT: Final = 25.0
_SLOPE: Final = 0.75
_LONGEST: Final = 200
"""A message of more words is taken for one of so many: what it says once, it still says."""

_SATURATION: Final = 0.8
NEAR: Final = 0.4
"""The cosine from which on two words are taken for near."""

_NEAR_WEIGHT: Final = 0.5
_NEAR_TERMS: Final = 8

_NOTHING: Final = 1e-9

_MEANING: Final = 0.25
_SPEAKER: Final = 0.13
_QUESTION: Final = -0.04
_LENGTH: Final = 0.10
_FULL_LENGTH: Final = 60
_TIME: Final = 0.10
_DATE: Final = 0.25

LEAST: Final = 0.12
"""What scores less answers nothing: it is not returned unless somebody asks for less."""

BEHIND: Final = -0.08
"""What a copy loses that no longer says what its source says."""

SUSPECT: Final = -0.12
"""What a memory loses that rests on something that no longer holds, until somebody decides about it."""

_GROUND: Final = 0.15

_FIRST_PERSON: Final = frozenset({"i", "my", "me", "mine", "we", "our", "us"})
_ROLES: Final = frozenset({"user", "agent", "assistant", "system", "tool", "human", "ai", "local", "filesystem"})

PARTS: Final = ("lexical", "meaning", "speaker", "question", "length", "time", "date")
"""What a score is the sum of."""


class Question(NamedTuple):
    """What is asked: the rarity of each term, and all words as they stand, lower-cased."""

    idf: Sequence[float]
    words: frozenset[str] = frozenset()
    asks_when: bool = False
    vector: Floats | None = None


class Scores(NamedTuple):
    """The score of every passage of a pool, and its parts, each an array."""

    total: Numbers
    parts: Mapping[str, Numbers]


def idf(passages: int, having: int) -> float:
    """Return how much a term tells that so many of so many passages have."""
    return log(1 + (passages - having + 0.5) / (having + 0.5))


def share(count: float, length: float) -> float:
    """Return how much of a passage a term is that it has so often; long passages have everything more often."""
    return count / (1 - _SLOPE + _SLOPE * min(length, _LONGEST) / _PIVOT)


def word_weights(words: Sequence[str], small: frozenset[str]) -> dict[str, float]:
    """Return the words that say something, each with its share of the text: what a vector is made of."""
    counts = Counter(word for word in words if word not in small)
    return {word: share(count, len(words)) for word, count in counts.items()}


def to_bytes(vector: Floats) -> bytes:
    """Write a vector as it is kept."""
    return vector.astype("<f4").tobytes()


def from_bytes(vector: bytes | None) -> Floats | None:
    """Read a vector that was kept; None if there is none."""
    return None if vector is None else np.frombuffer(vector, "<f4").astype(np.float32)


def is_short_question(text: str, words: int) -> bool:
    """Tell whether a passage asks instead of telling."""
    return words <= _PIVOT and text.rstrip().endswith(("?", "\uff1f", "\u061f"))


def rank(
    question: Question, pool: CandidatePool, *, near: Iterable[Near] = (), dates: Numbers | None = None
) -> tuple[npt.NDArray[np.intp], Scores]:
    """Score a pool; return its eligible rows, best first, and the scores. Equal ones go newest first.

    `near` holds for each asked term the nearest first; `dates` says how well each passage's day matches the one that
    the question names.
    """
    slots = _slots(pool)
    parts = np.zeros((len(PARTS), len(pool.positions)))
    parts[0] = _lexical(question, pool, slots, near)
    parts[1] = _MEANING * _meaning(question, pool, slots)
    parts[2] = _SPEAKER * _speaks(question, pool)
    parts[3] = _QUESTION * _has(pool, IS_QUESTION)
    parts[4] = _LENGTH * _lengths(pool) * _has(pool, IS_CHAT)
    parts[5] = _TIME * question.asks_when * _has(pool, TELLS_TIME)
    parts[6] = _DATE * (dates if dates is not None else 0.0)
    # What is only likely of a passage counts as far as there is a ground for it: a speaker alone answers nothing.
    parts[2:6] *= np.clip((parts[0] + parts[1] + parts[6]) / _GROUND, 0, 1)
    # Six digits: the last ones of a float depend on how it was summed up.
    parts = np.round(parts, 6) + 0.0
    total = np.round(parts.sum(axis=0), 6)
    rows = np.flatnonzero(pool.eligible)
    # The sort is stable, and a pool stands in the order of threads and positions.
    best = np.lexsort((~pool.orders[rows], -total[rows]))
    return rows[best], Scores(total, dict(zip(PARTS, parts, strict=True)))


def _kernel(distance: int) -> float:
    return _DECAY ** abs(distance) * (_AFTER if distance > 0 else 1)


_KERNEL: Final = np.array([_kernel(distance) for distance in range(-REACH, REACH + 1)])
"""What a passage's neighbours count, from the first before it to the last after it."""

_FURTHEST: Final = 2 * REACH
"""No two neighbours of one passage are further apart."""

_BLOCK: Final = 8
_FINER: Final = 256


def _slots(pool: CandidatePool) -> Ints:
    """Give each passage a place in a row where neighbours are as far apart as in their thread, and others further.

    So what counts of neighbours is a sum along the row; before the first and after the last there is room for some.
    """
    return _side_by_side(pool.threads * 2**50 + pool.positions)


def _side_by_side(places: Ints) -> Ints:
    return REACH + np.cumsum(np.minimum(np.diff(places, prepend=places[:1]), REACH + 1))


def _laid_out(own: Numbers, slots: Ints) -> Numbers:
    row = np.zeros((int(slots.max(initial=REACH)) + 1 + REACH, *own.shape[1:]))
    row[slots] = own
    return row


def _pooled(own: Numbers, slots: Ints) -> Numbers:
    """Add to each passage's numbers what its neighbours' count."""
    row = _laid_out(own, slots)
    size = len(row) - _FURTHEST
    out = np.zeros((size, *own.shape[1:]))
    for at, weight in enumerate(_KERNEL):
        out += weight * row[at : at + size]
    pooled: Numbers = out[slots - REACH]
    return pooled


def _lexical(question: Question, pool: CandidatePool, slots: Ints, near: Iterable[Near]) -> Numbers:
    rows, terms, counts = pool.entries
    size = len(pool.positions)
    shares = counts / (1 - _SLOPE + _SLOPE * np.minimum(pool.lengths[rows], _LONGEST) / _PIVOT)
    present = np.bincount(terms, minlength=int(terms.max(initial=0)) + 1) > 0
    weights = _weights(len(question.idf), len(present), near, present)
    own = np.zeros((size, max(len(weights), 1)))
    for at, weight in enumerate(weights):
        own[:, at] = np.bincount(rows, shares * weight[terms], minlength=size)
    pooled = _pooled(own, slots)
    rarity = np.array(question.idf or [0.0])
    filled: Numbers = np.einsum("ij,j->i", pooled / (pooled + _SATURATION), rarity) / max(float(rarity.sum()), 1e-9)
    return filled


def _weights(asked: int, size: int, near: Iterable[Near], present: npt.NDArray[np.bool_]) -> Numbers:
    """Return how much each term counts for each asked one: itself wholly, the eight nearest that occur a little."""
    weights = np.zeros((asked, max(size, asked)))
    np.fill_diagonal(weights, 1.0)
    taken = [0] * asked
    there = frozenset(np.flatnonzero(present).tolist())
    for own, other, cosine in near:
        if other in there and taken[own] < _NEAR_TERMS:
            taken[own] += 1
            weights[own, other] = max(weights[own, other], _NEAR_WEIGHT * (cosine - NEAR) / (1 - NEAR))
    return weights


def _meaning(question: Question, pool: CandidatePool, slots: Ints) -> Numbers:
    """Return the cosine between the question and each passage with its neighbours.

    Products of signed bytes are whole numbers, which floats add up exactly in any order.
    """
    size = len(pool.positions)
    if question.vector is None or pool.vectors is None or pool.scales is None or not question.vector.any():
        return np.zeros(size)
    vectors = pool.vectors.astype(np.float32)
    scales = pool.scales.astype(np.float64)
    coarse, fine, step = _in_bytes(question.vector)
    found = (vectors @ np.stack([coarse, fine], axis=1)).astype(np.float64)
    dots = _pooled((found[:, 0] + found[:, 1] / _FINER) * scales, slots) * step
    lengths = np.sqrt(np.maximum(_squares(vectors, scales, slots), 0))
    asked = np.linalg.norm(coarse.astype(np.float64) + fine / _FINER) * step
    cosines: Numbers = dots / np.maximum(lengths * asked, _NOTHING)
    return np.where(lengths > _NOTHING, cosines, 0)


def _in_bytes(vector: Floats) -> tuple[Floats, Floats, float]:
    """Return a vector as whole numbers up to 127 and what is missing, so many times finer, and the step of both."""
    step = float(np.abs(vector).max()) / 127
    exact = vector.astype(np.float64) / step
    coarse = np.rint(exact)
    return coarse.astype(np.float32), np.rint((exact - coarse) * _FINER).astype(np.float32), step


def _squares(vectors: Floats, scales: Numbers, slots: Ints) -> Numbers:
    """Return the squared length of each passage's vector with its neighbours' added."""
    squares = np.empty(len(slots))
    beside = np.zeros(len(slots) + 1, np.bool_)
    beside[1:-1] = slots[1:] - slots[:-1] <= REACH
    in_company = beside[:-1] | beside[1:]
    alone, rows = np.flatnonzero(~in_company), np.flatnonzero(in_company)
    if len(alone):
        squares[alone] = np.vecdot(vectors[alone], vectors[alone]) * scales[alone] * scales[alone]
    if len(rows):
        squares[rows] = _squares_of_sums(vectors, scales, rows, _side_by_side(slots[rows]))
    return squares


def _squares_of_sums(vectors: Floats, scales: Numbers, rows: Ints, slots: Ints) -> Numbers:
    """Sum up, for each of these passages, the products of every two vectors around it, weighted by what both count."""
    blocks = -(-(int(slots[-1]) + 1 + REACH) // _BLOCK)
    # Where nobody is, anybody may stand: of no size, whose products count nothing.
    who = np.zeros(blocks * _BLOCK + _FURTHEST, np.intp)
    who[slots] = rows
    sizes = np.zeros(len(who))
    sizes[slots] = scales[rows]
    weights = sizes[:-_FURTHEST, None] * _windows(sizes, _FURTHEST + 1)
    products = _with_following(vectors.take(who, axis=0), blocks) * weights
    # What begins at each place, as the first around a passage, as the second and so on; then along the diagonals.
    counted = (products @ _PAIRS.T).ravel()
    diagonals = _windows(counted, _PAIRS.size)[:: _FURTHEST + 1, :: _FURTHEST + 2]
    squares: Numbers = diagonals[slots - REACH].sum(axis=1)
    return squares


def _with_following(row: Floats, blocks: int) -> Floats:
    """Return the products of each vector with itself and with the few that follow it, a block at a time."""
    following = _windows(row, _BLOCK + _FURTHEST)[::_BLOCK]
    found = row[: blocks * _BLOCK].reshape(blocks, _BLOCK, -1) @ following
    products: Floats = found.reshape(blocks, -1)[:, _FOLLOWING].reshape(blocks * _BLOCK, _FURTHEST + 1)
    return products


def _windows(row: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    return sliding_window_view(row, size, axis=0)


_FOLLOWING: Final = np.arange(_BLOCK)[:, None] * (_BLOCK + _FURTHEST + 1) + np.arange(_FURTHEST + 1)
"""Where, among the products of a block with what begins with it, those of each with itself and the next ones are."""

_PAIRS: Final = np.array(
    [
        [
            _KERNEL[one] * _KERNEL[one + apart] * (1 + (apart > 0)) if one + apart <= _FURTHEST else 0.0
            for apart in range(_FURTHEST + 1)
        ]
        for one in range(_FURTHEST + 1)
    ]
)
"""What the product of each neighbour with itself, and with each one so far after it, counts."""


def _has(pool: CandidatePool, flag: int) -> Numbers:
    found: Numbers = ((pool.flags & flag) != 0).astype(np.float64)
    return found


def _lengths(pool: CandidatePool) -> Numbers:
    return np.minimum(1, np.log(1 + pool.lengths) / log(_FULL_LENGTH))


def _speaks(question: Question, pool: CandidatePool) -> Numbers:
    """Tell whether the only speaker named said each passage; where none is named and the asker says I, its user."""
    speaker = _only_speaker(question, pool.speakers, pool.speaker)
    if speaker is not None:
        said_by: Numbers = (pool.speaker == speaker).astype(np.float64)
        return said_by
    return _has(pool, BY_USER) * (not question.words.isdisjoint(_FIRST_PERSON))


# The same few speak again and again.
@lru_cache(maxsize=1024)
def _called(name: str) -> frozenset[str]:
    """Return the words by which a speaker may be called."""
    return frozenset(re.findall(r"\w+", name.lower())) - _ROLES


def _only_speaker(question: Question, names: Sequence[str], spoken: Ints) -> int | None:
    """Return the one speaker whose name is in the question; None if it names nobody or several."""
    named = [at for at in np.flatnonzero(np.bincount(spoken)).tolist() if question.words & _called(names[at])]
    return named[0] if len(named) == 1 else None
