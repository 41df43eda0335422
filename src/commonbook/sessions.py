"""Sessions and their messages: logs that only grow, each in one order, and what of them episodes hold already."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from commonbook.batches import in_batches
from commonbook.model import Message, Session, Spaces, moment, stamp
from commonbook.ports import Overtaken, Reading, Row, Transaction

_COLUMNS: Final = "id, session, seq, role, author, text, time, client_id, masked, episode, taken_back"
_QUALIFIED: Final = ", ".join(f"message.{name}" for name in _COLUMNS.split(", "))
_OPEN: Final = "episode IS NULL AND taken_back IS NULL"

_FIND: Final = (
    "SELECT session.space, session.id, parent, tags, created, closed, generation, last{also}"
    " FROM session_place JOIN session ON session.space = session_place.space AND session.id = session_place.id"
    " WHERE session_place.id = :id"
)
_IN_IT: Final = (
    "(SELECT {what} FROM message"  # noqa: S608 - our own words
    f" WHERE message.space = session_place.space AND message.session = session_place.id AND {_OPEN})"
)
_COUNTED: Final = _FIND.format(also=f", {_IN_IT.format(what='count(*)')}")
_SAID_BEFORE: Final = (
    "SELECT {what} FROM session_place {joined} message"
    " ON message.space = session_place.space AND message.session = session_place.id"
    " AND message.client_id = :client_id WHERE session_place.id = :id"
)
_BEFORE: Final = _SAID_BEFORE.format(what=f"{_QUALIFIED}, message.sent", joined="JOIN")
# The first that is open comes along, whether there is such a message or not.
_FIRST: Final = _SAID_BEFORE.format(
    what=f"{_QUALIFIED}, message.sent, {_IN_IT.format(what='min(seq)')}", joined="LEFT JOIN"
)

FIRST_GENERATION: Final = 1
"""That of a session before anybody switched or rewound it, and before its first message too."""
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
        created=stamp(session.created),
        closed=None,
        generation=session.generation,
        last=session.last,
    )


def place(tx: Reading, session_id: str) -> str | None:
    """Return the space of a session, whoever may read it; None if there is no such session."""
    row = tx.row("SELECT space FROM session_place WHERE id = :id", id=session_id)
    return str(row[0]) if row else None


def goes_on_from(tx: Reading, session_id: str, other: str) -> bool:
    """Tell whether a session is another, or goes on from it, directly or through others."""
    if session_id == other:
        return True
    # Most sessions have nobody who goes on from them, however long the line before them is.
    if tx.row("SELECT 1 FROM session WHERE parent = :id LIMIT 1", id=other) is None:
        return False
    seen: set[str] = set()
    at: str | None = session_id
    while at is not None and at not in seen:
        seen.add(at)
        row = tx.row(
            "SELECT parent FROM session WHERE id = :id AND space = (SELECT space FROM session_place WHERE id = :id)",
            id=at,
        )
        at = row[0] if row else None
    return other in seen


def find(tx: Reading, spaces: Spaces, session_id: str) -> Session | None:
    """Return a session of the given spaces."""
    row = tx.row(_COUNTED, id=session_id)
    return _session(row, spaces, unsettled=row[8]) if row and row[0] in spaces else None


class Taking:
    """A session that nobody else may change or append to until the transaction ends, and what came before in it.

    All is asked for at once, and waited for when somebody looks. `client_ids` are those under which messages may have
    come before.
    """

    def __init__(
        self,
        tx: Transaction,
        session_id: str,
        client_ids: Iterable[str] = (),
        *,
        rows: Callable[[], list[Row]] | None = None,
    ) -> None:
        """Ask; `rows` is what was asked for already, if it was."""
        locking = f"{tx.locking} OF session" if tx.locking else ""
        self._rows = rows or tx.ask(_FIND.format(also="") + locking, id=session_id)
        first, *others = dict.fromkeys(client_ids) or [None]
        # Asked behind the lock: a statement that waited for it sees messages as they were before it waited.
        self._first = tx.ask(_FIRST, id=session_id, client_id=first)
        # One by one, each by its key: asked for together, all of the session might be read for them.
        self._others = [tx.ask(_BEFORE, id=session_id, client_id=other) for other in others]

    def session(self, spaces: Spaces) -> Session | None:
        """Return the session, if there is one, in spaces of which its own must be one, if they are all.

        Nobody counts what is unsettled in it: from the first such message on, all count.
        """
        for row in self._rows():
            if row[0] not in spaces:
                raise Overtaken
            open_from = self._first()[0][12]
            return _session(row, spaces, unsettled=row[7] - open_from + 1 if open_from else 0)
        return None

    def repeated(self) -> dict[str, tuple[Message, str]]:
        """Return what came before under the client ids, each message with the hash of what was sent then."""
        rows = [row for asked in (self._first, *self._others) for row in asked()]
        return {row[7]: (_message(row), row[11]) for row in rows if row[0] is not None}


def take_free(
    tx: Transaction, spaces: Sequence[str], wanted: Mapping[str, Iterable[str]], *, patient: bool = True
) -> Callable[[], dict[tuple[str, str], Taking]]:
    """Take sessions, each with the client ids that are looked for, and return what waits for them.

    Only those come back, by space and id, that are in these spaces and held by nobody else. If one is not `patient`,
    nothing else is waited for in this transaction either.
    """
    hurrying = "" if patient else tx.hurrying
    asked = tx.ask(
        f"SELECT space, id, parent, tags, created, closed, generation, last{hurrying} FROM session"  # noqa: S608 - our own words
        f" WHERE space IN :spaces AND id IN :ids{tx.claiming}",
        spaces=tuple(spaces),
        ids=tuple(wanted),
    )
    rows: dict[str, list[Row]] = {}
    takings = {id_: Taking(tx, id_, ids, rows=partial(rows.__getitem__, id_)) for id_, ids in wanted.items()}

    def taken() -> dict[tuple[str, str], Taking]:
        rows.update({row[1]: [row] for row in asked()})
        return {(row[0], row[1]): takings[row[1]] for (row,) in rows.values()}

    return taken


def hold(tx: Transaction, ids: Iterable[str]) -> set[str]:
    """Let nobody else change these sessions or append to them until the transaction ends; what is read then holds.

    Whoever needs several takes them in one order. Return the spaces that they are in, where there was anything to hold.
    """
    if not tx.locking:
        return set()
    rows = tx.rows(
        "SELECT session.space FROM session_place JOIN session"  # noqa: S608 - our own words
        " ON session.space = session_place.space AND session.id = session_place.id"
        f" WHERE session_place.id IN :ids ORDER BY session.id{tx.locking} OF session",
        ids=sorted(set(ids)),
    )
    return {row[0] for row in rows}


def page(tx: Reading, spaces: Spaces, *, after: tuple[str, str] | None, limit: int) -> list[Session]:
    """Return the newest sessions of the given spaces, after a cursor (created, id)."""
    if not spaces:
        return []
    created, session_id = after or ("~", "")
    rows = tx.rows(
        "SELECT space, id, parent, tags, created, closed, generation, last FROM session WHERE space IN :spaces"
        " AND (created, id) < (:created, :id) ORDER BY created DESC, id DESC LIMIT :limit",
        spaces=tuple(spaces),
        limit=limit,
        created=created,
        id=session_id,
    )
    return [_session(row, spaces, unsettled=count_open(tx, row[0], row[1])) for row in rows]


def count_open(tx: Reading, space: str, session_id: str) -> int:
    """Return how many messages of a session no episode holds yet."""
    row = tx.row(
        f"SELECT count(*) FROM message WHERE space = :space AND session = :session AND {_OPEN}",  # noqa: S608 - our own words
        space=space,
        session=session_id,
    )
    return int(row[0]) if row else 0


def counts(tx: Reading, spaces: Spaces) -> tuple[int, int, int]:
    """Return how many sessions there are, how many messages, and how many of those no episode holds yet."""
    if not spaces:
        return 0, 0, 0
    found = [
        tx.row(f"SELECT count(*) FROM {table} WHERE space IN :spaces{also}", spaces=tuple(spaces))  # noqa: S608 - our own words
        for table, also in (("session", ""), ("message", ""), ("message", f" AND {_OPEN}"))
    ]
    sessions, messages, unsettled = (int(row[0]) if row else 0 for row in found)
    return sessions, messages, unsettled


def close(tx: Transaction, session: Session, at: datetime | None) -> None:
    """Close a session, or open it again."""
    tx.run(
        "UPDATE session SET closed = :closed WHERE space = :space AND id = :id",
        closed=stamp(at) if at else None,
        space=session.space.id,
        id=session.id,
    )


def next_generation(tx: Transaction, session: Session) -> int:
    """Begin a new generation: what was fetched in advance for the one before is void."""
    tx.run(
        "UPDATE session SET generation = generation + 1 WHERE space = :space AND id = :id",
        space=session.space.id,
        id=session.id,
    )
    return session.generation + 1


# --- messages


def append(tx: Transaction, session: Session, messages: Sequence[tuple[Message, str | None]]) -> None:
    """Add messages behind the last one, each with the hash of what was sent under its client id."""
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
                "time": stamp(message.time),
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
    """Return the messages of a session behind a number, in order, those that were taken back too."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM message WHERE space = :space AND session = :session AND seq > :after"  # noqa: S608 - our own words
        " ORDER BY seq LIMIT :limit",
        space=session.space.id,
        session=session.id,
        after=after,
        limit=limit,
    )
    return [_message(row) for row in rows]


