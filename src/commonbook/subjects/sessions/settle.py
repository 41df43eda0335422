"""Settles sessions: each segment of messages becomes an episode, in one transaction with the marks on its messages.

Boundaries are planned outside the transaction, since comparing topics is slow. The transaction checks that the plan
still holds (optimistic concurrency), and is tried again with a new plan if it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from commonbook.core.access import permissions
from commonbook.core.markdown import memory_conversion, transcript
from commonbook.core.markdown.memory_conversion import ClientIds
from commonbook.core.tables import memories, sessions, spaces
from commonbook.core.tables.sessions import SessionKey
from commonbook.core.text import titles
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import new_memory
from commonbook.core.write.transaction import write
from commonbook.ports.database import Result, retry_read
from commonbook.ports.embedding import Similarity
from commonbook.ports.engines import Engines
from commonbook.subjects.sessions import episode_boundaries
from commonbook.values.request import RequestContext
from commonbook.values.session import Message, Session, SettleReport
from commonbook.values.spaces import Actor, SpaceScope
from commonbook.values.stored_memory import StoredMemory

_MAX_ATTEMPTS: Final = 5


class Plan(NamedTuple):
    """The segments that become episodes, decided outside the transaction."""

    segments: tuple[episode_boundaries.Segment, ...]
    unsettled_seqs: tuple[int, ...] | None
    """The `seq`s of all unsettled messages when the plan was made, if it is to cover them all."""


class _PlanOutdated(Exception):
    """Messages came or went after the plan was made."""


def settle(
    engines: Engines,
    caller: RequestContext,
    key: SessionKey,
    *,
    flush: bool,
    similarity: Similarity,
    counted: bool = True,
) -> SettleReport:
    """Make episodes of the decided segments; with `flush`, of all unsettled messages."""

    def operation(ctx: WriteContext, plan: Plan | None) -> SettleReport:
        session = sessions.find(ctx.tx, ctx.spaces, sessions.present_key(ctx.tx, key))
        if session is not None and session.space.id not in ctx.writable:
            raise permissions.refusal(caller.actor, session.space.name)
        if session is None or plan is None:
            space = ctx.spaces.get(key[0])
            return SettleReport(key[1], (), 0, space.name if space else "")
        return report(ctx, session, make_episodes(ctx, session, plan))

    return with_plan(engines, caller, lambda _: key, similarity, operation, flush=flush, counted=counted)


def report(ctx: WriteContext, session: Session, episodes: tuple[str, ...]) -> SettleReport:
    """Return the report on a session that was settled."""
    unsettled = sessions.count_unsettled(ctx.tx, session.space.id, session.id)
    return SettleReport(session.id, episodes, unsettled, session.space.name)


LocateSession: TypeAlias = Callable[[SpaceScope], SessionKey | None]
"""Returns the key of a session, given the spaces that the actor may write to; None if its space does not exist."""


def with_plan(
    engines: Engines,
    caller: RequestContext,
    locate: LocateSession,
    similarity: Similarity,
    operation: Callable[[WriteContext, Plan | None], Result],
    *,
    flush: bool,
    also: LocateSession | None = None,
    counted: bool = True,
) -> Result:
    """Run an operation with a plan that still holds in its transaction, where no boundaries are looked for.

    `also` locates another session that the operation changes. The write counts against the rate limit of the actor,
    unless it is not `counted`.
    """
    caller = caller.recording()

    def with_lock(ctx: WriteContext, plan: Plan | None, *, last: bool) -> Result:
        located = [locate(ctx.writable), also(ctx.writable) if also else None]
        keys = [sessions.present_key(ctx.tx, key) if key else None for key in located]
        ctx.lock_sessions(*(key for key in keys if key))
        return operation(ctx, _current_plan(ctx, keys[0], plan, last=last))

    for _ in range(_MAX_ATTEMPTS - 1):
        plan = _plan(engines, caller.actor, locate, similarity, flush=flush)
        with suppress(_PlanOutdated):
            return write(engines, caller, partial(with_lock, plan=plan, last=False), counted=counted)
    plan = _plan(engines, caller.actor, locate, similarity, flush=flush)
    return write(engines, caller, partial(with_lock, plan=plan, last=True), counted=counted)


@retry_read
def _plan(engines: Engines, actor: Actor, locate: LocateSession, similarity: Similarity, *, flush: bool) -> Plan | None:
    with engines.db.reading() as tx:
        writable = permissions.writable(tx, actor, spaces.get_all(tx))
        key = locate(writable)
        session = sessions.find(tx, writable, sessions.present_key(tx, key)) if key else None
        if session is None:
            return None
        unsettled = sessions.unsettled(tx, session)
    segments = episode_boundaries.segments(
        _boundary_inputs(unsettled), now=engines.clock.now(), similarity=similarity, flush=flush
    )
    return Plan(tuple(segments), tuple(message.seq for message in unsettled) if flush else None)


def _current_plan(ctx: WriteContext, key: SessionKey | None, plan: Plan | None, *, last: bool) -> Plan | None:
    """Return the plan if it still holds; in the `last` attempt, else one made here, without comparing topics."""
    session = sessions.find(ctx.tx, ctx.writable, key) if key else None
    if session is None or (plan is not None and plan.unsettled_seqs is None):
        return plan
    unsettled = sessions.unsettled(ctx.tx, session)
    seqs_now = tuple(message.seq for message in unsettled)
    if plan is not None and plan.unsettled_seqs == seqs_now:
        return plan
    if not last:
        raise _PlanOutdated
    segments = episode_boundaries.segments(_boundary_inputs(unsettled), now=ctx.tx.now, flush=True)
    return Plan(tuple(segments), seqs_now)


def _boundary_inputs(messages: Sequence[Message]) -> list[episode_boundaries.BoundaryInput]:
    return [
        episode_boundaries.BoundaryInput(message.seq, message.role, message.time, message.text) for message in messages
    ]


def make_episodes(ctx: WriteContext, session: Session, plan: Plan) -> tuple[str, ...]:
    """Make the episodes of a plan; messages that were settled or rewound meanwhile are left out."""
    episodes = []
    unsettled = sessions.unsettled(ctx.tx, session)
    for segment in plan.segments:
        messages = [message for message in unsettled if segment.first <= message.seq <= segment.last]
        if messages:
            episodes.append(_episode(ctx, session, messages, segment.reason))
    return tuple(episodes)


def _episode(ctx: WriteContext, session: Session, messages: Sequence[Message], reason: str) -> str:
    memory = _memory(ctx, session, messages)
    memories.add(ctx.tx, ctx.engines.keys, [memory])
    sessions.settle(ctx.tx, session, memory.id, first=messages[0].seq, last=messages[-1].seq)
    ctx.touch(session.space, (message.id for message in messages))
    ctx.log_memory(memory, "settle", session=session.id, first=messages[0].seq, last=messages[-1].seq, reason=reason)
    ctx.enqueue_files([memory])
    return memory.id


def _memory(ctx: WriteContext, session: Session, messages: Sequence[Message]) -> StoredMemory:
    lines = [
        transcript.TranscriptMessage(message.id, message.seq, message.author, message.role, message.time, message.text)
        for message in messages
    ]
    sent = sessions.sent_hashes(ctx.tx, session, first=messages[0].seq, last=messages[-1].seq)
    ids = [ClientIds(message.client_id, sent.get(message.id)) for message in messages]
    keys, key = ctx.engines.keys, (session.space.id, session.id)
    memory = new_memory(
        ctx,
        space=session.space,
        how="settle",
        kind="episode",
        title=titles.derive_title(next((message.text for message in messages if message.text.strip()), session.id)),
        text=transcript.render(lines),
        tags=session.tags,
        occurred=min(message.time for message in messages),
        session=session.id,
    )
    proofs = tuple(memory_conversion.message_line(keys, *key, *pair) for pair in zip(lines, ids, strict=True))
    return memory._replace(message_lines=proofs)
