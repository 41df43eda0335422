"""Compares texts by the words that they have in common, to tell which of several a new one is based on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_MAX_CHARS: Final = 200_000
"""A text is compared up to this length: a longer one would hold up the transaction that asks."""
_MIN_WORDS: Final = 8
_WORD: Final = re.compile(r"\w+")


def nearest(text: str, others: Sequence[str], *, at_least: float = 0.0) -> int | None:
    """Return the index of the text that has most in common with a text; None if two have as much.

    The similarity, from 0 to 1, must be above `at_least`.
    """
    parts = _parts(text)
    scores = [_similarity(parts, _parts(other)) for other in others]
    best = max(scores, default=0.0)
    return scores.index(best) if best > at_least and scores.count(best) == 1 else None


def says_nearly_the_same(text: str, other: str, *, at_least: float) -> bool:
    """Return whether two texts of some length have nearly all of their words in common."""
    is_long = all(len(_WORD.findall(one[:_MAX_CHARS])) >= _MIN_WORDS for one in (text, other))
    return is_long and _similarity(_parts(text), _parts(other)) >= at_least


def _parts(text: str) -> Counter[str]:
    """Return the pairs of neighbouring words of a text; of a short one its words, of a word its groups of characters.

    In a short text one other word, such as a price, is a small change, however many of its characters are the same.
    """
    text = text[:_MAX_CHARS].casefold()
    words = _WORD.findall(text)
    if len(words) <= 1:
        return Counter(text[at : at + 3] for at in range(max(1, len(text) - 2)))
    if len(words) < _MIN_WORDS:
        return Counter(words)
    return Counter(f"{first} {second}" for first, second in pairwise(words))


def _similarity(first: Counter[str], second: Counter[str]) -> float:
    """Return Dice's coefficient of two multisets."""
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 0.0
