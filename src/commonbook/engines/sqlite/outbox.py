"""The outbox of a remote client: a durable queue in one SQLite file, which any number of processes share.

Messages are kept in the order in which they were added, until they are acknowledged, or thrown away by hand.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from commonbook.engines.disk.durable_files import make_folders
from commonbook.engines.disk.network_mounts import network_file_system
from commonbook.engines.sqlite import outbox_queue
from commonbook.engines.sqlite.database import SqliteDatabase, SqliteTransaction
from commonbook.errors import (
    CommonbookError,
    DiskFull,
    HomeDamaged,
    HomeError,
    HomeIsNewer,
    HomeReadOnly,
    KeyConflict,
    NetworkFileSystem,
    NotFound,
)
from commonbook.model.ids import format_time
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

_VERSION_1: Final = """
CREATE TABLE message (
  position INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, client_id TEXT NOT NULL,
  space TEXT, parent TEXT, tags TEXT NOT NULL, role TEXT NOT NULL, author TEXT, text TEXT NOT NULL, time TEXT NOT NULL,
  masked INTEGER NOT NULL, size INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'waiting',
  alone INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
  reason TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX message_by_client_id ON message (session, client_id);
CREATE INDEX message_in_order ON message (state, session, position);
CREATE TABLE lane (
  session TEXT NOT NULL PRIMARY KEY, since REAL NOT NULL, due REAL NOT NULL, asked INTEGER NOT NULL DEFAULT 0,
  tries INTEGER NOT NULL DEFAULT 0, token TEXT, taken REAL, until REAL) WITHOUT ROWID;
"""


class _HeldRow(NamedTuple):
    """A stored message, as it is listed: the fields are the columns, in the order of the SELECT."""

    position: int
    session: str
    attempts: int
    reason: str
    space: str | None
    parent: str | None
    tags: str
    client_id: str
    role: str
    author: str | None
    text: str
    time: str
    masked: int

    def read(self, state: str) -> StoredMessage:
        """Return the message that is in this state."""
        return StoredMessage(
            id=self.position,
            session=self.session,
            context=outbox_queue.ContextRow(self.space, self.parent, self.tags).read(),
            entry=outbox_queue.EntryRow(
                self.client_id, self.role, self.author, self.text, self.time, self.masked
            ).read(),
            state=state,
            attempts=self.attempts,
            reason=self.reason,
        )


_HELD: Final = ", ".join(_HeldRow._fields)

_FIXES: Final[dict[type[CommonbookError], str]] = {
    HomeDamaged: "keep the file, since it may hold messages that were never sent; move it away to go on with a new one",
    HomeIsNewer: "update Commonbook and start it again; nothing was changed",
    HomeReadOnly: "give this user write access to the file and its folder",
}


class OutboxFile:
    """The Outbox port on one SQLite file of mode 0600, with its lock files in the same folder."""

    def __init__(self, path: str, *, clock: Clock, busy_seconds: float) -> None:
        """Open the outbox, making it if it is not there."""
        self._path = os.path.abspath(path)
        self._clock = clock
        with self._worded():
            _make(self._path)
            self._db = SqliteDatabase(
                self._path,
                migrations=(_VERSION_1,),
                clock=clock,
                busy_seconds=busy_seconds,
                # A lock of its own: in a home, those who write to the book do not hold up what is appended here.
                lock=f"{os.path.basename(self._path)}.lock",
            )

    # --- appending

    def add(
        self, session: str, entries: Sequence[OutboxEntry], *, context: SessionContext
    ) -> tuple[EnqueuedMessage, ...]:
        """Keep messages, all or none; on return they are durable."""
        with self._writing(durable=True) as tx:
            kept = tuple(_add(tx, session, entry, context) for entry in entries)
            if any(one.new for one in kept):
                outbox_queue.open_queue(tx, session)
        return kept

    # --- sending

    def take(self, token: str, *, lease: float, most: int, most_bytes: int) -> OutboxBatch | None:
        """Take the next messages of a session that is due and that no other sender has, for `lease` seconds."""
        with self._worded(), self._db.reading() as view:
            # Most looks find nothing, and need no lock for that.
            if not outbox_queue.is_due(view, self._clock.now().timestamp()):
                return None
        # A lease need not survive a power cut: whoever had it does not survive it either.
        with self._writing(durable=False) as tx:
            return outbox_queue.take_batch(tx, token, lease=lease, most=most, most_bytes=most_bytes)

    def settle(self, parcel: OutboxBatch, verdict: DeliveryOutcome) -> bool:
        """Give a parcel back; False, and nothing is changed, when its lease has gone to another sender."""
        # What was sent and is here again after a power cut is sent again, and the server knows its client id.
        with self._writing(durable=bool(verdict.refused)) as tx:
            return outbox_queue.record_outcome(tx, parcel, verdict)

    def release(self, tokens: Iterable[str]) -> None:
        """Give leases back without a word on their messages."""
        with self._writing(durable=False) as tx:
            tx.run("UPDATE lane SET token = NULL WHERE token IN :tokens", tokens=tuple(tokens))

    def hurry(self) -> None:
        """End every pause that the server did not ask for."""
        with self._writing(durable=False) as tx:
            tx.run("UPDATE lane SET since = :now, due = :now WHERE asked = 0", now=tx.now.timestamp())

    # --- looking

    def soonest(self) -> float | None:
        """Return in how many seconds there may be something to take; None when nothing waits."""
        with self._worded(), self._db.reading() as view:
            return outbox_queue.soonest(view, self._clock.now().timestamp())

    def counts(self, *, session: str | None = None, first: int = 0, last: int | None = None) -> OutboxCounts:
        """Count what is here: of one session, from one message to another."""
        with self._worded(), self._db.reading() as view:
            found: dict[str, int] = dict(
                view.rows(
                    "SELECT state, count(*) FROM message WHERE (:session IS NULL OR session = :session)"
                    " AND position >= :first AND (:last IS NULL OR position <= :last) GROUP BY state",
                    session=session,
                    first=first,
                    last=last,
                )
            )
        return OutboxCounts(found.get(WAITING, 0), found.get(REFUSED, 0))

    def held(self, state: str, *, limit: int) -> tuple[StoredMessage, ...]:
        """Return the first messages in this state."""
        with self._worded(), self._db.reading() as view:
            rows = view.rows(
                f"SELECT {_HELD} FROM message WHERE state = :state ORDER BY position LIMIT :limit",
                state=state,
                limit=limit,
            )
        return tuple(row.read(state) for row in map(_HeldRow._make, rows))

    # --- what was set aside

    def retry(self, ids: Sequence[int]) -> None:
        """Let messages that were set aside wait again, at their old place."""
        with self._writing(durable=True) as tx:
            for id_ in dict.fromkeys(ids):
                outbox_queue.open_queue(tx, _set_aside(tx, id_))
                tx.run(
                    "UPDATE message SET state = 'waiting', attempts = 0, failures = 0, reason = ''"
                    " WHERE position = :position",
                    position=id_,
                )

    def discard(self, ids: Sequence[int]) -> None:
        """Throw away messages that were set aside."""
        with self._writing(durable=True) as tx:
            for id_ in dict.fromkeys(ids):
                _set_aside(tx, id_)
                tx.run("DELETE FROM message WHERE position = :position", position=id_)

    def close(self) -> None:
        """Let go of everything."""
        with self._worded():
            self._db.close()

    # --- the file

    @contextmanager
    def _writing(self, *, durable: bool) -> Iterator[SqliteTransaction]:
        with self._worded(), self._db.writing(durable=durable) as tx:
            yield tx

    @contextmanager
    def _worded(self) -> Iterator[None]:
        """Say of the outbox what the database says of a home: the fix is another one."""
        try:
            yield
        except HomeError as error:
            message = f"the outbox {self._path}: {error.message}"
            raise type(error)(message, fix=_FIXES.get(type(error), error.fix)) from error
        except OSError as error:
            kind = DiskFull if error.errno in {errno.ENOSPC, errno.EDQUOT} else HomeReadOnly
            fix = _FIXES.get(kind, "free some space and try again")
            raise kind(f"the outbox {self._path} cannot be written: {error.strerror}", fix=fix) from error


def _make(path: str) -> None:
    folder = os.path.dirname(path)
    make_folders(folder, mode=0o700)
    kind = network_file_system(folder)
    if kind is not None:
        raise NetworkFileSystem(
            f"it is on a network file system ({kind}), whose locks cannot be trusted", fix="put it on a local disk"
        )
    # Only ever made, never opened: closing a file drops the locks that SQLite has on it in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if os.stat(path).st_mode & 0o077:
        os.chmod(path, 0o600)


# --- messages


def _add(tx: SqliteTransaction, session: str, entry: OutboxEntry, context: SessionContext) -> EnqueuedMessage:
    there = tx.row(
        "SELECT position, role, author, text FROM message WHERE session = :session AND client_id = :client_id",
        session=session,
        client_id=entry.client_id,
    )
    if there is not None:
        position, *said = there
        if said != [entry.role, entry.author, entry.text]:
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
        **{**context._asdict(), "tags": json.dumps(context.tags)},
        **{**entry._asdict(), "time": format_time(entry.time)},
    )
    ((position,),) = tx.rows("SELECT last_insert_rowid()")
    return EnqueuedMessage(position, entry.client_id, new=True, masked=entry.masked)


def _set_aside(tx: SqliteTransaction, id_: int) -> str:
    """Return the session of a message that was set aside."""
    found = tx.row("SELECT session FROM message WHERE position = :id AND state = 'refused'", id=id_)
    if found is None:
        raise NotFound(f"the outbox has set no message {id_} aside", fix="look at what was refused for the numbers")
    (session,) = found
    return str(session)
