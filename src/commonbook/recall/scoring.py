"""Scores of the candidates of a recall: the ranking of a question, with the days that it names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt

from commonbook.ports.engines import Engines
from commonbook.ports.index import IS_CHAT, IndexQuery, IndexResult
from commonbook.recall import indexed_passages, ranking
from commonbook.recall.query import MAX_QUERY_CHARS, ParsedQuery
from commonbook.text import time_expressions

_DAY: Final = 86_400_000_000
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()


def ranked(
    engines: Engines, clear: ParsedQuery, sought: IndexQuery, found: IndexResult, near: list[ranking.Near]
) -> tuple[Sequence[int], ranking.Scores]:
    """Return the candidates of a question, best first, with their scores."""
    question = ranking.Question(
        idf=[ranking.idf(found.total, having) for having in found.having],
        words=frozenset(re.findall(r"\w+", clear.asked.query[:MAX_QUERY_CHARS].lower())),
        asks_when=time_expressions.asks_when(clear.asked.query[:MAX_QUERY_CHARS]),
        vector=sought.vector,
    )
    named = time_expressions.named_dates(clear.asked.query[:MAX_QUERY_CHARS])
    days = matching_days(engines, named, found.pool.times) if named else None
    rows, scores = ranking.rank(question, found.pool, near=near, dates=days)
    return rows.tolist(), scores


def matching_days(
    engines: Engines, named: time_expressions.NamedDates, times: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return how well the day of each moment, in the home's zone, matches the one that is named.

    No zone is a whole day ahead of UTC or behind it: where three days match alike, so does each moment of the middle
    one, and need not be told in local time.
    """
    days, places = np.unique(times // _DAY, return_inverse=True)
    alike = np.array([_if_alike(named, _FIRST_DAY + day) for day in days.tolist()])
    matching: npt.NDArray[np.float64] = alike[places]
    for at in np.flatnonzero(np.isnan(matching)).tolist():
        matching[at] = named.match(_day(engines, int(times[at])))
    return matching


def _if_alike(named: time_expressions.NamedDates, day: int) -> float:
    """Return how well a day matches, if those beside it match as well; else no number."""
    if not date.min.toordinal() < day < date.max.toordinal():
        return math.nan
    around = {named.match(date.fromordinal(day + apart)) for apart in (-1, 0, 1)}
    return around.pop() if len(around) == 1 else math.nan


def _day(engines: Engines, time: int) -> date:
    """Return the day of a moment in the home's zone; at the ends of the calendar, in UTC."""
    moment = indexed_passages.time_of_micros(time)
    try:
        return moment.astimezone(engines.zone).date()
    except OverflowError:
        return moment.date()


# --- without a question


def newest_first(found: IndexResult) -> tuple[Sequence[int], ranking.Scores]:
    """Return what happened last, without a score; what was said at one moment, in the order in which it was said."""
    pool = found.pool
    told = pool.eligible & (((pool.flags & IS_CHAT) > 0) | (pool.positions == 0))
    last_first = np.lexsort((pool.orders, pool.positions, pool.times))[::-1]
    return last_first[told[last_first]].tolist(), ranking.Scores(np.zeros(len(told)), {})
