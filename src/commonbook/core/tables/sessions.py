"""Sessions and their messages: the tables `session` and `message`.

A session belongs to a space: the key of its row is (space, id), where `id` is the name that its users gave it. A row of
`session` is an append-only log of messages with a generation, which grows when the session is switched or rewound. Its
parent is keyed in the same way, by `parent_space` and `parent`. A row of `message` is one message, numbered by `seq`
within its session; `episode` is the memory that holds it once it is settled, and `taken_back` the time at which it was
rewound. A message with neither is unsettled. A client id identifies a message of a session, so that a repeat is
recognised.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from commonbook.ports.database import Reading, RetryTransaction, Row, Transaction
from commonbook.runtime import in_batches
from commonbook.values.ids import format_time, parse_time
from commonbook.values.session import Message, Session
from commonbook.values.spaces import SpaceScope


class _SessionRow(NamedTuple):
    """A row of the table `session`: the fields are the columns, in the order of every SELECT."""

    space: str
    id: str
    parent_space: str | None
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
_OF_SESSION: Final = "space = :space AND session = :session"

_FIND: Final = f"SELECT {{also}}{_SESSION} FROM session WHERE {{where}}"
_EXISTS: Final = "session.generation >= 0"
_BY_KEY: Final = "session.space = :space AND session.id = :id"
_OPEN_MESSAGES: Final = (
    "(SELECT {columns} FROM message"
    f" WHERE message.space = session.space AND message.session = session.id AND {_UNSETTLED})"
)
_COUNT: Final = f"{_OPEN_MESSAGES.format(columns='count(*)')}, "
# LEFT JOIN: the number of the first unsettled message is selected even if no message has the client id.
_FIRST_UNSETTLED_AND_REPEAT: Final = (
    f"SELECT {_OPEN_MESSAGES.format(columns='min(seq)')}, message.sent, {_MESSAGE} FROM session"
    " LEFT JOIN message ON message.space = session.space AND message.session = session.id"
    f" AND message.client_id = :client_id WHERE {_BY_KEY}"
)

FIRST_GENERATION: Final = 1
"""The generation of a session that was never switched or rewound, even before its first message."""
MOVED_GENERATION: Final = -1
"""Marks a row that says to which space a session was moved (`core.tables.sessions`)."""
RESTORED_GENERATION: Final = 0
"""The generation of a session that was restored from files, until somebody appends to it, switches or rewinds it."""
SENT_OTHERWISE: Final = "?"
"""Stands in place of the hash of what was sent, if a message was edited before it was exported to this book."""
_IDS_PER_QUERY: Final = 500

SessionKey: TypeAlias = tuple[str, str]
"""The id of a session's space, and the session's own id."""


# --- sessions


def add(tx: Transaction, session: Session, *, parent: SessionKey | None = None) -> None:
    """Add a session, with the key of its parent if it has one."""
    parent_space, parent_id = parent or (None, None)
    tx.run(
        "INSERT INTO session (space, id, parent_space, parent, tags, created, closed, generation, last)"
        " VALUES (:space, :id, :parent_space, :parent, :tags, :created, :closed, :generation, :last)",
        space=session.space.id,
        id=session.id,
        parent_space=parent_space,
        parent=parent_id,
        tags=json.dumps(session.tags, ensure_ascii=False),
        created=format_time(session.created),
        closed=None,
        generation=session.generation,
        last=session.last,
    )


def find(tx: Reading, spaces: SpaceScope, key: SessionKey) -> Session | None:
    """Return a session of the given spaces, or None."""
    space, session_id = key
    if space not in spaces:
        return None
    row = tx.row(_FIND.format(also=_COUNT, where=f"{_BY_KEY} AND {_EXISTS}"), space=space, id=session_id)
    return _session_with_count(row, spaces) if row else None


def find_by_name(tx: Reading, spaces: SpaceScope, session_id: str) -> list[Session]:
    """Return the sessions of this name in the given spaces, by the names of their spaces."""
    rows = tx.rows(_FIND.format(also=_COUNT, where=f"session.id = :id AND {_EXISTS}"), id=session_id)
    found = [_session_with_count(row, spaces) for row in rows]
    return sorted((session for session in found if session), key=lambda session: session.space.name)


def _session_with_count(row: Row, spaces: SpaceScope) -> Session | None:
    unsettled, *columns = row
    session = _SessionRow._make(columns)
    return _session(session, spaces, unsettled=unsettled) if session.space in spaces else None


def present_key(tx: Reading, key: SessionKey) -> SessionKey:
    """Return the key under which a session is now: the same one, unless it was moved, once or several times."""
    seen: set[SessionKey] = set()
    while key not in seen:
        seen.add(key)
        moved = "SELECT parent_space, parent FROM session WHERE space = :space AND id = :id AND generation = -1"
        parent_space, parent = tx.row(moved, space=key[0], id=key[1]) or key
        key = parent_space, parent
    return key


class LockedSession:
    """A session whose row is locked until the transaction ends, with the messages that are repeats.

    `lock_session` and `read_locked` make one.
    """

    def __init__(self, row: Row | None) -> None:
        """Keep the row of the session, None if there is none."""
        self._row = _SessionRow._make(row) if row else None
        self._open_from: int | None = None
        self._repeats: list[Row] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Add what was read for one client id."""
        for open_from, *repeat in rows:
            self._open_from = open_from
            self._repeats.append(tuple(repeat))

    def session(self, spaces: SpaceScope) -> Session | None:
        """Return the session, or None if there is none; RetryTransaction if its space is not among the spaces.

        `spaces` has all spaces that the transaction knows. `unsettled` is not counted: all messages from the first
        unsettled one on count as unsettled.
        """
        row = self._row
        if row is None or self.is_moved:
            return None
        if row.space not in spaces:
            raise RetryTransaction
        return _session(row, spaces, unsettled=row.last - self._open_from + 1 if self._open_from else 0)

    @property
    def is_moved(self) -> bool:
        """Whether the session of this name was moved into another space."""
        return self._row is not None and self._row.generation == MOVED_GENERATION

    def repeated(self) -> dict[str, tuple[Message, str | None]]:
        """Return the messages that have the client ids, by client id, each with the hash of what was sent if known."""
        messages = [(_MessageRow._make(columns), sent) for sent, *columns in self._repeats]
        # Without a message of that client id, its columns are all NULL.
        return {row.client_id: (_message(row), sent) for row, sent in messages if row.client_id is not None}


