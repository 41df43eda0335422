"""The Clock port on the system clock."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)
