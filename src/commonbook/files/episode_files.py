"""Adopting: the messages of an episode that came as a file go back into the log of their session."""

from __future__ import annotations

from typing import Final

from commonbook.markdown import transcript
from commonbook.model.memory import Memory
from commonbook.model.session import Message, Session
from commonbook.tables import sessions
from commonbook.write.context import WriteContext

_MOST: Final = 10**12
"""A larger number is a slip of the hand; behind it, a session would soon count further than a transcript can tell."""


def adopt_messages(ctx: WriteContext, memory: Memory) -> None:
    """Take the messages of an episode into its session's log, where they are not known yet; who has them keeps them."""
    if memory.kind != "episode" or not memory.session:
        return
    told = [one for one in transcript.parse(memory.text).messages if 0 < one.seq <= _MOST]
    known = sessions.get_many(ctx.tx, ctx.spaces, [one.id for one in told])
    fresh = _distinct([one for one in told if one.id not in known])
    session = _session(ctx, memory, memory.session) if fresh else None
    if session is None:
        return
    taken = sessions.sequence_numbers(ctx.tx, session)
    adopted = [
        Message(one.id, session.id, one.seq, one.role, one.author, one.text, one.time, episode=memory.id)
        for one in fresh
        if one.seq not in taken
    ]
    if adopted:
        sessions.append(ctx.tx, session, [(one, None) for one in adopted])
        ctx.log(session.space, "session.adopt", (), session=session.id, messages=len(adopted))


def _distinct(told: list[transcript.TranscriptMessage]) -> list[transcript.TranscriptMessage]:
    """Return messages in the order of their numbers; of two with one id or number, the first that stands there."""
    by_id: dict[str, transcript.TranscriptMessage] = {}
    for one in told:
        by_id.setdefault(one.id, one)
    by_seq: dict[int, transcript.TranscriptMessage] = {}
    for one in by_id.values():
        by_seq.setdefault(one.seq, one)
    return [by_seq[seq] for seq in sorted(by_seq)]


def _session(ctx: WriteContext, memory: Memory, session_id: str) -> Session | None:
    if sessions.space_of(ctx.tx, session_id) is not None:
        ctx.lock_sessions(session_id)
        return sessions.find(ctx.tx, ctx.spaces, session_id)
    session = Session(
        session_id, memory.space, None, memory.tags, memory.created, None, sessions.FIRST_GENERATION, last=0
    )
    sessions.add(ctx.tx, session)
    return session
