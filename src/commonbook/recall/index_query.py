"""Build the query to an index from a parsed recall: filters, terms, and terms near them in meaning.

Query expansion: the thesaurus adds terms that are near in meaning to those of a query.

It also compares the words of a query that a passage lacks with the words that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from commonbook.model.spaces import SpaceScope
from commonbook.ports.embedding import Thesaurus
from commonbook.ports.index import FOREVER, IndexQuery
from commonbook.recall import confidence, indexed_passages, neighbours, scoring
from commonbook.recall.query import MAX_QUERY_CHARS, ParsedQuery
from commonbook.text import dates_in_text, stopwords, terms
from commonbook.text import terms as text_terms

_MIN_CANDIDATES: Final = 50


_FEW_TERMS: Final = 3
_LONG_PHRASE: Final = 4


def _phrase_terms(query: ParsedQuery, name: str) -> tuple[str, ...]:
    """Return the terms of the query as a phrase, if its stop words are needed to find it.

    With more other words, the passages that have all of them are the first candidates anyway. A few stop words alone
    are no phrase, but may be the name of a memory, such as "About us".
    """
    phrase = query.phrase
    if query.has_only_stop_words and phrase is None:
        return (name,)
    if phrase is None or phrase.size < _LONG_PHRASE or len(query.terms) > _FEW_TERMS:
        return ()
    return phrase.terms


class IndexQueryBuilder:
    """Builds queries to an index; its state consists of the cache of near terms."""

    def __init__(self, thesaurus: Thesaurus) -> None:
        """Expand queries with the near words of this thesaurus."""
        self._expansion = QueryExpansion(thesaurus)
        self.nearness = self._expansion.nearness

    def build(
        self, query: ParsedQuery, allowed: SpaceScope, vector: indexed_passages.Vector | None
    ) -> tuple[IndexQuery, list[scoring.ExpandedTerm]]:
        """Return the query to the index, with expansion terms, and the pairs of query and expansion terms."""
        terms = query.terms
        expansion_terms, expansions = self._expansion.expand(query.words, terms)
        # It is found only in memories with the query as their name.
        name = text_terms.name_term(query.request.query[:MAX_QUERY_CHARS])
        phrase_terms = _phrase_terms(query, name)
        include = query.request.include
        kinds = query.request.kinds
        index_query = IndexQuery(
            terms=terms,
            expansion_terms=(
                *expansion_terms,
                *(term for term in phrase_terms if term not in terms and term != name),
                name,
            ),
            vector=vector,
            spaces=frozenset(allowed),
            kinds=frozenset(kinds),
            excluded_kinds=frozenset() if "notices" in include or "notice" in kinds else frozenset({"notice"}),
            tags=query.labels,
            since=indexed_passages.micros(query.since) if query.since else -FOREVER,
            until=indexed_passages.micros(query.until) if query.until else FOREVER,
            as_of=indexed_passages.micros(query.as_of) if query.as_of else None,
            alive_at=-FOREVER if "expired" in include else indexed_passages.micros(query.now),
            superseded="superseded" in include,
            now=indexed_passages.micros(query.now),
            max_candidates=max(_MIN_CANDIDATES, query.request.k),
            reach=neighbours.REACH,
            newest=query.is_empty,
            required_terms=max(query.quoted, key=lambda phrase: len(phrase.terms)).terms if query.quoted else (),
            phrase_terms=phrase_terms,
            spans=query.days,
        )
        return index_query, expansions


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
