"""How near passages are to a question by their vectors: by signs, roughly, and to the last digit.

A vector is kept as signed bytes, and its signs as a sketch. Nothing here depends on which other passages are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from commonbook.engines.index.segments import Bools, Floats, Hashes, Rows, Segment, quantise, sketch

_FIRST_PASS: Final = 400
"""So many passages, and all at the same distance, survive the comparison of sketches."""

_SAMPLED: Final = 64
_MARGIN: Final = 3
"""From every so many-th distance is guessed where the first pass ends, for so many times as many as it needs."""

_AT_ONCE: Final = 256
_NO_ROWS: Final = np.zeros(0, np.int64)


def embedded(segment: Segment, wanted: Bools, vector: Floats) -> Rows:
    """Return those of the wanted rows that have a vector of the same length."""
    return np.flatnonzero(wanted & (segment.scales > 0) & (segment.dimensions == len(vector)))


def cosines(vectors: Any, asked: Floats) -> Any:  # noqa: ANN401 - arrays
    """Return how near each vector is, the same whichever others are compared with it."""
    # Where nothing is near, vectors may be of another length than the question's, and are not compared.
    if not len(vectors):
        return np.zeros(0)
    wide, question = vectors.astype(np.float64), asked.astype(np.float64)
    # Row by row, so that a row's cosine does not depend on which others are compared with it.
    lengths = np.sqrt(np.vecdot(wide, wide))
    found = np.vecdot(wide, question) / np.maximum(lengths, 1e-9)
    return np.round(found / max(float(np.linalg.norm(question)), 1e-9), 9)


def rough_cosines(segment: Segment, asked: Floats) -> Any:  # noqa: ANN401 - an array
    """Return how near each row is, up to a `roughness`, many times as fast."""
    question = asked / np.float32(max(float(np.linalg.norm(asked)), 1e-9))
    found = np.empty(segment.rows, np.float32)
    # A few rows at a time: what is made of them is still at hand when it is multiplied.
    for at in range(0, segment.rows, _AT_ONCE):
        wide = segment.vectors[at : at + _AT_ONCE].astype(np.float32)
        np.matmul(wide, question, out=found[at : at + _AT_ONCE])
    return found / np.maximum(segment.lengths, np.float32(1e-9))


def roughness(vector: Floats) -> float:
    """Return by how much two rough cosines may be in the wrong order, and more."""
    return 4 * (len(vector) + 8) * float(np.finfo(np.float32).eps)


def near_by_sketch(segments: Sequence[tuple[Segment, Bools]], vector: Floats) -> list[Rows]:
    """Return the wanted rows of each segment whose signs differ the least, as many in all as the first pass keeps."""
    # The question is rounded as passages are, so that a passage has no distance from itself.
    asked = sketch(quantise(vector[None, :])[0])[:, 0]
    nowhere = 64 * len(asked) + 1
    distances = [_distances(part, asked, len(vector), nowhere) for part in segments]
    # Only what is nearer than a guess is looked at closely; if that is too little, everything is.
    for guess in (_guessed(distances, nowhere), nowhere - 1):
        near = [np.flatnonzero(apart <= guess) for apart in distances]
        if sum(map(len, near)) >= _FIRST_PASS:
            break
    theirs = [apart[rows] for apart, rows in zip(distances, near, strict=True)]
    enough = np.flatnonzero(np.cumsum(np.bincount(np.concatenate([_NO_ROWS, *theirs]))) >= _FIRST_PASS)
    limit = enough[0] if len(enough) else nowhere - 1
    return [rows[apart <= limit] for apart, rows in zip(theirs, near, strict=True)]


def _distances(part: tuple[Segment, Bools], asked: Hashes, dimensions: int, nowhere: int) -> Any:  # noqa: ANN401
    """Return in how many signs each row differs from what is asked; what is not wanted is nowhere."""
    segment, wanted = part
    if segment.dimensions != dimensions:
        return np.full(segment.rows, nowhere, np.uint16)
    apart = np.zeros(segment.rows, np.uint16)
    # The same room for every plane: making it anew would cost as much as counting.
    differing, counted = np.empty(segment.rows, np.uint64), np.empty(segment.rows, np.uint8)
    for plane, bits in zip(segment.sketches, asked, strict=True):
        np.bitwise_xor(plane, bits, out=differing)
        np.bitwise_count(differing, out=counted)
        apart += counted
    if segment.bundle.about["unembedded"] or not wanted.all():
        apart[~(wanted & (segment.scales > 0))] = nowhere
    return apart


def _guessed(distances: Sequence[Any], nowhere: int) -> int:
    """Return a distance at which the first pass probably has enough, and not much more: as in a sample."""
    sample = np.concatenate([_NO_ROWS, *(apart[::_SAMPLED] for apart in distances)])
    place = _MARGIN * _FIRST_PASS // _SAMPLED
    return min(int(np.partition(sample, place)[place]), nowhere - 1) if len(sample) > place else nowhere - 1
