"""Switch, rewind and close sessions."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from commonbook.errors import BadInput, FileInTheWay, NotFound
from commonbook.files import hand_edits, scan
from commonbook.markdown import transcript
from commonbook.model.session import Message, Session, SettleReport
from commonbook.model.spaces import Actor
from commonbook.ports.embedding import Similarity
from commonbook.ports.engines import Engines
from commonbook.sessions import settle
from commonbook.sessions.find_or_create import Context, find_or_create, reopen, require_writable
from commonbook.tables import memories, sessions
from commonbook.text import validation
from commonbook.write import revise
from commonbook.write.context import WriteContext

Reason: TypeAlias = Literal["new", "reset", "resume", "branch", "compress"]
REASONS: Final[tuple[str, ...]] = get_args(Reason)


# --- switch, rewind, close


def switch(
    engines: Engines, actor: Actor, old: str, new: str, *, reason: str, context: Context, similarity: Similarity
) -> SettleReport:
    """Settle what is open in the old session, under its own name, and begin or resume the new one, in one step."""
    old, new = validation.validate_session_id(old), validation.validate_session_id(new)
    if reason not in REASONS:
        raise BadInput(f"{reason!r} is no reason to switch", fix=f"use one of {', '.join(REASONS)}")
    if old == new:
        raise BadInput("a session cannot be switched to itself", fix="name another session")

    def operation(ctx: WriteContext, plan: settle.Plan | None) -> SettleReport:
        # One that was never heard of begins here, and ends: what was fetched for it in advance is void all the same.
        before = find_or_create(ctx, old, context._replace(named=False))
        made = settle.make_episodes(ctx, before, plan) if plan else ()
        sessions.next_generation(ctx.tx, before)
        if reason != "branch":
            sessions.close(ctx.tx, before, ctx.tx.now)
        _switch_to(ctx, new, old, reason, _inherited(context, before))
        ctx.log(before.space, "session.switch", (), session=old, to=new, reason=reason)
        return SettleReport(old, made, sessions.count_open(ctx.tx, before.space.id, old))

    return settle.with_plan(engines, actor, old, similarity, operation, flush=True, also=(new,))


def _inherited(context: Context, before: Session) -> Context:
    """Return where a session belongs that follows another: to the same space and tags, unless others are named."""
    space = context.space if context.named else before.space.name
    return context._replace(space=space, tags=context.tags or before.tags)


def _switch_to(ctx: WriteContext, new: str, old: str, reason: str, context: Context) -> None:
    if sessions.space_of(ctx.tx, new) is None:
        parent = None if reason == "resume" else old
        session = find_or_create(ctx, new, context._replace(parent=parent, named=False))
    else:
        session = require_writable(ctx, new)
        reopen(ctx, session)
    sessions.next_generation(ctx.tx, session)


def rewind(engines: Engines, actor: Actor, session_id: str, after: int | str) -> tuple[Message, ...]:
    """Take back every message behind one, by its number or id: they leave recall and episodes, the log keeps them."""
    session_id = validation.validate_session_id(session_id)

    def operation(ctx: WriteContext, *, looked: bool) -> tuple[Message, ...]:
        session = require_writable(ctx, session_id)
        taken = sessions.rewind(ctx.tx, session, after=_seq(ctx, session, after))
        for episode in dict.fromkeys(message.episode for message in taken if message.episode):
            gone = frozenset(message.id for message in taken if message.episode == episode)
            _leave_episode(ctx, episode, gone, looked=looked)
        sessions.next_generation(ctx.tx, session)
        ctx.touch(session.space, (message.id for message in taken))
        ctx.log(session.space, "session.rewind", (), session=session.id, seqs=[message.seq for message in taken])
        return tuple(taken)

    return scan.write_with_scan(engines, actor, operation)


def _seq(ctx: WriteContext, session: Session, after: int | str) -> int:
    if isinstance(after, int):
        if not 0 <= after <= session.last:
            raise BadInput(
                f"the session {session.id} has no message {after}", fix=f"give a number from 0 to {session.last}"
            )
        return after
    said: object = after
    named = [after] if isinstance(said, str) and validation.is_unicode(said) and "\0" not in said else []
    found = sessions.get_many(ctx.tx, {session.space.id: session.space}, named).get(after)
    if found is None or found[0].session != session.id:
        raise NotFound(
            f"the session {session.id} has no message {after}", fix="`commonbook session show` lists its messages"
        )
    return found[0].seq


def _leave_episode(ctx: WriteContext, episode: str, gone: frozenset[str], *, looked: bool) -> None:
    """Take messages out of an episode by a new revision; an episode without messages goes."""
    ctx.lock([episode])
    memory = memories.find(ctx.tx, ctx.spaces, episode)
    if memory is None or memory.deleted is not None:
        return
    try:
        memory = hand_edits.with_file_changes(ctx, memory, looked=looked)
    except FileInTheWay:
        # A person is mending the file, and we do not write over it. Recall goes by the log, whatever the file says.
        ctx.touch(memory.space, [memory.id])
        return
    told = transcript.parse(memory.text)
    kept = [message for message in told.messages if message.id not in gone]
    if len(kept) == len(told.messages):
        return
    if kept:
        said = memory._replace(text=transcript.render(kept, introduction=told.introduction))
        revise.store_revision(ctx, memory, said, ["text"], how="rewind")
    else:
        revise.delete(ctx, memory, how="rewind")


def close(engines: Engines, actor: Actor, session_id: str, *, similarity: Similarity) -> SettleReport:
    """Settle what is open, and close the session; a later append opens it again."""

    def operation(ctx: WriteContext, plan: settle.Plan | None) -> SettleReport:
        session = require_writable(ctx, session_id)
        made = settle.make_episodes(ctx, session, plan) if plan else ()
        if session.closed is None:
            sessions.close(ctx.tx, session, ctx.tx.now)
            ctx.log(session.space, "session.close", (), session=session.id)
        return SettleReport(session.id, made, sessions.count_open(ctx.tx, session.space.id, session.id))

    return settle.with_plan(
        engines, actor, validation.validate_session_id(session_id), similarity, operation, flush=True
    )
