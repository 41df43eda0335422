"""Recognise time expressions in English: dates that a query names, queries for a time, and passages that state one."""

from __future__ import annotations

import re
from datetime import date
from typing import Final, NamedTuple

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_NUMBERS: Final = {
    **{name: number for number, name in enumerate(_MONTHS, 1)},
    **{name[:3]: number for number, name in enumerate(_MONTHS, 1)},
    "sept": 9,
}
# `may` and `march` are verbs too: without a capital they count only beside a number or behind a preposition.
_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
_YEAR: Final = r"(?:19|20)\d\d"
_ORDINAL: Final = r"(?P<{}>[0-3]?\d)(?:st|nd|rd|th)?"
_ISO: Final = re.compile(rf"\b(?P<year>{_YEAR})-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?\b")
_NAMED: Final = re.compile(
    rf"\b(?:{_ORDINAL.format('before')}\s+(?:of\s+)?)?(?P<month>(?i:{_MONTH}))\b\.?"
    rf"(?:\s+{_ORDINAL.format('after')}(?!\d|:))?(?:,?\s+(?:of\s+)?(?P<year>{_YEAR})\b)?"
)
_LEAD: Final = re.compile(
    r"\b(?:in|of|on|since|until|till|by|last|this|next|early|late|mid|during|from|before|after)[\s-]+$", re.I
)
_ANY_YEAR: Final = re.compile(rf"(?<![\d.,:/-]){_YEAR}(?![\d:/]|[.,]\d)")
_ASKS: Final = re.compile(
    r"\bwhen\b|\b(?:what|which)\s+(?:\w+\s+)?(?:date|day|month|year|week|weekday|time|season|century)\b"
    r"|\bhow\s+(?:long|recently|soon)\b|\bsince\s+when\b",
    re.I,
)
_TELLS: Final = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|nowadays|weekend|fortnight|anniversary)\b"
    r"|\b(?:last|next|this|past|coming|previous|every|each|few|couple\s+of)\s+"
    r"(?:\w+\s+)?(?:night|morning|afternoon|evening|days?|weeks?|months?|years?|summer|winter|spring|autumn|fall|season)\b"
    r"|\b(?:last|next|this|on|every)\s+(?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
    r"|\b(?:in|for|since|within)\s+(?:\w+\s+)?(?:hours?|days?|weeks?|months?|years?)\b"
    r"|\b(?:january|february|april|june|july|august|september|october|november|december)\b"
    r"|\b(?:\d{1,2}:\d\d|\d{1,2}\s?[ap]\.?m\b|o'clock)",
    re.I,
)


class NamedDates(NamedTuple):
    """The years, months and days that a query names; each set may be empty."""

    years: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.years or self.months)

    def match(self, day: date) -> float:
        """Return the share of year and month, as far as named, that match a date; times 1.5 if its day is named too."""
        fields = [(self.years, day.year), (self.months, day.month)]
        matches = [value in named for named, value in fields if named]
        share = sum(matches) / len(matches) if matches else 0.0
        return share * 1.5 if share == 1 and day.day in self.days else share


NOTHING: Final = NamedDates()


def named_dates(text: str) -> NamedDates:
    """Return the years, months and days that a query names: `in May 2023`, `on the 7th of May`, `2023-05-07`."""
    years, months, days = set[int](), set[int](), set[int]()
    for match in _ISO.finditer(text):
        years.add(int(match["year"]))
        months.add(int(match["month"]))
        if match["day"]:
            days.add(int(match["day"]))
    for match in _NAMED.finditer(text):
        if not _is_month(match, text):
            continue
        months.add(_MONTH_NUMBERS[match["month"].lower()])
        days.update(int(day) for day in (match["before"], match["after"]) if day and 1 <= int(day) <= 31)
    years.update(int(year) for year in _ANY_YEAR.findall(text))
    return NamedDates(frozenset(years), frozenset(month for month in months if 1 <= month <= 12), frozenset(days))


def asks_when(text: str) -> bool:
    """Tell whether a query asks for a time."""
    return bool(_ASKS.search(text))


def tells_time(text: str) -> bool:
    """Tell whether a passage states when something is or was."""
    return bool(_TELLS.search(text) or _ANY_YEAR.search(text) or _ISO.search(text)) or any(
        _is_month(match, text) for match in _NAMED.finditer(text)
    )


def _is_month(match: re.Match[str], text: str) -> bool:
    """Tell whether a match is a month and not a verb or a name: `May we march?` names none."""
    if match["before"] or match["after"] or match["year"]:
        return True
    word = match["month"]
    if word.lower() in (
        "mar",
        "jan",
        "dec",
        "sep",
        "may",
        "march",
        "jun",
        "jul",
        "nov",
        "oct",
        "apr",
        "aug",
        "feb",
        "sept",
    ):
        return word[0].isupper() and bool(_LEAD.search(text, max(0, match.start() - 12), match.start()))
    return True