def lock_session(tx: Transaction, key: SessionKey, client_ids: Iterable[str] = ()) -> LockedSession:
    """Lock a session; `client_ids` are those of messages that may have been appended before."""
    rows = tx.lock_rows(_FIND.format(also="", where=_BY_KEY), space=key[0], id=key[1])
    return read_locked(tx, {key: next(iter(rows), None)}, {key: client_ids})[key]


def read_locked(
    tx: Transaction, rows: Mapping[SessionKey, Row | None], client_ids: Mapping[SessionKey, Iterable[str]]
) -> dict[SessionKey, LockedSession]:
    """Read the messages of sessions whose rows are locked: what was read before the lock could have changed."""
    locked = {key: LockedSession(row) for key, row in rows.items()}
    # One query for each client id: one query for all of them might read the whole session.
    wanted = [(key, client_id) for key in rows for client_id in dict.fromkeys(client_ids[key]) or [None]]
    params = [{"space": space, "id": session_id, "client_id": client_id} for (space, session_id), client_id in wanted]
    for (key, _), found in zip(wanted, tx.rows_many(_FIRST_UNSETTLED_AND_REPEAT, params), strict=True):
        locked[key].add(found)
    return locked


def lock_available(tx: Transaction, keys: Collection[SessionKey]) -> dict[SessionKey, Row | None]:
    """Lock those of these sessions that nobody else has locked; return their rows, None for those that do not exist."""
    spaces = tuple(sorted({space for space, _ in keys}))
    ids = tuple(sorted({session_id for _, session_id in keys}))
    query = f"SELECT {_SESSION} FROM session WHERE space IN :spaces AND id IN :ids"
    rows = map(_SessionRow._make, tx.lock_rows(query, if_free=True, spaces=spaces, ids=ids))
    found: dict[SessionKey, Row | None] = {(row.space, row.id): row for row in rows}
    if not found.keys() >= set(keys):
        existing = {(row.space, row.id) for row in map(_SessionRow._make, tx.rows(query, spaces=spaces, ids=ids))}
        found |= dict.fromkeys(set(keys) - existing)
    return {key: found[key] for key in keys if key in found}


