"""Confidence: the estimated chance that a hit answers the query, from features of the ranking.

Two logistic models are multiplied. The first estimates whether anything among the best hits is about the query at all:
how much of the query's rarity they cover, their similarity in meaning, and how rare the words of the query are here.
The second estimates whether a hit answers, given that something does: by its distance to the best hit and its lead over
the next one. Both were fitted on LoCoMo's first five conversations, on talks with assistants and on notes
(`benchmarks/quality`); docs/decisions/0025 has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log1p
from typing import Final, NamedTuple

MIN_RELEVANCE: Final = 0.165
"""Below this chance that anything found is about the query, a recall returns nothing unless it sets a limit."""

BEST_HITS: Final = 10
"""The number of hits that tell whether anything is about the query."""

_MAX_TERMS: Final = 8
_MAX_LEAD: Final = 0.35


class QueryRarity(NamedTuple):
    """The terms of a query: how many, the sum of their idf, and the share of it whose terms occur at all."""

    terms: int = 0
    idf: float = 0.0
    known: float = 0.0


class HitFeatures(NamedTuple):
    """The features of a hit: parts of its score, its whole score with penalties, and its length in words."""

    lexical: float
    cosine: float
    speaker: float
    evidence: float
    score: float
    length: int
    is_message: bool


def relevance(query: QueryRarity, hits: Sequence[HitFeatures]) -> float:
    """Return the chance that anything among these hits, best first, is about the query."""
    best = hits[:BEST_HITS]
    if not best:
        return 0.0
    weights = [1 / rank for rank in range(1, len(best) + 1)]
    mean_lexical = sum(weight * hit.lexical for weight, hit in zip(weights, best, strict=True)) / sum(weights)
    lexical, cosine = max(hit.lexical for hit in best), max(hit.cosine for hit in best)
    logit = (
        0.52
        + 6.71 * lexical
        + 3.65 * mean_lexical
        + 1.23 * cosine
        + 0.67 * query.known
        + 6.64 * max(hit.speaker for hit in best)
        + 0.71 * min(query.terms, _MAX_TERMS)
        - 2.68 * log1p(query.idf)
        + 3.26 * _lead(hits, 0)
    )
    if not best[0].is_message:
        logit += 1.34 + 1.44 * lexical + 1.89 * cosine
    return _logistic(logit)


def confidences(query: QueryRarity, hits: Sequence[HitFeatures]) -> list[float]:
    """Return the chance that each of these hits, best first, answers the query."""
    chance = relevance(query, hits)
    return [round(chance * _logistic(_answers(hits, place)), 4) for place in range(len(hits))]


def _answers(hits: Sequence[HitFeatures], place: int) -> float:
    hit, lead = hits[place], _lead(hits, place)
    logit = -3.61 + 0.54 * hit.lexical - 3.02 * max(0.0, hits[0].evidence - hit.evidence) + 5.18 * lead
    logit += 0.28 * log1p(hit.length)
    if place == 0:
        logit += 1.69 + 3.91 * lead
    return logit if hit.is_message else logit + 0.36


def _lead(hits: Sequence[HitFeatures], place: int) -> float:
    """Return how much higher a hit scores than the next one, as far as it was seen in the fitted data."""
    following = hits[place + 1].score if place + 1 < len(hits) else 0.0
    return min(hits[place].score - following, _MAX_LEAD)


def _logistic(logit: float) -> float:
    return 1 / (1 + exp(-max(-30.0, min(30.0, logit))))
