"""Misspelt names: a word of a query that occurs nowhere, and is near a title, a tag or an author, counts as that.

The index has a term for the consonants of each word of a name (`terms.spelling_terms`), so that names are looked up and
not compared one by one. What has the same consonants is then compared letter by letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Final

import numpy as np

from commonbook.core.markdown import obsidian
from commonbook.core.tables import memories
from commonbook.core.text import terms
from commonbook.ports.index import IndexQuery, IndexResult, IndexView, PendingDeltas
from commonbook.subjects.recall.phrases import Search

_CLOSE: Final = 0.74
"""The least part of letters that two spellings have in common (`difflib`)."""

_VOWELS: Final = "aeiouy"
_MAX_NAMES: Final = 20
"""The number of passages whose names are compared."""


def meant(
    view: IndexView,
    search: Search,
    query: IndexQuery,
    result: IndexResult,
    pending: PendingDeltas,
    *,
    knows: Callable[[str], bool],
) -> dict[str, str]:
    """Return the known name that each misspelt word of a query means, for those that mean one.

    A word is misspelt if no passage has it, and it is no word of the dictionary (`knows`).
    """
    found = dict(zip(query.terms, result.document_frequencies, strict=True))
    unknown = {word: terms.misspelling_terms(word) for word, term in search.query.words if not found.get(term, 1)}
    unknown = {word: spellings for word, spellings in unknown.items() if spellings and not knows(word)}
    if not unknown or search.query.quoted:
        return {}
    spellings = tuple(dict.fromkeys(term for of_word in unknown.values() for term in of_word))
    by_name = query._replace(
        terms=spellings, expansion_terms=(), phrase_terms=(), spans=(), vector=None, max_candidates=_MAX_NAMES
    )
    known = _names(search, view.search(by_name, pending, search.tx))
    close = {word: get_close_matches(word, _others(word, known), n=1, cutoff=_CLOSE) for word in unknown}
    return {word: known[names[0]] for word, names in close.items() if names}


def _names(search: Search, result: IndexResult) -> dict[str, str]:
    """Return the words of the names that were found, in small letters, as they are written."""
    pool = result.pool
    rows, _, _ = pool.entries
    having = [row for row in np.unique(rows).tolist() if pool.eligible[row]]
    ids = sorted({memory for _, memory in map(pool.ids_of, having) if memory})
    texts = [pool.speakers[pool.speaker[row]].rpartition(":")[2] for row in having]
    for memory in memories.get_many(search.tx, search.scope, ids).values():
        texts += [memory.title, *obsidian.names_of(memory), *obsidian.tags_of(memory)]
    return {word.lower(): word for text in reversed(texts) for word in re.findall(r"\w+", text)}


def _others(word: str, names: Iterable[str]) -> list[str]:
    """Return the names without those that differ in their ending alone, as Stefan and Stefanie: they are others."""
    return [
        name
        for name in names
        if not name.startswith(word) and not word.startswith(name) and name.rstrip(_VOWELS) != word.rstrip(_VOWELS)
    ]


def corrected(query: str, words: Mapping[str, str]) -> str:
    """Return a query with known names in place of misspelt words."""
    for word, name in words.items():
        query = re.sub(rf"\b{re.escape(word)}\b", lambda _: name, query, flags=re.IGNORECASE)  # noqa: B023 - called at once
    return query


def note(words: Mapping[str, str]) -> str:
    """Return what a person or agent is told about corrected words."""
    return "; ".join(f'"{word}" was taken for "{name}"' for word, name in words.items())
