"""Switches between sessions and closes them, each in one transaction with the episodes that it settles."""

from __future__ import annotations

from typing import Final, get_args

from commonbook.core.tables import sessions
from commonbook.core.tables.sessions import SessionKey
from commonbook.core.text import validation
from commonbook.core.write.context import WriteContext
from commonbook.errors import BadInput
from commonbook.ports.embedding import Similarity
from commonbook.ports.engines import Engines
from commonbook.subjects.sessions import settle
from commonbook.subjects.sessions.append import (
    NewSessionOptions,
    find_or_create,
    key_for_append,
    reopen,
    require_writable,
)
from commonbook.values.request import RequestContext
from commonbook.values.session import Session, SettleReport, SwitchReason

REASONS: Final[tuple[SwitchReason, ...]] = get_args(SwitchReason)


def switch(
    engines: Engines,
    caller: RequestContext,
    old: str,
    new: str,
    *,
    reason: str,
    options: NewSessionOptions,
    to_space: str | None,
    similarity: Similarity,
) -> SettleReport:
    """Settle the unsettled messages of the old session and begin or resume the new one, in one transaction.

    The old session is in the space of the options, the new one in `to_space` if that is given, else there too.
    """
    old, new = validation.validate_session_id(old), validation.validate_session_id(new)
    if reason not in REASONS:
        raise BadInput(f"{reason!r} is no reason to switch", fix=f"use one of {', '.join(REASONS)}")
    if old == new and to_space in {None, options.space}:
        raise BadInput("a session cannot be switched to itself", fix="name another session")

    def operation(ctx: WriteContext, plan: settle.Plan | None) -> SettleReport:
        # An unknown session is created and closed here, so that its new generation voids what was prefetched for it.
        previous = find_or_create(ctx, old, options)
        episodes = settle.make_episodes(ctx, previous, plan) if plan else ()
        sessions.next_generation(ctx.tx, previous)
        if reason != "branch":
            sessions.close(ctx.tx, previous, ctx.tx.now)
        begun = _switch_to(ctx, new, previous, reason, options._replace(space=to_space or options.space))
        # Readers of the log may not be allowed to read the space of the new session.
        to = new if begun.space.id == previous.space.id else None
        ctx.log(previous.space, "session.switch", (), session=old, to=to, reason=reason)
        return settle.report(ctx, previous, episodes)

    return settle.with_plan(
        engines,
        caller,
        _located_in(options.space, old),
        similarity,
        operation,
        flush=True,
        also=_located_in(to_space or options.space, new),
    )


def _located_in(space: str, session_id: str) -> settle.LocateSession:
    """Return a function that locates a session by the name of its space."""
    return lambda spaces: next(
        ((candidate.id, session_id) for candidate in spaces.values() if candidate.name == space), None
    )


def _switch_to(ctx: WriteContext, new: str, previous: Session, reason: str, options: NewSessionOptions) -> Session:
    """Begin the new session, with the tags of the old one unless others are named, or open the existing one again."""
    space = ctx.require_writable_space(options.space)
    if sessions.find(ctx.tx, ctx.writable, key_for_append(ctx, (space.id, new))) is None:
        parent = (None, None) if reason == "resume" else (previous.id, previous.space.id)
        options = options._replace(parent=parent[0], parent_space=parent[1], tags=options.tags or previous.tags)
    session = find_or_create(ctx, new, options)
    reopen(ctx, session)
    sessions.next_generation(ctx.tx, session)
    return session


def close(engines: Engines, caller: RequestContext, key: SessionKey, *, similarity: Similarity) -> SettleReport:
    """Settle the unsettled messages of a session and close it; a later append opens it again."""

    def operation(ctx: WriteContext, plan: settle.Plan | None) -> SettleReport:
        session = require_writable(ctx, key)
        episodes = settle.make_episodes(ctx, session, plan) if plan else ()
        if session.closed is None:
            sessions.close(ctx.tx, session, ctx.tx.now)
            ctx.log(session.space, "session.close", (), session=session.id)
        return settle.report(ctx, session, episodes)

    return settle.with_plan(engines, caller, lambda _: key, similarity, operation, flush=True)