def lock(tx: Transaction, keys: Iterable[SessionKey]) -> None:
    """Lock the rows of these sessions until the transaction ends, in the order of their keys."""
    for space, session_id in sorted(set(keys)):
        tx.lock_rows("SELECT 1 FROM session WHERE space = :space AND id = :id", space=space, id=session_id)


def page(tx: Reading, spaces: SpaceScope, *, after: tuple[str, str] | None, limit: int) -> list[Session]:
    """Return the newest sessions of the given spaces, after a cursor (created, id)."""
    if not spaces:
        return []
    created, session_id = after or ("~", "")
    rows = tx.rows(
        f"SELECT {_SESSION} FROM session WHERE space IN :spaces AND {_EXISTS}"
        " AND (created, id) < (:created, :id) ORDER BY created DESC, id DESC, space LIMIT :limit",
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
        for table, also in (("session", f" AND {_EXISTS}"), ("message", ""), ("message", f" AND {_UNSETTLED}"))
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
    """Append messages, each with the hash of what was sent under its client id; a restored session is none any more."""
    _insert(tx, session, messages)
    tx.run_many(
        "UPDATE session SET last = :last, generation = CASE WHEN generation = 0 THEN 1 ELSE generation END"
        " WHERE space = :space AND id = :id AND last < :last",
        [{"last": messages[-1][0].seq, "space": session.space.id, "id": session.id}],
    )


def restore(tx: Transaction, session: Session, messages: Sequence[tuple[Message, str | None]]) -> None:
    """Add messages that a file has kept, in the order of their numbers, each with a hash of what was sent, if known."""
    _insert(tx, session, messages)
    update = "UPDATE session SET last = :last WHERE space = :space AND id = :id AND last < :last"
    tx.run(update, last=messages[-1][0].seq, space=session.space.id, id=session.id)


def _insert(tx: Transaction, session: Session, messages: Sequence[tuple[Message, str | None]]) -> None:
    tx.run_many(
        "INSERT INTO message (space, session, seq, id, role, author, text, time, client_id, sent, masked, episode,"
        " taken_back) VALUES (:space, :session, :seq, :id, :role, :author, :text, :time, :client_id, :sent, :masked,"
        " :episode, :taken_back)",
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
                "taken_back": format_time(message.rewound_at) if message.rewound_at else None,
            }
            for message, sent in messages
        ],
    )


def messages(tx: Reading, session: Session, *, after: int = 0, limit: int = 500) -> list[Message]:
    """Return the messages of a session after a number, in order, rewound ones too."""
    rows = tx.rows(
        f"SELECT {_MESSAGE} FROM message WHERE {_OF_SESSION} AND seq > :after ORDER BY seq LIMIT :limit",
        **_key(session),
        after=after,
        limit=limit,
    )
    return [_message(row) for row in rows]


def number_before_last(tx: Reading, session: Session, count: int) -> int:
    """Return the number of the message before the last so many that are not rewound; -1 if there is none."""
    row = tx.row(
        f"SELECT seq FROM message WHERE {_OF_SESSION} AND taken_back IS NULL ORDER BY seq DESC LIMIT 1 OFFSET :count",
        **_key(session),
        count=count,
    )
    (number,) = row or (-1,)
    return int(number)


def sequence_numbers(tx: Reading, session: Session) -> frozenset[int]:
    """Return the numbers of all messages of a session."""
    rows = tx.rows(f"SELECT seq FROM message WHERE {_OF_SESSION}", **_key(session))
    return frozenset(seq for (seq,) in rows)


def sent_hashes(tx: Reading, session: Session, *, first: int, last: int) -> dict[str, str]:
    """Return the hashes of what was sent under client ids, by message, for those between two numbers."""
    query = f"SELECT id, sent FROM message WHERE {_OF_SESSION} AND seq BETWEEN :first AND :last AND sent IS NOT NULL"
    return dict(tx.rows(query, **_key(session), first=first, last=last))


def unsettled(tx: Reading, session: Session) -> list[Message]:
    """Return the unsettled messages of a session, in order."""
    query = f"SELECT {_MESSAGE} FROM message WHERE {_OF_SESSION} AND {_UNSETTLED} ORDER BY seq"
    rows = tx.rows(query, **_key(session))
    return [_message(row) for row in rows]


