"""Counts by a sliding window, with their limits, and of refusals: tables `rate_count`, `rate_limit`, `refusal_count`.

A row of `rate_limit` says how often a minute a principal may do something. A row of `rate_count` has the counts of a
principal and action, second by second. A transaction that counts locks the row until it ends, so the window is any
sixty seconds, and an action that was rolled back is not counted. A row of `refusal_count` has the number of attempts of
a principal on a space that were refused in one hour of the clock. All of this holds for all processes together.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Transaction
from commonbook.values.ids import format_time, parse_time
from commonbook.values.sharing import EVERYBODY, LimitedAction, RateLimit

SHARE: Final = "share"
REQUEST: Final = "request"
WRITE: Final = "write"
RECALL: Final = "recall"
DEFAULTS: Final[dict[LimitedAction, int | None]] = {SHARE: 600, REQUEST: 60, WRITE: None, RECALL: None}
"""The classes of verbs that can be limited, with the limit per minute where none was set; None is no limit."""

MAX_LOGGED_REFUSALS: Final = 20
"""Maximum number of refusals of a principal in a space and hour that get a log entry of their own."""

_WINDOW_SECONDS: Final = 60
_HOUR_FORMAT: Final = "%Y-%m-%dT%H"


class Refusals(NamedTuple):
    """The number of a refusal in its hour; at the first of an hour, how many of the former one were not logged."""

    number: int
    hour: str
    not_logged: int = 0
    former_hour: str = ""


class _LimitRow(NamedTuple):
    """A row of the table `rate_limit`: the fields are the columns, in the order of every SELECT."""

    principal: str
    action: LimitedAction
    per_minute: int
    set_by: str
    set_at: str


_COLUMNS: Final = ", ".join(_LimitRow._fields)


def put_limit(tx: Transaction, limit: RateLimit) -> None:
    """Store a limit for a principal, or for all principals without a limit of their own."""
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


def drop_limit(tx: Transaction, principal: str, action: LimitedAction) -> None:
    """Delete the limit of a principal, so that the general limit applies."""
    tx.run(
        "DELETE FROM rate_limit WHERE principal = :principal AND action = :action", principal=principal, action=action
    )


def get_limits(tx: Reading) -> list[RateLimit]:
    """Return all limits that were set."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM rate_limit ORDER BY action, principal")
    return [_limit(row) for row in map(_LimitRow._make, rows)]


def limit_for(tx: Reading, principal: str, action: LimitedAction) -> RateLimit:
    """Return the limit that applies to a principal: its own, else the general one, else the default."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM rate_limit WHERE action = :action AND principal IN :principals",
        action=action,
        principals=(principal, EVERYBODY),
    )
    limits = {row.principal: _limit(row) for row in map(_LimitRow._make, rows)}
    return limits.get(principal) or limits.get(EVERYBODY) or RateLimit(EVERYBODY, action, DEFAULTS[action])


def count(tx: Transaction, principal: str, action: LimitedAction, per_minute: int) -> float:
    """Count an action and return 0, or return after how many seconds it may be tried again."""
    tx.run(
        "INSERT INTO rate_count (principal, action, counts) VALUES (:principal, :action, '{}') ON CONFLICT DO NOTHING",
        principal=principal,
        action=action,
    )
    ((stored,),) = tx.lock_rows(
        "SELECT counts FROM rate_count WHERE principal = :principal AND action = :action",
        principal=principal,
        action=action,
    )
    now = tx.now.timestamp()
    counts = _recent(json.loads(stored), now)
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


def count_refusal(tx: Transaction, *, space: str, principal: str) -> Refusals:
    """Count an attempt of a principal on a space that was refused; the row is locked until the transaction ends."""
    hour = tx.now.strftime(_HOUR_FORMAT)
    key = {"space": space, "principal": principal}
    tx.run(
        "INSERT INTO refusal_count (space, principal, hour, refused) VALUES (:space, :principal, :hour, 0)"
        " ON CONFLICT DO NOTHING",
        **key,
        hour=hour,
    )
    ((counted_hour, refused),) = tx.lock_rows(
        "SELECT hour, refused FROM refusal_count WHERE space = :space AND principal = :principal",
        space=space,
        principal=principal,
    )
    number = refused + 1 if counted_hour == hour else 1
    tx.run(
        "UPDATE refusal_count SET hour = :hour, refused = :refused WHERE space = :space AND principal = :principal",
        **key,
        hour=hour,
        refused=number,
    )
    if counted_hour == hour:
        return Refusals(number, hour)
    return Refusals(number, hour, not_logged=max(0, refused - MAX_LOGGED_REFUSALS), former_hour=counted_hour)


def _recent(counts: dict[str, int], now: float) -> dict[int, int]:
    """Return the counts of the last minute, without those far in the future, made before a clock went back."""
    seconds = {int(second): number for second, number in counts.items()}
    return {
        second: number
        for second, number in seconds.items()
        if now - _WINDOW_SECONDS < second + 1 <= now + _WINDOW_SECONDS
    }


def _wait(counts: dict[int, int], now: float, per_minute: int) -> float:
    """Return after how many seconds enough counts have left the window for one more action."""
    if per_minute < 1:
        return float(_WINDOW_SECONDS)
    excess = sum(counts.values()) + 1 - per_minute
    for second in sorted(counts):
        if excess <= 0:
            break
        excess -= counts[second]
        if excess <= 0:
            # A second has left the window when a minute has passed since its end.
            return max(second + 1 + _WINDOW_SECONDS - now, 0.001)
    return 0.0


def _limit(row: _LimitRow) -> RateLimit:
    return RateLimit(row.principal, row.action, row.per_minute, row.set_by, parse_time(row.set_at))
