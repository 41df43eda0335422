"""Selects the best rows of segments: by score, then by the order of ids.

Of one memory, at most a few parts are kept. Of a root and its copies that have the same words, one memory is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from commonbook.engines.index.postings import Rows
from commonbook.engines.index.segments import Hashes, Segment
from commonbook.ports.index import IS_COPY, IS_MESSAGE

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
