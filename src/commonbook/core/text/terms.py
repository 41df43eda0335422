"""Turn texts into the terms that the index stores, and queries into terms to search for.

A term is a stem: words are normalised (NFKC), lower-cased, stemmed by their script or language, and lose their accents.
Scripts without spaces between words (Chinese, Japanese, Thai and others) and Korean give bigrams of characters. A text
in another Latin language than English gives each word's English stem as well, so that a query too short to show its
language still matches the word. A date gives one term, however it is written: `16.01.2024` and `January 16th, 2024`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import Stemmer

from commonbook.core.text import dates_in_text, stopwords

DEFAULT: Final = "english"
MAX_WORD_LETTERS: Final = 64
"""A longer run of letters is cut: it is not a word but a key, a hash or a drawing."""

_DATE: Final = "date:"
_DAY: Final = "day:"
_NAME: Final = "name:"
_SPELLING: Final = "spelling:"
_CONSONANTS: Final = frozenset("bcdfghjklmnpqrstvwxz")
_MIN_MISSPELT_LETTERS: Final = 5
_LANGUAGE_SAMPLE_CHARS: Final = 2_000
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
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
# Behind another word: the first word of a sentence tells nothing.
_NAME_IN_SENTENCE: Final = re.compile(r"(?<=[\w,'\"] )[\"'(]?([A-Z]\w+)")
_CAPITALS: Final = re.compile(r"\b[A-Z]{2,}\b")
_ACCENTS: Final = re.compile(r"(?<=[a-z\u0370-\u03ff])[\u0300-\u036f]+")
_SCRIPTS: Final = (
    ("russian", re.compile(r"[\u0400-\u052f]")),
    ("greek", re.compile(r"[\u0370-\u03ff]")),
    ("arabic", re.compile(r"[\u0600-\u06ff]")),
    ("hindi", re.compile(r"[\u0900-\u097f]")),
    ("tamil", re.compile(r"[\u0b80-\u0bff]")),
    ("armenian", re.compile(r"[\u0530-\u058f]")),
)
_TYPICAL_LETTERS: Final = {"turkish": re.compile("[ğışİ]"), "german": re.compile("ß"), "spanish": re.compile("[ñ¿¡]")}
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_FOREIGN_WORDS: Final[dict[str, list[str]]] = {}
"""The stop words of all languages but English, each with its languages: a text is compared with all of them at once."""

for _language, _stop_words in stopwords.BY_LANGUAGE.items():
    for _stop_word in _stop_words:
        _FOREIGN_WORDS.setdefault(_stop_word, []).append(_language)
_MAX_CACHED_STEMS: Final = 20_000
_THREAD_LOCAL: Final = threading.local()


def language_of(text: str) -> str:
    """Guess the language of a text in Latin letters by its stop words; English unless another has more."""
    return _language_of(text[:_LANGUAGE_SAMPLE_CHARS])


# Each query and each indexed text is examined twice: for its terms and for its vector.
@lru_cache(maxsize=8)
def _language_of(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    words = set(_LETTERS.findall(text.replace("İ", "i").lower()))
    scores = dict.fromkeys(stopwords.BY_LANGUAGE, 0)
    for word in words & _FOREIGN_WORDS.keys():
        for name in _FOREIGN_WORDS[word]:
            scores[name] += 1
    if not text.isascii():
        for name, letters in _TYPICAL_LETTERS.items():
            scores[name] += len(letters.findall(text))
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > len(words & stopwords.ENGLISH) else DEFAULT


def words(text: str) -> list[str]:
    """Return the words of a text, normalised and lower-cased but not stemmed, in order; for embedding."""
    # A single letter carries no meaning.
    return [word for word in _split(text, language_of(text))[0] if len(word) > 1]


def terms(text: str) -> list[str]:
    """Return the terms under which a text is indexed."""
    language = language_of(text)
    spaced, runs = _split(text, language)
    terms_ = _stems(spaced, language)
    if language != DEFAULT:
        terms_ += [english for own, english in zip(terms_, _stems(spaced, DEFAULT), strict=True) if own != english]
    for run in runs:
        # A single character can be a word in these scripts, and a query may consist of it alone.
        terms_ += [*_bigrams(run), *run] if len(run) > 1 else run
    return terms_ + _date_terms(text)


def query_words(text: str) -> list[tuple[str, str]]:
    """Return (word, term) for each word of a query that is not a stop word, and ("", term) for each date.

    "IT" and "US" in capitals are no stop words. If nothing is left, some stop words are asked for.
    """
    language = language_of(text)
    spaced, runs = _split(dates_in_text.without_numeric_days(text), language)
    stop_words = stopwords.for_queries(language)
    bigrams = [bigram for run in runs for bigram in _bigrams(run)]
    capitals = stopwords.ABBREVIATED & {
        word.lower() for word in _CAPITALS.findall(text) if not text.isupper() or text == word
    }
    askable = [word for word in spaced if _may_be_asked(word, language)]
    content_words = [word for word in askable if word not in stop_words or word in capitals]
    dates = [("", term) for term in _query_date_terms(text)]
    if not (content_words or bigrams or dates):
        content_words = [word for word in askable if word in stopwords.ASKABLE]
    return [
        *zip(content_words, _stems(content_words, language), strict=True),
        *zip(bigrams, bigrams, strict=True),
        *dates,
    ]


def literal_terms(text: str) -> list[tuple[str, str]]:
    """Return (word, term) for all words of a text, stop words too; every text with these words has these terms."""
    spaced, runs = _split(text, DEFAULT)
    bigrams = [bigram for run in runs for bigram in _bigrams(run)]
    return [*zip(spaced, _stems(spaced, DEFAULT), strict=True), *zip(bigrams, bigrams, strict=True)]


def plain_words(text: str) -> list[str]:
    """Return the words of a text in order, lower-cased and without accents; characters in scripts without spaces."""
    text = unicodedata.normalize("NFKC", text).replace("İ", "i").lower()
    if not text.isascii():
        text = _without_accents(text)
    words: list[str] = []
    for match in _WORD.finditer(text):
        words += match[0] if match["run"] else [match[0]]
    return words


def name_term(name: str) -> str:
    """Return the one term of a whole name, such as a title; a query that is the name has the same term."""
    return f"{_NAME}{' '.join(terms(name))}"


def spelling_terms(names: str) -> list[str]:
    """Return a term for each long word of names, which most misspellings of the word have too.

    It is the first letter and the set of the other consonants: `Muhhamed` and `Muhammad` have the same.
    """
    return [_spelling(word) for word in plain_words(names) if _may_be_misspelt(word)]


def misspelling_terms(word: str) -> list[str]:
    """Return the terms of the names that a word may mean: with its own consonants, one less, or one more."""
    if not _may_be_misspelt(word):
        return []
    own = _spelling(word)
    first, others = own[: len(_SPELLING) + 1], own[len(_SPELLING) + 1 :]
    fewer = [first + others.replace(letter, "") for letter in others]
    return [own, *fewer, *(first + "".join(sorted(others + more)) for more in _CONSONANTS if more not in others)]


def _may_be_misspelt(word: str) -> bool:
    return len(word) >= _MIN_MISSPELT_LETTERS and word.isascii() and word.isalpha()


def _spelling(word: str) -> str:
    return _SPELLING + word[0] + "".join(sorted(set(word[1:]) & _CONSONANTS))


def names_in(text: str) -> frozenset[str]:
    """Return the words of an English text that are capitalised inside a sentence, lower-cased: mostly names.

    Of a text in another language there are none: in German every noun has a capital.
    """
    if language_of(text) != DEFAULT:
        return frozenset()
    return frozenset(map(str.lower, _NAME_IN_SENTENCE.findall(text))) - dates_in_text.CALENDAR_WORDS


def is_date(term: str) -> bool:
    """Return whether a term is a date; no word has a colon."""
    return term.startswith((_DATE, _DAY))


def _may_be_asked(word: str, language: str) -> bool:
    """Return whether a word of a query counts; in other languages than English, single letters do not."""
    return len(word) > 1 or word.isdigit() or language == DEFAULT


def _date_terms(text: str) -> list[str]:
    """Return the terms of the dates in a text: each day of a year, and each day without its year."""
    days = dates_in_text.days_in(text)
    years = [f"{_DATE}{year}-{month}-{day}" for year, month, day in days if year is not None]
    return years + [f"{_DAY}{month}-{day}" for _, month, day in days]


def _query_date_terms(text: str) -> list[str]:
    """Return the terms of the dates in a query: with the year, if it names one."""
    return [
        f"{_DAY}{month}-{day}" if year is None else f"{_DATE}{year}-{month}-{day}"
        for year, month, day in dates_in_text.days_in(text)
    ]


def matching(text: str, wanted: Collection[str]) -> list[str]:
    """Return the words of a text, lower-cased but not stemmed, whose terms are wanted."""
    language = language_of(text)
    spaced, runs = _split(text, language)
    stems = zip(spaced, _stems(spaced, language), _stems(spaced, DEFAULT), strict=True)
    matches = [word for word, own, english in stems if own in wanted or english in wanted]
    return matches + [part for run in runs for part in (*_bigrams(run), *run) if part in wanted]


def stems(words: Sequence[str]) -> list[str]:
    """Return the term of each of these English words."""
    return _stems(words, DEFAULT)


def _split(text: str, language: str) -> tuple[list[str], list[str]]:
    """Return the words, and the runs of characters in scripts without spaces."""
    if text.isascii() and language != "turkish":
        # The same for most texts, in a third of the time.
        return [word[:MAX_WORD_LETTERS] for word in _ASCII_WORD.findall(text.lower())], []
    text = unicodedata.normalize("NFKC", text).replace("İ", "i")
    if language == "turkish":
        text = text.replace("I", "ı")
    spaced, runs = [], []
    for match in _WORD.finditer(text.lower()):
        if match["run"]:
            runs.append(match[0])
        else:
            spaced.append(match[0][:MAX_WORD_LETTERS])
    return spaced, runs


def _bigrams(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] if len(run) > 1 else [run]


def _stems(words: Sequence[str], language: str) -> list[str]:
    if language == DEFAULT:
        return [_english_stem(word) for word in words]
    stems = _stemmer(language).stemWords(words)
    return [stem if stem.isascii() else _stem_in_script(word, stem) for word, stem in zip(words, stems, strict=True)]


@lru_cache(maxsize=_MAX_CACHED_STEMS)
def _english_stem(word: str) -> str:
    """Return the stem of a word of an English text; a word in another script gets the stem of that script."""
    # English has no accents: with and without them, a word must have the same stem.
    word = word if word.isascii() else _without_latin_accents(word)
    stem = _stemmer(DEFAULT).stemWord(word)
    return stem if stem.isascii() else _stem_in_script(word, stem)


def _stem_in_script(word: str, stem: str) -> str:
    """Return the stem of a word by the stemmer of its script, if there is one, without accents."""
    for language, letters in _SCRIPTS:
        if letters.search(word):
            stem = _stemmer(language).stemWord(word)
            break
    # Other keyboards have no Turkish dotless i, and people in a hurry leave out accents.
    return _without_accents(stem)


def _without_accents(word: str) -> str:
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word.replace("ı", "i"))))


def _without_latin_accents(word: str) -> str:
    """Return a word without its accents if only ASCII letters are left; the stemmers of other scripts need theirs."""
    plain = _without_accents(word)
    return plain if plain.isascii() else word


def _stemmer(language: str) -> Stemmer.Stemmer:
    """Return this thread's stemmer: stemmers have state, so that threads must not share one."""
    if not hasattr(_THREAD_LOCAL, "stemmers"):
        _THREAD_LOCAL.stemmers = {}
    stemmers: dict[str, Stemmer.Stemmer] = _THREAD_LOCAL.stemmers
    if language not in stemmers:
        # Without its own cache, which is slower than stemming.
        stemmers[language] = Stemmer.Stemmer(language, 0)
    return stemmers[language]


