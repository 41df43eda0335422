"""Recognise time expressions in English: dates that a query names, queries for a time, and passages that state one."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple, TypeAlias

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_NUMBERS: Final = {
    **{name: number for number, name in enumerate(_MONTHS, 1)},
    **{name[:3]: number for number, name in enumerate(_MONTHS, 1)},
    "sept": 9,
}
CALENDAR_WORDS: Final = frozenset(_MONTH_NUMBERS) | frozenset(
    ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
)
"""The names of months and of days of the week, lower-cased."""

# `may` and `march` are verbs too: without a capital they count only beside a number or behind a preposition.
_MONTH: Final = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
_YEAR: Final = r"(?:19|20)\d\d"
_ORDINAL: Final = r"(?P<{}>[0-3]?\d)(?:st|nd|rd|th)?"
_ISO: Final = re.compile(rf"\b(?P<year>{_YEAR})-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?\b")
# `16.01.2024`, `16.1.24`, `16/1/24` and `2024/01/16`; a part of a version or an address is none.
_NUMERIC: Final = re.compile(
    r"(?<![\w./-])(?:(?P<first>[0-3]?\d)(?P<mark>[./])(?P<second>[0-3]?\d)(?P=mark)(?P<year>(?:19|20)?\d\d)"
    r"|(?P<iso_year>(?:19|20)\d\d)/(?P<iso_month>[01]?\d)/(?P<iso_day>[0-3]?\d))(?![\w/-]|\.\w)"
)
_NAMED: Final = re.compile(
    rf"\b(?:{_ORDINAL.format('before')}\s+(?:of\s+)?)?(?P<month>(?i:{_MONTH}))\b\.?"
    rf"(?:\s+{_ORDINAL.format('after')}(?!\d|:))?(?:,?\s+(?:of\s+)?(?P<year>{_YEAR})\b)?"
)
_DIGIT: Final = re.compile(r"\d")
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


# Each alternative of `_TELLS` and `_NAMED` has one of these as a whole word, or a digit, or `o'clock`; `_MONTH` takes
# the last one for a month.
_WORDS_OF_TIME: Final = CALENDAR_WORDS | {
    "yesterday", "today", "tonight", "tomorrow", "ago", "nowadays", "weekend", "fortnight", "anniversary",
    "night", "morning", "afternoon", "evening", "hour", "hours", "day", "days", "week", "weeks", "month", "months",
    "year", "years", "summer", "winter", "spring", "autumn", "fall", "season", "sepember",
}  # fmt: skip
_ASCII_WORD: Final = re.compile(r"\w+", re.ASCII)


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

Day: TypeAlias = tuple[int | None, int, int]
"""A year, if it is known, a month and a day."""

_LEAP_YEAR: Final = 2000
_LAST_SHORT_YEAR: Final = 69
"""Years of two digits up to this one are of the present century, as in POSIX."""


def days_in(text: str) -> list[Day]:
    """Return the days that a text names, however they are written, each once."""
    if _DIGIT.search(text) is None:
        return []
    days = [
        *_iso_days(text),
        *(day for found in _NUMERIC.finditer(text) for day in _readings(found)),
        *_named_days(text),
    ]
    return list(dict.fromkeys(day for day in days if _exists(day)))


def without_numeric_days(text: str) -> str:
    """Return a text in which each day in figures is replaced by its year: days are terms of their own."""
    for pattern in (_ISO, _NUMERIC):
        text = pattern.sub(_year_alone, text)
    return text


def _year_alone(found: re.Match[str]) -> str:
    year = found["year"] or ""
    return found[0] if not _is_day(found) else f" {year} " if len(year) == len("2024") else " "


def _is_day(found: re.Match[str]) -> bool:
    if found.re is _ISO:
        return bool(found["day"]) and _exists((int(found["year"]), int(found["month"]), int(found["day"])))
    return any(map(_exists, _readings(found)))


def _readings(found: re.Match[str]) -> list[Day]:
    """Return the day that a numeric date names: the day comes first, and with slashes the month may."""
    if found["iso_year"]:
        return [(int(found["iso_year"]), int(found["iso_month"]), int(found["iso_day"]))]
    first, second, year = int(found["first"]), int(found["second"]), int(found["year"])
    if len(found["year"]) == len("24"):
        year += 2000 if year < _LAST_SHORT_YEAR else 1900
    day_first, month_first = (year, second, first), (year, first, second)
    return [day_first, month_first] if found["mark"] == "/" else [day_first]


def _iso_days(text: str) -> Iterator[Day]:
    for found in _ISO.finditer(text):
        if found["day"]:
            yield int(found["year"]), int(found["month"]), int(found["day"])


def _named_days(text: str) -> Iterator[Day]:
    for found in _NAMED.finditer(text):
        day = found["before"] or found["after"]
        if day and _is_month(found, text):
            yield int(found["year"]) if found["year"] else None, _MONTH_NUMBERS[found["month"].lower()], int(day)


def _exists(day: Day) -> bool:
    year, month, number = day
    return 1 <= month <= len(_MONTHS) and 1 <= number <= monthrange(year or _LEAP_YEAR, month)[1]


def named_dates(text: str) -> NamedDates:
    """Return the years, months and days that a query names: `in May 2023`, `on the 7th of May`, `7.5.2023`."""
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
    for found in _NUMERIC.finditer(text):
        for year, month, day in filter(_exists, _readings(found)):
            years.update([year] if year is not None else [])
            months.add(month)
            days.add(day)
    years.update(int(year) for year in _ANY_YEAR.findall(text))
    return NamedDates(frozenset(years), frozenset(month for month in months if 1 <= month <= 12), frozenset(days))


def asks_when(text: str) -> bool:
    """Return whether a query asks for a time."""
    return bool(_ASKS.search(text))


def tells_time(text: str) -> bool:
    """Return whether a passage states when something is or was."""
    # Most passages have no word of time at all, which is told in a fraction of the time that the patterns take.
    if text.isascii() and not _has_word_of_time(text.lower()):
        return False
    return bool(_TELLS.search(text) or _ANY_YEAR.search(text) or _ISO.search(text) or _NUMERIC.search(text)) or any(
        _is_month(match, text) for match in _NAMED.finditer(text)
    )


def _has_word_of_time(text: str) -> bool:
    """Return whether a text of ASCII letters, lower-cased, has a digit or a word without which no pattern matches."""
    words = _ASCII_WORD.findall(text)
    return not _WORDS_OF_TIME.isdisjoint(words) or "o'clock" in text or _DIGIT.search(text) is not None


def _is_month(match: re.Match[str], text: str) -> bool:
    """Return whether a match is a month and not a verb or a name: `May we march?` names none."""
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
