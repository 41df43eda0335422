"""Restores sessions from episode files, when the database is lost or older than the files.

Messages of a file that the session log lacks are appended to it; those that the log has as unsettled are recorded as
settled in the episode, so that no message ends up in two episodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.errors import BadSpaceName
from commonbook.markdown import transcript
from commonbook.model.session import Message, Session
from commonbook.tables import sessions

if TYPE_CHECKING:
    from commonbook.model.memory import Memory
    from commonbook.model.spaces import Space
    from commonbook.write.context import WriteContext

_MAX_SEQ: Final = 10**12
"""A larger number is a typing error; a session that went on from it would soon exceed what a transcript can hold."""


def restore_messages(ctx: WriteContext, memory: Memory) -> None:
    """Bring the log of an episode's session up to date with the file, which the database did not know."""
    space = _session_space(ctx, memory)
    if space is None or memory.session is None:
        return
    parsed = _numbered(memory)
    if not parsed:
        return
    session = find_locked(ctx, space, memory.session)
    known = sessions.get_many(ctx.tx, ctx.spaces, [message.id for message in parsed])
    if session is not None:
        _settle(ctx, session, memory, [message for message, space_id in known.values() if space_id == space.id])
    unknown = _distinct([message for message in parsed if message.id not in known])
    if unknown:
        append_messages(ctx, session or create_session(ctx, space, memory, memory.session), memory, unknown)


def find_locked(ctx: WriteContext, space: Space, session_id: str) -> Session | None:
    """Lock and return a session, or None."""
    ctx.lock_sessions((space.id, session_id))
    return sessions.find(ctx.tx, ctx.spaces, (space.id, session_id))


def append_messages(
    ctx: WriteContext, session: Session, memory: Memory, messages: list[transcript.TranscriptMessage]
) -> None:
    """Append messages of an episode to the log of its session, unless their numbers are taken."""
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
        for message in messages
        if message.seq not in used_numbers
    ]
    if adopted:
        sessions.append(ctx.tx, session, [(message, None) for message in adopted])
        ctx.log(session.space, "session.adopt", (), session=session.id, messages=len(adopted))


def _session_space(ctx: WriteContext, memory: Memory) -> Space | None:
    """Return the space of an episode's session: its own, unless the file names another one, which may be read later."""
    if memory.kind != "episode" or memory.session_space is None:
        return memory.space if memory.kind == "episode" else None
    try:
        return ctx.require_writable_space(memory.session_space, origin="folder")
    except BadSpaceName:
        return None


def _settle(ctx: WriteContext, session: Session, memory: Memory, known: list[Message]) -> None:
    """Record known messages of a session that are unsettled as settled in an episode."""
    unsettled = [
        message.id
        for message in known
        if message.session == session.id and message.episode is None and message.rewound_at is None
    ]
    if unsettled:
        sessions.settle_known(ctx.tx, session, memory.id, unsettled)
        ctx.touch(session.space, unsettled)
        ctx.log(session.space, "session.adopt", (), session=session.id, settled=len(unsettled))


def _numbered(memory: Memory) -> list[transcript.TranscriptMessage]:
    return [message for message in transcript.parse(memory.text).messages if 0 < message.seq <= _MAX_SEQ]


def unknown_messages(ctx: WriteContext, memory: Memory) -> list[transcript.TranscriptMessage]:
    """Return the messages of an episode that no session has."""
    parsed = _numbered(memory)
    known = sessions.get_many(ctx.tx, ctx.spaces, [message.id for message in parsed])
    return _distinct([message for message in parsed if message.id not in known])


def _distinct(messages: list[transcript.TranscriptMessage]) -> list[transcript.TranscriptMessage]:
    """Return messages in the order of their numbers; of two with the same id or number, the first in the file."""
    by_id: dict[str, transcript.TranscriptMessage] = {}
    for message in messages:
        by_id.setdefault(message.id, message)
    by_seq: dict[int, transcript.TranscriptMessage] = {}
    for message in by_id.values():
        by_seq.setdefault(message.seq, message)
    return [by_seq[seq] for seq in sorted(by_seq)]


def create_session(ctx: WriteContext, space: Space, memory: Memory, session_id: str) -> Session:
    """Create the session of an episode, without messages."""
    session = Session(session_id, space, None, memory.tags, memory.created, None, sessions.FIRST_GENERATION, last=0)
    sessions.add(ctx.tx, session)
    return session
