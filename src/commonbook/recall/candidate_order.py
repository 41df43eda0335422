"""Rank the candidates of a recall: build the ranking's inputs, among them how well each passage's day matches."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt

from commonbook.ports.engines import Engines
from commonbook.ports.index import IS_MESSAGE, IndexQuery, IndexResult
from commonbook.recall import indexed_passages, scoring
from commonbook.recall.confidence import QueryRarity
from commonbook.recall.query import MAX_QUERY_CHARS, ParsedQuery
from commonbook.text import dates_in_text, names_in_text, terms

_DAY_MICROS: Final = 86_400_000_000
_FEW_PASSAGES: Final = 60
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


def order_candidates(
    engines: Engines,
    query: ParsedQuery,
    index_query: IndexQuery,
    result: IndexResult,
    expansions: list[scoring.ExpandedTerm],
    phrase_matches: npt.NDArray[np.float64] | None = None,
) -> tuple[Sequence[int], scoring.Scores]:
    """Return the eligible rows of the candidate pool, best first, and the scores of all rows.

    Without a query, the newest come first.
    """
    if query.is_empty:
        return _newest_first(result)
    features = scoring.QueryFeatures(
        idf=[
            # A date that nobody wrote down says nothing: the time of a passage may still match it.
            0.0 if not having and terms.is_date(term) else scoring.idf(result.total, having)
            for term, having in zip(index_query.terms, result.document_frequencies, strict=True)
        ],
        words=frozenset(re.findall(r"\w+", query.request.query[:MAX_QUERY_CHARS].lower())),
        asks_when=dates_in_text.asks_when(query.request.query[:MAX_QUERY_CHARS]),
        asks_for_name=names_in_text.asks_for_name(query.request.query[:MAX_QUERY_CHARS]),
        vector=index_query.vector,
        name_place=len(index_query.terms) + len(index_query.expansion_terms) - 1,
    )
    named = dates_in_text.named_dates(query.request.query[:MAX_QUERY_CHARS])
    date_matches = match_days(engines, named, result.pool.times) if named else None
    rows, scores = scoring.rank(
        features, result.pool, expansions=expansions, date_matches=date_matches, phrase_matches=phrase_matches
    )
    return rows.tolist(), scores._replace(rarity=_rarity(features.idf, query, result))


def _newest_first(result: IndexResult) -> tuple[Sequence[int], scoring.Scores]:
    """Return messages and first passages of memories, newest first, with a score of zero.

    Of equal times, the later position in its thread comes first.
    """
    pool = result.pool
    listed = pool.eligible & (((pool.flags & IS_MESSAGE) > 0) | (pool.positions == 0))
    last_first = np.lexsort((pool.orders, pool.positions, pool.times))[::-1]
    return last_first[listed[last_first]].tolist(), scoring.Scores(np.zeros(len(listed)), np.zeros((0, len(listed))))


def _rarity(idf: Sequence[float], query: ParsedQuery, result: IndexResult) -> QueryRarity:
    """Return how rare the terms of a query are: in a home of few passages, as if it had more.

    Among three passages every word is as common as any, which says nothing about a query.
    """
    passages = max(result.total, _FEW_PASSAGES)
    frequencies = result.document_frequencies
    weights = [
        scoring.idf(passages, having) if weight else 0.0 for weight, having in zip(idf, frequencies, strict=True)
    ]
    total = sum(weights)
    known = sum(weight for weight, having in zip(weights, frequencies, strict=True) if having)
    share = known / total if total else 0.0
    words = len(query.request.query[:MAX_QUERY_CHARS].split())
    return QueryRarity(len(idf), total, share, _unknown_names(query, frequencies), result.total, words)


def _unknown_names(query: ParsedQuery, frequencies: Sequence[int]) -> tuple[int, ...]:
    """Return the places of the query's terms that are names, and occur nowhere."""
    if all(frequencies):
        return ()
    names = terms.names_in(query.request.query[:MAX_QUERY_CHARS])
    named = {term for word, term in query.words if word in names}
    return tuple(
        place
        for place, (term, having) in enumerate(zip(query.terms, frequencies, strict=True))
        if not having and term in named
    )


def match_days(
    engines: Engines, named: dates_in_text.NamedDates, times: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return how well the day of each time, in the home's zone, matches the dates that the query names.

    No zone is a whole day ahead of UTC or behind it. So where a UTC day and both its neighbours match equally, every
    time of that day has this match in any zone, and need not be converted to local time.
    """
    days, day_of_row = np.unique(times // _DAY_MICROS, return_inverse=True)
    match_by_day = np.array([_uniform_match(named, _EPOCH_ORDINAL + day) for day in days.tolist()])
    matches: npt.NDArray[np.float64] = match_by_day[day_of_row]
    for row in np.flatnonzero(np.isnan(matches)).tolist():
        matches[row] = named.match(_local_day(engines, int(times[row])))
    return matches


def _uniform_match(named: dates_in_text.NamedDates, day: int) -> float:
    """Return how well a day matches, if the days before and after it match equally; else NaN."""
    if not date.min.toordinal() < day < date.max.toordinal():
        return math.nan
    matches = {named.match(date.fromordinal(day + offset)) for offset in (-1, 0, 1)}
    return matches.pop() if len(matches) == 1 else math.nan


def _local_day(engines: Engines, time: int) -> date:
    """Return the day of a time in the home's zone; at the ends of the calendar, in UTC."""
    moment = indexed_passages.time_of_micros(time)
    try:
        return moment.astimezone(engines.zone).date()
    except OverflowError:
        return moment.date()
