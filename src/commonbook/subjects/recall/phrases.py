"""Phrase matching: compares the phrases of a query with the texts of the candidates that have all their words.

The index gives passages with all words of a phrase, in any order. Their texts are read in the same transaction. Most
queries have no such passage, and read nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from commonbook.core.markdown import obsidian
from commonbook.core.tables import memories, sessions
from commonbook.ports.database import Reading
from commonbook.ports.index import IS_MESSAGE, CandidatePool, IndexQuery, IndexResult, IndexView, PendingDeltas
from commonbook.subjects.recall import indexed_passages
from commonbook.subjects.recall.query import ParsedQuery, Phrase
from commonbook.values.session import Message
from commonbook.values.spaces import SpaceScope
from commonbook.values.stored_memory import StoredMemory

_MORE_CANDIDATES: Final = 4
_FULL_WORDS: Final = 7
"""The number of words from which on a phrase counts fully: two words follow each other by chance."""

_LEAST_QUOTED: Final = 0.1
"""The weight of a single quoted word."""

_ELSEWHERE: Final = 0.5
"""The part of a quoted phrase's weight in a passage whose memory has it elsewhere."""


class PhraseMatches(NamedTuple):
    """How much of a phrase each row of a pool has, from 0 to 1; and the rows with all quoted words, if any are."""

    shares: npt.NDArray[np.float64]
    with_quoted: npt.NDArray[np.bool_] | None = None


class Search(NamedTuple):
    """A query, and the transaction and the spaces that it is searched in."""

    tx: Reading
    scope: SpaceScope
    query: ParsedQuery


def search(
    view: IndexView, request: Search, index_query: IndexQuery, pending: PendingDeltas
) -> tuple[IndexResult, npt.NDArray[np.float64] | None]:
    """Search the index and compare phrases; return the result, and how much of the phrase each row has.

    Rows without the quoted phrases cannot be hits. As long as too few have them, more rows with all their words are
    compared, until there are no more.
    """
    compared = -1
    while True:
        result = view.search(index_query, pending, request.tx)
        pool = result.pool
        matches = _match_phrases(*request, index_query, pool)
        if matches is None or matches.with_quoted is None:
            return result, None if matches is None else matches.shares
        possible = int(np.count_nonzero(pool.eligible))
        has_enough = np.count_nonzero(matches.with_quoted) >= index_query.max_candidates
        if has_enough or possible < index_query.max_candidates or possible == compared:
            return result._replace(pool=pool._replace(eligible=matches.with_quoted)), matches.shares
        compared = possible
        index_query = index_query._replace(max_candidates=_MORE_CANDIDATES * index_query.max_candidates)


def nothing_has(quoted: Sequence[Phrase]) -> str:
    """Return the note of a recall that found no passage with the quoted phrases."""
    words = " and ".join(f'"{phrase.text}"' for phrase in quoted)
    return f"nothing that was searched has the words {words} in this order"


def _match_phrases(
    tx: Reading, scope: SpaceScope, query: ParsedQuery, index_query: IndexQuery, pool: CandidatePool
) -> PhraseMatches | None:
    """Compare the phrases of a query with the rows of a pool; None if there is nothing to compare."""
    if query.quoted:
        return _match_quoted(tx, scope, query.quoted, pool)
    if query.phrase is None:
        return None
    rows = _rows_with_all(query.phrase, index_query, pool)
    if not rows:
        return None
    shares = np.zeros(len(pool.positions))
    texts = _Texts(tx, scope, pool, rows)
    shares[[row for row in rows if _is_in(query.phrase, texts.of_passage(row))]] = _weight(query.phrase)
    return PhraseMatches(shares)


def _weight(phrase: Phrase) -> float:
    return min(1.0, (phrase.size - 1) / (_FULL_WORDS - 1))


def _match_quoted(tx: Reading, scope: SpaceScope, quoted: Sequence[Phrase], pool: CandidatePool) -> PhraseMatches:
    """Compare all rows that can be hits; a passage counts if its memory has every phrase, and more if it has them."""
    rows = np.flatnonzero(pool.eligible).tolist()
    shares, with_quoted = np.zeros(len(pool.positions)), np.zeros(len(pool.positions), np.bool_)
    texts, weight = _Texts(tx, scope, pool, rows), max(_LEAST_QUOTED, *map(_weight, quoted))
    for row in rows:
        passage = list(texts.of_passage(row))
        missing = [phrase for phrase in quoted if not _is_in(phrase, passage)]
        with_quoted[row] = all(_is_in(phrase, texts.of_memory(row)) for phrase in missing)
        shares[row] = with_quoted[row] * weight * (_ELSEWHERE if missing else 1.0)
    return PhraseMatches(shares, with_quoted)


def _is_in(phrase: Phrase, texts: Collection[str] | Iterator[str]) -> bool:
    return any(phrase.is_in(text) for text in texts)


def _rows_with_all(phrase: Phrase, index_query: IndexQuery, pool: CandidatePool) -> list[int]:
    """Return the rows that have all words of a phrase, as far as the pool tells."""
    place_of = {term: place for place, term in enumerate((*index_query.terms, *index_query.expansion_terms))}
    wanted = {place_of[term] for term in phrase.terms if term in place_of}
    rows, terms, _ = pool.entries
    is_wanted = np.zeros(len(index_query.terms) + len(index_query.expansion_terms), np.bool_)
    is_wanted[list(wanted)] = True
    having = np.bincount(rows[is_wanted[terms]], minlength=len(pool.positions))
    with_all: list[int] = np.flatnonzero(pool.eligible & (having >= len(wanted))).tolist()
    return with_all if wanted else []


class _Texts:
    """The texts of rows: memories and messages are read at once, as a recall may read them."""

    def __init__(self, tx: Reading, scope: SpaceScope, pool: CandidatePool, rows: Sequence[int]) -> None:
        self._pool = pool
        self._ids = {row: pool.ids_of(row) for row in rows}
        own = sorted({memory for _, memory in self._ids.values() if memory})
        self._memories: dict[str, StoredMemory] = memories.get_many(tx, scope, own)
        unsettled = [passage for passage, memory in self._ids.values() if not memory]
        self._messages: dict[str, tuple[Message, str]] = sessions.get_many(tx, scope, unsettled)

    def of_passage(self, row: int) -> Iterator[str]:
        """Yield the text of a row's passage, and the names of its memory or of its speaker."""
        passage, memory_id = self._ids[row]
        pool, memory = self._pool, self._memories.get(memory_id)
        is_message = bool(pool.flags[row] & IS_MESSAGE)
        if memory is not None:
            start, end = int(pool.starts[row]), int(pool.ends[row])
            yield indexed_passages.text_between(memory, start, end, is_message=is_message)
        elif passage in self._messages:
            yield self._messages[passage][0].text
        if is_message:
            yield pool.speakers[pool.speaker[row]]
        elif memory is not None:
            yield from (memory.title, *obsidian.names_of(memory), *obsidian.tags_of(memory))

    def of_memory(self, row: int) -> Iterator[str]:
        """Yield the whole text of a row's memory; nothing for a message, which is a hit by itself."""
        memory = self._memories.get(self._ids[row][1])
        if memory is not None and not self._pool.flags[row] & IS_MESSAGE:
            yield memory.text