def get_many(tx: Reading, spaces: SpaceScope, ids: Sequence[str]) -> dict[str, tuple[Message, str]]:
    """Return those of the messages that are in the given spaces, with their space, by id."""
    messages: dict[str, tuple[Message, str]] = {}
    for batch in in_batches(ids, _IDS_PER_QUERY):
        rows = tx.rows(f"SELECT message.space, {_MESSAGE} FROM message WHERE id IN :ids", ids=batch)
        readable = [(_message(columns), space) for space, *columns in rows if space in spaces]
        messages |= {message.id: (message, space) for message, space in readable}
    return messages


def tags_of(tx: Reading, keys: Iterable[SessionKey]) -> dict[SessionKey, tuple[str, ...]]:
    """Return the tags of these sessions."""
    ids_by_space: dict[str, set[str]] = {}
    for space, session_id in keys:
        ids_by_space.setdefault(space, set()).add(session_id)
    tags_by_session: dict[SessionKey, tuple[str, ...]] = {}
    for space, ids in ids_by_space.items():
        for batch in in_batches(sorted(ids), _IDS_PER_QUERY):
            rows = tx.rows("SELECT id, tags FROM session WHERE space = :space AND id IN :ids", space=space, ids=batch)
            tags_by_session |= {(space, session_id): tuple(json.loads(tags)) for session_id, tags in rows}
    return tags_by_session


def messages_of_episodes(tx: Reading, episodes: Mapping[str, str]) -> dict[str, dict[str, int | None]]:
    """Return the numbers of the messages that each episode holds, by id; None for a rewound message.

    `episodes` are given with their spaces. An episode that was moved away from its session has none: what happens in
    the session's space does not reach it any more.
    """
    by_episode: dict[str, dict[str, int | None]] = {}
    for batch in in_batches(list(episodes), _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT space, episode, id, seq, taken_back FROM message WHERE episode IN :episodes", episodes=batch
        )
        for space, episode, message, seq, taken_back in rows:
            if episodes[episode] == space:
                by_episode.setdefault(episode, {})[message] = seq if taken_back is None else None
    return by_episode


def settle_known(tx: Transaction, session: Session, episode: str, ids: Iterable[str]) -> None:
    """Assign these unsettled messages of a session to an episode."""
    tx.run_many(
        "UPDATE message SET episode = :episode WHERE space = :space AND session = :session AND id = :id"
        f" AND {_UNSETTLED}",
        [{"episode": episode, "space": session.space.id, "session": session.id, "id": id_} for id_ in ids],
    )


def settle(tx: Transaction, session: Session, episode: str, *, first: int, last: int) -> int:
    """Assign the unsettled messages of a range to an episode; return how many."""
    return tx.run(
        "UPDATE message SET episode = :episode WHERE space = :space AND session = :session"
        f" AND seq BETWEEN :first AND :last AND {_UNSETTLED}",
        episode=episode,
        **_key(session),
        first=first,
        last=last,
    )


def rewind(tx: Transaction, session: Session, *, after: int) -> list[Message]:
    """Mark all messages after a number as rewound; return those that were not rewound before, as they are now."""
    rows = tx.rows(
        f"SELECT {_MESSAGE} FROM message WHERE {_OF_SESSION} AND seq > :after AND taken_back IS NULL ORDER BY seq",
        **_key(session),
        after=after,
    )
    tx.run(
        f"UPDATE message SET taken_back = :now WHERE {_OF_SESSION} AND seq > :after AND taken_back IS NULL",
        now=format_time(tx.now),
        **_key(session),
        after=after,
    )
    return [_message(row)._replace(rewound_at=tx.now) for row in rows]


# --- rows and values


def _key(session: Session) -> dict[str, str]:
    """Return the parameters of a query for the messages of a session."""
    return {"space": session.space.id, "session": session.id}


