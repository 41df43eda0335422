"""Restores sessions from episode files, when the database is lost or older than the files.

A session that the database does not know is made from the files of its episodes, with their messages. A session that
it knows gets no messages from files: nobody appends to a log by a file. Those that its log has as unsettled are
recorded as settled in the episode, so that no message ends up in two episodes. An episode in another space than its
session restores nothing: its words may have been written there, for other readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from commonbook.markdown import transcript
from commonbook.model.session import Message, Session
from commonbook.tables import sessions

if TYPE_CHECKING:
    from commonbook.model.memory import Memory
    from commonbook.model.spaces import Space
    from commonbook.write.context import WriteContext

_MAX_GAP: Final = 1_000_000
"""A number further behind the last one of the log is a typing error or forged: the session would go on from it.

Files are read in the order of their paths, and rewound messages are in none: so numbers may be missing in between.
"""


def restore_messages(ctx: WriteContext, memory: Memory) -> None:
    """Bring the log of an episode's session up to date with the file, which the database did not know."""
    space = _session_space(ctx, memory)
    if space is None or memory.session is None:
        return
    parsed = transcript.parse(memory.text).messages
    session = find_locked(ctx, space, memory.session)
    known = sessions.get_many(ctx.tx, ctx.spaces, [message.id for message in parsed])
    if session is not None:
        _settle(ctx, session, memory, [message for message, space_id in known.values() if space_id == space.id])
    if space.id == memory.space.id and (session is None or session.generation == sessions.RESTORED_GENERATION):
        _restore_unknown(ctx, session, memory, memory.session)


def _restore_unknown(ctx: WriteContext, session: Session | None, memory: Memory, session_id: str) -> None:
    """Restore messages into a session that only files have made so far: its other episodes come one by one."""
    unknown = unknown_messages(ctx, memory, session)
    if unknown:
        session = session or create_session(ctx, memory, session_id, generation=sessions.RESTORED_GENERATION)
        add_messages(ctx, session, memory, unknown)


def find_locked(ctx: WriteContext, space: Space, session_id: str) -> Session | None:
    """Lock and return a session, or None."""
    ctx.lock_sessions((space.id, session_id))
    return sessions.find(ctx.tx, ctx.spaces, (space.id, session_id))


def add_messages(
    ctx: WriteContext, session: Session, memory: Memory, messages: list[transcript.TranscriptMessage]
) -> None:
    """Add messages of an episode to the log of its session, unless their numbers are taken."""
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
        sessions.restore(ctx.tx, session, adopted)
        ctx.log(session.space, "session.adopt", (), session=session.id, messages=len(adopted))


def _session_space(ctx: WriteContext, memory: Memory) -> Space | None:
    """Return the space of an episode's session: its own, unless the file names another one; None if that is unknown."""
    if memory.kind != "episode" or memory.session_space is None:
        return memory.space if memory.kind == "episode" else None
    return next((space for space in ctx.spaces.values() if space.name == memory.session_space), None)


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


def unknown_messages(ctx: WriteContext, memory: Memory, session: Session | None) -> list[transcript.TranscriptMessage]:
    """Return the messages of an episode that no session has and that its session could have reached."""
    parsed = transcript.parse(memory.text).messages
    known = sessions.get_many(ctx.tx, ctx.spaces, [message.id for message in parsed])
    last = session.last if session else 0
    reached: list[transcript.TranscriptMessage] = []
    for message in _distinct([message for message in parsed if message.id not in known and message.seq > 0]):
        if message.seq <= last + _MAX_GAP:
            reached.append(message)
            last = max(last, message.seq)
    return reached


def _distinct(messages: list[transcript.TranscriptMessage]) -> list[transcript.TranscriptMessage]:
    """Return messages in the order of their numbers; of two with the same id or number, the first in the file."""
    by_id: dict[str, transcript.TranscriptMessage] = {}
    for message in messages:
        by_id.setdefault(message.id, message)
    by_seq: dict[int, transcript.TranscriptMessage] = {}
    for message in by_id.values():
        by_seq.setdefault(message.seq, message)
    return [by_seq[seq] for seq in sorted(by_seq)]


def create_session(ctx: WriteContext, memory: Memory, session_id: str, *, generation: int) -> Session:
    """Create the session of an episode in the space of the episode, without messages."""
    session = Session(session_id, memory.space, None, memory.tags, memory.created, None, generation, last=0)
    sessions.add(ctx.tx, session)
    return session
