"""Settling: runs of messages become episodes, each in one transaction with the marks on its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from commonbook.access import permissions
from commonbook.markdown import transcript
from commonbook.model.memory import Memory
from commonbook.model.session import Message, Session, SettleReport
from commonbook.model.spaces import Actor
from commonbook.ports.database import Result, retry_read
from commonbook.ports.embedding import Similarity
from commonbook.ports.engines import Engines
from commonbook.sessions import episode_boundaries
from commonbook.tables import memories, sessions, spaces
from commonbook.text import titles
from commonbook.write.context import WriteContext
from commonbook.write.new_memory import new_memory
from commonbook.write.transaction import write

SETTLE_JOB: Final = "settle"

_TRIES: Final = 5


class Plan(NamedTuple):
    """Which runs become episodes, as decided outside the transaction; if all, of which messages that was decided."""

    runs: tuple[episode_boundaries.Segment, ...]
    open: tuple[int, ...] | None


class _Moved(Exception):
    """Messages came or went after the plan was made."""


def settle(engines: Engines, actor: Actor, session_id: str, *, flush: bool, similarity: Similarity) -> SettleReport:
    """Make episodes of what is decided; with `flush`, of everything that is open."""

    def operation(ctx: WriteContext, plan: Plan | None) -> SettleReport:
        session = sessions.find(ctx.tx, ctx.spaces, session_id)
        if session is not None and session.space.id not in ctx.writable:
            raise permissions.refusal(actor, session.space.name)
        if session is None or plan is None:
            return SettleReport(session_id, (), 0)
        made = make_episodes(ctx, session, plan)
        return SettleReport(session_id, made, sessions.count_open(ctx.tx, session.space.id, session.id))

    return with_plan(engines, actor, session_id, similarity, operation, flush=flush)


def with_plan(
    engines: Engines,
    actor: Actor,
    session_id: str,
    similarity: Similarity,
    operation: Callable[[WriteContext, Plan | None], Result],
    *,
    flush: bool,
    also: Sequence[str] = (),
) -> Result:
    """Let a story happen with a plan that still holds then: boundaries are not looked for in the transaction.

    `also` are other sessions that the story changes.
    """

    def whole(ctx: WriteContext, plan: Plan | None, *, last: bool) -> Result:
        ctx.lock_sessions(session_id, *also)
        return operation(ctx, _checked(ctx, session_id, plan, last=last))

    for _ in range(_TRIES - 1):
        plan = _plan(engines, actor, session_id, similarity, flush=flush)
        with suppress(_Moved):
            return write(engines, actor, partial(whole, plan=plan, last=False))
    return write(
        engines, actor, partial(whole, plan=_plan(engines, actor, session_id, similarity, flush=flush), last=True)
    )


@retry_read
def _plan(engines: Engines, actor: Actor, session_id: str, similarity: Similarity, *, flush: bool) -> Plan | None:
    with engines.db.reading() as tx:
        session = sessions.find(tx, permissions.writable(tx, actor, spaces.get_all(tx)), session_id)
        if session is None:
            return None
        found = sessions.unsettled(tx, session)
    runs = episode_boundaries.segments(
        _for_boundary(found), now=engines.clock.now(), similarity=similarity, flush=flush
    )
    return Plan(tuple(runs), tuple(message.seq for message in found) if flush else None)


def _checked(ctx: WriteContext, session_id: str, plan: Plan | None, *, last: bool) -> Plan | None:
    """Return the plan if it still holds; with others writing all the time, one that asks nobody about topics."""
    session = sessions.find(ctx.tx, ctx.writable, session_id)
    if session is None or (plan is not None and plan.open is None):
        return plan
    found = sessions.unsettled(ctx.tx, session)
    open_now = tuple(message.seq for message in found)
    if plan is not None and plan.open == open_now:
        return plan
    if not last:
        raise _Moved
    return Plan(tuple(episode_boundaries.segments(_for_boundary(found), now=ctx.tx.now, flush=True)), open_now)


def _for_boundary(found: Sequence[Message]) -> list[episode_boundaries.Message]:
    return [episode_boundaries.Message(message.seq, message.role, message.time, message.text) for message in found]


def make_episodes(ctx: WriteContext, session: Session, plan: Plan) -> tuple[str, ...]:
    """Make the episodes of a plan; what was settled or taken back meanwhile is left out."""
    made = []
    there = sessions.unsettled(ctx.tx, session)
    for run in plan.runs:
        messages = [message for message in there if run.first <= message.seq <= run.last]
        if messages:
            made.append(_episode(ctx, session, messages, run.reason))
    return tuple(made)


def _episode(ctx: WriteContext, session: Session, messages: Sequence[Message], reason: str) -> str:
    memory = _memory(ctx, session, messages)
    memories.add(ctx.tx, [memory])
    sessions.settle(ctx.tx, session, memory.id, first=messages[0].seq, last=messages[-1].seq)
    ctx.touch(session.space, (message.id for message in messages))
    ctx.log_memory(memory, "settle", session=session.id, first=messages[0].seq, last=messages[-1].seq, reason=reason)
    ctx.enqueue_files([memory])
    return memory.id


def _memory(ctx: WriteContext, session: Session, messages: Sequence[Message]) -> Memory:
    told = [transcript.TranscriptMessage(one.id, one.seq, one.author, one.role, one.time, one.text) for one in messages]
    return new_memory(
        ctx,
        space=session.space,
        how="settle",
        kind="episode",
        title=titles.title_from(next((one.text for one in messages if one.text.strip()), session.id)),
        text=transcript.render(told),
        tags=session.tags,
        occurred=min(one.time for one in messages),
        session=session.id,
    )
