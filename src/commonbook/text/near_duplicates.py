"""Detection of equal texts by a digest, and of near duplicates by MinHash over word shingles."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Final
from zlib import crc32

from commonbook.runtime.compressed_text import CACHED_TEXTS

_WORD: Final = re.compile(r"\w+")
_ASCII_WORDS: Final = {code: chr(code).lower() if _WORD.match(chr(code)) else " " for code in range(128)}
"""The characters in ASCII as words have them, and a blank for each that is part of no word."""

_MAX_CHARS: Final = 8_000
_MAX_WORDS: Final = 500
_FINGERPRINTED_WORDS: Final = 60
_FINGERPRINT_COUNT: Final = 4
_HASH_MULTIPLIER: Final = 2_654_435_761
_MIN_JACCARD: Final = 0.6


def digest(text: str) -> str:
    """Return a hash of a text, without white space at its ends, by which equal texts are found."""
    return blake2b(text.strip().encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=CACHED_TEXTS)
def fingerprints(text: str) -> tuple[int, ...]:
    """Return the MinHash of a text: the smallest hashes of its first word pairs. Near duplicates share some."""
    words = " ".join(words_of(text)[:_FINGERPRINTED_WORDS]).encode().split()
    shingles = list(map(b" ".join, pairwise(words))) or words
    hashes = {checksum * _HASH_MULTIPLIER & 0xFFFF_FFFF for checksum in map(crc32, shingles)}
    # Of so few, sorting all is faster than a heap.
    return tuple(sorted(hashes)[:_FINGERPRINT_COUNT])


def words_of(text: str) -> list[str]:
    """Return the words of a text that near-duplicate detection compares: those of two or more characters."""
    text = text[:_MAX_CHARS]
    # The pattern takes twice as long.
    words = text.translate(_ASCII_WORDS).split() if text.isascii() else _WORD.findall(text.lower())
    return [word for word in words if len(word) > 1][:_MAX_WORDS]


def are_near_duplicates(some: Set[str], others: Set[str]) -> bool:
    """Tell whether texts with these words are near duplicates, by the Jaccard similarity of the sets."""
    common = len(some & others)
    return bool(some) and common >= _MIN_JACCARD * (len(some) + len(others) - common)
