"""Passages that match a question and cannot answer it: echoes, empty answers, and facts about somebody else.

An echo is a message that only asks the question again. An empty answer says that nothing is known ("let me look").
Both have every word of a question that was asked before, so they would stand above its answer. All rules compare words;
they know English and German.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from commonbook.core.text import stopwords, terms

Nearness: TypeAlias = Callable[[Sequence[str], Sequence[str]], Sequence[float]]
"""Returns for each word its highest cosine with any of the others (`Thesaurus.nearness`)."""

MAX_WORDS: Final = 30
"""A longer message tells something."""

_NEAR: Final = 0.4
_NEW_PART: Final = 4
_NEW_PART_ASKING: Final = 2
"""In other words, one content word in four of an echo may be new, and half of them behind a question word."""

_ASKS: Final = re.compile(
    r"\W*(?:(?:hi|hey|hello|ok|okay|so|and|but|please|again|in|on|at|by|for|from|with|since|until|to|about)\b\W*)*"
    r"(?:what|who|whom|whose|which|where|when|why|how|do you (?:know|remember)|can you|could you|tell me|remind me)\b",
    re.IGNORECASE,
)
_ASKS_IN_GERMAN: Final = re.compile(
    r"\W*(?:(?:hallo|bitte|und|also|nochmal|in|an|auf|bei|mit|seit|bis|um|von|zu)\b\W*)*"
    r"(?:wer|wen|wem|was|wo|wann|warum|wieso|wie|welche[rsmn]?|weißt du|kannst du|sag mir)\b",
    re.IGNORECASE,
)
_TAG_QUESTION: Final = re.compile(
    r"\b(?:right|correct|yes|no|ok|okay|true|oder|gell|ne|stimmt(?:'s)?|nicht wahr|richtig)\s*\?\W*$|n[’']t\b.*\?",
    re.IGNORECASE,
)
"""A question that tells what it asks: "Staging is down, right?", "Isn't Ann the owner?"."""

_KNOWS_NOTHING: Final = re.compile(
    r"n[’']t (?:know|find|recall|remember|see|tell|have|say)\b"
    r"|\b(?:(?:can|could|do|did) ?not (?:know|find|recall|remember|see|tell|have|say)"
    r"|not (?:sure|certain)|no idea|have no (?:idea|information|record|memory|answer)"
    r"|(?:let me|[i’']ll|will|need to|going to) (?:look|check|see|search|find|think|have a look)"
    r"|one moment|a moment|a second|hold on|(?:nothing|no information|no records?) (?:about|on|in|found)"
    r"|looking into|checking|weiß (?:ich |es )*(?:leider )?nicht|keine ahnung|nicht sicher|lass mich|moment"
    r"|(?:schaue?|sehe|gucke?) .{0,20}\bnach|(?:finde|habe) .{0,20}\b(?:nichts|keine)|nachsehen|nachschauen)\b",
    re.IGNORECASE,
)
_EMPTY_WORDS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        answer book check checking code context conversation conversations detail details docs document documents file
        files find found history idea information look looking memories memory minute moment note notes project recall
        record records remember repository search searching second sorry source sure unfortunately wait certain
        ahnung antwort augenblick datei dateien finde gefunden informationen kurz leider mal nachgucken nachschauen
        nachsehen notizen projekt schaue sehe sicher sofort suche unterlagen weiß
        """,
    )
)
_PAUSE: Final = re.compile(r"[.:,;!\n]")
_NUMBER: Final = re.compile(r"\d+")
_FIRST_NAME: Final = re.compile(r"^\W*([A-Z][a-zà-ÿ]+)[’']s\b|^\W*([A-Z][a-zà-ÿ]+) [A-Z][a-zà-ÿ]+\b")
_ASKED_NAME: Final = re.compile(
    r"\b(?:is|are|was|were|do|does|did|has|have|had|will|can|could|should) ([A-Z][^\W\d_]+)|\b([A-Z][^\W\d_]+)[’']s\b"
)
"""Somebody about whom a question asks: "does Ann", "Tom's"."""

