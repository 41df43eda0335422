"""Finds the session of an append or a switch, locked for the transaction, or creates it."""

from __future__ import annotations

from typing import NamedTuple

from commonbook.access import permissions
from commonbook.errors import BadInput, Conflict
from commonbook.model.session import Session
from commonbook.model.spaces import Actor, Space
from commonbook.ports.database import Reading, RetryTransaction
from commonbook.sessions.read import no_session
from commonbook.tables import sessions
from commonbook.tables.sessions import SessionKey
from commonbook.text import masking, space_names, validation
from commonbook.write.context import WriteContext


class NewSessionOptions(NamedTuple):
    """The space of a session, and its properties if it is new: the session that it continues (parent), its tags."""

    space: str
    parent: str | None = None
    parent_space: str | None = None
    """The id of the space of the parent; None if it is the space of the session."""
    tags: tuple[str, ...] = ()


def key_for_append(ctx: WriteContext, key: SessionKey) -> SessionKey:
    """Return the key of the session that messages to this one go to: it may have been moved into another space.

    A move counts as long as the principal that made it may write to the space that the session has left. Otherwise it
    could lead the messages of others away after its right has ended, and a new session begins in that space.
    """
    present = sessions.present_key(ctx.tx, key)
    if present == key:
        return key
    for space, principal in sessions.movers(ctx.tx, key):
        if not ctx.permissions_of(Actor(principal)).may_write(ctx.spaces[space], ctx.spaces):
            sessions.forget_move(ctx.tx, key)
            return key
    return present


def reopen(ctx: WriteContext, session: Session) -> None:
    """Open a session again if it is closed."""
    if session.closed is not None:
        sessions.close(ctx.tx, session, None)
        ctx.log(session.space, "session.open", (), session=session.id)


def find_or_create(
    ctx: WriteContext, session_id: str, options: NewSessionOptions, locked: sessions.LockedSession | None = None
) -> Session:
    """Return the session, created if it does not exist; the parent of an existing one cannot be changed."""
    space = None
    if locked is None:
        space = ctx.require_writable_space(options.space)
        locked = sessions.LockedSession(ctx.tx, key_for_append(ctx, (space.id, session_id)))
    session = _find(ctx, locked, options.space)
    if session is None and locked.is_moved:
        # It was moved while this waited for its lock.
        raise RetryTransaction
    if session is None:
        return _create(ctx, space or ctx.require_writable_space(options.space), session_id, options)
    # By name alone: the parent may be in another space, which an append cannot name.
    if options.parent is not None and options.parent != session.parent:
        raise Conflict(
            f"the session {session_id} does not go on from {options.parent}, and that cannot be changed",
            fix="leave the parent out, or use another session",
        )
    return session


def _find(ctx: WriteContext, locked: sessions.LockedSession, named_space: str) -> Session | None:
    session = locked.session(ctx.spaces)
    if session is not None and session.space.name != named_space and session.space.id not in ctx.readable:
        raise Conflict(
            f"the session {session.id} was moved out of the space {named_space!r}", fix="use another session id"
        )
    if session is not None and session.space.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, session.space.name)
    return session


def _create(ctx: WriteContext, space: Space, session_id: str, options: NewSessionOptions) -> Session:
    if space_names.is_system(space.name):
        raise BadInput(f"the space {space.name!r} is for the book's own memories", fix="name another space")
    masking.require_no_secret(validation.validate_new_session_id(session_id), "id of the session")
    key, parent = (space.id, session_id), None
    if options.parent is not None:
        parent = sessions.present_key(ctx.tx, (options.parent_space or space.id, options.parent))
        _require_no_cycle(ctx.tx, key, parent)
    session = Session(
        id=session_id,
        space=space,
        parent=options.parent,
        tags=masking.mask_tags(options.tags)[0],
        created=ctx.tx.now,
        closed=None,
        generation=sessions.FIRST_GENERATION,
        last=0,
        parent_space=ctx.spaces[parent[0]].name if parent else None,
    )
    sessions.add(ctx.tx, session, parent=parent)
    # Readers of the log may not be allowed to read the space of the parent.
    logged = options.parent if parent and parent[0] == space.id else None
    ctx.log(session.space, "session.begin", (), session=session.id, parent=logged)
    return session


def _require_no_cycle(tx: Reading, session: SessionKey, parent: SessionKey) -> None:
    """Refuse a parent that descends from the session itself: a session may name a parent that does not exist yet."""
    if sessions.descends_from(tx, parent, session):
        raise BadInput(
            f"the session {session[1]} cannot go on from {parent[1]}, which goes on from it", fix="name another parent"
        )


def require_writable(ctx: WriteContext, key: SessionKey) -> Session:
    """Return a session that the actor may write to, locked; a session that it may not read is not found."""
    ctx.lock_sessions(key)
    if (present := sessions.present_key(ctx.tx, key)) != key:
        ctx.lock_sessions(present)
        key = present
    session = sessions.find(ctx.tx, ctx.readable, key)
    if session is None:
        raise no_session(key[1])
    if session.space.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, session.space.name)
    return session
