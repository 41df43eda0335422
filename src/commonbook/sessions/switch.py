"""Switches between sessions and closes them, each in one transaction with the episodes that it settles."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from commonbook.errors import BadInput
from commonbook.model.session import Session, SettleReport
from commonbook.model.spaces import Actor
from commonbook.ports.embedding import Similarity
from commonbook.ports.engines import Engines
from commonbook.sessions import settle
from commonbook.sessions.find_or_create import NewSessionOptions, find_or_create, reopen, require_writable
from commonbook.tables import sessions
from commonbook.text import validation
from commonbook.write.context import WriteContext

Reason: TypeAlias = Literal["new", "reset", "resume", "branch", "compress"]
REASONS: Final[tuple[str, ...]] = get_args(Reason)


def switch(
    engines: Engines,
    actor: Actor,
    old: str,
    new: str,
    *,
    reason: str,
    options: NewSessionOptions,
    similarity: Similarity,
) -> SettleReport:
    """Settle the unsettled messages of the old session and begin or resume the new one, in one transaction."""
    old, new = validation.validate_session_id(old), validation.validate_session_id(new)
    if reason not in REASONS:
        raise BadInput(f"{reason!r} is no reason to switch", fix=f"use one of {', '.join(REASONS)}")
    if old == new:
        raise BadInput("a session cannot be switched to itself", fix="name another session")

    def operation(ctx: WriteContext, plan: settle.Plan | None) -> SettleReport:
        # An unknown session is created and closed here, so that its new generation voids what was prefetched for it.
        previous = find_or_create(ctx, old, options._replace(space_is_explicit=False))
        episodes = settle.make_episodes(ctx, previous, plan) if plan else ()
        sessions.next_generation(ctx.tx, previous)
        if reason != "branch":
            sessions.close(ctx.tx, previous, ctx.tx.now)
        _switch_to(ctx, new, old, reason, _inherit_options(options, previous))
        ctx.log(previous.space, "session.switch", (), session=old, to=new, reason=reason)
        return SettleReport(old, episodes, sessions.count_unsettled(ctx.tx, previous.space.id, old))

    return settle.with_plan(engines, actor, old, similarity, operation, flush=True, also=(new,))


def _inherit_options(options: NewSessionOptions, previous: Session) -> NewSessionOptions:
    """Return the options of a session that follows another: the same space and tags, unless others are named."""
    space = options.space if options.space_is_explicit else previous.space.name
    return options._replace(space=space, tags=options.tags or previous.tags)


def _switch_to(ctx: WriteContext, new: str, old: str, reason: str, options: NewSessionOptions) -> None:
    if sessions.space_of(ctx.tx, new) is None:
        parent = None if reason == "resume" else old
        session = find_or_create(ctx, new, options._replace(parent=parent, space_is_explicit=False))
    else:
        session = require_writable(ctx, new)
        reopen(ctx, session)
    sessions.next_generation(ctx.tx, session)


def close(engines: Engines, actor: Actor, session_id: str, *, similarity: Similarity) -> SettleReport:
    """Settle the unsettled messages of a session and close it; a later append opens it again."""

    def operation(ctx: WriteContext, plan: settle.Plan | None) -> SettleReport:
        session = require_writable(ctx, session_id)
        episodes = settle.make_episodes(ctx, session, plan) if plan else ()
        if session.closed is None:
            sessions.close(ctx.tx, session, ctx.tx.now)
            ctx.log(session.space, "session.close", (), session=session.id)
        return SettleReport(session.id, episodes, sessions.count_unsettled(ctx.tx, session.space.id, session.id))

    return settle.with_plan(
        engines, actor, validation.validate_session_id(session_id), similarity, operation, flush=True
    )
