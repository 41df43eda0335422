"""MaxScore: selects the rows with the largest sums of the weights of their terms, without reading all lists of rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from commonbook.engines.index.best_rows import NO_SCORED_ROWS, ScoredRows, best_of_segment
from commonbook.engines.index.postings import Rows, TermRows
from commonbook.engines.index.segments import Bools, Segment

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
