"""Per-session queues of the outbox, each with a lease: which session is sent next, by which sender, with which outcome.

A session has a row in `lane` as long as it has waiting messages. A lease is a random token in that row, which serves
as a fencing token: a sender whose token is no longer there can change nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from commonbook.engines.sqlite.database import SqliteReading, SqliteTransaction
from commonbook.model.ids import parse_time
from commonbook.ports.outbox import REFUSED, WAITING, DeliveryOutcome, OutboxBatch, OutboxEntry, SessionContext

# A pause or lease that begins later than now is from before the clock was set back: it is no longer valid.
_NEXT_SESSION: Final = """
SELECT space, session, tries FROM lane
WHERE NOT (since <= :now AND :now < due) AND NOT (token IS NOT NULL AND taken <= :now AND :now < until)
ORDER BY CASE WHEN since > :now THEN 0 ELSE due END, session, space LIMIT 1"""
_SOONEST_DUE: Final = """
SELECT min(max(CASE WHEN since <= :now AND :now < due THEN due ELSE 0 END,
               CASE WHEN token IS NOT NULL AND taken <= :now AND :now < until THEN until ELSE 0 END)) FROM lane"""
_MAX_REASON_CHARS: Final = 500


class EntryRow(NamedTuple):
    """The columns of a stored message that form its entry."""

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
    """The columns of a stored message that form its context."""

    space: str
    parent: str | None
    tags: str

    def read(self) -> SessionContext:
        """Return the context."""
        return SessionContext(self.space or None, self.parent, tuple(json.loads(self.tags)))


class _Head(NamedTuple):
    """A stored message without its text: enough to decide which ones form a batch."""

    position: int
    size: int
    alone: int
    failures: int
    context: ContextRow


_ENTRY_COLUMNS: Final = ", ".join(EntryRow._fields)
_CONTEXT_COLUMNS: Final = ", ".join(ContextRow._fields)


def open_queue(tx: SqliteTransaction, session: tuple[str, str]) -> None:
    """Create the queue of a session, given by its space and id; an existing one keeps its pause."""
    space, session_id = session
    tx.run(
        "INSERT OR IGNORE INTO lane (space, session, since, due) VALUES (:space, :session, :now, :now)",
        space=space,
        session=session_id,
        now=tx.now.timestamp(),
    )


def is_due(view: SqliteReading, now: float) -> bool:
    """Tell whether a session is due and not leased."""
    return view.row(_NEXT_SESSION, now=now) is not None


def soonest(view: SqliteReading, now: float) -> float | None:
    """Return in how many seconds a session may be due; None if no message waits."""
    ((due,),) = view.rows(_SOONEST_DUE, now=now)
    return None if due is None else max(0.0, float(due) - now)


def take_batch(tx: SqliteTransaction, token: str, *, lease: float, most: int, most_bytes: int) -> OutboxBatch | None:
    """Lease the session that has been due for longest, and return its next messages."""
    now = tx.now.timestamp()
    row = tx.row(_NEXT_SESSION, now=now)
    if row is None:
        return None
    space, session, tries = row
    tx.run(
        "UPDATE lane SET token = :token, taken = :now, until = :until WHERE space = :space AND session = :session",
        token=token,
        now=now,
        until=now + lease,
        space=space,
        session=session,
    )
    heads = _form_batch(_heads(tx, (space, session), most), most_bytes)
    first, *_ = heads
    texts = tx.rows(
        f"SELECT position, {_ENTRY_COLUMNS} FROM message WHERE position IN :positions ORDER BY position",
        positions=[head.position for head in heads],
    )
    entries = {position: EntryRow._make(entry).read() for position, *entry in texts}
    return OutboxBatch(session, token, first.context.read(), entries, tries, failures=first.failures)


def _heads(tx: SqliteTransaction, session: tuple[str, str], most: int) -> list[_Head]:
    space, session_id = session
    rows = tx.rows(
        f"SELECT position, size, alone, failures, {_CONTEXT_COLUMNS} FROM message"
        " WHERE state = 'waiting' AND space = :space AND session = :session ORDER BY position LIMIT :most",
        space=space,
        session=session_id,
        most=most,
    )
    return [
        _Head(position, size, alone, failures, ContextRow._make(context))
        for position, size, alone, failures, *context in rows
    ]


def _form_batch(heads: Sequence[_Head], most_bytes: int) -> list[_Head]:
    """Return the messages of one batch: of one context, within the size limit; one marked `alone` is sent alone."""
    first, *others = heads
    batch = [first]
    size = first.size
    for head in others:
        size += head.size
        if size > most_bytes or first.alone or head.alone or head.context != first.context:
            break
        batch.append(head)
    return batch


def record_outcome(tx: SqliteTransaction, batch: OutboxBatch, outcome: DeliveryOutcome) -> bool:
    """Record the outcome of a batch and end its lease, unless another sender has it."""
    now, space = tx.now.timestamp(), batch.context.space or ""
    has_lease = tx.run(
        "UPDATE lane SET token = NULL, since = :now, due = :due, asked = :asked,"
        " tries = CASE WHEN :pause > 0 THEN tries + 1 ELSE 0 END"
        " WHERE space = :space AND session = :session AND token = :token",
        now=now,
        due=now + outcome.pause,
        pause=outcome.pause,
        asked=outcome.requested_by_server,
        space=space,
        session=batch.session,
        token=batch.token,
    )
    if not has_lease:
        return False
    for position in outcome.sent:
        tx.run("DELETE FROM message WHERE position = :position", position=position)
    for position in batch.entries.keys() - set(outcome.sent):
        tx.run(
            "UPDATE message SET state = :state, reason = :reason, attempts = attempts + 1,"
            " failures = failures + :failed, alone = max(alone, :alone) WHERE position = :position",
            state=REFUSED if position in outcome.refused else WAITING,
            reason=_truncate(outcome.refused.get(position, outcome.reason)),
            failed=outcome.failed,
            alone=outcome.alone,
            position=position,
        )
    tx.run(
        "DELETE FROM lane WHERE space = :space AND session = :session AND NOT EXISTS (SELECT 1 FROM message"
        " WHERE state = 'waiting' AND message.space = lane.space AND message.session = lane.session)",
        space=space,
        session=batch.session,
    )
    return True


def _truncate(reason: str) -> str:
    return reason[:_MAX_REASON_CHARS].encode("utf-8", "replace").decode()
