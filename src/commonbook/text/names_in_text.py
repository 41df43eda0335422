"""Recognise names in English: queries that ask for one (of a person, a place or a work), and passages that have one."""

from __future__ import annotations

import re
from typing import Final

from commonbook.text import dates_in_text, terms

_ASKS: Final = re.compile(
    r"\bwho(?:se|m)?\b|\bwhere\b|\bnames?\b|\bnamed\b|\bcalled\b"
    r"|\b(?:which|what)\s+(?:\w+\s+)?(?:city|cities|country|countries|states?|towns?|places?|locations?)\b"
    r"|\b(?:books?|movies?|films?|songs?|novels?|games?|series|shows?|albums?|titles?|plays?|bands?|podcasts?)\b",
    re.I,
)
_TITLE: Final = re.compile(r'["\u201c][A-Z0-9][^"\u201d]+["\u201d]')
# The first word of a sentence has a capital in any case.
_NAME: Final = re.compile(r"(?<=[a-z0-9,'\"] )[\"'(]?([A-Z][a-z]+)")
# "Thanks, Ann!" and "Hey Ann," tell nothing about Ann.
_BEFORE_ADDRESSED: Final = re.compile(
    r"(?:,|\b(?:hey|hi|hello|dear|thanks|bye|wow|oh|yes|yeah|yep|ok|okay|sure|congrats|cool|great|nice|awesome))\s+$",
    re.I,
)
_AFTER_ADDRESSED: Final = re.compile(r"\s*(?:[!.,?;:-]|$)")
_LONGEST_BEFORE: Final = 12


def asks_for_name(text: str) -> bool:
    """Tell whether a query asks for the name of a person, of a place, or of a book or another work."""
    return bool(_ASKS.search(text))


def tells_name(text: str) -> bool:
    """Tell whether a passage names somebody or something: in a sentence, by a capital, or a title in quotes.

    In other languages than English only titles count: in German every noun has a capital.
    """
    has_title = _TITLE.search(text) is not None
    return has_title or (_has_name(text) and terms.language_of(text) == terms.DEFAULT)


def _has_name(text: str) -> bool:
    """Tell whether a word inside a sentence has a capital, and is neither a month or day nor somebody addressed."""
    return any(
        found[1].lower() not in dates_in_text.CALENDAR_WORDS and not _is_addressed(text, found)
        for found in _NAME.finditer(text)
    )


def _is_addressed(text: str, name: re.Match[str]) -> bool:
    start = name.start()
    before = text[max(0, start - _LONGEST_BEFORE) : start]
    return bool(_AFTER_ADDRESSED.match(text, name.end()) and _BEFORE_ADDRESSED.search(before))
