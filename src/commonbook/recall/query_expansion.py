"""Query expansion: the thesaurus adds terms that are near in meaning to those of a query.

It also compares the words of a query that a passage lacks with the words that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from commonbook.ports.embedding import Thesaurus
from commonbook.recall import confidence, scoring
from commonbook.recall.query import ParsedQuery
from commonbook.text import dates_in_text, stopwords, terms

_CACHED_WORDS: Final = 4_000
"""How many query words keep their near stems, the most recent ones: about two kilobytes each."""

_MAX_COMPARED_WORDS: Final = 80
"""So many words of a passage are compared with those of a query that it lacks."""


class QueryExpansion:
    """Expands queries, and caches the near stems of recent query words."""

    def __init__(self, thesaurus: Thesaurus) -> None:
        """Expand with the near words of this thesaurus."""
        self._thesaurus = thesaurus
        self._near_stems = lru_cache(_CACHED_WORDS)(self._find_near_stems)

    def expand(
        self, words: Sequence[tuple[str, str]], terms: tuple[str, ...]
    ) -> tuple[tuple[str, ...], list[scoring.ExpandedTerm]]:
        """Return the added terms, and their pairs with the query terms: for each query term, the nearest first.

        `words` holds (word, term) pairs; `terms` holds the distinct query terms, in order.
        """
        place_of = {term: place for place, term in enumerate(terms)}
        pairs = [
            (place_of[term], place_of.setdefault(stem, len(place_of)), cosine)
            for word, term in words
            for stem, cosine in self._near_stems(word)
            if stem != term
        ]
        return tuple(place_of)[len(terms) :], pairs

    def nearness(self, query: ParsedQuery, shares: Sequence[float], text: str) -> dict[int, float]:
        """Return how near the words of the query that a text lacks are to any of its words, by the place of the term.

        `shares` says how much of each term of the query the text has.
        """
        # The time of a passage may match a month or a year, and a number is near to any other.
        word_of = {
            term: word for word, term in query.words if word.isalpha() and word not in dates_in_text.CALENDAR_WORDS
        }
        # A query without terms has one share.
        places = confidence.lacked_terms(shares[: len(query.terms)])
        lacked = {place: word_of[term] for place in places if (term := query.terms[place]) in word_of}
        if not lacked:
            return {}
        own = dict.fromkeys(terms.words(text)[:_MAX_COMPARED_WORDS])
        others = [word for word in own if word not in stopwords.ENGLISH]
        return dict(zip(lacked, self._thesaurus.nearness(list(lacked.values()), others), strict=True))

    def _find_near_stems(self, word: str) -> tuple[tuple[str, float], ...]:
        """Return the stems of the words near this one, each once with its best cosine, nearest first."""
        near = [pair for pair in self._thesaurus.near(word) if pair[0] not in stopwords.ENGLISH]
        best: dict[str, float] = {}
        for stem, (_, cosine) in zip(terms.stems([other for other, _ in near]), near, strict=True):
            best.setdefault(stem, cosine)
        return tuple(best.items())
