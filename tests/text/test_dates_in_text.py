"""When, in words."""

from __future__ import annotations

from datetime import date
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.text.dates_in_text import NamedDates, asks_when, days_in, named_dates, tells_time


def of(*, years=(), months=(), days=()) -> NamedDates:
    return NamedDates(frozenset(years), frozenset(months), frozenset(days))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What happened in May 2023?", of(years=[2023], months=[5])),
        ("on 7 May 2023", of(years=[2023], months=[5], days=[7])),
        ("on the 7th of May", of(months=[5], days=[7])),
        ("May 7th, 2023", of(years=[2023], months=[5], days=[7])),
        ("2023-05-07", of(years=[2023], months=[5], days=[7])),
        ("in december", of(months=[12])),
        ("in sept 2022", of(years=[2022], months=[9])),
        ("during 2022 and 2023", of(years=[2022, 2023])),
        ("May I march with June's dog?", of(months=[6])),
        ("you may go in March", of(months=[3])),
        ("room 20231 at 1.2023", of()),
        ("who owns billing?", of()),
    ],
)
def test_a_question_names_year_month_and_day(text, found):
    assert named_dates(text) == found


def test_a_date_matches_by_the_share_of_what_is_named():
    named = named_dates("on 7 May 2023")
    assert named.match(date(2023, 5, 7)) == 1.5
    assert named.match(date(2023, 5, 8)) == 1.0
    assert named.match(date(2022, 5, 7)) == 0.5
    assert named.match(date(2022, 6, 7)) == 0.0
    assert named_dates("no date").match(date(2023, 5, 7)) == 0.0
    assert not named_dates("no date")


@pytest.mark.parametrize(
    "text", ["When is it due?", "What year did we move?", "since when?", "which day", "how long ago was it"]
)
def test_a_question_asks_when(text):
    assert asks_when(text)


@pytest.mark.parametrize("text", ["Who owns billing?", "whenever", "What is the name?"])
def test_a_question_asks_something_else(text):
    assert not asks_when(text)


@pytest.mark.parametrize(
    "text",
    ["I went yesterday", "last week", "two days ago", "on Friday", "in 2019", "this past summer", "at 7:30", "May 3rd"],
)
def test_a_passage_tells_a_time(text):
    assert tells_time(text)


_WORDS = [
    "yesterday",
    "weekend",
    "weekends",
    "ago",
    "anniversary",
    "night",
    "mornings",
    "last",
    "this",
    "every",
    "few",
    "couple",
    "of",
    "days",
    "week",
    "year",
    "summer",
    "fall",
    "season",
    "monday",
    "Tuesday",
    "day",
    "on",
    "in",
    "for",
    "since",
    "hour",
    "hours",
    "January",
    "mar",
    "March",
    "may",
    "May",
    "jun",
    "Sept",
    "September",
    "o'clock",
    "O'CLOCKS",
    "5pm",
    "5",
    "12:30",
    "2023-01",
    "1999",
    "16.1.24",
    "may_be",
    "3May",
    "table",
    "river",
]


def test_a_first_look_for_words_of_time_misses_none():
    # The first look is taken at ASCII texts alone.
    for first, mark, second in product(_WORDS, (" ", "-", "_", "\n"), _WORDS):
        text = f"{first}{mark}{second}"
        assert tells_time(text) == tells_time(f"{text} \u00e9"), text


@pytest.mark.parametrize("text", ["I may go", "we march on", "Alice owns billing", "v20190 works"])
def test_a_passage_tells_none(text):
    assert not tells_time(text)


@pytest.mark.parametrize(
    "text",
    ["16.01.2024", "on 16/1/24.", "1/16/2024", "2024-01-16", "2024/1/16", "January 16th, 2024", "the 16th of Jan 2024"],
)
def test_a_day_is_the_same_however_it_is_written(text):
    assert days_in(text) == [(2024, 1, 16)]
    assert named_dates(text).match(date(2024, 1, 16)) == 1.5


@pytest.mark.parametrize("text", ["v1.2.24", "10.0.0.1", "version 1.2.2024.5", "99.99.2024", "1/2", "30.2.2024", "a 3"])
def test_other_numbers_are_no_days(text):
    assert days_in(text) == []


def test_a_day_without_a_year_and_one_that_can_be_read_both_ways():
    assert days_in("the 3rd of May") == [(None, 5, 3)]
    assert days_in("3/5/2024") == [(2024, 5, 3), (2024, 3, 5)]


@given(st.text(max_size=100))
def test_any_text_can_be_asked(text):
    assert named_dates(text).match(date(2023, 5, 7)) <= 1.5
    assert tells_time(text) in (True, False)
