"""Passages that match a question and cannot answer it: echoes, empty answers, and facts about somebody else.

An echo is a message that only asks the question again. An empty answer is an agent's that says only that it knows
nothing ("let me look"). Both have every word of a question that was asked before, so they would stand above its answer.
All rules compare words; they know English and German. In doubt a message is kept: a lost answer is worse than an echo.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from commonbook.core.text import dates_in_text, stopwords, terms

Nearness: TypeAlias = Callable[[Sequence[str], Sequence[str]], Sequence[float]]
"""Returns for each word its highest cosine with any of the others (`Thesaurus.nearness`)."""

MAX_WORDS: Final = 40
"""A longer message tells something."""

_NEAR: Final = 0.4
_NEW_PART: Final = 2
"""In other words, half of the content words of an echo may be new, if it begins with an open question word."""

_FILLERS: Final = (
    r"\W*(?:(?:hi|hey|hello|ok|okay|so|and|but|please|again|in|on|at|by|for|from|with|since|until|to|about|hallo|bitte"
    r"|und|also|nochmal|an|auf|bei|mit|seit|bis|um|von|zu|(?:can|could) you|kannst du)\b\W*)*"
)
_FRAMES: Final = (
    r"(?:i (?:need|want|would like) to know|do you (?:know|remember)|tell me|remind me|look up|find out|check|sag mir"
    r"|weißt du|ich (?:muss|möchte|will) wissen)\b\W*"
)
_ASKS: Final = re.compile(
    rf"{_FILLERS}(?:{_FRAMES})?(?:what(?! about| if)|who|whom|whose|which|where|when|how(?! about)|why"
    r"|wer|wen|wem|wo|wann|warum|wieso|wie|welche[rsmn]?)\b",
    re.IGNORECASE,
)
_ASKS_OPENLY: Final = re.compile(
    r"\b(?:what|who|whom|whose|which|where|when|how (?:long|much|many|often|far|old|big|high)|wer|wen|wem|wo|wann"
    r"|welche[rsmn]?)\b",
    re.IGNORECASE,
)
"""Behind other words than these, a question tells something: "Why did we choose green?"."""

_ASKS_IN_GERMAN: Final = re.compile(rf"{_FILLERS}(?:{_FRAMES})?was\b", re.IGNORECASE)
_BEGINS_WITH_FRAME: Final = re.compile(rf"{_FILLERS}{_FRAMES}", re.IGNORECASE)
_TAG_QUESTION: Final = re.compile(
    r"\b(?:right|correct|yes|no|ok|okay|true|oder|gell|ne|stimmt(?:'s)?|nicht wahr|richtig)\s*\?\W*$|n[’']t\b.*\?",
    re.IGNORECASE,
)
"""A question that tells what it asks: "Staging is down, right?", "Isn't Ann the owner?"."""

_KNOWS_NOTHING: Final = re.compile(
    r"\bi (?:do not|don[’']t|did not|didn[’']t) (?:know|recall|remember|have|see|find)\b"
    r"|\bi (?:can(?:not|[’']t| not)|could(?: not|n[’']t)|was unable to|am unable to|[’']m unable to)"
    r" (?:find|recall|remember|see|tell|say|locate)\b"
    r"|\bi(?: am|[’']m) not (?:sure|certain|aware)\b|\bi have(?:n[’']t| not| no)\b|\bno idea\b"
    r"|\blet me (?:look|check|see|search|find|think|have a look)\b"
    r"|\bi(?:[’']ll| will| need to|[’']m going to| am going to) (?:look|check|see|search|find out)\b"
    r"|\b(?:one|just a|give me a) (?:moment|second|minute)\b|\bhold on\b"
    r"|\bthere(?:[’']s| is| are) (?:no|nothing)\b.*\b(?:mention|record|information|about|notes?|memory)"
    r"|\bnothing (?:came up|found|about|in (?:my|the) (?:notes|memory))\b"
    r"|\byou have(?:n[’']t| not) (?:told|mentioned|said)\b|\bis(?:n[’']t| not) (?:recorded|mentioned|noted)\b"
    r"|\bweiß ich (?:leider |es )*nicht\b|\bich weiß (?:es |das )?(?:leider )?nicht\b|\bkeine ahnung\b"
    r"|\bich bin (?:mir )?nicht sicher\b|\blass mich\b.*\b(?:nach(?:sehen|schauen|gucken)|suchen)\b"
    r"|\bich (?:schaue?|sehe|gucke)\b.*\bnach\b|\b(?:dazu|darüber) (?:finde|habe|weiß) ich\b|\bmoment\b",
    re.IGNORECASE,
)
_EMPTY_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        answer anywhere asking aware book check checking code context conversation conversations detail details docs
        document documents file files find found history idea information know locate look looking memories memory
        mention mentioned minute moment need note noted notes project recall record recorded records remember repository
        search searching second sorry source sure today unable unfortunately wait certain
        ahnung antwort augenblick datei dateien dazu darüber finde gefunden informationen kurz lass leider mal
        nachgucken nachschauen nachsehen notizen projekt schaue schnell sehe sicher sofort suche suchen unterlagen weiß
        """,
    )
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")
_NUMBER: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"[^\W\d_]+")
_FIRST_NAME: Final = re.compile(r"^\W*([A-Z][a-zà-ÿ]+)[’']s\b|^\W*([A-Z][a-zà-ÿ]+) [A-Z][a-zà-ÿ]+\b")
_ASKED_NAME: Final = re.compile(
    r"\b(?:is|was|does|did|has|had|will|can) ([A-Z][a-zà-ÿ]+)(?![’'\w]*s\b [a-z]+s\b)|\b([A-Z][a-zà-ÿ]+)[’']s\b"
)
"""Somebody about whom a question asks: "does Ann", "Tom's"."""

