"""Divides sequences into batches, for statements and transactions of limited size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_batches(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the values in order, at most `size` at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
