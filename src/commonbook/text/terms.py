"""Text to terms: what an index stores of a text, and what a question asks it for.

A term is a stem: words are normalised (NFKC), lower-cased, stemmed by their script or language, and lose their accents.
Scripts without spaces between words (Chinese, Japanese, Thai and others) and Korean give pairs of neighbouring
characters. A text in another Latin language than English gives each word's English stem as well, so that a query
too short to show its language still finds the word as it stands.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import Stemmer

from commonbook.text import stopwords

DEFAULT: Final = "english"
LONGEST: Final = 64
"""Letters of a word that count; more is no word but a key, a hash or a drawing."""

_LOOK_AT: Final = 2_000
# Letters, digits, and the marks that belong to letters in Indic, Arabic and Hebrew script (`\w` alone would cut there).
_MARKS: Final = (
    r"\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    r"\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u093c\u093e-\u094f\u0962\u0963\u0981-\u0983\u09bc"
    r"\u09be-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b4d\u0b82\u0bbe-\u0bcd"
    r"\u0c00-\u0c04\u0c3e-\u0c4d\u0c81-\u0c83\u0cbc-\u0ccd\u0d00-\u0d03\u0d3b-\u0d4d\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
)
_UNSPACED: Final = (
    r"\u0e00-\u0e3e\u0e40-\u0e4e\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD: Final = re.compile(
    rf"(?P<run>[{_UNSPACED}]+)|(?:(?![{_UNSPACED}])[^\W_{_MARKS}])(?:(?![{_UNSPACED}])[^\W_]|[{_MARKS}])*"
)
_ACCENTS: Final = re.compile(r"(?<=[a-z\u0370-\u03ff])[\u0300-\u036f]+")
_SCRIPTS: Final = (
    ("russian", re.compile(r"[\u0400-\u052f]")),
    ("greek", re.compile(r"[\u0370-\u03ff]")),
    ("arabic", re.compile(r"[\u0600-\u06ff]")),
    ("hindi", re.compile(r"[\u0900-\u097f]")),
    ("tamil", re.compile(r"[\u0b80-\u0bff]")),
    ("armenian", re.compile(r"[\u0530-\u058f]")),
)
_LETTERS: Final = {"turkish": re.compile("[ğışİ]"), "german": re.compile("ß"), "spanish": re.compile("[ñ¿¡]")}
_MINE: Final = threading.local()


def language_of(text: str) -> str:
    """Guess the language of a text in Latin letters by the small words in it; English unless another is plain."""
    return _language_of(text[:_LOOK_AT])


# A question, and a note that is written down, are looked at twice: for their terms and for their vector.
@lru_cache(maxsize=8)
def _language_of(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    words = set(re.findall(r"[^\W\d_]+", text.replace("İ", "i").lower()))
    english = len(words & stopwords.ENGLISH)
    shown = {name: len(words & small) for name, small in stopwords.OTHERS.items()}
    for name, letters in _LETTERS.items():
        shown[name] += len(letters.findall(text))
    best = max(shown, key=lambda name: shown[name])
    return best if shown[best] > english else DEFAULT


def words(text: str) -> list[str]:
    """Return the words as they stand, normalised and lower-cased, in order: what a vector is made of."""
    return _split(text, language_of(text))[0]


def terms(text: str) -> list[str]:
    """Return the terms under which a text is found."""
    language = language_of(text)
    spaced, runs = _split(text, language)
    found = _stems(spaced, language)
    if language != DEFAULT:
        found += [other for own, other in zip(found, _stems(spaced, DEFAULT), strict=True) if own != other]
    for run in runs:
        # A single character can be a word in these scripts, and somebody may ask for it alone.
        found += [*_pairs(run), *run] if len(run) > 1 else run
    return found


def query_words(text: str) -> list[tuple[str, str]]:
    """Return (word, term) for each word of a question that is no stop word: a question of small words asks nothing."""
    language = language_of(text)
    spaced, runs = _split(text, language)
    small = stopwords.for_queries(language)
    pairs = [pair for run in runs for pair in _pairs(run)]
    kept = [word for word in spaced if word not in small]
    return [*zip(kept, _stems(kept, language), strict=True), *zip(pairs, pairs, strict=True)]


def matching(text: str, wanted: Collection[str]) -> list[str]:
    """Return the words of a text, as they stand but lower-cased, whose terms are among those that are wanted."""
    language = language_of(text)
    spaced, runs = _split(text, language)
    stems = zip(spaced, _stems(spaced, language), _stems(spaced, DEFAULT), strict=True)
    found = [word for word, own, other in stems if own in wanted or other in wanted]
    return found + [pair for run in runs for pair in (*_pairs(run), *run) if pair in wanted]


def stems(words: Sequence[str]) -> list[str]:
    """Return the term of each of these English words."""
    return _stems(words, DEFAULT)


def _split(text: str, language: str) -> tuple[list[str], list[str]]:
    """Return the words of two letters and more, and the runs of letters that have no spaces between words."""
    text = unicodedata.normalize("NFKC", text).replace("İ", "i")
    if language == "turkish":
        text = text.replace("I", "ı")
    spaced, runs = [], []
    for found in _WORD.finditer(text.lower()):
        if found["run"]:
            runs.append(found[0])
        elif len(found[0]) > 1:
            spaced.append(found[0][:LONGEST])
    return spaced, runs


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] if len(run) > 1 else [run]


def _stems(found: Sequence[str], language: str) -> list[str]:
    stems = _stemmer(language).stemWords(found)
    return [stem if stem.isascii() else _stem_in_script(word, stem) for word, stem in zip(found, stems, strict=True)]


def _stem_in_script(word: str, stem: str) -> str:
    for language, letters in _SCRIPTS:
        if letters.search(word):
            stem = _stemmer(language).stemWord(word)
            break
    # A dotless i is how Turkish writes what others type as i; accents are what people in a hurry leave out.
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", stem.replace("ı", "i")))
    return unicodedata.normalize("NFC", plain)


def _stemmer(language: str) -> Stemmer.Stemmer:
    """Return this thread's stemmer: they keep state, so that two threads must not share one."""
    if not hasattr(_MINE, "stemmers"):
        _MINE.stemmers = {}
    stemmers: dict[str, Stemmer.Stemmer] = _MINE.stemmers
    if language not in stemmers:
        # Without its own cache, which takes longer to look into than stemming.
        stemmers[language] = Stemmer.Stemmer(language, 0)
    return stemmers[language]
