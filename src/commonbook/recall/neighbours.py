"""Pools the values and the vectors of passages with their neighbours' in the same session or memory.

Passages lie in a row of slots: neighbours are as far apart as in their thread, and other passages are out of reach of
each other. So a sum over neighbours is a sum along the row, weighted by a kernel.

Vectors are signed bytes with a scale. Their products are whole numbers, which floats add up exactly in any order.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.int8]
Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]

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
