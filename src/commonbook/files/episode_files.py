"""Adopts messages from episode files: messages in the file that the session log lacks are appended to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.markdown import transcript
from commonbook.model.session import Message, Session
from commonbook.tables import sessions

if TYPE_CHECKING:
    from commonbook.model.memory import Memory
    from commonbook.write.context import WriteContext

_MAX_SEQ: Final = 10**12
"""A larger number is a typing error; a session that went on from it would soon exceed what a transcript can hold."""


def adopt_messages(ctx: WriteContext, memory: Memory) -> None:
    """Append the messages of an episode to the log of its session; messages that a session has already stay there."""
    if memory.kind != "episode" or not memory.session:
        return
    parsed = [message for message in transcript.parse(memory.text).messages if 0 < message.seq <= _MAX_SEQ]
    known = sessions.get_many(ctx.tx, ctx.spaces, [message.id for message in parsed])
    unknown = _distinct([message for message in parsed if message.id not in known])
    session = _session(ctx, memory, memory.session) if unknown else None
    if session is None:
        return
    used_numbers = sessions.sequence_numbers(ctx.tx, session)
    adopted = [
        Message(
            message.id,
            session.id,
            message.seq,
            message.role,
            message.author,
            message.text,
            message.time,
            episode=memory.id,
        )
        for message in unknown
        if message.seq not in used_numbers
    ]
    if adopted:
        sessions.append(ctx.tx, session, [(message, None) for message in adopted])
        ctx.log(session.space, "session.adopt", (), session=session.id, messages=len(adopted))


def _distinct(messages: list[transcript.TranscriptMessage]) -> list[transcript.TranscriptMessage]:
    """Return messages in the order of their numbers; of two with the same id or number, the first in the file."""
    by_id: dict[str, transcript.TranscriptMessage] = {}
    for message in messages:
        by_id.setdefault(message.id, message)
    by_seq: dict[int, transcript.TranscriptMessage] = {}
    for message in by_id.values():
        by_seq.setdefault(message.seq, message)
    return [by_seq[seq] for seq in sorted(by_seq)]


def _session(ctx: WriteContext, memory: Memory, session_id: str) -> Session | None:
    """Lock and return the session, created if there is none; None if the session cannot be found."""
    if sessions.space_of(ctx.tx, session_id) is not None:
        ctx.lock_sessions(session_id)
        return sessions.find(ctx.tx, ctx.spaces, session_id)
    session = Session(
        session_id, memory.space, None, memory.tags, memory.created, None, sessions.FIRST_GENERATION, last=0
    )
    sessions.add(ctx.tx, session)
    return session