# --- names in English


_ASKS: Final = re.compile(
    r"\bwho(?:se|m)?\b|\bwhere\b|\bnames?\b|\bnamed\b|\bcalled\b"
    r"|\b(?:which|what)\s+(?:\w+\s+)?(?:city|cities|country|countries|states?|towns?|places?|locations?)\b"
    r"|\b(?:books?|movies?|films?|songs?|novels?|games?|series|shows?|albums?|titles?|plays?|bands?|podcasts?)\b",
    re.I,
)
_TITLE: Final = re.compile(r'["\u201c][A-Z0-9][^"\u201d]+["\u201d]')
# The first word of a sentence has a capital in any case.
_NAME_IN_PASSAGE: Final = re.compile(r"(?<=[a-z0-9,'\"] )[\"'(]?([A-Z][a-z]+)")
# "Thanks, Ann!" and "Hey Ann," tell nothing about Ann.
_BEFORE_ADDRESSED: Final = re.compile(
    r"(?:,|\b(?:hey|hi|hello|dear|thanks|bye|wow|oh|yes|yeah|yep|ok|okay|sure|congrats|cool|great|nice|awesome))\s+$",
    re.I,
)
_AFTER_ADDRESSED: Final = re.compile(r"\s*(?:[!.,?;:-]|$)")
_LONGEST_BEFORE: Final = 12


def asks_for_name(text: str) -> bool:
    """Return whether a query asks for the name of a person, of a place, or of a book or another work."""
    return bool(_ASKS.search(text))


def tells_name(text: str) -> bool:
    """Return whether a passage names somebody or something: in a sentence, by a capital, or a title in quotes.

    In other languages than English only titles count: in German every noun has a capital.
    """
    has_title = _TITLE.search(text) is not None
    return has_title or (_has_name(text) and language_of(text) == DEFAULT)


def _has_name(text: str) -> bool:
    """Return whether a word inside a sentence has a capital, and is neither a month or day nor somebody addressed."""
    return any(
        found[1].lower() not in dates_in_text.CALENDAR_WORDS and not _is_addressed(text, found)
        for found in _NAME_IN_PASSAGE.finditer(text)
    )


def _is_addressed(text: str, name: re.Match[str]) -> bool:
    start = name.start()
    before = text[max(0, start - _LONGEST_BEFORE) : start]
    return bool(_AFTER_ADDRESSED.match(text, name.end()) and _BEFORE_ADDRESSED.search(before))
