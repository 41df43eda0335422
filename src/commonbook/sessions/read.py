"""Lists sessions and reads their messages."""

from __future__ import annotations

from commonbook.access import scope
from commonbook.errors import NotFound
from commonbook.model.session import MessagePage, Session
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.retry_read import retry_read
from commonbook.tables import sessions
from commonbook.text import validation


def no_session(session_id: str) -> NotFound:
    """Return the one error for a session that does not exist or may not be read."""
    return NotFound(f"there is no session {session_id}", fix="`commonbook session list` shows what there is")


def require(tx: Reading, allowed: SpaceScope, session_id: str) -> Session:
    """Return a session of these spaces, or raise `NotFound`."""
    session = sessions.find(tx, allowed, validation.validate_session_id(session_id))
    if session is None:
        raise no_session(session_id)
    return session


@retry_read
def require_readable(engines: Engines, actor: Actor, session_id: str) -> None:
    """Refuse a session that does not exist or may not be read."""
    with engines.db.reading() as tx:
        require(tx, scope.select(tx, actor), session_id)


def list_messages(engines: Engines, actor: Actor, session_id: str, *, after: int, limit: int) -> MessagePage:
    """Return the messages of a session after a sequence number, in order."""
    validation.require_page_limit(limit)
    with engines.db.reading() as tx:
        session = require(tx, scope.select(tx, actor), session_id)
        messages = sessions.messages(tx, session, after=min(max(0, after), session.last), limit=limit + 1)
    following = messages[limit - 1].seq if len(messages) > limit else None
    return MessagePage(session, tuple(messages[:limit]), following)


def list_sessions(engines: Engines, actor: Actor, *, space: str | None, limit: int) -> tuple[Session, ...]:
    """Return the newest sessions."""
    validation.require_page_limit(limit, has_next=False)
    with engines.db.reading() as tx:
        return tuple(sessions.page(tx, scope.select(tx, actor, space), after=None, limit=limit))


@retry_read
def generation(engines: Engines, actor: Actor, session_id: str) -> int:
    """Return the generation of a session: it grows by each switch and rewind; a new session has the first one."""
    with engines.db.reading() as tx:
        session = sessions.find(tx, scope.select(tx, actor), validation.validate_session_id(session_id))
    return session.generation if session else sessions.FIRST_GENERATION
