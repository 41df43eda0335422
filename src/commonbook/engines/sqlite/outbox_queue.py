"""The lanes of an outbox: which session is sent next, by whom, and what became of it.

A session has a lane as long as it has waiting messages. A lease is a random token in it; who no longer finds his
token there can change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from commonbook.engines.sqlite.database import SqliteReading, SqliteTransaction
from commonbook.model.ids import parse_time
from commonbook.ports.outbox import REFUSED, WAITING, DeliveryOutcome, OutboxBatch, OutboxEntry, SessionContext

# A pause or lease that begins later than now was made before the clock jumped back: it holds no longer.
_NEXT: Final = """
SELECT session, tries FROM lane
WHERE NOT (since <= :now AND :now < due) AND NOT (token IS NOT NULL AND taken <= :now AND :now < until)
ORDER BY CASE WHEN since > :now THEN 0 ELSE due END, session LIMIT 1"""
_SOONEST: Final = """
SELECT min(max(CASE WHEN since <= :now AND :now < due THEN due ELSE 0 END,
               CASE WHEN token IS NOT NULL AND taken <= :now AND :now < until THEN until ELSE 0 END)) FROM lane"""
_LONGEST_REASON: Final = 500


class EntryRow(NamedTuple):
    """The columns of a stored message that are its entry."""

    client_id: str
    role: str
    author: str | None
    text: str
    time: str
    masked: int

    def read(self) -> OutboxEntry:
        """Return the entry."""
        return OutboxEntry(self.client_id, self.role, self.author, self.text, parse_time(self.time), self.masked)


class ContextRow(NamedTuple):
    """The columns of a stored message that are its context."""

    space: str | None
    parent: str | None
    tags: str

    def read(self) -> SessionContext:
        """Return the context."""
        return SessionContext(self.space, self.parent, tuple(json.loads(self.tags)))


class _Head(NamedTuple):
    """A stored message without what it says: enough to decide which go together."""

    position: int
    size: int
    alone: int
    failures: int
    context: ContextRow


_ENTRY: Final = ", ".join(EntryRow._fields)
_CONTEXT: Final = ", ".join(ContextRow._fields)


def open_queue(tx: SqliteTransaction, session: str) -> None:
    """Let a session be sent; a pause that it has, it keeps."""
    now = tx.now.timestamp()
    tx.run("INSERT OR IGNORE INTO lane (session, since, due) VALUES (:session, :now, :now)", session=session, now=now)


def is_due(view: SqliteReading, now: float) -> bool:
    """Tell whether there is a session to take."""
    return view.row(_NEXT, now=now) is not None


def soonest(view: SqliteReading, now: float) -> float | None:
    """Return in how many seconds there may be a session to take; None when nothing waits."""
    ((when,),) = view.rows(_SOONEST, now=now)
    return None if when is None else max(0.0, float(when) - now)


def take_batch(tx: SqliteTransaction, token: str, *, lease: float, most: int, most_bytes: int) -> OutboxBatch | None:
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
    heads = _together(_heads(tx, session, most), most_bytes)
    first, *_ = heads
    texts = tx.rows(
        f"SELECT position, {_ENTRY} FROM message WHERE position IN :positions ORDER BY position",
        positions=[head.position for head in heads],
    )
    entries = {position: EntryRow._make(entry).read() for position, *entry in texts}
    return OutboxBatch(session, token, first.context.read(), entries, tries, failures=first.failures)


def _heads(tx: SqliteTransaction, session: str, most: int) -> list[_Head]:
    rows = tx.rows(
        f"SELECT position, size, alone, failures, {_CONTEXT} FROM message"
        " WHERE state = 'waiting' AND session = :session ORDER BY position LIMIT :most",
        session=session,
        most=most,
    )
    return [
        _Head(position, size, alone, failures, ContextRow._make(context))
        for position, size, alone, failures, *context in rows
    ]


def _together(heads: Sequence[_Head], most_bytes: int) -> list[_Head]:
    """Return the messages that go together: of one context, not too large, and who is to go alone goes alone."""
    first, *others = heads
    together = [first]
    size = first.size
    for head in others:
        size += head.size
        if size > most_bytes or first.alone or head.alone or head.context != first.context:
            break
        together.append(head)
    return together


def record_outcome(tx: SqliteTransaction, parcel: OutboxBatch, verdict: DeliveryOutcome) -> bool:
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
