"""Sessions and their messages: the tables `session`, `session_place` and `message`.

A row of `session` is an append-only log of messages with a generation, which grows when the session is switched or
rewound. A row of `session_place` says in which space a session is. A row of `message` is one message, numbered by `seq`
within its session; `episode` is the memory that holds it once it is settled, and `taken_back` the time at which it was
rewound. A message with neither is unsettled. A client id identifies a message of a session, so that a repeat is
recognised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from commonbook.model.ids import format_time, parse_time
from commonbook.model.session import Message, Session
from commonbook.model.spaces import SpaceScope
from commonbook.ports.database import Reading, RetryTransaction, Row, Transaction
from commonbook.runtime.batches import in_batches


class _SessionRow(NamedTuple):
    """A row of the table `session`: the fields are the columns, in the order of every SELECT."""

    space: str
    id: str
    parent: str | None
    tags: str
    created: str
    closed: str | None
    generation: int
    last: int


class _MessageRow(NamedTuple):
    """A row of the table `message`: the fields are the columns, in the order of every SELECT."""

    id: str
    session: str
    seq: int
    role: str
    author: str
    text: str
    time: str
    client_id: str | None
    masked: int
    episode: str | None
    # The stored name of the time at which the message was rewound.
    taken_back: str | None


# Other columns of a SELECT come before these.
_SESSION: Final = ", ".join(f"session.{name}" for name in _SessionRow._fields)
_MESSAGE: Final = ", ".join(f"message.{name}" for name in _MessageRow._fields)
_UNSETTLED: Final = "episode IS NULL AND taken_back IS NULL"

_FIND: Final = (
    f"SELECT {{also}}{_SESSION}"
    " FROM session_place JOIN session ON session.space = session_place.space AND session.id = session_place.id"
    " WHERE session_place.id = :id"
)
_OPEN_MESSAGES: Final = (
    "(SELECT {columns} FROM message"
    f" WHERE message.space = session_place.space AND message.session = session_place.id AND {_UNSETTLED})"
)
_FIND_WITH_COUNT: Final = _FIND.format(also=f"{_OPEN_MESSAGES.format(columns='count(*)')}, ")
_FIND_REPEAT: Final = (
    "SELECT {columns} FROM session_place {join} message"
    " ON message.space = session_place.space AND message.session = session_place.id"
    " AND message.client_id = :client_id WHERE session_place.id = :id"
)
_REPEAT: Final = _FIND_REPEAT.format(columns=f"message.sent, {_MESSAGE}", join="JOIN")
# LEFT JOIN: the number of the first unsettled message is selected even if no message has the client id.
_FIRST_UNSETTLED_AND_REPEAT: Final = _FIND_REPEAT.format(
    columns=f"{_OPEN_MESSAGES.format(columns='min(seq)')}, message.sent, {_MESSAGE}", join="LEFT JOIN"
)

FIRST_GENERATION: Final = 1
"""The generation of a session that was never switched or rewound, even before its first message."""
_IDS_PER_QUERY: Final = 500


# --- sessions


def add(tx: Transaction, session: Session) -> None:
    """Add a session."""
    tx.run("INSERT INTO session_place (id, space) VALUES (:id, :space)", id=session.id, space=session.space.id)
    tx.run(
        "INSERT INTO session (space, id, parent, tags, created, closed, generation, last)"
        " VALUES (:space, :id, :parent, :tags, :created, :closed, :generation, :last)",
        space=session.space.id,
        id=session.id,
        parent=session.parent,
        tags=json.dumps(session.tags, ensure_ascii=False),
        created=format_time(session.created),
        closed=None,
        generation=session.generation,
        last=session.last,
    )


def space_of(tx: Reading, session_id: str) -> str | None:
    """Return the space of a session without a check of permissions; None if there is no such session."""
    (space,) = tx.row("SELECT space FROM session_place WHERE id = :id", id=session_id) or (None,)
    return str(space) if space else None


def descends_from(tx: Reading, session_id: str, other: str) -> bool:
    """Tell whether a session is another one, or continues it directly or through others."""
    if session_id == other:
        return True
    # Most sessions have no successor, however many predecessors they have.
    if tx.row("SELECT 1 FROM session WHERE parent = :id LIMIT 1", id=other) is None:
        return False
    seen: set[str] = set()
    current: str | None = session_id
    while current is not None and current not in seen:
        seen.add(current)
        (current,) = tx.row(
            "SELECT parent FROM session WHERE id = :id AND space = (SELECT space FROM session_place WHERE id = :id)",
            id=current,
        ) or (None,)
    return other in seen


def find(tx: Reading, spaces: SpaceScope, session_id: str) -> Session | None:
    """Return a session of the given spaces, or None."""
    row = tx.row(_FIND_WITH_COUNT, id=session_id)
    if row is None:
        return None
    unsettled, *columns = row
    session = _SessionRow._make(columns)
    return _session(session, spaces, unsettled=unsettled) if session.space in spaces else None


class LockedSession:
    """A session whose row is locked until the transaction ends, with the messages that are repeats.

    All queries are sent at once, and their rows are read on first use. `client_ids` are those of messages that may have
    been appended before.
    """

    def __init__(
        self,
        tx: Transaction,
        session_id: str,
        client_ids: Iterable[str] = (),
        *,
        rows: Callable[[], list[Row]] | None = None,
    ) -> None:
        """Send the queries; `rows` reads the row of the session if its query was sent already."""
        lock_clause = f"{tx.for_update} OF session" if tx.has_concurrent_writers else ""
        self._rows = rows or tx.defer(_FIND.format(also="") + lock_clause, id=session_id)
        first, *others = dict.fromkeys(client_ids) or [None]
        # Sent after the lock: a statement that waits for the lock sees the messages as they were before it waited.
        self._first = tx.defer(_FIRST_UNSETTLED_AND_REPEAT, id=session_id, client_id=first)
        # One query for each key: one query for all of them might read the whole session.
        self._others = [tx.defer(_REPEAT, id=session_id, client_id=other) for other in others]

    def session(self, spaces: SpaceScope) -> Session | None:
        """Return the session, or None if there is none; RetryTransaction if its space is not among the spaces.

        `spaces` has all spaces that the transaction knows. `unsettled` is not counted: all messages from the first
        unsettled one on count as unsettled.
        """
        for row in map(_SessionRow._make, self._rows()):
            if row.space not in spaces:
                raise RetryTransaction
            ((open_from, *_),) = self._first()
            return _session(row, spaces, unsettled=row.last - open_from + 1 if open_from else 0)
        return None

    def repeated(self) -> dict[str, tuple[Message, str]]:
        """Return the messages that have the client ids, each with the hash of what was sent, by client id."""
        rows: list[Sequence[Any]] = [columns for _, *columns in self._first()]
        rows += [row for read_rows in self._others for row in read_rows()]
        messages = [(_MessageRow._make(columns), sent) for sent, *columns in rows]
        # Without a message of that client id, its columns are all NULL.
        return {row.client_id: (_message(row), sent) for row, sent in messages if row.client_id is not None}


def lock_available(
    tx: Transaction, spaces: Sequence[str], wanted: Mapping[str, Iterable[str]], *, patient: bool = True
) -> Callable[[], dict[tuple[str, str], LockedSession]]:
    """Send the query that locks these sessions, each given with client ids; call the result to read them.

    The result has the sessions, by space and id, that are in these spaces and were locked by nobody else (SKIP LOCKED).
    Unless `patient`, the transaction waits for no other lock either.
    """
    no_wait = "" if patient else tx.no_wait
    query = tx.defer(
        f"SELECT {_SESSION}{no_wait} FROM session WHERE space IN :spaces AND id IN :ids{tx.skip_locked}",
        spaces=tuple(spaces),
        ids=tuple(wanted),
    )
    rows: dict[str, list[Row]] = {}
    sessions = {id_: LockedSession(tx, id_, ids, rows=partial(rows.__getitem__, id_)) for id_, ids in wanted.items()}

    def read_locked() -> dict[tuple[str, str], LockedSession]:
        # The expression `no_wait` is selected after the columns, and dropped here.
        locked = [_SessionRow._make(row[: len(_SessionRow._fields)]) for row in query()]
        rows.update({row.id: [row] for row in locked})
        return {(row.space, row.id): sessions[row.id] for row in locked}

    return read_locked


def lock(tx: Transaction, ids: Iterable[str]) -> set[str]:
    """Lock the rows of these sessions until the transaction ends, and return their spaces.

    Rows are locked in the order of their ids. Where only one transaction can write at a time, nothing is locked and the
    result is empty.
    """
    if not tx.has_concurrent_writers:
        return set()
    rows = tx.rows(
        "SELECT session.space FROM session_place JOIN session"
        " ON session.space = session_place.space AND session.id = session_place.id"
        f" WHERE session_place.id IN :ids ORDER BY session.id{tx.for_update} OF session",
        ids=sorted(set(ids)),
    )
    return {space for (space,) in rows}


def page(tx: Reading, spaces: SpaceScope, *, after: tuple[str, str] | None, limit: int) -> list[Session]:
    """Return the newest sessions of the given spaces, after a cursor (created, id)."""
    if not spaces:
        return []
    created, session_id = after or ("~", "")
    rows = tx.rows(
        f"SELECT {_SESSION} FROM session WHERE space IN :spaces"
        " AND (created, id) < (:created, :id) ORDER BY created DESC, id DESC LIMIT :limit",
        spaces=tuple(spaces),
        limit=limit,
        created=created,
        id=session_id,
    )
    page_rows = map(_SessionRow._make, rows)
    return [_session(row, spaces, unsettled=count_unsettled(tx, row.space, row.id)) for row in page_rows]


def count_unsettled(tx: Reading, space: str, session_id: str) -> int:
    """Return how many messages of a session are unsettled."""
    (count,) = tx.row(
        f"SELECT count(*) FROM message WHERE space = :space AND session = :session AND {_UNSETTLED}",
        space=space,
        session=session_id,
    ) or (0,)
    return int(count)


def counts(tx: Reading, spaces: SpaceScope) -> tuple[int, int, int]:
    """Return the number of sessions, of messages and of unsettled messages."""
    if not spaces:
        return 0, 0, 0
    totals = [
        tx.row(f"SELECT count(*) FROM {table} WHERE space IN :spaces{also}", spaces=tuple(spaces)) or (0,)
        for table, also in (("session", ""), ("message", ""), ("message", f" AND {_UNSETTLED}"))
    ]
    sessions, messages, unsettled = (int(count) for (count,) in totals)
    return sessions, messages, unsettled


def close(tx: Transaction, session: Session, at: datetime | None) -> None:
    """Close a session at a time, or open it again (None)."""
    tx.run(
        "UPDATE session SET closed = :closed WHERE space = :space AND id = :id",
        closed=format_time(at) if at else None,
        space=session.space.id,
        id=session.id,
    )


def next_generation(tx: Transaction, session: Session) -> int:
    """Begin a new generation and return its number; prefetched results of earlier ones are void."""
    tx.run(
        "UPDATE session SET generation = generation + 1 WHERE space = :space AND id = :id",
        space=session.space.id,
        id=session.id,
    )
    return session.generation + 1


# --- messages


def append(tx: Transaction, session: Session, messages: Sequence[tuple[Message, str | None]]) -> None:
    """Append messages, each with the hash of what was sent under its client id."""
    tx.run_many(
        "INSERT INTO message (space, session, seq, id, role, author, text, time, client_id, sent, masked, episode)"
        " VALUES (:space, :session, :seq, :id, :role, :author, :text, :time, :client_id, :sent, :masked, :episode)",
        [
            {
                "space": session.space.id,
                "session": session.id,
                "seq": message.seq,
                "id": message.id,
                "role": message.role,
                "author": message.author,
                "text": message.text,
                "time": format_time(message.time),
                "client_id": message.client_id,
                "sent": sent,
                "masked": message.masked,
                "episode": message.episode,
            }
            for message, sent in messages
        ],
    )
    tx.run_many(
        "UPDATE session SET last = :last WHERE space = :space AND id = :id AND last < :last",
        [{"last": messages[-1][0].seq, "space": session.space.id, "id": session.id}],
    )


def messages(tx: Reading, session: Session, *, after: int = 0, limit: int = 500) -> list[Message]:
    """Return the messages of a session after a number, in order, rewound ones too."""
    rows = tx.rows(
        f"SELECT {_MESSAGE} FROM message WHERE space = :space AND session = :session AND seq > :after"
        " ORDER BY seq LIMIT :limit",
        space=session.space.id,
        session=session.id,
        after=after,
        limit=limit,
    )
    return [_message(row) for row in rows]


def sequence_numbers(tx: Reading, session: Session) -> frozenset[int]:
    """Return the numbers of all messages of a session."""
    rows = tx.rows(
        "SELECT seq FROM message WHERE space = :space AND session = :session",
        space=session.space.id,
        session=session.id,
    )
    return frozenset(seq for (seq,) in rows)


def unsettled(tx: Reading, session: Session) -> list[Message]:
    """Return the unsettled messages of a session, in order."""
    rows = tx.rows(
        f"SELECT {_MESSAGE} FROM message WHERE space = :space AND session = :session AND {_UNSETTLED} ORDER BY seq",
        space=session.space.id,
        session=session.id,
    )
    return [_message(row) for row in rows]


def get_many(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> dict[str, tuple[Message, str]]:
    """Return those of the messages that are in the given spaces, with their space, by id."""
    messages: dict[str, tuple[Message, str]] = {}
    for batch in in_batches(ids, _IDS_PER_QUERY):
        rows = tx.rows(f"SELECT message.space, {_MESSAGE} FROM message WHERE id IN :ids", ids=batch)
        readable = [(_message(columns), space) for space, *columns in rows if space in spaces]
        messages |= {message.id: (message, space) for message, space in readable}
    return messages


def tags_of(tx: Reading, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the tags of these sessions, by session."""
    tags_by_session: dict[str, tuple[str, ...]] = {}
    for batch in in_batches(ids, _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT session.id, session.tags FROM session_place CROSS JOIN session"
            " WHERE session_place.id IN :ids AND session.space = session_place.space AND session.id = session_place.id",
            ids=batch,
        )
        tags_by_session |= {session_id: tuple(json.loads(tags)) for session_id, tags in rows}
    return tags_by_session


