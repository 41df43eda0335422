"""Measures of ranked lists, of probabilities, and of scores that should tell two groups apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

BINS: Final = 10


def found(ids: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Return the share of the evidence among the first k ids."""
    return len(set(ids[:k]) & set(evidence)) / len(evidence)


def reciprocal_rank(ids: Sequence[str], evidence: Collection[str]) -> float:
    """Return one divided by the rank of the first evidence; 0 if there is none."""
    return next((1 / rank for rank, id_ in enumerate(ids, 1) if id_ in evidence), 0.0)


def mean(values: Sequence[float]) -> float:
    """Return the mean; of nothing, 0."""
    return sum(values) / len(values) if values else 0.0


def auc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return the chance that one of the first group has the larger value; equal values count half."""
    if not higher or not lower:
        return 0.5
    pairs = sum((one > other) + 0.5 * (one == other) for one in higher for other in lower)
    return pairs / (len(higher) * len(lower))


class Bin(NamedTuple):
    """Predictions of nearly the same probability: how many, their mean, and the share that came true."""

    size: int
    predicted: float
    observed: float


def calibration(probabilities: Sequence[float], outcomes: Sequence[bool]) -> list[Bin]:
    """Return ten bins of equal width that have predictions."""
    groups: dict[int, list[tuple[float, bool]]] = {}
    for probability, outcome in zip(probabilities, outcomes, strict=True):
        groups.setdefault(min(int(probability * BINS), BINS - 1), []).append((probability, outcome))
    return [
        Bin(len(group), mean([one for one, _ in group]), mean([float(came) for _, came in group]))
        for _, group in sorted(groups.items())
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error (ECE)."""
    total = sum(one.size for one in bins)
    return sum(one.size * abs(one.predicted - one.observed) for one in bins) / max(total, 1)


def brier(probabilities: Sequence[float], outcomes: Sequence[bool]) -> float:
    """Return the mean squared error of probabilities."""
    return mean([(one - float(came)) ** 2 for one, came in zip(probabilities, outcomes, strict=True)])
