"""Finds the session of an append or a switch, locked for the transaction, or creates it."""

from __future__ import annotations

from typing import NamedTuple

from commonbook.access import permissions
from commonbook.errors import BadInput, Conflict
from commonbook.log import chain
from commonbook.model.session import Session
from commonbook.model.spaces import Space
from commonbook.ports.database import Reading, RetryTransaction
from commonbook.sessions.read import no_session, require
from commonbook.tables import sessions
from commonbook.write.context import WriteContext


class NewSessionOptions(NamedTuple):
    """The properties of a session if it is new: its space, the session that it continues (parent), its tags."""

    space: str
    space_is_explicit: bool = False
    """Whether the caller has named the space; if not, an existing session may be in another."""
    parent: str | None = None
    tags: tuple[str, ...] = ()


def reopen(ctx: WriteContext, session: Session) -> None:
    """Open a session again if it is closed."""
    if session.closed is not None:
        sessions.close(ctx.tx, session, None)
        ctx.log(session.space, "session.open", (), session=session.id)


def find_or_create(
    ctx: WriteContext, session_id: str, options: NewSessionOptions, locked: sessions.LockedSession | None = None
) -> Session:
    """Return the session, created if it does not exist; the space and parent of an existing one cannot be changed."""
    session = ctx.locked_session(locked or sessions.LockedSession(ctx.tx, session_id))
    if session is None:
        _require_new(ctx, session_id)
        _require_no_cycle(ctx.tx, session_id, options.parent)
        session = Session(
            id=session_id,
            space=ctx.require_writable_space(options.space),
            parent=options.parent,
            tags=options.tags,
            created=ctx.tx.now,
            closed=None,
            generation=sessions.FIRST_GENERATION,
            last=0,
        )
        sessions.add(ctx.tx, session)
        ctx.log(session.space, "session.begin", (), session=session.id, parent=session.parent)
        return session
    if session.space.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, session.space.name)
    if options.space_is_explicit and not _has_or_had_name(ctx.tx, session.space, options.space):
        raise Conflict(
            f"the session {session_id} is in the space {session.space.name}, not in {options.space}",
            fix=f"append to it in {session.space.name}, or use another session",
        )
    if options.parent is not None and options.parent != session.parent:
        raise Conflict(
            f"the session {session_id} goes on from {session.parent or 'no other'}, which cannot be changed",
            fix="leave the parent out, or use another session",
        )
    return session


def _has_or_had_name(tx: Reading, space: Space, name: str) -> bool:
    """Tell whether a space has this name, or had it: a client's outbox may still use the name before a rename."""
    return space.name == name or chain.had_name(tx, space.id, name)


def _require_no_cycle(tx: Reading, session_id: str, parent: str | None) -> None:
    """Refuse a parent that descends from the session itself: a session may name a parent that does not exist yet."""
    if parent is not None and sessions.descends_from(tx, parent, session_id):
        raise BadInput(
            f"the session {session_id} cannot go on from {parent}, which goes on from it", fix="name another parent"
        )


def _require_new(ctx: WriteContext, session_id: str) -> None:
    """Refuse a session that exists but may not be read; retry if another transaction has just created it."""
    space_id = sessions.space_of(ctx.tx, session_id)
    if space_id is None:
        return
    if space_id in ctx.spaces and space_id not in ctx.readable:
        raise no_session(session_id)
    raise RetryTransaction


def require_writable(ctx: WriteContext, session_id: str) -> Session:
    """Return a session that the actor may write to, locked; a session that it may not read is not found."""
    ctx.lock_sessions(session_id)
    session = require(ctx.tx, ctx.readable, session_id)
    if session.space.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, session.space.name)
    return session
