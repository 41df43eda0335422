"""Decides when a session is settled: after a silence, or at once when enough messages are unsettled.

The same silence between two messages ends an episode.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

SILENCE: Final = timedelta(hours=1)
MAX_EPISODE_MESSAGES: Final = 60

_MIN_MESSAGES_FOR_BOUNDARY: Final = 40
"""With fewer unsettled messages, no boundary is looked for until the session falls silent."""


def is_silence(last: datetime, until: datetime, *, silence: timedelta = SILENCE) -> bool:
    """Tell whether the time from a message until the next one, or until now, is long enough to settle."""
    return until - last >= silence


def is_due_at_once(*, before: int, unsettled: int) -> bool:
    """Tell whether an append makes a settle job due at once, by the numbers of unsettled messages before and after it.

    It does when the first boundary may exist, and whenever the size alone makes one; not at every message.
    """
    return before < _MIN_MESSAGES_FOR_BOUNDARY <= unsettled or unsettled >= MAX_EPISODE_MESSAGES
