"""The system clock."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the present moment in UTC."""
        return datetime.now(UTC)
