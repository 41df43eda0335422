"""Times as people write them, and the moments they mean."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonbook.core.text import user_times
from commonbook.core.text.user_times import field_edge, local_zone, parse_user_time, require_zone
from commonbook.errors import BadTime
from commonbook.values.ids import format_time, parse_time

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 15, 20, 18, 24, tzinfo=UTC)
TICK = timedelta(microseconds=1)

ZONES = st.sampled_from(
    [
        ZoneInfo(name)
        for name in ("UTC", "Europe/Berlin", "America/St_Johns", "Africa/Cairo", "Asia/Kathmandu", "Pacific/Apia")
    ]
)
DAYS = st.dates(date(1905, 1, 1), date(2100, 1, 1))
MOMENTS = st.datetimes(
    datetime(1, 1, 2),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.just(UTC),
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def start(text: str, zone=BERLIN, now=None) -> datetime:
    return parse_user_time(text, zone=zone, edge="start", now=now)


def end(text: str, zone=BERLIN, now=None) -> datetime:
    return parse_user_time(text, zone=zone, edge="end", now=now)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-15T20:18", "2026-11-15T19:18"),
        ("2026-07-15T20:18", "2026-07-15T18:18"),
        ("2026-11-15 20:18:24", "2026-11-15T19:18:24"),
        ("2026-11-15t20:18:24.5", "2026-11-15T19:18:24.500000"),
        ("2026-11-15T20:18:24,123456789", "2026-11-15T19:18:24.123456"),
        ("2026-11-15T20:18Z", "2026-11-15T20:18"),
        ("2026-11-15 20:18 UTC", "2026-11-15T20:18"),
        ("2026-11-15T20:18:24.123456z", "2026-11-15T20:18:24.123456"),
        ("2026-11-15T20:18+05:30", "2026-11-15T14:48"),
        ("2026-11-15T20:18-0800", "2026-11-16T04:18"),
        ("2026-11-15 20:18:24 -5", "2026-11-16T01:18:24"),
        ("  2026-11-15T20:18Z\n", "2026-11-15T20:18"),
    ],
)
@pytest.mark.parametrize("edge", ["start", "end"])
def test_a_time_is_read_in_its_own_zone_or_else_in_the_homes(text, moment, edge):
    found = parse_user_time(text, zone=BERLIN, edge=edge)
    assert found == utc(moment)
    assert found.tzinfo is UTC


def test_a_date_alone_is_the_whole_day_in_the_homes_zone():
    assert start("2026-11-15") == utc("2026-11-14T23:00")
    assert end("2026-11-15") == utc("2026-11-15T22:59:59.999999")


@given(day=DAYS, zone=ZONES)
def test_the_edges_of_a_day_are_the_first_and_last_moment_with_its_date(day, zone):
    first, last = start(day.isoformat(), zone), end(day.isoformat(), zone)
    if last < first:  # A day that was never: Samoa went from the 29th to the 31st of December 2011.
        assert first - last == TICK
        return
    assert first.astimezone(zone).date() == last.astimezone(zone).date() == day
    assert (first - TICK).astimezone(zone).date() < day
    assert (last + TICK).astimezone(zone).date() > day


@given(day=DAYS, zone=ZONES)
def test_a_day_ends_where_the_next_begins_unless_midnight_comes_twice(day, zone):
    following = start((day + timedelta(days=1)).isoformat(), zone)
    assert end(day.isoformat(), zone) >= following - TICK


def test_days_on_which_the_clock_is_changed_are_23_and_25_hours_long():
    def length(day):
        return end(day) + TICK - start(day)

    assert length("2026-03-29") == timedelta(hours=23)
    assert length("2026-10-25") == timedelta(hours=25)
    assert length("2026-11-15") == timedelta(hours=24)


def test_a_day_whose_midnight_is_skipped_begins_when_the_clock_has_jumped():
    cairo = ZoneInfo("Africa/Cairo")
    assert start("2025-04-25", cairo).astimezone(cairo).isoformat() == "2025-04-25T01:00:00+03:00"
    assert end("2025-04-24", cairo) == start("2025-04-25", cairo) - TICK


def test_a_day_with_two_midnights_begins_at_the_first_and_the_day_before_ends_at_the_last():
    st_johns = ZoneInfo("America/St_Johns")  # On that night the clock went from 00:01 back to 23:01.
    assert start("2010-11-07", st_johns) == utc("2010-11-07T02:30")
    assert end("2010-11-06", st_johns) == utc("2010-11-07T03:29:59.999999")


def test_a_day_that_never_was_is_empty():
    apia = ZoneInfo("Pacific/Apia")
    assert end("2011-12-30", apia) == start("2011-12-30", apia) - TICK == end("2011-12-29", apia)


def test_a_local_time_that_comes_twice_is_the_first_as_a_start_and_the_second_as_an_end():
    assert start("2026-10-25T02:30") == utc("2026-10-25T00:30")
    assert end("2026-10-25T02:30") == utc("2026-10-25T01:30")


def test_a_local_time_that_is_skipped_is_the_moment_of_the_skip():
    assert start("2026-03-29T02:30") == utc("2026-03-29T01:00")
    assert end("2026-03-29T02:30") == utc("2026-03-29T01:00") - TICK


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("today", "2026-11-14T23:00", "2026-11-15T22:59:59.999999"),
        ("Yesterday", "2026-11-13T23:00", "2026-11-14T22:59:59.999999"),
        ("tomorrow", "2026-11-15T23:00", "2026-11-16T22:59:59.999999"),
        ("now", "2026-11-15T20:18:24", "2026-11-15T20:18:24"),
        ("3 days ago", "2026-11-12T20:18:24", "2026-11-12T20:18:24"),
        ("1 day ago", "2026-11-14T20:18:24", "2026-11-14T20:18:24"),
        ("2h", "2026-11-15T18:18:24", "2026-11-15T18:18:24"),
        ("7d", "2026-11-08T20:18:24", "2026-11-08T20:18:24"),
        ("30 min ago", "2026-11-15T19:48:24", "2026-11-15T19:48:24"),
        ("2 weeks", "2026-11-01T20:18:24", "2026-11-01T20:18:24"),
        ("in 3 days", "2026-11-18T20:18:24", "2026-11-18T20:18:24"),
    ],
)
def test_a_time_can_be_said_relative_to_now(text, first, last):
    assert start(text, now=NOW) == utc(first)
    assert end(text, now=NOW) == utc(last)


def test_today_is_the_day_in_the_homes_zone_and_not_in_utc():
    assert start("today", zone=ZoneInfo("Asia/Tokyo"), now=NOW) == utc("2026-11-15T15:00")


@pytest.mark.parametrize("text", ["today", "7d", "now", "3 days ago"])
def test_relative_words_mean_nothing_in_a_file_where_there_is_no_now(text):
    with pytest.raises(BadTime) as caught:
        start(text)
    assert "today" not in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "soon", "d", "2026", "2026-11", "20261115", "15.11.2026", "2026-11-15T", "2026-11-15T20",
        "2026-11-15x20:18", "2026-11-15T20:18 Europe/Berlin", "\uff12026-11-15", "2026-11-15\x00",
        "2026-02-30", "2026-13-01", "2026-00-10", "0000-01-01", "10000-01-01", "-001-01-01", "0001-01-01T00:00",
        "2026-11-15T24:00", "2026-11-15T20:60", "2026-11-15T20:18:60", "2026-11-15T20:18+24:00",
        "2026-11-15T20:18+01:75", "9999-12-31T23:59-01:00", "0001-01-01T00:00+01:00",
        "in 3 days ago", "3 fortnights ago", "-3d", "999999999 weeks ago", "in 999999999w", "99999999999999 days ago",
    ],
)  # fmt: skip
@pytest.mark.parametrize("edge", ["start", "end"])
def test_what_cannot_be_read_is_a_bad_time_with_a_fix_that_lists_the_forms(text, edge):
    with pytest.raises(BadTime) as caught:
        parse_user_time(text, zone=ZoneInfo("Asia/Tokyo"), edge=edge, now=NOW)
    assert "2026-11-15" in caught.value.fix
    assert "yesterday" in caught.value.fix


def test_the_last_day_there_is_ends_too_late_for_a_zone_in_the_west():
    assert end("9999-12-31", UTC) == utc("9999-12-31T23:59:59.999999")
    with pytest.raises(BadTime):
        end("9999-12-31", ZoneInfo("America/New_York"))


@given(st.text(max_size=40))
def test_any_text_is_a_time_or_a_bad_time(text):
    for zone in (UTC, BERLIN):
        with contextlib.suppress(BadTime):
            assert start(text, zone, NOW).tzinfo is UTC


@given(st.from_regex(r"\A\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?\Z"), ZONES)
def test_whatever_looks_like_a_time_is_one_or_a_bad_time(text, zone):
    with contextlib.suppress(BadTime):
        assert start(text, zone) <= end(text, zone) + TICK


def test_a_datetime_with_a_zone_is_taken_as_it_is():
    assert parse_user_time(NOW.astimezone(BERLIN), zone=UTC, edge="end") == NOW


def test_a_datetime_without_zone_is_refused_because_nobody_knows_which_was_meant():
    naive = datetime(2026, 11, 15, 20, 18)  # noqa: DTZ001 - the point of the test
    with pytest.raises(BadTime, match="no zone"):
        parse_user_time(naive, zone=BERLIN, edge="start")


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_a_datetime_that_leaves_the_calendar_in_utc_is_a_bad_time(text):
    with pytest.raises(BadTime):
        parse_user_time(datetime.fromisoformat(text), zone=UTC, edge="start")


@pytest.mark.parametrize("value", [None, 5, date(2026, 11, 15), b"2026-11-15"])
def test_something_else_is_not_a_time(value):
    with pytest.raises(BadTime):
        parse_user_time(value, zone=UTC, edge="start")


def test_ends_of_spans_take_the_end_of_a_day_and_everything_else_its_start():
    assert {field for field in ("valid_until", "expires", "until") if field_edge(field) == "end"} == {
        "valid_until",
        "expires",
        "until",
    }
    assert {field_edge(field) for field in ("occurred", "valid_from", "created", "since")} == {"start"}


@given(MOMENTS)
def test_a_time_as_the_database_keeps_it_is_read_as_the_same_moment(written):
    assert start(format_time(written)) == parse_time(format_time(written)) == written


@pytest.mark.parametrize(
    ("tz", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("UTC", "UTC"),
        ("", "UTC"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "UTC"),
        ("../../etc/passwd", "UTC"),
        ("Mars/Olympus", "UTC"),
    ],
)
def test_the_local_zone_is_the_one_that_tz_names(tz, name):
    assert local_zone(tz) == name


@pytest.mark.parametrize(
    ("link", "timezone_file", "name"),
    [
        ("/usr/share/zoneinfo/Europe/Berlin", "", "Europe/Berlin"),
        ("/var/db/timezone/zoneinfo/America/New_York", "", "America/New_York"),
        ("/usr/share/zoneinfo/posix/Asia/Tokyo", "", "Asia/Tokyo"),
        ("/etc/localtime", "Asia/Kathmandu", "Asia/Kathmandu"),
        ("/etc/localtime", "", "UTC"),
    ],
)
def test_without_tz_the_local_zone_is_the_systems(monkeypatch, link, timezone_file, name):
    monkeypatch.setattr(os.path, "realpath", lambda path: link)
    monkeypatch.setattr(user_times, "_first_line", lambda path: timezone_file)
    assert local_zone() == name


def test_the_local_zone_of_this_machine_is_one_that_can_be_used():
    assert NOW.astimezone(require_zone(local_zone())) == NOW


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b"])
def test_an_unknown_zone_is_a_bad_time(name):
    with pytest.raises(BadTime, match="not a zone"):
        require_zone(name)