def numbers(tx: Reading, session: Session) -> frozenset[int]:
    """Return the numbers of all messages of a session."""
    rows = tx.rows(
        "SELECT seq FROM message WHERE space = :space AND session = :session",
        space=session.space.id,
        session=session.id,
    )
    return frozenset(row[0] for row in rows)


def unsettled(tx: Reading, session: Session) -> list[Message]:
    """Return the messages of a session that no episode holds yet, in order."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM message WHERE space = :space AND session = :session AND {_OPEN} ORDER BY seq",  # noqa: S608 - our own words
        space=session.space.id,
        session=session.id,
    )
    return [_message(row) for row in rows]


def several(tx: Reading, spaces: Spaces, ids: Sequence[str]) -> dict[str, tuple[Message, str]]:
    """Return those of the messages that are in the given spaces, with their space, by id."""
    found: dict[str, tuple[Message, str]] = {}
    for some in in_batches(ids, _IDS_PER_QUERY):
        rows = tx.rows(f"SELECT {_COLUMNS}, space FROM message WHERE id IN :ids", ids=some)  # noqa: S608 - our own words
        found |= {row[0]: (_message(row), row[11]) for row in rows if row[11] in spaces}
    return found


def tags_of(tx: Reading, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the tags of some sessions."""
    found: dict[str, tuple[str, ...]] = {}
    for some in in_batches(ids, _IDS_PER_QUERY):
        rows = tx.rows(
            "SELECT session.id, session.tags FROM session_place CROSS JOIN session"
            " WHERE session_place.id IN :ids AND session.space = session_place.space AND session.id = session_place.id",
            ids=some,
        )
        found |= {row[0]: tuple(json.loads(row[1])) for row in rows}
    return found


