"""Confidence: the estimated chance that a hit answers the query, from features of the ranking.

Two logistic models are multiplied. The first estimates whether anything among the best hits is about the query at all:
how many of its words they have, how near they are in meaning, and whether it names somebody whom nothing here is about;
for messages also by the best score, for other memories by how rare the words of the query are here, how many passages
there are, and whether missing words have to do with any word of the best hit. The second estimates whether a hit
answers, given that something does: by its distance to the best hit and its lead over the next one, and for other
memories than messages by what the best hit lacks, since another fact about the right person is not an answer. Both were
fitted on LoCoMo's first five conversations, on talks with assistants, and on notes and everyday memories
(`benchmarks/quality`); docs/decisions/0025 has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log1p, log2
from typing import Final, NamedTuple

MIN_RELEVANCE: Final = 0.18
"""Below this chance that anything found is about the query, a recall returns nothing unless it sets a limit."""

BEST_HITS: Final = 10
"""The number of hits by which it is decided whether anything is about the query."""

MIN_RELEVANCE_BY_MEANING: Final = 0.44
"""The same for a query of which the best hits have no word, and none that is near."""

_COVERED: Final = 0.3
"""How much of a term a hit must have, so that it counts as covered."""

_LACKED: Final = 0.1
"""A term of which a hit has less than this is missing in it."""

_PRESENT: Final = 0.5
"""A hit that has this share of a term is about it: what it lacks beside it is an attribute."""

_UNRELATED_COSINE: Final = 0.35
_OTHER_ATTRIBUTE_COSINE: Final = 0.35
"""The cosine from which on a word explains a missing one: fully, and in proportion below it."""

_BARELY_COVERED: Final = 0.05
_NEAR_WORD: Final = 0.25
_NO_WORD: Final = 0.1
_MANY_PASSAGES: Final = 50
"""With fewer, most words occur once or everywhere, and the score of a message says little."""

_SMALL_HOME: Final = 60
_LARGE_HOME: Final = 480
"""The more passages there are, the more of a query some of them have by chance; beyond this the effect was not seen."""

_GOOD: Final = 0.5
_FAR_BELOW: Final = 0.02
_FAR_BELOW_WITHOUT_WORDS: Final = 0.05
_FEW_WORDS: Final = 0.1
"""Beside a hit that is probably right, one with so small a part of its confidence is left out.

