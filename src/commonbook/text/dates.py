"""Times as people write them, and the moments they mean. The clock and the zone are handed in."""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from commonbook.errors import BadTime

Edge: TypeAlias = Literal["start", "end"]

_ENDS: Final = frozenset({"valid_until", "expires", "until"})
_TICK: Final = timedelta(microseconds=1)
# Patterns are compiled when a time is first read, and then kept by `re`: most runs read none.
_DATE: Final = r"(\d{4})-(\d\d)-(\d\d)"
_TIME: Final = (
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[Tt]|\s+)"
    r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?"
    r"(?:\s*(?:(?P<utc>[Zz]|UTC)|(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?))?"
)
_SPAN: Final = r"(?P<ahead>in\s+)?(?P<count>\d{1,9})\s*(?P<unit>[a-z]+)(?P<ago>\s+ago)?"
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), timedelta(seconds=1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks"), timedelta(weeks=1)),
}
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_FIX: Final = (
    "write 2026-11-15, 2026-11-15T20:18, 2026-11-15 20:18:24.5 or one of these with Z or +01:00 behind the time"
)
_FIX_RELATIVE: Final = _FIX + "; or today, yesterday, tomorrow, now, 3 days ago, 2h, 7d (both ago), in 3 days"


def local_zone(environ_zone: str | None = None) -> str:
    """Return the name of the zone that this machine is in: TZ's if that is set, else the system's, else UTC.

    A TZ that is a rule instead of a name (`CET-1CEST`) has no name to keep, and counts as UTC.
    """
    if environ_zone is not None:
        return _zone_in(environ_zone.removeprefix(":")) or "UTC"
    try:
        return _zone_in(os.path.realpath("/etc/localtime")) or _zone_in(_first_line("/etc/timezone")) or "UTC"
    except OSError:
        return "UTC"


def zone_named(name: str) -> tzinfo:
    """Return the zone of that name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as error:
        raise BadTime(
            f"{name!r} is not a zone known on this machine",
            fix="name a zone like Europe/Berlin or UTC; on a system without zone files, install the package tzdata",
        ) from error


def field_edge(field: str) -> Edge:
    """Tell which end of a day is meant when a field holds a date alone: the last day of a time span counts whole."""
    return "end" if field in _ENDS else "start"


def read_time(value: datetime | str, *, zone: tzinfo, edge: Edge, now: datetime | None = None) -> datetime:
    """Return the moment in UTC that was meant.

    A time without zone is in `zone`. A date alone is that whole day there: its first moment, or its last microsecond.
    A local time that the clock passes twice is the first or the last of them, by the same edge; one that the clock
    skips is the moment of the skip. Words like `yesterday` and `2h` are understood only when `now` is given.
    """
    try:
        if isinstance(value, datetime):
            moment = _aware(value).astimezone(UTC)
        elif isinstance(value, str):
            moment = _read_text(value.strip(), zone=zone, edge=edge, now=now)
        else:
            raise BadTime(f"a {type(value).__name__} is not a time", fix=_FIX)
    except (ValueError, OverflowError) as error:
        raise BadTime(f"no such time: {str(value)[:60]!r} ({error})", fix=_fix(now)) from error
    return moment


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _zone_in(path: str) -> str | None:
    """Return the name of a zone that stands in a path like /usr/share/zoneinfo/Europe/Berlin, or by itself."""
    if path == "/etc/localtime":
        return None
    name = path.rpartition("zoneinfo/")[2].removeprefix("posix/").removeprefix("right/")
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, LookupError):
        return None


def _fix(now: datetime | None) -> str:
    return _FIX if now is None else _FIX_RELATIVE


def _aware(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise BadTime(
            f"the datetime {moment} has no zone",
            fix="give it one (datetime.now(UTC)), or write it as text, which is read in the home's zone",
        )
    return moment


def _read_text(text: str, *, zone: tzinfo, edge: Edge, now: datetime | None) -> datetime:
    if found := re.fullmatch(_DATE, text, re.ASCII):
        return _day(date(int(found[1]), int(found[2]), int(found[3])), zone=zone, edge=edge)
    if found := re.fullmatch(_TIME, text, re.ASCII):
        return _time_of_day(found, zone=zone, edge=edge)
    moment = _relative(text.lower(), zone=zone, edge=edge, now=now) if now is not None else None
    if moment is None:
        raise BadTime(f"not a time that can be read: {text[:60]!r}", fix=_fix(now))
    return moment


def _time_of_day(found: re.Match[str], *, zone: tzinfo, edge: Edge) -> datetime:
    local = datetime.combine(
        date.fromisoformat(found["day"]),
        time(
            int(found["hour"]),
            int(found["minute"]),
            int(found["second"] or 0),
            int((found["fraction"] or "0")[:6].ljust(6, "0")),
        ),
    )
    if found["utc"]:
        return local.replace(tzinfo=UTC)
    if found["sign"]:
        hours, minutes = int(found["hours"]), int(found["minutes"] or 0)
        if hours > 23 or minutes > 59:
            raise ValueError("an offset is less than a day")
        ahead = timedelta(hours=hours, minutes=minutes)
        return (local - ahead if found["sign"] == "+" else local + ahead).replace(tzinfo=UTC)
    return _moment(local, zone=zone, edge=edge)


def _relative(text: str, *, zone: tzinfo, edge: Edge, now: datetime) -> datetime | None:
    now = _aware(now)
    if text == "now":
        return now.astimezone(UTC)
    if text in _DAYS:
        return _day(now.astimezone(zone).date() + timedelta(days=_DAYS[text]), zone=zone, edge=edge)
    found = re.fullmatch(_SPAN, text, re.ASCII)
    if not found or found["unit"] not in _UNITS or (found["ahead"] and found["ago"]):
        return None
    span = int(found["count"]) * _UNITS[found["unit"]]
    return (now + span if found["ahead"] else now - span).astimezone(UTC)


def _day(day: date, *, zone: tzinfo, edge: Edge) -> datetime:
    return _moment(datetime.combine(day, time.min if edge == "start" else time.max), zone=zone, edge=edge)


def _moment(local: datetime, *, zone: tzinfo, edge: Edge) -> datetime:
    """Return the moment of a local time: of two the first or last, and of none the moment at which it was skipped."""
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    last = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if last < first:
        # Python reads a skipped time with the offset before the skip and with the one after it, which
        # gives two moments, one on either side of the skip.
        skip = _skip_between(last, first, local=local, zone=zone)
        return skip if edge == "start" else skip - _TICK
    return first if edge == "start" else last


def _skip_between(before: datetime, after: datetime, *, local: datetime, zone: tzinfo) -> datetime:
    """Return the first moment at which the local clock shows more than a time that it skips."""
    while after - before > _TICK:
        middle = before + (after - before) // 2
        if middle.astimezone(zone).replace(tzinfo=None) < local:
            before = middle
        else:
            after = middle
    return after