def _session(row: _SessionRow, spaces: SpaceScope, *, unsettled: int) -> Session:
    # A parent in a space that the reader may not read is not shown, as if there were none.
    parent_space = spaces.get(row.parent_space) if row.parent_space else None
    return Session(
        space=spaces[row.space],
        id=row.id,
        parent=row.parent if parent_space else None,
        parent_space=parent_space.name if parent_space else None,
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


def descends_from(tx: Reading, session: SessionKey, other: SessionKey) -> bool:
    """Tell whether a session is another one, or continues it directly or through others."""
    if session == other:
        return True
    # Most sessions have no successor, however many predecessors they have.
    space, session_id = other
    successor = "SELECT 1 FROM session WHERE parent_space = :space AND parent = :id LIMIT 1"
    if tx.row(successor, space=space, id=session_id) is None:
        return False
    seen: set[SessionKey] = set()
    current: SessionKey | None = session
    while current is not None and current not in seen:
        seen.add(current)
        space, session_id = current
        parent_space, parent = tx.row(
            "SELECT parent_space, parent FROM session WHERE space = :space AND id = :id", space=space, id=session_id
        ) or (None, None)
        current = (parent_space, parent) if parent_space and parent else None
    return other in seen


def moved_from(tx: Reading, spaces: Iterable[str], session_id: str) -> list[SessionKey]:
    """Return the present keys of the sessions of this name that were moved out of these spaces."""
    rows = tx.rows(
        "SELECT space FROM session WHERE id = :id AND generation = :moved", id=session_id, moved=MOVED_GENERATION
    )
    wanted = set(spaces)
    return [present_key(tx, (space, session_id)) for (space,) in rows if space in wanted]


def movers(tx: Reading, key: SessionKey) -> list[tuple[str, str]]:
    """Return the spaces that a session has left since it had this key, each with the principal that moved it out."""
    found: list[tuple[str, str]] = []
    seen: set[SessionKey] = set()
    while key not in seen:
        seen.add(key)
        row = tx.row(
            "SELECT parent_space, parent, tags FROM session WHERE space = :space AND id = :id AND generation = :moved",
            space=key[0],
            id=key[1],
            moved=MOVED_GENERATION,
        )
        if row is None:
            break
        parent_space, parent, tags = row
        found += [(key[0], principal) for principal in json.loads(tags)]
        key = parent_space, parent
    return found


def forget_move(tx: Transaction, key: SessionKey) -> None:
    """Forget that a session of this name was moved away, since there is one of this name again."""
    tx.run(
        "DELETE FROM session WHERE space = :space AND id = :id AND generation = :moved",
        space=key[0],
        id=key[1],
        moved=MOVED_GENERATION,
    )


def move(tx: Transaction, session: Session, to: str, *, by: str) -> int:
    """Move the rows of a session and of its messages into another space, as a new generation; return how many messages.

    The caller has made sure that the space has no session of this name.
    """
    key = {"space": session.space.id, "id": session.id}
    forget_move(tx, (to, session.id))
    tx.run(
        "INSERT INTO session (space, id, parent_space, parent, tags, created, closed, generation, last)"
        " SELECT :to, id, parent_space, parent, tags, created, closed, generation + 1, last FROM session"
        " WHERE space = :space AND id = :id",
        to=to,
        **key,
    )
    tx.run(
        "UPDATE session SET generation = :moved, parent_space = :to, parent = id, tags = :by, closed = :now, last = 0"
        " WHERE space = :space AND id = :id",
        moved=MOVED_GENERATION,
        to=to,
        by=json.dumps([by], ensure_ascii=False),
        now=format_time(tx.now),
        **key,
    )
    return tx.run("UPDATE message SET space = :to WHERE space = :space AND session = :id", to=to, **key)


def episodes(tx: Reading, session: Session) -> list[str]:
    """Return the ids of the episodes that hold messages of a session, also rewound ones."""
    rows = tx.rows(
        "SELECT DISTINCT episode FROM message WHERE space = :space AND session = :id AND episode IS NOT NULL"
        " ORDER BY episode",
        space=session.space.id,
        id=session.id,
    )
    return [episode for (episode,) in rows]


def rewound_elsewhere(tx: Reading, episode: str, space: str) -> frozenset[str]:
    """Return the rewound messages of an episode in this space whose session is in another one."""
    rows = tx.rows(
        "SELECT id FROM message WHERE episode = :episode AND space <> :space AND taken_back IS NOT NULL",
        episode=episode,
        space=space,
    )
    return frozenset(message for (message,) in rows)


def space_of_episode(tx: Reading, episode: str) -> str | None:
    """Return the space of the session whose messages an episode holds; None if it holds none."""
    rows = tx.rows("SELECT space FROM message WHERE episode = :episode LIMIT 1", episode=episode)
    return next((space for (space,) in rows), None)
