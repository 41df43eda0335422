"""Settling: runs of messages become episodes, each in one transaction with the marks on its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from commonbook import boundary, jobs, memories, paths, reading, rights, sessions, spaces, titles, transcripts
from commonbook.desk import Desk
from commonbook.model import Memory, Message, Session, Settled, Spaces, Worked, new_id
from commonbook.ports import Likeness, Parts, Reading, Told, Transaction
from commonbook.writing import write

JOB: Final = "settle"

_TRIES: Final = 5
_SOON: Final = timedelta(seconds=1)


class Plan(NamedTuple):
    """Which runs become episodes, as decided outside the transaction; if all, of which messages that was decided."""

    runs: tuple[boundary.Run, ...]
    open: tuple[int, ...] | None


class _Moved(Exception):
    """Messages came or went after the plan was made."""


def settle(parts: Parts, actor: str, session_id: str, *, flush: bool, likeness: Likeness) -> Settled:
    """Make episodes of what is decided; with `flush`, of everything that is open."""

    def story(desk: Desk, plan: Plan | None) -> Settled:
        session = sessions.find(desk.tx, desk.spaces, session_id)
        if session is not None and session.space.id not in desk.writable:
            raise rights.refusal(actor, session.space.name)
        if session is None or plan is None:
            return Settled(session_id, (), 0)
        made = carry_out(desk, session, plan)
        return Settled(session_id, made, sessions.count_open(desk.tx, session.space.id, session.id))

    return with_plan(parts, actor, session_id, likeness, story, flush=flush)


def with_plan(
    parts: Parts,
    actor: str,
    session_id: str,
    likeness: Likeness,
    story: Callable[[Desk, Plan | None], Told],
    *,
    flush: bool,
    also: Sequence[str] = (),
) -> Told:
    """Let a story happen with a plan that still holds then: boundaries are not looked for in the transaction.

    `also` are other sessions that the story changes.
    """

    def whole(desk: Desk, plan: Plan | None, *, last: bool) -> Told:
        desk.hold_sessions(session_id, *also)
        return story(desk, _checked(desk, session_id, plan, last=last))

    for _ in range(_TRIES - 1):
        plan = _plan(parts, actor, session_id, likeness, flush=flush)
        with suppress(_Moved):
            return write(parts, actor, partial(whole, plan=plan, last=False))
    return write(parts, actor, partial(whole, plan=_plan(parts, actor, session_id, likeness, flush=flush), last=True))


@reading.asking
def _plan(parts: Parts, actor: str, session_id: str, likeness: Likeness, *, flush: bool) -> Plan | None:
    with parts.db.reading() as tx:
        session = sessions.find(tx, _writable(tx, actor), session_id)
        if session is None:
            return None
        found = sessions.unsettled(tx, session)
    runs = boundary.runs(_for_boundary(found), now=parts.clock.now(), likeness=likeness, flush=flush)
    return Plan(tuple(runs), tuple(message.seq for message in found) if flush else None)


def _checked(desk: Desk, session_id: str, plan: Plan | None, *, last: bool) -> Plan | None:
    """Return the plan if it still holds; with others writing all the time, one that asks nobody about topics."""
    session = sessions.find(desk.tx, desk.writable, session_id)
    if session is None or (plan is not None and plan.open is None):
        return plan
    found = sessions.unsettled(desk.tx, session)
    open_now = tuple(message.seq for message in found)
    if plan is not None and plan.open == open_now:
        return plan
    if not last:
        raise _Moved
    return Plan(tuple(boundary.runs(_for_boundary(found), now=desk.tx.now, flush=True)), open_now)


def _for_boundary(found: Sequence[Message]) -> list[boundary.Message]:
    return [boundary.Message(message.seq, message.role, message.time, message.text) for message in found]


def carry_out(desk: Desk, session: Session, plan: Plan) -> tuple[str, ...]:
    """Make the episodes of a plan; what was settled or taken back meanwhile is left out."""
    made = []
    there = sessions.unsettled(desk.tx, session)
    for run in plan.runs:
        messages = [message for message in there if run.first <= message.seq <= run.last]
        if messages:
            made.append(_episode(desk, session, messages, run.reason))
    return tuple(made)


def _episode(desk: Desk, session: Session, messages: Sequence[Message], reason: str) -> str:
    memory = _memory(desk, session, messages)
    memories.add(desk.tx, [memory])
    sessions.settle(desk.tx, session, memory.id, first=messages[0].seq, last=messages[-1].seq)
    desk.touch(session.space, (message.id for message in messages))
    desk.log_memory(memory, "settle", session=session.id, first=messages[0].seq, last=messages[-1].seq, reason=reason)
    desk.issue([memory])
    return memory.id


def _memory(desk: Desk, session: Session, messages: Sequence[Message]) -> Memory:
    memory_id = new_id()
    title = titles.title_from(next((one.text for one in messages if one.text.strip()), session.id))
    slug = titles.slug(title)
    path = paths.path_for(session.space.name, desk.tx.now, slug, memory_id)
    if memories.at_path(desk.tx, path):
        path = paths.path_for(session.space.name, desk.tx.now, slug, memory_id, taken=True)
    told = [transcripts.Utterance(one.id, one.seq, one.author, one.role, one.time, one.text) for one in messages]
    return Memory(
        id=memory_id,
        space=session.space,
        kind="episode",
        title=title,
        text=transcripts.render(told),
        tags=session.tags,
        author=desk.actor,
        created=desk.tx.now,
        updated=desk.tx.now,
        importance=None,
        occurred=min(one.time for one in messages),
        valid_from=None,
        valid_until=None,
        expires=None,
        revision=1,
        version=1,
        revised_by=desk.actor,
        revised_at=desk.tx.now,
        revised_how="settle",
        path=path,
        layout="",
        session=session.id,
    )


# --- in the background


def work(
    parts: Parts,
    actor: str,
    *,
    likeness: Likeness,
    until: datetime | None = None,
    noticed: Callable[[Worked], None] | None = None,
) -> int:
    """Do the settling that is due; return how many jobs were done. A job that fails holds up no other."""
    count = 0
    # Most who ask come in vain: they need not take the lock of those who write.
    if not _is_due(parts, actor):
        return count
    while until is None or parts.clock.now() < until:
        job = parts.db.write(lambda tx: jobs.take(tx, _writable(tx, actor), kinds=(JOB,)), durable=False)
        if job is None:
            return count
        worked = _do(parts, actor, job, likeness)
        count += 1
        if noticed is not None:
            noticed(worked)
    return count


def _do(parts: Parts, actor: str, job: jobs.Job, likeness: Likeness) -> Worked:
    try:
        settled = settle(parts, actor, job.subject, flush=False, likeness=likeness)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is kept with the job, tried again, and shown
        why = f"{type(error).__name__}: {error}"
        parts.db.write(partial(jobs.failed, job=job, error=why), durable=False)
        return Worked(Settled(job.subject, (), 0), error=why)
    parts.db.write(partial(_strike_off, job=job, settled=settled), durable=False)
    return Worked(settled)


def _strike_off(tx: Transaction, job: jobs.Job, settled: Settled) -> None:
    if settled.unsettled:
        jobs.later(tx, job, tx.now + boundary.LIMITS.gap + _SOON)
    else:
        jobs.done(tx, job)


def retry(parts: Parts, actor: str) -> int:
    """Let everything that failed be tried again, now; return how many jobs that are."""
    return parts.db.write(lambda tx: jobs.retry(tx, _writable(tx, actor)), durable=False)


@reading.asking
def _is_due(parts: Parts, actor: str) -> bool:
    with parts.db.reading() as tx:
        return jobs.is_due(tx, _writable(tx, actor), kinds=(JOB,), now=parts.clock.now())


def _writable(tx: Reading, actor: str) -> Spaces:
    """Return the spaces in which an actor may settle: another's work waits for somebody who may do it."""
    return rights.writable(tx, actor, spaces.everything(tx))
