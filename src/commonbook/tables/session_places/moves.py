"""Moved sessions: a row of `session` whose generation is -1 says that the session of this name is in another space now.

The move leaves this row behind, with the new key as its parent, and the principal that moved it in place of the tags.
So appends, settlements and repeats that name the old space find the session, and a transaction that waited for the lock
of the row sees that the session has moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from commonbook.model.ids import format_time
from commonbook.model.session import Session
from commonbook.ports.database import Reading, Transaction
from commonbook.tables.sessions import MOVED_GENERATION, SessionKey, present_key


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


def forget(tx: Transaction, key: SessionKey) -> None:
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
    forget(tx, (to, session.id))
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
