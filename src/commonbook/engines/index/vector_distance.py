"""Compares quantised vectors with a query: Hamming distance of sketches, approximate cosines, and exact cosines.

A vector is stored as signed bytes, and its signs as a sketch of one bit for each dimension. The result for a passage
never depends on which other passages are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from commonbook.engines.index.postings import Rows
from commonbook.engines.index.segments import Bools, Floats, Hashes, Segment, quantise, sketch

_FIRST_PASS_ROWS: Final = 400
"""So many passages, and all others at the same distance as the last, pass the comparison of sketches."""

_SAMPLE_STEP: Final = 64
_SAMPLE_MARGIN: Final = 3
"""The cut-off of the first pass is estimated from one distance in 64, with room for 3 times the rows needed."""

_BLOCK_ROWS: Final = 256
_PLANES_PER_BYTE: Final = 3
_NO_ROWS: Final = np.zeros(0, np.int64)


def rows_with_vectors(segment: Segment, wanted: Bools, vector: Floats) -> Rows:
    """Return the wanted rows that have a vector of the same length as the query."""
    return np.flatnonzero(wanted & (segment.scales > 0) & (segment.dimensions == len(vector)))


def cosines(vectors: Any, query: Floats) -> Any:  # noqa: ANN401 - arrays
    """Return the cosine of each vector with the query, rounded; independent of the other vectors."""
    # An empty selection may come from vectors of another length than the query's, which cannot be multiplied.
    if not len(vectors):
        return np.zeros(0)
    wide, exact_query = vectors.astype(np.float64), query.astype(np.float64)
    # Row by row, so that a row's cosine does not depend on which others are compared with it.
    lengths = np.sqrt(np.vecdot(wide, wide))
    products = np.vecdot(wide, exact_query) / np.maximum(lengths, 1e-9)
    return np.round(products / max(float(np.linalg.norm(exact_query)), 1e-9), 9)


def nearest(vectors: Any, query: Floats, count: int) -> tuple[Rows, Any]:  # noqa: ANN401 - arrays
    """Return the places of the `count` nearest vectors, with all that are as near as the last, and their cosines.

    Few are compared exactly: those that are near enough by products of half the precision.
    """
    if len(vectors) <= count:
        return np.arange(len(vectors)), cosines(vectors, query)
    wide = vectors.astype(np.float32)
    unit_query = query / np.float32(max(float(np.linalg.norm(query)), 1e-9))
    rough = wide @ unit_query / np.maximum(np.sqrt(np.vecdot(wide, wide)), np.float32(1e-9))
    places = np.flatnonzero(rough >= _highest(rough, count) - rough_error(query))
    exact = cosines(wide[places], query)
    is_near = exact >= _highest(exact, count)
    return places[is_near], exact[is_near]


def _highest(scores: Any, count: int) -> float:  # noqa: ANN401 - an array
    """Return the lowest of the `count` highest scores."""
    return float(-np.partition(-scores, count - 1)[count - 1])


def rough_cosines(segment: Segment, query: Floats) -> Any:  # noqa: ANN401 - an array
    """Return the cosine of each row with the query, with an error below `rough_error`; many times faster."""
    unit_query = query / np.float32(max(float(np.linalg.norm(query)), 1e-9))
    products = np.empty(segment.rows, np.float32)
    # A few rows at a time: the converted rows are still in the processor's cache when they are multiplied.
    for start in range(0, segment.rows, _BLOCK_ROWS):
        wide = segment.vectors[start : start + _BLOCK_ROWS].astype(np.float32)
        np.matmul(wide, unit_query, out=products[start : start + _BLOCK_ROWS])
    return products / np.maximum(segment.lengths, np.float32(1e-9))


def rough_error(vector: Floats) -> float:
    """Return an upper bound of the difference at which two rough cosines may be in the wrong order."""
    return 4 * (len(vector) + 8) * float(np.finfo(np.float32).eps)


def near_by_sketch(segments: Sequence[tuple[Segment, Bools]], vector: Floats) -> list[Rows]:
    """Return the wanted rows of each segment with the smallest Hamming distances, `_FIRST_PASS_ROWS` or more."""
    # The query is quantised as passages are, so that a passage has distance 0 from itself.
    query_sketch = sketch(quantise(vector[None, :])[0])[:, 0]
    unreachable = 64 * len(query_sketch) + 1
    distances = [_distances(part, query_sketch, len(vector), unreachable) for part in segments]
    # Only rows below an estimated distance are counted; if they are too few, all rows are.
    for cutoff in (_estimate_cutoff(distances, unreachable), unreachable - 1):
        near = [np.flatnonzero(distance <= cutoff) for distance in distances]
        if sum(map(len, near)) >= _FIRST_PASS_ROWS:
            break
    near_distances = [distance[rows] for distance, rows in zip(distances, near, strict=True)]
    enough = np.flatnonzero(np.cumsum(np.bincount(np.concatenate([_NO_ROWS, *near_distances]))) >= _FIRST_PASS_ROWS)
    limit = enough[0] if len(enough) else unreachable - 1
    return [rows[distance <= limit] for distance, rows in zip(near_distances, near, strict=True)]


def _distances(part: tuple[Segment, Bools], query_sketch: Hashes, dimensions: int, unreachable: int) -> Any:  # noqa: ANN401 - an array
    """Return the Hamming distance of each row from the query; `unreachable` for rows that are not wanted."""
    segment, wanted = part
    if segment.dimensions != dimensions:
        return np.full(segment.rows, unreachable, np.uint16)
    distance = np.zeros(segment.rows, np.uint16)
    # Buffers are reused for every plane: allocating them would cost as much as counting.
    differing, counted = np.empty(segment.rows, np.uint64), np.empty(segment.rows, np.uint8)
    summed = np.zeros(segment.rows, np.uint8)
    for number, (plane, bits) in enumerate(zip(segment.sketches, query_sketch, strict=True), 1):
        np.bitwise_xor(plane, bits, out=differing)
        np.bitwise_count(differing, out=counted)
        summed += counted
        # Bytes are added many times faster than they are widened, and three planes of 64 bits fit into one.
        if number % _PLANES_PER_BYTE == 0 or number == len(query_sketch):
            distance += summed
            summed[:] = 0
    if segment.bundle.about["unembedded"] or not wanted.all():
        distance[~(wanted & (segment.scales > 0))] = unreachable
    return distance


def _estimate_cutoff(distances: Sequence[Any], unreachable: int) -> int:
    """Estimate from a sample the distance at which the first pass has enough rows, and not many more."""
    sample = np.concatenate([_NO_ROWS, *(distance[::_SAMPLE_STEP] for distance in distances)])
    place = _SAMPLE_MARGIN * _FIRST_PASS_ROWS // _SAMPLE_STEP
    return min(int(np.partition(sample, place)[place]), unreachable - 1) if len(sample) > place else unreachable - 1
