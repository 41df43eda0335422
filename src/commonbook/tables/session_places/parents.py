"""Parents of sessions: the sessions that others continue, by the keys in the table `session`."""

from __future__ import annotations

from commonbook.ports.database import Reading
from commonbook.tables.sessions import SessionKey


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