def held_by(tx: Reading, episodes: Sequence[str]) -> dict[str, dict[str, int | None]]:
    """Return the numbers of the messages that each of these episodes holds, by id; None for one taken back."""
    found: dict[str, dict[str, int | None]] = {}
    for some in in_batches(episodes, _IDS_PER_QUERY):
        rows = tx.rows("SELECT episode, id, seq, taken_back FROM message WHERE episode IN :episodes", episodes=some)
        for episode, message, seq, taken_back in rows:
            found.setdefault(episode, {})[message] = seq if taken_back is None else None
    return found


def settle(tx: Transaction, session: Session, episode: str, *, first: int, last: int) -> int:
    """Let an episode hold a run of messages that none holds yet; return how many there were."""
    return tx.run(
        "UPDATE message SET episode = :episode WHERE space = :space AND session = :session"  # noqa: S608 - our own words
        f" AND seq BETWEEN :first AND :last AND {_OPEN}",
        episode=episode,
        space=session.space.id,
        session=session.id,
        first=first,
        last=last,
    )


def take_back(tx: Transaction, session: Session, *, after: int) -> list[Message]:
    """Mark every message behind a number as taken back; return those that were not before, as they are now."""
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM message WHERE space = :space AND session = :session AND seq > :after"  # noqa: S608 - our own words
        " AND taken_back IS NULL ORDER BY seq",
        space=session.space.id,
        session=session.id,
        after=after,
    )
    tx.run(
        "UPDATE message SET taken_back = :now WHERE space = :space AND session = :session AND seq > :after"
        " AND taken_back IS NULL",
        now=stamp(tx.now),
        space=session.space.id,
        session=session.id,
        after=after,
    )
    return [_message(row)._replace(taken_back=tx.now) for row in rows]


# --- rows and values


def _session(row: Row, spaces: Spaces, *, unsettled: int) -> Session:
    return Session(
        space=spaces[row[0]],
        id=row[1],
        parent=row[2],
        tags=tuple(json.loads(row[3])) if row[3] != "[]" else (),
        created=moment(row[4]),
        closed=moment(row[5]) if row[5] else None,
        generation=row[6],
        last=row[7],
        unsettled=unsettled,
    )


def _message(row: Row) -> Message:
    return Message(
        id=row[0],
        session=row[1],
        seq=row[2],
        role=row[3],
        author=row[4],
        text=row[5],
        time=moment(row[6]),
        client_id=row[7],
        masked=row[8],
        episode=row[9],
        taken_back=moment(row[10]) if row[10] else None,
    )