def messages_of_episodes(tx: Reading, episodes: Sequence[str]) -> dict[str, dict[str, int | None]]:
    """Return the numbers of the messages that each of these episodes holds, by id; None for a rewound message."""
    by_episode: dict[str, dict[str, int | None]] = {}
    for batch in in_batches(episodes, _IDS_PER_QUERY):
        rows = tx.rows("SELECT episode, id, seq, taken_back FROM message WHERE episode IN :episodes", episodes=batch)
        for episode, message, seq, taken_back in rows:
            by_episode.setdefault(episode, {})[message] = seq if taken_back is None else None
    return by_episode


def settle(tx: Transaction, session: Session, episode: str, *, first: int, last: int) -> int:
    """Assign the unsettled messages of a range to an episode; return how many."""
    return tx.run(
        "UPDATE message SET episode = :episode WHERE space = :space AND session = :session"
        f" AND seq BETWEEN :first AND :last AND {_UNSETTLED}",
        episode=episode,
        space=session.space.id,
        session=session.id,
        first=first,
        last=last,
    )


def rewind(tx: Transaction, session: Session, *, after: int) -> list[Message]:
    """Mark all messages after a number as rewound; return those that were not rewound before, as they are now."""
    rows = tx.rows(
        f"SELECT {_MESSAGE} FROM message WHERE space = :space AND session = :session AND seq > :after"
        " AND taken_back IS NULL ORDER BY seq",
        space=session.space.id,
        session=session.id,
        after=after,
    )
    tx.run(
        "UPDATE message SET taken_back = :now WHERE space = :space AND session = :session AND seq > :after"
        " AND taken_back IS NULL",
        now=format_time(tx.now),
        space=session.space.id,
        session=session.id,
        after=after,
    )
    return [_message(row)._replace(rewound_at=tx.now) for row in rows]


# --- rows and values


def _session(row: _SessionRow, spaces: SpaceScope, *, unsettled: int) -> Session:
    return Session(
        space=spaces[row.space],
        id=row.id,
        parent=row.parent,
        tags=tuple(json.loads(row.tags)) if row.tags != "[]" else (),
        created=parse_time(row.created),
        closed=parse_time(row.closed) if row.closed else None,
        generation=row.generation,
        last=row.last,
        unsettled=unsettled,
    )


def _message(row: Sequence[Any]) -> Message:
    # Unpacked into locals, as thousands are read at once; `make lint` checks that these are the fields of
    # `_MessageRow`, in its order.
    id_, session, seq, role, author, text, time, client_id, masked, episode, taken_back = row
    return Message(
        id=id_,
        session=session,
        seq=seq,
        role=role,
        author=author,
        text=text,
        time=parse_time(time),
        client_id=client_id,
        masked=masked,
        episode=episode,
        rewound_at=parse_time(taken_back) if taken_back else None,
    )
