"""The inverted index of a segment: the rows of each term, and how often each row has it.

The rows of a term ascend. A count takes two bits, since nearly all are 1, 2 or 3; larger counts are stored apart, by
their place among all postings. There is no forward index: the few rows of a search are looked up in the rows of its
terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from commonbook.engines.index.array_files import Array

Rows: TypeAlias = npt.NDArray[np.intp]
Mask: TypeAlias = npt.NDArray[np.bool_]

_COUNTS_PER_BYTE: Final = 4
_LARGE_COUNT: Final = 4
"""Counts from here on are stored apart."""

_LONG_LIST_FACTOR: Final = 8
"""A list of rows this many times as long as the rows of a search is searched, shorter lists are read."""

_COMMON_TERM_PART: Final = 8
"""A term that more than one row in eight has is common: its rows are kept as a mask."""

_MAX_MASK_BYTES: Final = 4_000_000
_MAX_MASKS: Final = 64
"""How much memory the masks of a segment may take, and how many there are at most; one is always kept."""

_MAX_CACHED_PLACES: Final = 10_000
"""About 0.2 KB each, for each segment."""

_MAX_CACHED_CHARS: Final = 64
"""A longer term is not a word but the name of a memory, or a whole query, which hardly comes again."""

_MAX_INT32: Final = (1 << 31) - 1


class TermEntries(NamedTuple):
    """The terms of rows: for each entry a row, the index of a term and how often the row has it."""

    rows: Array
    terms: Array
    counts: Array


def add_postings(arrays: dict[str, Array], entries: TermEntries) -> None:
    """Add the inverted index of entries, which come in the order of their rows, to the arrays of a segment."""
    terms = len(arrays["term"])
    sorting = np.argsort(narrow(entries.terms, terms), kind="stable")
    counts = entries.counts[sorting]
    large = np.flatnonzero(counts >= _LARGE_COUNT)
    arrays["posting_row"] = narrow(entries.rows, len(arrays["thread"]))[sorting]
    arrays["posting_start"] = starts_of(np.bincount(entries.terms, minlength=terms))
    arrays["posting_count"] = _pack(np.minimum(counts, _LARGE_COUNT) - 1)
    arrays["large_at"] = narrow(large, len(counts))
    arrays["large_count"] = narrow(counts[large], int(counts.max(initial=0)))


def _pack(numbers: Array) -> Array:
    """Pack numbers from 0 to 3 into bytes."""
    padded = np.zeros((-(-len(numbers) // _COUNTS_PER_BYTE), _COUNTS_PER_BYTE), np.uint8)
    padded.reshape(-1)[: len(numbers)] = numbers
    packed: Array = padded[:, 0] | padded[:, 1] << 2 | padded[:, 2] << 4 | padded[:, 3] << 6
    return packed


def counts_at(arrays: Mapping[str, Array], places: Rows) -> Array:
    """Return the counts of the postings at these places."""
    shifts = ((places & (_COUNTS_PER_BYTE - 1)) << 1).astype(np.uint8)
    counts: Array = ((arrays["posting_count"][places >> 2] >> shifts) & 3).astype(np.int64) + 1
    large = np.flatnonzero(counts == _LARGE_COUNT)
    if len(large):
        counts[large] = arrays["large_count"][np.searchsorted(arrays["large_at"], places[large])]
    return counts


def entries_of(arrays: Mapping[str, Array]) -> TermEntries:
    """Return all entries, in the order of their rows; the entries of one row in the order of the terms."""
    sizes = np.diff(arrays["posting_start"])
    terms = np.repeat(narrow(np.arange(len(sizes)), len(sizes)), sizes)
    counts = counts_at(arrays, np.arange(len(terms)))
    return in_order_of_rows(TermEntries(arrays["posting_row"], terms, counts))


def in_order_of_rows(entries: TermEntries) -> TermEntries:
    """Return entries in the order of their rows, and the entries of one row as they come."""
    sorting = np.argsort(entries.rows, kind="stable")
    return TermEntries(*(column[sorting] for column in entries))


def find_entries(arrays: Mapping[str, Array], rows: Rows, first: Array, last: Array) -> TermEntries:
    """Return the entries of some rows among lists of postings, each from its first up to its last place.

    The rows and terms of the result are indexes in `rows` and in the lists.
    """
    lengths = last - first
    is_long = lengths > _LONG_LIST_FACTOR * len(rows)
    found = [_read_lists(arrays, rows, first, last, np.flatnonzero(~is_long))]
    found += [_search_list(arrays, rows, first[at], last[at], at) for at in np.flatnonzero(is_long).tolist()]
    at, lists, places = (np.concatenate(column) for column in zip(*found, strict=True))
    return TermEntries(at, lists, counts_at(arrays, places))


class PostingLists:
    """The lists of rows of a segment by their terms; where the lists of terms lie that were asked for is cached.

    A segment never changes. The words of queries, and those near them, come again and again.
    """

    def __init__(self, arrays: Mapping[str, Array], hash_texts: Callable[[Sequence[str]], Array]) -> None:
        """Read these arrays, in which terms are sorted by the hashes that this function returns."""
        self._arrays = arrays
        self._hash_texts = hash_texts
        self._places: dict[str, tuple[int, int]] = {}
        rows = len(arrays["thread"])
        self.mask_of: Final = lru_cache(max(1, min(_MAX_MASKS, _MAX_MASK_BYTES // max(rows, 1))))(self._make_mask)
        """Returns the mask of the rows in a list, by its first and last place; the most recently used are cached."""

    def rows_of(self, terms: Sequence[str]) -> TermRows:
        """Return the rows that have each of these terms."""
        return TermRows(self._arrays["posting_row"], self._look_up(terms), self.mask_of)

    def find(self, rows: Rows, terms: Sequence[str]) -> TermEntries:
        """Return index in `rows`, index in `terms` and count for each of these terms in each of these rows."""
        places = np.array(self._look_up(terms), np.int64).reshape(-1, 2)
        return find_entries(self._arrays, rows, places[:, 0], places[:, 1])

    def _look_up(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        """Return the first and the last place of the list of each term, exclusive; of unknown ones, an empty list."""
        cached = self._places
        missing = [term for term in terms if term not in cached]
        if not missing:
            return [cached[term] for term in terms]
        found = dict(zip(missing, self._search(missing), strict=True))
        places = [found[term] if term in found else cached[term] for term in terms]
        # Another thread may read the cache meanwhile: a full one is replaced, and not cleared.
        kept = {} if len(cached) + len(found) > _MAX_CACHED_PLACES else cached
        kept.update((term, place) for term, place in found.items() if len(term) <= _MAX_CACHED_CHARS)
        self._places = kept
        return places

    def _search(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        known = self._arrays["term"]
        if not len(known):
            return [(0, 0)] * len(terms)
        hashes, start = self._hash_texts(terms), self._arrays["posting_start"]
        places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        first, last = start[places].tolist(), start[places + (known[places] == hashes)].tolist()
        return list(zip(first, last, strict=True))

    def _make_mask(self, first: int, last: int) -> Mask:
        mask = np.zeros(len(self._arrays["thread"]), np.bool_)
        mask[self._arrays["posting_row"][first:last]] = True
        return mask


class TermRows:
    """The rows of a segment that have each term of a query, decoded when they are read."""

    def __init__(self, posted: Array, places: Sequence[tuple[int, int]], mask_of: Callable[[int, int], Mask]) -> None:
        """Read lists of postings, each from its first up to its last place; `mask_of` makes the mask of one."""
        self._posted = posted
        self._places = places
        self._mask_of = mask_of
        self.sizes: Final = [end - begin for begin, end in self._places]

    def rows(self, at: int) -> Rows:
        """Return the rows of a term, ascending."""
        first, last = self._places[at]
        rows: Rows = self._posted[first:last].astype(np.intp)
        return rows

    def mask(self, at: int, rows: int) -> Mask | None:
        """Return the mask of the rows that have a term, if it is common in a segment of this size."""
        return self._mask_of(*self._places[at]) if self.sizes[at] * _COMMON_TERM_PART > rows else None


def _read_lists(
    arrays: Mapping[str, Array], rows: Rows, first: Array, last: Array, lists: Rows
) -> tuple[Array, Array, Rows]:
    """Read lists whole, and return (index in `rows`, list, place) for each posting of these rows."""
    is_sought = np.zeros(len(arrays["thread"]), np.bool_)
    is_sought[rows] = True
    begins, ends = first[lists], last[lists]
    places = ranges(begins, ends)
    posted = arrays["posting_row"].take(places)
    kept = is_sought.take(posted).nonzero()[0]
    # Few are kept: their indexes and lists are looked up, instead of being computed for all.
    return (
        rows.searchsorted(posted.take(kept)),
        lists.take((ends - begins).cumsum().searchsorted(kept, "right")),
        places.take(kept),
    )


def _search_list(
    arrays: Mapping[str, Array], rows: Rows, first: int, last: int, number: int
) -> tuple[Array, Array, Rows]:
    """Search the rows in one list, and return the same."""
    posted = arrays["posting_row"][first:last]
    # Of the same type: else the whole list would be converted.
    wanted = rows.astype(posted.dtype)
    places = np.minimum(np.searchsorted(posted, wanted), len(posted) - 1)
    kept = np.flatnonzero(posted[places] == wanted)
    return kept, np.full(len(kept), number), first + places[kept]


def narrow(numbers: Array, largest: int) -> Array:
    """Return numbers from 0 to `largest` in the narrowest type that holds them."""
    return numbers.astype(np.min_scalar_type(largest), copy=False)


def starts_of(lengths: Sequence[int] | Array) -> Array:
    """Return where each part of concatenated parts begins, and the end; signed, since they are subtracted."""
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])
    return starts.astype(np.int32) if starts[-1] <= _MAX_INT32 else starts


def ranges(first: Any, last: Any) -> Rows:  # noqa: ANN401 - arrays
    """Return the concatenated ranges from each first up to its last, exclusive."""
    lengths = np.maximum(last - first, 0)
    ends = np.cumsum(lengths)
    if not len(ends) or not ends[-1]:
        return np.zeros(0, np.intp)
    numbers: Rows = np.arange(ends[-1], dtype=np.intp) + np.repeat(first - (ends - lengths), lengths)
    return numbers
