"""The lanes of an outbox: which session is sent next, by whom, and what became of it.

A session has a lane as long as it has waiting messages. A lease is a random token in it; who no longer finds his
token there can change nothing.
"""

from __future__ import annotations

import json
from typing import Final

from commonbook.engines.sqlite import SqliteReading, SqliteTransaction
from commonbook.model import moment
from commonbook.outbox import REFUSED, WAITING, Context, Entry, Parcel, Verdict
from commonbook.ports import Row

# A pause or lease that begins later than now was made before the clock jumped back: it holds no longer.
_NEXT: Final = """
SELECT session, tries FROM lane
WHERE NOT (since <= :now AND :now < due) AND NOT (token IS NOT NULL AND taken <= :now AND :now < until)
ORDER BY CASE WHEN since > :now THEN 0 ELSE due END, session LIMIT 1"""
_SOONEST: Final = """
SELECT min(max(CASE WHEN since <= :now AND :now < due THEN due ELSE 0 END,
               CASE WHEN token IS NOT NULL AND taken <= :now AND :now < until THEN until ELSE 0 END)) FROM lane"""
_LONGEST_REASON: Final = 500


def open_lane(tx: SqliteTransaction, session: str) -> None:
    """Let a session be sent; a pause that it has, it keeps."""
    now = tx.now.timestamp()
    tx.run("INSERT OR IGNORE INTO lane (session, since, due) VALUES (:session, :now, :now)", session=session, now=now)


def is_due(view: SqliteReading, now: float) -> bool:
    """Tell whether there is a session to take."""
    return view.row(_NEXT, now=now) is not None


def soonest(view: SqliteReading, now: float) -> float | None:
    """Return in how many seconds there may be a session to take; None when nothing waits."""
    (when,) = view.rows(_SOONEST, now=now)[0]
    return None if when is None else max(0.0, float(when) - now)


def take(tx: SqliteTransaction, token: str, *, lease: float, most: int, most_bytes: int) -> Parcel | None:
    """Lease the session that has been due for longest, and return its next messages."""
    now = tx.now.timestamp()
    found = tx.row(_NEXT, now=now)
    if found is None:
        return None
    session, tries = found
    tx.run(
        "UPDATE lane SET token = :token, taken = :now, until = :until WHERE session = :session",
        token=token,
        now=now,
        until=now + lease,
        session=session,
    )
    rows = _together(_head(tx, session, most), most_bytes)
    texts = tx.rows(
        "SELECT position, client_id, role, author, text, time, masked FROM message WHERE position IN :positions"
        " ORDER BY position",
        positions=[row[0] for row in rows],
    )
    entries = {row[0]: entry_of(row[1:]) for row in texts}
    return Parcel(session, token, context_of(rows[0][4:]), entries, tries, failures=rows[0][3])


def entry_of(row: Row) -> Entry:
    """Read client_id, role, author, text, time, masked."""
    client_id, role, author, text, time, masked = row
    return Entry(client_id, role, author, text, moment(time), masked)


def context_of(row: Row) -> Context:
    """Read space, parent, tags."""
    space, parent, tags = row
    return Context(space, parent, tuple(json.loads(tags)))


def _head(tx: SqliteTransaction, session: str, most: int) -> list[Row]:
    return tx.rows(
        "SELECT position, size, alone, failures, space, parent, tags FROM message"
        " WHERE state = 'waiting' AND session = :session ORDER BY position LIMIT :most",
        session=session,
        most=most,
    )


def _together(rows: list[Row], most_bytes: int) -> list[Row]:
    """Return the rows that go together: of one context, not too large, and who is to go alone goes alone."""
    together = rows[:1]
    size = rows[0][1]
    for row in rows[1:]:
        size += row[1]
        if size > most_bytes or rows[0][2] or row[2] or row[4:] != rows[0][4:]:
            break
        together.append(row)
    return together


def settle(tx: SqliteTransaction, parcel: Parcel, verdict: Verdict) -> bool:
    """Give a parcel back, unless its lease has gone to another sender."""
    now = tx.now.timestamp()
    mine = tx.run(
        "UPDATE lane SET token = NULL, since = :now, due = :due, asked = :asked,"
        " tries = CASE WHEN :pause > 0 THEN tries + 1 ELSE 0 END WHERE session = :session AND token = :token",
        now=now,
        due=now + verdict.pause,
        pause=verdict.pause,
        asked=verdict.asked,
        session=parcel.session,
        token=parcel.token,
    )
    if not mine:
        return False
    for position in verdict.sent:
        tx.run("DELETE FROM message WHERE position = :position", position=position)
    for position in parcel.entries.keys() - set(verdict.sent):
        tx.run(
            "UPDATE message SET state = :state, reason = :reason, attempts = attempts + 1,"
            " failures = failures + :failed, alone = max(alone, :alone) WHERE position = :position",
            state=REFUSED if position in verdict.refused else WAITING,
            reason=_short(verdict.refused.get(position, verdict.reason)),
            failed=verdict.failed,
            alone=verdict.alone,
            position=position,
        )
    tx.run(
        "DELETE FROM lane WHERE session = :session AND NOT EXISTS"
        " (SELECT 1 FROM message WHERE state = 'waiting' AND message.session = lane.session)",
        session=parcel.session,
    )
    return True


def _short(reason: str) -> str:
    return reason[:_LONGEST_REASON].encode("utf-8", "replace").decode()
