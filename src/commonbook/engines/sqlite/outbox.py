"""The outbox of a remote client: a durable message queue in one SQLite file, shared by any number of processes.

Messages are stored in the order in which they were added, until the server acknowledges them or a user discards them.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from commonbook.engines.disk.durable_files import make_folders, network_file_system
from commonbook.engines.sqlite.database import SqliteDatabase, SqliteReading, SqliteTransaction
from commonbook.errors import (
    CommonbookError,
    DiskFull,
    HomeDamaged,
    HomeError,
    HomeOfAnotherBuild,
    HomeReadOnly,
    KeyConflict,
    NetworkFileSystem,
    NotFound,
)
from commonbook.ports.keys import Clock
from commonbook.ports.outbox import (
    REFUSED,
    WAITING,
    DeliveryOutcome,
    EnqueuedMessage,
    OutboxBatch,
    OutboxCounts,
    OutboxEntry,
    SessionContext,
    StoredMessage,
)
from commonbook.values.ids import format_time, parse_time

# A space is empty if none was named: the server then chooses it by the API key.
_SCHEMA_1: Final = """
CREATE TABLE message (
  position INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, session TEXT NOT NULL, client_id TEXT NOT NULL,
  parent TEXT, tags TEXT NOT NULL, role TEXT NOT NULL, author TEXT, text TEXT NOT NULL, time TEXT NOT NULL,
  masked INTEGER NOT NULL, size INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'waiting',
  alone INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
  reason TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX message_by_client_id ON message (space, session, client_id);
CREATE INDEX message_in_order ON message (state, space, session, position);
CREATE TABLE lane (
  space TEXT NOT NULL, session TEXT NOT NULL, since REAL NOT NULL, due REAL NOT NULL, asked INTEGER NOT NULL DEFAULT 0,
  tries INTEGER NOT NULL DEFAULT 0, token TEXT, taken REAL, until REAL, PRIMARY KEY (space, session)) WITHOUT ROWID;
"""


class _StoredRow(NamedTuple):
    """A stored message as it is listed: the fields are the columns, in the order of the SELECT."""

    position: int
    session: str
    attempts: int
    reason: str
    space: str
    parent: str | None
    tags: str
    client_id: str
    role: str
    author: str | None
    text: str
    time: str
    masked: int

    def read(self, state: str) -> StoredMessage:
        """Return the message, which is in this state."""
        return StoredMessage(
            id=self.position,
            session=self.session,
            context=_ContextRow(self.space, self.parent, self.tags).read(),
            entry=_EntryRow(self.client_id, self.role, self.author, self.text, self.time, self.masked).read(),
            state=state,
            attempts=self.attempts,
            reason=self.reason,
        )


_STORED_COLUMNS: Final = ", ".join(_StoredRow._fields)

_FIXES: Final[dict[type[CommonbookError], str]] = {
    HomeDamaged: "keep the file, since it may hold messages that were never sent; move it away to go on with a new one",
    HomeOfAnotherBuild: "send its messages with the build that wrote it, or move the file away; nothing was changed",
    HomeReadOnly: "give this user write access to the file and its folder",
}


class OutboxFile:
    """The Outbox port on one SQLite file of mode 0600, with its lock files in the same folder."""

    def __init__(self, path: str, *, clock: Clock, busy_seconds: float) -> None:
        """Open the outbox, creating it if it does not exist."""
        self._path = os.path.abspath(path)
        self._clock = clock
        with self._adapted_errors():
            _create_file(self._path)
            self._db = SqliteDatabase(
                self._path,
                migrations=(_SCHEMA_1,),
                clock=clock,
                busy_seconds=busy_seconds,
                # A lock file of its own: in a home, writers of the book do not delay appends to the outbox.
                lock=f"{os.path.basename(self._path)}.lock",
            )

    # --- appending

    def add(
        self, session: str, entries: Sequence[OutboxEntry], *, context: SessionContext
    ) -> tuple[EnqueuedMessage, ...]:
        """Store messages, all or none; on return they are durable."""
        with self._writing(durable=True) as tx:
            messages = tuple(_add(tx, session, entry, context) for entry in entries)
            if any(message.new for message in messages):
                _open_queue(tx, (context.space or "", session))
        return messages

    # --- sending

    def take(self, token: str, *, lease: float, most: int, most_bytes: int) -> OutboxBatch | None:
        """Lease the next messages of a session that is due and not leased, for `lease` seconds."""
        with self._adapted_errors(), self._db.reading() as view:
            # Most calls find nothing, and need no lock for that.
            if not _is_due(view, self._clock.now().timestamp()):
                return None
        # A lease need not survive a power cut: its owner does not survive it either.
        with self._writing(durable=False) as tx:
            return _take_batch(tx, token, lease=lease, most=most, most_bytes=most_bytes)

    def settle(self, batch: OutboxBatch, outcome: DeliveryOutcome) -> bool:
        """Record the outcome of a batch; return False, and change nothing, if another sender has the lease."""
        # A sent message that reappears after a power cut is sent again, and the server recognizes its client id.
        with self._writing(durable=bool(outcome.refused)) as tx:
            return _record_outcome(tx, batch, outcome)

    def release(self, tokens: Iterable[str]) -> None:
        """End leases without an outcome for their messages."""
        with self._writing(durable=False) as tx:
            tx.run("UPDATE lane SET token = NULL WHERE token IN :tokens", tokens=tuple(tokens))

    def hurry(self) -> None:
        """End every pause that the server did not request."""
        with self._writing(durable=False) as tx:
            tx.run("UPDATE lane SET since = :now, due = :now WHERE asked = 0", now=tx.now.timestamp())

    # --- status

    def soonest(self) -> float | None:
        """Return in how many seconds a session may be due; None if no message waits."""
        with self._adapted_errors(), self._db.reading() as view:
            return _soonest(view, self._clock.now().timestamp())

    def counts(
        self, *, session: tuple[str, str] | None = None, first: int = 0, last: int | None = None
    ) -> OutboxCounts:
        """Count the messages by state: of one session, from one message to another."""
        space, session_id = session or (None, None)
        with self._adapted_errors(), self._db.reading() as view:
            by_state: dict[str, int] = dict(
                view.rows(
                    "SELECT state, count(*) FROM message"
                    " WHERE (:session IS NULL OR (space = :space AND session = :session))"
                    " AND position >= :first AND (:last IS NULL OR position <= :last) GROUP BY state",
                    space=space,
                    session=session_id,
                    first=first,
                    last=last,
                )
            )
        return OutboxCounts(by_state.get(WAITING, 0), by_state.get(REFUSED, 0))

    def held(self, state: str, *, limit: int) -> tuple[StoredMessage, ...]:
        """Return the first messages in this state."""
        with self._adapted_errors(), self._db.reading() as view:
            rows = view.rows(
                f"SELECT {_STORED_COLUMNS} FROM message WHERE state = :state ORDER BY position LIMIT :limit",
                state=state,
                limit=limit,
            )
        return tuple(row.read(state) for row in map(_StoredRow._make, rows))

    # --- refused messages

    def retry(self, ids: Sequence[int]) -> None:
        """Let refused messages wait again, at their old position."""
        with self._writing(durable=True) as tx:
            for id_ in dict.fromkeys(ids):
                _open_queue(tx, _refused_session(tx, id_))
                tx.run(
                    "UPDATE message SET state = 'waiting', attempts = 0, failures = 0, reason = ''"
                    " WHERE position = :position",
                    position=id_,
                )

    def discard(self, ids: Sequence[int]) -> None:
        """Delete refused messages."""
        with self._writing(durable=True) as tx:
            for id_ in dict.fromkeys(ids):
                _refused_session(tx, id_)
                tx.run("DELETE FROM message WHERE position = :position", position=id_)

    def close(self) -> None:
        """Close the file."""
        with self._adapted_errors():
            self._db.close()

    # --- the file

    @contextmanager
    def _writing(self, *, durable: bool) -> Iterator[SqliteTransaction]:
        with self._adapted_errors(), self._db.writing(durable=durable) as tx:
            yield tx

    @contextmanager
    def _adapted_errors(self) -> Iterator[None]:
        """Adapt the errors of the database to the outbox: a home has another fix."""
        try:
            yield
        except HomeError as error:
            message = f"the outbox {self._path}: {error.message}"
            raise type(error)(message, fix=_FIXES.get(type(error), error.fix)) from error
        except OSError as error:
            kind = DiskFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else HomeReadOnly
            fix = _FIXES.get(kind, "free some space and try again")
            raise kind(f"the outbox {self._path} cannot be written: {error.strerror}", fix=fix) from error


def _create_file(path: str) -> None:
    folder = os.path.dirname(path)
    make_folders(folder, mode=0o700)
    kind = network_file_system(folder)
    if kind is not None:
        raise NetworkFileSystem(
            f"it is on a network file system ({kind}), whose locks cannot be trusted", fix="put it on a local disk"
        )
    # Only ever created, never opened: closing a file drops the locks that SQLite has on it in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if os.stat(path).st_mode & 0o077:
        os.chmod(path, 0o600)


# --- messages


def _add(tx: SqliteTransaction, session: str, entry: OutboxEntry, context: SessionContext) -> EnqueuedMessage:
    row = tx.row(
        "SELECT position, role, author, text FROM message"
        " WHERE space = :space AND session = :session AND client_id = :client_id",
        space=context.space or "",
        session=session,
        client_id=entry.client_id,
    )
    if row is not None:
        position, *stored = row
        if stored != [entry.role, entry.author, entry.text]:
            raise KeyConflict(
                f"client id {entry.client_id!r} is in the outbox for another message of session {session!r}",
                fix="give each message a client id of its own, or none",
            )
        return EnqueuedMessage(position, entry.client_id, new=False, masked=entry.masked)
    tx.run(
        "INSERT INTO message (session, size, space, parent, tags, client_id, role, author, text, time, masked)"
        " VALUES (:session, :size, :space, :parent, :tags, :client_id, :role, :author, :text, :time, :masked)",
        session=session,
        size=len(entry.text.encode()),
        **{**context._asdict(), "space": context.space or "", "tags": json.dumps(context.tags)},
        **{**entry._asdict(), "time": format_time(entry.time)},
    )
    ((position,),) = tx.rows("SELECT last_insert_rowid()")
    return EnqueuedMessage(position, entry.client_id, new=True, masked=entry.masked)


def _refused_session(tx: SqliteTransaction, id_: int) -> tuple[str, str]:
    """Return the space and id of the session of a refused message."""
    row = tx.row("SELECT space, session FROM message WHERE position = :id AND state = 'refused'", id=id_)
    if row is None:
        raise NotFound(f"the outbox has no refused message {id_}", fix="list the refused messages for their numbers")
    space, session = row
    return str(space), str(session)


# --- queues of sessions

# A session has a row in `lane` as long as it has waiting messages. A lease is a random token in that row, which serves
# as a fencing token: a sender whose token is no longer there can change nothing.

# A pause or lease that begins later than now is from before the clock was set back, and not valid any more.
_NEXT_SESSION: Final = """
SELECT space, session, tries FROM lane
WHERE NOT (since <= :now AND :now < due) AND NOT (token IS NOT NULL AND taken <= :now AND :now < until)
ORDER BY CASE WHEN since > :now THEN 0 ELSE due END, session, space LIMIT 1"""
_SOONEST_DUE: Final = """
SELECT min(max(CASE WHEN since <= :now AND :now < due THEN due ELSE 0 END,
               CASE WHEN token IS NOT NULL AND taken <= :now AND :now < until THEN until ELSE 0 END)) FROM lane"""
_MAX_REASON_CHARS: Final = 500


class _EntryRow(NamedTuple):
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


class _ContextRow(NamedTuple):
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
    context: _ContextRow


_ENTRY_COLUMNS: Final = ", ".join(_EntryRow._fields)
_CONTEXT_COLUMNS: Final = ", ".join(_ContextRow._fields)


def _open_queue(tx: SqliteTransaction, session: tuple[str, str]) -> None:
    """Create the queue of a session, given by its space and id; an existing one keeps its pause."""
    space, session_id = session
    tx.run(
        "INSERT OR IGNORE INTO lane (space, session, since, due) VALUES (:space, :session, :now, :now)",
        space=space,
        session=session_id,
        now=tx.now.timestamp(),
    )


def _is_due(view: SqliteReading, now: float) -> bool:
    """Return whether a session is due and not leased."""
    return view.row(_NEXT_SESSION, now=now) is not None


def _soonest(view: SqliteReading, now: float) -> float | None:
    """Return in how many seconds a session may be due; None if no message waits."""
    ((due,),) = view.rows(_SOONEST_DUE, now=now)
    return None if due is None else max(0.0, float(due) - now)


def _take_batch(tx: SqliteTransaction, token: str, *, lease: float, most: int, most_bytes: int) -> OutboxBatch | None:
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
    entries = {position: _EntryRow._make(entry).read() for position, *entry in texts}
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
        _Head(position, size, alone, failures, _ContextRow._make(context))
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


def _record_outcome(tx: SqliteTransaction, batch: OutboxBatch, outcome: DeliveryOutcome) -> bool:
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