_NAMED: Final = re.compile(r"(?<=[\w,'\"] )[\"'(]?([A-Z]\w+)")


class Question(NamedTuple):
    """A question as its words without stop words, their stems, its numbers, and its names without a final s."""

    words: tuple[str, ...]
    stems: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]
    capitals: frozenset[str]
    """Its words such as "IT" and "US", which are common words in other letters."""


def read_question(query: str) -> Question:
    """Read a question."""
    pairs = terms.query_words(query)
    names = [name for name in map("".join, _ASKED_NAME.findall(query)) if name.lower() not in stopwords.ENGLISH]
    return Question(
        tuple(word for word, _ in pairs if word),
        frozenset(term for _, term in pairs),
        frozenset(_NUMBER.findall(query)),
        frozenset(name.lower().rstrip("s") for name in names),
        frozenset(word for word in terms.words_in_capitals(query) if word.lower() in stopwords.ENGLISH),
    )


def is_echo(text: str, question: Question, nearness: Nearness) -> bool:
    """Return whether a message only asks what this question asks: all its content words are in it, or near it."""
    opener = _ASKS_IN_GERMAN if terms.language_of(text) == "german" else _ASKS
    asks, is_marked = opener.match(text) is not None, text.rstrip().endswith("?")
    if not is_marked and (not asks or _PAUSE.search(text.strip())):
        return False
    words = {word: term for word, term in _content(text).items() if word not in _EMPTY_WORDS or term in question.stems}
    if not words or _TAG_QUESTION.search(text) or _tells_more(text, question):
        return False
    allowed = len(words) // (_NEW_PART_ASKING if asks else _NEW_PART) if is_marked else 0
    return len(_new_words(words, question, nearness)) <= min(allowed, len(words) - 1)


def is_empty_answer(text: str, before: str, question: Question, nearness: Nearness) -> bool:
    """Return whether a message says only that nothing is known; `before` is the message that it may answer."""
    if not _KNOWS_NOTHING.search(text):
        return False
    answered = read_question(f"{question_text(question)} {before}")
    if _tells_more(text, answered):
        return False
    words = {word: term for word, term in _content(text).items() if word not in _EMPTY_WORDS}
    return len(_new_words(words, answered, nearness)) <= min(1, len(words) // 2)


def question_text(question: Question) -> str:
    """Return the words of a question."""
    return " ".join(question.words)


def lacks_capitals(text: str, question: Question) -> bool:
    """Return whether a passage has none of the words in capitals for which a question asks."""
    return bool(question.capitals) and not any(re.search(rf"\b{word}\b", text) for word in question.capitals)


def names_another(text: str, around: Sequence[str], question: Question) -> bool:
    """Return whether a passage names somebody, but nobody about whom the question asks.

    `around` are its title, speaker and neighbours, in which the asked name may stand.
    """
    if not (_NAMED.search(text) or _FIRST_NAME.match(text)):
        return False
    words = " ".join((text, *around)).lower()
    return not any(re.search(rf"\b{re.escape(name)}", words) for name in question.names)


def _content(text: str) -> dict[str, str]:
    """Return the content words of a text, each with its stem."""
    return {word: term for word, term in terms.query_words(text) if len(word) > 1}


def _tells_more(text: str, question: Question) -> bool:
    """Return whether a text has a number or a name that the question lacks."""
    names = set(terms.stems(sorted(terms.names_in(text) - stopwords.ENGLISH)))
    return bool(set(_NUMBER.findall(text)) - question.numbers) or bool(names - question.stems)


def _new_words(words: dict[str, str], question: Question, nearness: Nearness) -> list[str]:
    """Return the words that are neither in the question nor near one of its words."""
    unknown = [word for word, term in words.items() if term not in question.stems]
    if not unknown or not question.words:
        return unknown
    return [word for word, cosine in zip(unknown, nearness(unknown, question.words), strict=True) if cosine < _NEAR]
