"""Limits: how often a principal may do something in a minute, counted in the database, for all processes together.

What was done is counted by the second, in one row for each principal and action, which whoever counts keeps to itself
until its transaction is over. So a minute is any sixty seconds, and what failed was never counted.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from commonbook.model.ids import format_time, parse_time
from commonbook.model.sharing import EVERYBODY, RateLimit
from commonbook.ports.database import Reading, Transaction

SHARE: Final = "share"
REQUEST: Final = "request"
DEFAULTS: Final = {SHARE: 600, REQUEST: 60}
"""What may be limited, and how often a minute it may be done where nobody has set a limit."""

_WINDOW: Final = 60


class _LimitRow(NamedTuple):
    """A row of the table `rate_limit`: the fields are the columns, in the order of every SELECT."""

    principal: str
    action: str
    per_minute: int
    set_by: str
    set_at: str


_COLUMNS: Final = ", ".join(_LimitRow._fields)


def put(tx: Transaction, limit: RateLimit) -> None:
    """Set a limit for a principal, or for everybody who has none of its own."""
    tx.run(
        f"INSERT INTO rate_limit ({_COLUMNS}) VALUES (:principal, :action, :per_minute, :set_by, :set_at)"
        " ON CONFLICT (principal, action) DO UPDATE SET per_minute = excluded.per_minute,"
        " set_by = excluded.set_by, set_at = excluded.set_at",
        principal=limit.principal,
        action=limit.action,
        per_minute=limit.per_minute,
        set_by=limit.set_by,
        set_at=format_time(tx.now),
    )


def drop(tx: Transaction, principal: str, action: str) -> None:
    """Let the general limit count again."""
    tx.run(
        "DELETE FROM rate_limit WHERE principal = :principal AND action = :action", principal=principal, action=action
    )


def get_all(tx: Reading) -> list[RateLimit]:
    """Return all limits that somebody has set."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM rate_limit ORDER BY action, principal")
    return [_limit(row) for row in map(_LimitRow._make, rows)]


def limit_for(tx: Reading, principal: str, action: str) -> RateLimit:
    """Return the limit that holds for a principal: its own, else everybody's, else ours."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM rate_limit WHERE action = :action AND principal IN :whose",
        action=action,
        whose=(principal, EVERYBODY),
    )
    found = {row.principal: _limit(row) for row in map(_LimitRow._make, rows)}
    return found.get(principal) or found.get(EVERYBODY) or RateLimit(EVERYBODY, action, DEFAULTS[action])


def count(tx: Transaction, principal: str, action: str, per_minute: int) -> float:
    """Count an action and return 0, or return in how many seconds it may be tried again."""
    tx.run(
        "INSERT INTO rate_count (principal, action, counts) VALUES (:principal, :action, '{}') ON CONFLICT DO NOTHING",
        principal=principal,
        action=action,
    )
    (counted,) = tx.row(
        f"SELECT counts FROM rate_count WHERE principal = :principal AND action = :action{tx.for_update}",
        principal=principal,
        action=action,
    ) or ("{}",)
    now = tx.now.timestamp()
    counts = _recent(json.loads(counted), now)
    wait = _wait(counts, now, per_minute)
    if wait:
        return wait
    second = int(now)
    counts[second] = counts.get(second, 0) + 1
    tx.run(
        "UPDATE rate_count SET counts = :counts WHERE principal = :principal AND action = :action",
        counts=json.dumps(counts),
        principal=principal,
        action=action,
    )
    return 0.0


def _recent(counts: dict[str, int], now: float) -> dict[int, int]:
    """Return what was counted in the last minute. What is far in the future was counted before a clock went back."""
    seconds = {int(second): done for second, done in counts.items()}
    return {second: done for second, done in seconds.items() if now - _WINDOW < second + 1 <= now + _WINDOW}


def _wait(counts: dict[int, int], now: float, per_minute: int) -> float:
    """Return after how many seconds so much of what was counted is over that there is room for one more."""
    if per_minute < 1:
        return float(_WINDOW)
    over = sum(counts.values()) + 1 - per_minute
    for second in sorted(counts):
        if over <= 0:
            break
        over -= counts[second]
        if over <= 0:
            # All of that second is over when a minute has passed since its end.
            return max(second + 1 + _WINDOW - now, 0.001)
    return 0.0


def _limit(row: _LimitRow) -> RateLimit:
    return RateLimit(row.principal, row.action, row.per_minute, row.set_by, parse_time(row.set_at))