It is a larger part for hits that have hardly any word of the query.
"""

_MAX_COVERED: Final = 6
_MAX_MISSING_NAMES: Final = 2.0
_MAX_LEAD: Final = 0.35


class QueryRarity(NamedTuple):
    """The terms of a query: how many, the sum of their idf, and the share of it whose terms occur at all.

    `unknown_names` are the places of the terms that are names, and occur nowhere; `passages` is the number of those
    that were searched, and `words` that of the query's words, with its stop words.
    """

    terms: int = 0
    idf: float = 0.0
    known: float = 0.0
    unknown_names: tuple[int, ...] = ()
    passages: int = 0
    words: int = 0


class QueryCoverage(NamedTuple):
    """How many terms of a query the best hits have, and how many unknown names have nothing near them either.

    `best` is how much they have of the term of which they have most. `unexplained` sums up the words that none of them
    has, each by how little it has to do with any word of the first. `other_attribute` is the mean of the same over the
    words that the first hit lacks, if it has another one: from 0 to 1, how surely it tells something else about it.
    """

    terms: int = 0
    missing_names: float = 0.0
    best: float = 0.0
    unexplained: float = 0.0
    other_attribute: float = 0.0

    @property
    def least_relevance(self) -> float:
        """The limit below which a recall returns nothing."""
        return MIN_RELEVANCE if self.best >= _BARELY_COVERED else MIN_RELEVANCE_BY_MEANING


class HitFeatures(NamedTuple):
    """The features of a hit: parts of its score, its whole score with penalties, and its length in words."""

    lexical: float
    cosine: float
    speaker: float
    evidence: float
    score: float
    length: int
    is_message: bool
    name: float = 0.0


def coverage(query: QueryRarity, shares: Sequence[float]) -> QueryCoverage:
    """Return what the best hits have of a query; `shares` says how much of each term the best of them has."""
    missing = sum(1 - shares[place] for place in query.unknown_names)
    return QueryCoverage(sum(share > _COVERED for share in shares), missing, max(shares, default=0.0))


def lacked_terms(shares: Sequence[float]) -> list[int]:
    """Return the places of the terms that a hit lacks; `shares` says how much of each term it has."""
    return [place for place, share in enumerate(shares) if share < _LACKED]


def explained(
    covered: QueryCoverage, shares: Sequence[float], first: Sequence[float], nearness: Mapping[int, float]
) -> QueryCoverage:
    """Add what the words of the first hit say about the words of the query that are missing.

    `shares` says how much of each term the best hits have, `first` how much the first has. `nearness` is the highest
    cosine between each word that the first hit lacks and any of its words, by the place of the term.
    """
    unexplained = sum(_gap(cosine, _UNRELATED_COSINE) for place, cosine in nearness.items() if shares[place] < _LACKED)
    gaps = [_gap(cosine, _OTHER_ATTRIBUTE_COSINE) for cosine in nearness.values()]
    has_subject = bool(gaps) and max(first, default=0.0) >= _PRESENT
    return covered._replace(unexplained=unexplained, other_attribute=sum(gaps) / len(gaps) if has_subject else 0.0)


def _gap(cosine: float, enough: float) -> float:
    """Return how much of a missing word a word of that cosine leaves unexplained."""
    return 1 - min(1.0, max(0.0, cosine) / enough)


def judged_as_message(query: QueryRarity, best: HitFeatures) -> bool:
    """Return whether the model for messages applies to hits of which this is the best."""
    return best.is_message and query.passages >= _MANY_PASSAGES


def relevance(query: QueryRarity, hits: Sequence[HitFeatures], covered: QueryCoverage) -> float:
    """Return the chance that anything among these hits, best first, is about the query."""
    best = hits[:BEST_HITS]
    if not best:
        return 0.0
    cosine = max(hit.cosine for hit in best)
    terms, missing = min(covered.terms, _MAX_COVERED), min(covered.missing_names, _MAX_MISSING_NAMES)
    if judged_as_message(query, best[0]):
        speaker = max(hit.speaker for hit in best)
        logit = -8.85 + 13.36 * best[0].score + 0.68 * cosine + 7 * speaker + 0.71 * terms - 1.89 * missing
    else:
        # Without a vector, as in some scripts, the share of the query's words says as much.
        nearness = max(cosine, *(hit.lexical for hit in best))
        name = max(hit.name for hit in best)
        logit = 5.36 + 6.86 * nearness + 13.37 * name + 0.91 * terms - 2.9 * missing - 2.97 * log1p(query.idf)
        logit -= covered.unexplained + 0.3 * _doublings(query.passages)
    return min(_logistic(logit), _most_for_one_word(query, covered))


def _doublings(passages: int) -> float:
    """Return how often a small home must be doubled to have this number of passages."""
    return log2(min(max(passages, _SMALL_HOME), _LARGE_HOME) / _SMALL_HOME)


def _most_for_one_word(query: QueryRarity, covered: QueryCoverage) -> float:
    """Return the highest chance for a query of one word that nothing has: a near word is a guess, and less is none."""
    if query.words != 1 or query.known:
        return 1.0
    return _NEAR_WORD if covered.best >= _BARELY_COVERED else _NO_WORD


def confidences(chance: float, hits: Sequence[HitFeatures], other_attribute: float = 0.0) -> list[float]:
    """Return the chance that each of these hits, best first, answers a query that something answers by `chance`."""
    return [round(chance * _logistic(_answers(hits, place) - 4 * other_attribute), 4) for place in range(len(hits))]


def is_far_below(chance: float, best: float, word_share: float) -> bool:
    """Return whether a hit need not be shown beside one that is probably right and has the confidence `best`."""
    part = _FAR_BELOW_WITHOUT_WORDS if word_share < _FEW_WORDS else _FAR_BELOW
    return best >= _GOOD and chance < part * best


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
