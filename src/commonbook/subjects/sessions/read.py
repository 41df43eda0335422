"""Finds sessions by their names, lists them and reads their messages.

A session belongs to its space. A call that names no space means the only session of that name that the actor may reach;
where there are several, it is refused as ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

from commonbook.core.access import permissions
from commonbook.core.tables import memories, sessions, spaces
from commonbook.core.tables.sessions import SessionKey
from commonbook.core.text import validation
from commonbook.errors import Ambiguous, NotFound
from commonbook.ports.database import Reading, retry_read
from commonbook.ports.engines import Engines
from commonbook.values.session import Message, MessagePage, Session
from commonbook.values.spaces import Actor, SpaceScope


def no_session(session_id: str) -> NotFound:
    """Return the one error for a session that does not exist or may not be read."""
    return NotFound(f"there is no session {session_id}", fix="`commonbook session list` shows what there is")


def find_readable(tx: Reading, actor: Actor, session_id: str, space: str | None) -> Session | None:
    """Return the session of this name in a space; without a space, the only one that the actor may read.

    None if there is none, `Ambiguous` if there are several.
    """
    allowed = permissions.select(tx, actor, space)
    found = sessions.find_by_name(tx, allowed, validation.validate_session_id(session_id))
    return _only(found or _moved_from(tx, actor, allowed, session_id))


def require_readable(tx: Reading, actor: Actor, session_id: str, space: str | None) -> Session:
    """Return the session that `find_readable` finds; NotFound if there is none."""
    session = find_readable(tx, actor, session_id, space)
    if session is None:
        raise no_session(session_id)
    return session


def _moved_from(tx: Reading, actor: Actor, selected: SpaceScope, session_id: str) -> list[Session]:
    """Return the readable sessions of this name that were moved out of the given spaces."""
    readable = permissions.select(tx, actor)
    keys = dict.fromkeys(sessions.moved_from(tx, selected, session_id))
    return [session for key in keys if (session := sessions.find(tx, readable, key))]


def _only(found: Sequence[Session]) -> Session | None:
    if len(found) > 1:
        names = ", ".join(session.space.name for session in found)
        raise Ambiguous(
            f"there are sessions {found[0].id} in several spaces: {names}", fix="name the space of the one you mean"
        )
    return found[0] if found else None


@retry_read
def locate_writable(engines: Engines, actor: Actor, session_id: str, *, space: str | None, default: str) -> SessionKey:
    """Return the key of the existing session that a write means, which creates none.

    Without a space it is the session in the default space, else the only one of that name that the actor may write to.
    A session that is moved meanwhile is found under this key all the same (`core.tables.sessions`).
    """
    session_id = validation.validate_session_id(session_id)
    with engines.db.reading() as tx:
        readable = permissions.select(tx, actor, space)
        found = sessions.find_by_name(tx, readable, session_id) or _moved_from(tx, actor, readable, session_id)
        writable = permissions.writable(tx, actor.recording(), spaces.get_all(tx))
    session = next((session for session in found if space is None and session.space.name == default), None)
    session = session or _only([session for session in found if session.space.id in writable])
    if session is None and not found:
        raise no_session(session_id)
    if session is None or session.space.id not in writable:
        raise permissions.refusal(actor, (session or found[0]).space.name)
    return session.space.id, session.id


def list_messages(
    engines: Engines, actor: Actor, session_id: str, *, space: str | None, after: int, limit: int
) -> MessagePage:
    """Return the messages of a session after a sequence number, in order."""
    validation.require_page_limit(limit)
    with engines.db.reading() as tx:
        session = require_readable(tx, actor, session_id, space)
        messages = sessions.messages(tx, session, after=min(max(0, after), session.last), limit=limit + 1)
        items = without_hidden_episodes(tx, permissions.select(tx, actor), messages[:limit])
    following = messages[limit - 1].seq if len(messages) > limit else None
    return MessagePage(session, items, following)


def without_hidden_episodes(tx: Reading, readable: SpaceScope, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return messages without the ids of episodes that may not be read: they were moved into another space."""
    episodes = memories.spaces_of(tx, sorted({message.episode for message in messages if message.episode}))
    hidden = {episode for episode, space in episodes.items() if space not in readable}
    return tuple(message._replace(episode=None) if message.episode in hidden else message for message in messages)


def list_sessions(engines: Engines, actor: Actor, *, space: str | None, limit: int) -> tuple[Session, ...]:
    """Return the newest sessions."""
    validation.require_page_limit(limit, has_next=False)
    with engines.db.reading() as tx:
        return tuple(sessions.page(tx, permissions.select(tx, actor, space), after=None, limit=limit))


@retry_read
def generation(engines: Engines, actor: Actor, session_id: str, *, space: str | None, default: str) -> tuple[str, int]:
    """Return the space of a session and its generation, which grows by each switch and rewind.

    A session that does not exist yet has the first generation, in the space that was named or in the default one.
    """
    with engines.db.reading() as tx:
        session = find_readable(tx, actor, session_id, space)
    return (session.space.name, session.generation) if session else (space or default, sessions.FIRST_GENERATION)
