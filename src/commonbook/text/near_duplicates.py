"""Near-duplicate detection by MinHash over word shingles."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zlib import crc32

# What tells that two memories say nearly the same in nearly the same words.
_WORD: Final = re.compile(r"\w{2,}")
_SKIMMED: Final = 8_000
_WORDS: Final = 500
_MARKED: Final = 60
_MARKS: Final = 4
_SCRAMBLE: Final = 2_654_435_761
_LIKE: Final = 0.6


@lru_cache(maxsize=32)
def fingerprints(text: str) -> tuple[int, ...]:
    """Return a few numbers that texts in nearly the same words share: the smallest hashes of its first word pairs."""
    words = words_of(text)[:_MARKED]
    pairs = {f"{one} {other}" for one, other in pairwise(words)} or set(words)
    return tuple(heapq.nsmallest(_MARKS, {crc32(pair.encode()) * _SCRAMBLE % 2**32 for pair in pairs}))


def words_of(text: str) -> list[str]:
    """Return the words of a text that near-duplicate detection compares."""
    return _WORD.findall(text[:_SKIMMED].lower())[:_WORDS]


def are_near(some: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether two texts share enough words to be near duplicates."""
    one, other = set(some), set(others)
    return bool(one) and len(one & other) >= _LIKE * len(one | other)