_KIN: Final = frozenset("mum mom mama mother dad papa father grandma grandpa granny oma opa mutti vati".split())  # noqa: SIM905
_NAMED: Final = re.compile(r"(?<=[\w,'\"] )[\"'(]?([A-Z]\w+)")


class Question(NamedTuple):
    """A question as its words without stop words, their stems, its numbers, and its names without a final s."""

    words: tuple[str, ...]
    stems: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]
    small: frozenset[str]
    """All its words, in small letters."""
    abbreviated: frozenset[str]
    """Its words such as "IT", which are common words in small letters."""
    asks: bool
    """Whether it is a question, and not some words to search for."""


def read_question(query: str) -> Question:
    """Read a question."""
    pairs = terms.query_words(query)
    names = {name.lower() for name in map("".join, _ASKED_NAME.findall(query))} - stopwords.ENGLISH - _KIN
    return Question(
        tuple(word for word, _ in pairs if word),
        frozenset(term for _, term in pairs),
        frozenset(_NUMBER.findall(query)),
        frozenset(name.rstrip("s") for name in names),
        frozenset(_WORD.findall(query.lower())),
        frozenset(word.upper() for word in stopwords.ABBREVIATED) & {*_WORD.findall(query)},
        "?" in query or bool(_ASKS.match(query) or _BEGINS_WITH_FRAME.match(query)),
    )


def is_echo(text: str, question: Question, nearness: Nearness) -> bool:
    """Return whether a message only asks what this question asks: all its content words are in it, or near it."""
    if "?" not in text and not any(opener.match(text) for opener in (_ASKS, _ASKS_IN_GERMAN, _BEGINS_WITH_FRAME)):
        # Most messages are none.
        return False
    part = _without_fillers(text)
    is_marked = part.rstrip(" !.)\"'").endswith("?")
    asks = _ASKS.match(part) or (_ASKS_IN_GERMAN.match(part) if terms.language_of(text) == "german" else None)
    may_ask = is_marked or asks or _BEGINS_WITH_FRAME.match(part)
    if not may_ask or _TAG_QUESTION.search(part) or _tells_more(part, question):
        return False
    content = _content(part)
    words = {word: term for word, term in content.items() if word not in _EMPTY_WORDS or term in question.stems}
    if not words:
        return False
    if not is_marked or not asks or not _ASKS_OPENLY.search(asks[0]):
        # It may tell something in the form of a question: "Did you know that ...?".
        return question.stems.issuperset(words.values())
    return len(_new_words(words, question, nearness)) <= (len(words) // _NEW_PART if question.asks else 0)


def is_empty_answer(text: str, before: str, question: Question, nearness: Nearness) -> bool:
    """Return whether an agent's message says only that nothing is known; `before` is what it may answer."""
    if not _KNOWS_NOTHING.search(text):
        return False
    answered = read_question(f"{' '.join(question.words)} {before}")
    answered = answered._replace(numbers=answered.numbers | question.numbers, small=answered.small | question.small)
    if _tells_more(text, answered):
        return False
    words = {word: term for word, term in _content(text).items() if word not in _EMPTY_WORDS}
    return not _new_words(words, answered, nearness)


def lacks_abbreviation(text: str, question: Question) -> bool:
    """Return whether a passage has none of the abbreviations in a question, but perhaps "it"."""
    return bool(question.abbreviated) and question.abbreviated.isdisjoint(_WORD.findall(text))


def names_another(text: str, around: Sequence[str], question: Question) -> bool:
    """Return whether a passage names somebody, but nobody about whom the question asks.

    `around` are its title, speaker and neighbours, in which the asked name may stand.
    """
    return bool(_NAMED.search(text) or _FIRST_NAME.match(text)) and not names_asked((text, *around), question)


def names_asked(texts: Sequence[str], question: Question) -> bool:
    """Return whether somebody about whom the question asks is named; Liz is in Elizabeth."""
    words = " ".join(texts).lower()
    return any(name in words for name in question.names)


def _without_fillers(text: str) -> str:
    """Return a message without the sentences that say nothing behind it: "Where is it? I need to know."."""
    sentences = _SENTENCE_END.split(text.strip())
    while len(sentences) > 1 and not _content(sentences[-1]).keys() - _EMPTY_WORDS:
        sentences.pop()
    return " ".join(sentences)


def _content(text: str) -> dict[str, str]:
    """Return the content words of a text, each with its stem."""
    return {word: term for word, term in terms.query_words(text) if len(word) > 1}


def _tells_more(text: str, question: Question) -> bool:
    """Return whether a text has a number, a name, or a day of the calendar that the question lacks."""
    words = frozenset(_WORD.findall(text.lower()))
    names = set(terms.stems(sorted(terms.names_in(text) - stopwords.ENGLISH)))
    calendar = (words & dates_in_text.CALENDAR_WORDS) - question.small - stopwords.ENGLISH
    return bool(set(_NUMBER.findall(text)) - question.numbers) or bool(names - question.stems) or bool(calendar)


def _new_words(words: dict[str, str], question: Question, nearness: Nearness) -> list[str]:
    """Return the words that are neither in the question nor near one of its words."""
    unknown = [word for word, term in words.items() if term not in question.stems]
    if not unknown or not question.words:
        return unknown
    return [word for word, cosine in zip(unknown, nearness(unknown, question.words), strict=True) if cosine < _NEAR]
