"""Which passages answer a question best: pure arithmetic over what an engine found, the same on every engine.

The score is absolute: it depends on the question, the passage and its neighbours, and on how many passages of the asked
spaces have each term, but not on what else was found. docs/decisions/0006 says what each part is worth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]

REACH: Final = 4
"""How many neighbours on each side count."""

_DECAY: Final = 0.5
_AFTER: Final = 0.6
_PIVOT: Final = 25.0
_SLOPE: Final = 0.75
_SATURATION: Final = 0.8
_NEAR: Final = 0.4
_NEAR_WEIGHT: Final = 0.5
_NEAR_TERMS: Final = 8

_MEANING: Final = 0.25
_SPEAKER: Final = 0.13
_QUESTION: Final = -0.04
_LENGTH: Final = 0.10
_FULL_LENGTH: Final = 60
_TIME: Final = 0.10
_DATE: Final = 0.25

_FIRST_PERSON: Final = frozenset({"i", "my", "me", "mine", "we", "our", "us"})


class Passage(NamedTuple):
    """What ranking knows of a passage. `thread` is its session or memory, `position` its place there."""

    id: str
    thread: str
    position: int
    bag: Mapping[str, int]
    length: int
    speaker: str = ""
    by_user: bool = False
    is_chat: bool = False
    is_question: bool = False
    tells_time: bool = False
    date_match: float = 0.0


class Question(NamedTuple):
    """What is asked: the rarity of each term, and all words as they stand, lower-cased."""

    idf: Mapping[str, float]
    words: frozenset[str] = frozenset()
    asks_when: bool = False


class Parts(NamedTuple):
    """What a score is the sum of."""

    lexical: float = 0.0
    meaning: float = 0.0
    speaker: float = 0.0
    question: float = 0.0
    length: float = 0.0
    time: float = 0.0
    date: float = 0.0


class Scored(NamedTuple):
    """A passage's score and what it is made of."""

    id: str
    score: float
    parts: Parts


def idf(passages: int, having: int) -> float:
    """Return how much a term tells that so many of so many passages have."""
    return log(1 + (passages - having + 0.5) / (having + 0.5))


def share(count: float, length: int) -> float:
    """Return how much of a passage a term is that it has so often; long passages have everything more often."""
    return count / (1 - _SLOPE + _SLOPE * length / _PIVOT)


def is_short_question(text: str, words: int) -> bool:
    """Tell whether a passage asks instead of telling."""
    return words <= _PIVOT and text.rstrip().endswith(("?", "\uff1f", "\u061f"))


def rank(
    question: Question,
    passages: Sequence[Passage],
    *,
    near: Iterable[tuple[str, str, float]] = (),
    vectors: Floats | None = None,
    asked: Floats | None = None,
) -> list[Scored]:
    """Score passages, best first; equal scores in the order of their ids, so that they never flicker between calls.

    `passages` holds the neighbours too, as far as they count. `near` has (asked term, other term, cosine), nearest
    first; `vectors` one row for each passage, and `asked` the question's.
    """
    if not passages:
        return []
    slots = _neighbours(passages)
    lexical = _lexical(question, passages, slots, near)
    meaning = np.zeros(len(passages)) if vectors is None or asked is None else _meaning(vectors, asked, slots)
    speaker = _only_speaker(question, passages)
    scored = []
    for at, passage in enumerate(passages):
        parts = _priors(question, passage, speaker)._replace(
            lexical=_rounded(lexical[at]), meaning=_rounded(_MEANING * meaning[at])
        )
        scored.append(Scored(passage.id, _rounded(sum(parts)), parts))
    return sorted(scored, key=lambda one: (-one.score, one.id))


def _rounded(value: float) -> float:
    """Drop the digits that depend on how many passages are multiplied at once."""
    return round(float(value), 6)


def _neighbours(passages: Sequence[Passage]) -> list[tuple[float, npt.NDArray[np.intp]]]:
    """Return for each distance what it counts, and where each passage's neighbour there is (one past the end: none)."""
    places = {(passage.thread, passage.position): at for at, passage in enumerate(passages)}
    none = len(passages)
    out = []
    for distance in range(-REACH, REACH + 1):
        found = [places.get((passage.thread, passage.position + distance), none) for passage in passages]
        out.append((_DECAY ** abs(distance) * (_AFTER if distance > 0 else 1), np.array(found, np.intp)))
    return out


def _pooled(own: Floats, slots: list[tuple[float, npt.NDArray[np.intp]]]) -> Floats:
    """Add to each passage's row what its neighbours' rows count."""
    padded = np.vstack([own, np.zeros((1, own.shape[1]), np.float32)])
    out = np.zeros_like(own)
    for weight, found in slots:
        out += np.float32(weight) * padded[found]
    return out


def _lexical(
    question: Question,
    passages: Sequence[Passage],
    slots: list[tuple[float, npt.NDArray[np.intp]]],
    near: Iterable[tuple[str, str, float]],
) -> Floats:
    terms = list(question.idf)
    weights = _term_weights(terms, near)
    own = np.zeros((len(passages), len(terms)), np.float32)
    for row, passage in zip(own, passages, strict=True):
        for term in weights.keys() & passage.bag.keys():
            part = share(passage.bag[term], passage.length)
            for column, weight in weights[term]:
                row[column] += weight * part
    pooled = _pooled(own, slots)
    rarity = np.fromiter(question.idf.values(), np.float32, len(terms))
    scores: Floats = (pooled / (pooled + _SATURATION)) @ rarity / max(float(rarity.sum()), 1e-9)
    return scores


def _term_weights(terms: list[str], near: Iterable[tuple[str, str, float]]) -> dict[str, list[tuple[int, float]]]:
    """Return for each term of a text which asked terms it counts for, and how much."""
    columns = {term: column for column, term in enumerate(terms)}
    weights: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for term, column in columns.items():
        weights[term].append((column, 1.0))
    taken = dict.fromkeys(terms, 0)
    for asked, term, cosine in near:
        if taken[asked] < _NEAR_TERMS:
            taken[asked] += 1
            weights[term].append((columns[asked], _NEAR_WEIGHT * (cosine - _NEAR) / (1 - _NEAR)))
    return weights


def _meaning(vectors: Floats, asked: Floats, slots: list[tuple[float, npt.NDArray[np.intp]]]) -> Floats:
    pooled = _pooled(vectors, slots)
    lengths = (np.linalg.norm(pooled, axis=1) * np.linalg.norm(asked)).astype(np.float32)
    lengths[lengths == 0] = 1
    cosines: Floats = pooled @ asked / lengths
    return cosines


def _only_speaker(question: Question, passages: Sequence[Passage]) -> str | None:
    """Return the one speaker whose name is in the question; None if it names nobody or several."""
    speakers = {passage.speaker for passage in passages if passage.speaker}
    named = {speaker for speaker in speakers if question.words & set(speaker.lower().split())}
    return named.pop() if len(named) == 1 else None


def _priors(question: Question, passage: Passage, speaker: str | None) -> Parts:
    by_asker = passage.by_user and not question.words.isdisjoint(_FIRST_PERSON)
    speaks = by_asker if speaker is None else passage.speaker == speaker
    return Parts(
        speaker=_SPEAKER * speaks,
        question=_QUESTION * passage.is_question,
        length=_LENGTH * min(1, log(1 + passage.length) / log(_FULL_LENGTH)) * passage.is_chat,
        time=_TIME * (question.asks_when and passage.tells_time),
        date=_DATE * passage.date_match,
    )
