"""Build the query to an index from a parsed recall: filters, terms, and terms near them in meaning."""

from __future__ import annotations

from typing import Final

from commonbook.model.spaces import SpaceScope
from commonbook.ports.embedding import Thesaurus
from commonbook.ports.index import FOREVER, IndexQuery
from commonbook.recall import indexed_passages, neighbours, scoring
from commonbook.recall.query import MAX_QUERY_CHARS, ParsedQuery
from commonbook.recall.query_expansion import QueryExpansion
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
