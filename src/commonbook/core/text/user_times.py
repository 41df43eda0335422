"""Parse times as people write them into moments in UTC. The clock and the time zone are parameters."""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from commonbook.errors import BadTime

Edge: TypeAlias = Literal["start", "end"]

_END_FIELDS: Final = frozenset({"valid_until", "expires", "until"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME: Final = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[Tt]|\s+)"
    r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?"
    r"(?:\s*(?:(?P<utc>[Zz]|UTC)|(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?))?",
    re.ASCII,
)
_SPAN: Final = re.compile(r"(?P<ahead>in\s+)?(?P<count>\d{1,9})\s*(?P<unit>[a-z]+)(?P<ago>\s+ago)?", re.ASCII)
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


def time_of_file(mtime_ns: int, *, now: datetime) -> datetime:
    """Return the modification time of a file, but no later one than now."""
    return min(_EPOCH + timedelta(microseconds=max(0, mtime_ns) // 1000), now)


def local_zone(environ_zone: str | None = None) -> str:
    """Return the name of this machine's time zone: from TZ if that is set, else from the system, else UTC.

    A TZ that is a rule instead of a name (`CET-1CEST`) has no name to store, and counts as UTC.
    """
    if environ_zone is not None:
        return _zone_in(environ_zone.removeprefix(":")) or "UTC"
    try:
        return _zone_in(os.path.realpath("/etc/localtime")) or _zone_in(_first_line("/etc/timezone")) or "UTC"
    except OSError:
        return "UTC"


def require_zone(name: str) -> tzinfo:
    """Return the time zone of that name; raises BadTime if this machine does not know it."""
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
    """Return which end of a day a date alone means in this field: the last day of a time span counts whole."""
    return "end" if field in _END_FIELDS else "start"


def parse_user_time(value: datetime | str, *, zone: tzinfo, edge: Edge, now: datetime | None = None) -> datetime:
    """Return the moment in UTC that a value means; raises BadTime.

    A time without a zone is in `zone`. A date alone is the first moment of that day there, or its last microsecond, by
    `edge`. A local time that occurs twice is the first or the last occurrence, by the same edge. A local time that the
    clock skips is the moment of the skip. Words like `yesterday` and `2h` are understood only when `now` is given.
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
    """Return the name of the zone in a path like /usr/share/zoneinfo/Europe/Berlin, or of a bare name."""
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
    if match := _DATE.fullmatch(text):
        return _day(date(int(match[1]), int(match[2]), int(match[3])), zone=zone, edge=edge)
    if match := _TIME.fullmatch(text):
        return _time_of_day(match, zone=zone, edge=edge)
    moment = _relative(text.lower(), zone=zone, edge=edge, now=now) if now is not None else None
    if moment is None:
        raise BadTime(f"not a time that can be read: {text[:60]!r}", fix=_fix(now))
    return moment


def _time_of_day(match: re.Match[str], *, zone: tzinfo, edge: Edge) -> datetime:
    local = datetime.combine(
        date.fromisoformat(match["day"]),
        time(
            int(match["hour"]),
            int(match["minute"]),
            int(match["second"] or 0),
            int((match["fraction"] or "0")[:6].ljust(6, "0")),
        ),
    )
    if match["utc"]:
        return local.replace(tzinfo=UTC)
    if match["sign"]:
        hours, minutes = int(match["hours"]), int(match["minutes"] or 0)
        if hours > 23 or minutes > 59:
            raise ValueError("an offset is less than a day")
        ahead = timedelta(hours=hours, minutes=minutes)
        return (local - ahead if match["sign"] == "+" else local + ahead).replace(tzinfo=UTC)
    return _moment(local, zone=zone, edge=edge)


def _relative(text: str, *, zone: tzinfo, edge: Edge, now: datetime) -> datetime | None:
    now = _aware(now)
    if text == "now":
        return now.astimezone(UTC)
    if text in _DAYS:
        return _day(now.astimezone(zone).date() + timedelta(days=_DAYS[text]), zone=zone, edge=edge)
    match = _SPAN.fullmatch(text)
    if not match or match["unit"] not in _UNITS or (match["ahead"] and match["ago"]):
        return None
    span = int(match["count"]) * _UNITS[match["unit"]]
    return (now + span if match["ahead"] else now - span).astimezone(UTC)


def _day(day: date, *, zone: tzinfo, edge: Edge) -> datetime:
    return _moment(datetime.combine(day, time.min if edge == "start" else time.max), zone=zone, edge=edge)


def _moment(local: datetime, *, zone: tzinfo, edge: Edge) -> datetime:
    """Return the moment of a local time: the first or last of two, and the moment of the skip if there is none."""
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    last = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if last < first:
        # For a skipped time, Python uses the offset before the skip (fold=0) and the one after it (fold=1): this gives
        # two moments, one on either side of the skip.
        skip = _skip_between(last, first, local=local, zone=zone)
        return skip if edge == "start" else skip - _TICK
    return first if edge == "start" else last


def _skip_between(before: datetime, after: datetime, *, local: datetime, zone: tzinfo) -> datetime:
    """Return the first moment at which the local clock is past a time that it skips, by binary search."""
    while after - before > _TICK:
        middle = before + (after - before) // 2
        if middle.astimezone(zone).replace(tzinfo=None) < local:
            before = middle
        else:
            after = middle
    return after
