"""Query expansion: terms near in meaning to those of a question, from the thesaurus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from commonbook.ports.embedding import Thesaurus
from commonbook.recall import ranking
from commonbook.text import stopwords, terms

_CACHE_WORDS: Final = 20_000


class QueryExpansion:
    """Finds near terms, and keeps those of the words that were asked for lately."""

    def __init__(self, thesaurus: Thesaurus) -> None:
        """Expand with the near words of this thesaurus."""
        self._thesaurus = thesaurus
        self._known: dict[str, tuple[tuple[str, float], ...]] = {}

    def expand(
        self, words: Sequence[tuple[str, str]], terms: tuple[str, ...]
    ) -> tuple[tuple[str, ...], list[ranking.Near]]:
        """Return the terms near those asked for, and the pairs of them, for each asked one the nearest first."""
        places = {term: at for at, term in enumerate(terms)}
        near = [
            (places[term], places.setdefault(stem, len(places)), cosine)
            for word, term in words
            for stem, cosine in self._stems_near(word)
            if stem != term
        ]
        return tuple(places)[len(terms) :], near

    def _stems_near(self, word: str) -> tuple[tuple[str, float], ...]:
        found = self._known.get(word)
        if found is None:
            if len(self._known) >= _CACHE_WORDS:
                self._known.clear()
            near = [one for one in self._thesaurus.near(word) if one[0] not in stopwords.ENGLISH]
            best: dict[str, float] = {}
            for stem, (_, cosine) in zip(terms.stems([other for other, _ in near]), near, strict=True):
                best.setdefault(stem, cosine)
            found = self._known[word] = tuple(best.items())
        return found
