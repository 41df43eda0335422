"""Time-ordered ids (UUIDv7) and the text form of timestamps."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Final

UUID_PATTERN: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
"""The pattern of an id, in lower case."""


def new_id() -> str:
    """Return a new UUIDv7: ids sort by the time of their creation, and their tail is random."""
    milliseconds = time.time_ns() // 1_000_000
    number = (milliseconds << 80) | int.from_bytes(os.urandom(10), "big")
    number = (number & ~(0xF << 76)) | (0x7 << 76)
    number = (number & ~(0x3 << 62)) | (0x2 << 62)
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def derived_id(id_: str, digits: str) -> str:
    """Return the id that has the time of another id, and these hexadecimal digits in place of its random ones."""
    return f"{id_[:15]}{digits[:3]}-{id_[19]}{digits[3:6]}-{digits[6:18]}"


def id_bytes(id_: str) -> bytes:
    """Return the 16 bytes of an id, which sort as ids do."""
    return bytes.fromhex(id_.replace("-", ""))


def id_of_bytes(data: bytes | memoryview) -> str:
    """Return the id that has these bytes."""
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def format_time(time: datetime) -> str:
    """Format a time as UTC text of fixed width, which sorts as the times do: `2026-11-15T20:18:24.123456Z`."""
    global _last_formatted  # noqa: PLW0603 - the time of a transaction is formatted many times
    last, text = _last_formatted
    if last is not time:
        utc = time if time.tzinfo is UTC else time.astimezone(UTC)
        text = utc.isoformat(timespec="microseconds")[:26] + "Z"
        _last_formatted = (time, text)
    return text


_last_formatted: tuple[datetime | None, str] = (None, "")


def parse_time(text: str) -> datetime:
    """Parse the text of `format_time`."""
    return datetime.fromisoformat(text)


def format_optional_time(time: datetime | None) -> str | None:
    """Return a time in canonical form; None for none."""
    return None if time is None else format_time(time)


def parse_optional_time(text: str | None) -> datetime | None:
    """Read a time in canonical form; None for none, or for an empty text."""
    return parse_time(text) if text else None
