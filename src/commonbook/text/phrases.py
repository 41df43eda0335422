"""Phrases: words that must follow each other in a text. Case, accents and punctuation do not matter.

The phrases of a query are the parts of it in double quotes (`"so"`, `“so”`, `«so»`), which must occur, and the query as
a whole, which counts if it occurs. The index holds no positions: the terms of a phrase give the passages that have all
its words, and then their texts are compared.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from commonbook.text import quotes, stopwords, terms

_MAX_TERMS: Final = 8
"""So many terms of a phrase are looked up: few passages have all of them, and each is compared anyway."""


class Phrase(NamedTuple):
    """Words in a row: as they were given, one after the other as texts are compared, and terms of the index."""

    text: str
    words: str
    terms: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of words; in scripts without spaces, of characters."""
        return len(self.words.split())

    def is_in(self, text: str) -> bool:
        """Tell whether the words follow each other in a text."""
        return self.words in _sequence(text)


def phrase(text: str) -> Phrase:
    """Return a text as a phrase; the terms of rarer words come first."""
    distinct = dict.fromkeys(terms.literal_terms(text))
    rarest = sorted(distinct, key=lambda pair: (pair[0] in stopwords.ENGLISH, -len(pair[0])))
    return Phrase(text, _sequence(text), tuple(dict.fromkeys(term for _, term in rarest))[:_MAX_TERMS])


def quoted(text: str) -> tuple[Phrase, ...]:
    """Return the phrases of a query that stand in double quotes and have words."""
    return tuple(found for part in quotes.quoted_parts(text) if (found := phrase(part)).terms)


def _sequence(text: str) -> str:
    """Return the words of a text with a blank before and after each."""
    return f" {' '.join(terms.plain_words(text))} "
