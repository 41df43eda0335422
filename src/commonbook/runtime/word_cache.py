"""A cache of what is computed from single words: a word that is known costs one look-up, and no call of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

Value = TypeVar("Value")

_MAX_CACHED_CHARS: Final = 128
"""A longer text is no word: a whole query, for one, of which thousands would fill the memory."""


class WordCache(dict[str, Value]):
    """Maps each word to a value, which is computed when the word is first read. A full cache is cleared.

    The value of a text that is longer than a word is computed each time.
    Threads may share one: at worst a value is computed twice.
    """

    def __init__(self, compute: Callable[[str], Value], *, capacity: int) -> None:
        """Compute values by this function, and keep at most so many."""
        super().__init__()
        self._compute = compute
        self._capacity = capacity

    def __missing__(self, word: str) -> Value:
        if len(word) > _MAX_CACHED_CHARS:
            return self._compute(word)
        if len(self) >= self._capacity:
            self.clear()
        value = self[word] = self._compute(word)
        return value
