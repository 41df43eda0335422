"""Restores sessions from episode files, when the database is lost or older than the files.

A session that the database does not know is made from the files of its episodes, with their messages. A session that
it knows gets only messages that a MAC in the file proves to be of this home: nobody else appends to a log by a file.
Those that its log has as unsettled are recorded as settled in the episode, so that no message ends up in two episodes:
also, with a MAC, where an older database has the session in a space that it has left since.
An episode in another space than its session restores nothing: its words may have been written there, for other readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from commonbook.core.markdown import memory_conversion, transcript
from commonbook.core.markdown.memory_conversion import ClientIds
from commonbook.core.tables import sessions
from commonbook.values.session import Message, Session

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext
    from commonbook.values.spaces import Space
    from commonbook.values.stored_memory import StoredMemory

_NO_IDS: Final = ClientIds()
_MAX_GAP: Final = 1_000_000
"""A number further behind the last one of the log is a typing error or forged: the session would go on from it.

Files are read in the order of their paths, and rewound messages are in none: so numbers may be missing in between.
"""


def restore_messages(ctx: WriteContext, memory: StoredMemory) -> None:
    """Bring the log of an episode's session up to date with the file, which the database did not know."""
    space = _session_space(ctx, memory)
    if space is None or memory.session is None:
        return
    parsed = transcript.parse(memory.text).messages
    session = find_locked(ctx, space, memory.session)
    known = sessions.get_many(ctx.tx, ctx.spaces, [message.id for message in parsed])
    if session is not None:
        _settle(ctx, session, memory, [message for message, space_id in known.values() if space_id == space.id])
    _settle_elsewhere(ctx, memory, space, known.values())
    if space.id == memory.space.id:
        _restore_unknown(ctx, session, memory, memory.session)


def _settle_elsewhere(
    ctx: WriteContext, memory: StoredMemory, space: Space, known: Iterable[tuple[Message, str]]
) -> None:
    """Settle the messages that an older database has in another space than the file: their session was moved since."""
    proven = memory_conversion.proven_messages(ctx.engines.keys, memory._replace(space=space))
    elsewhere = [(message, space_id) for message, space_id in known if message.id in proven and space_id != space.id]
    for space_id in sorted({space_id for _, space_id in elsewhere}):
        session = find_locked(ctx, ctx.spaces[space_id], memory.session or "")
        if session is not None:
            _settle(ctx, session, memory, [message for message, found_in in elsewhere if found_in == space_id])


def _restore_unknown(ctx: WriteContext, session: Session | None, memory: StoredMemory, session_id: str) -> None:
    """Restore the messages that are new to a session: all if only files have made it so far, else the proven ones.

    Its other episodes come one by one. A proven message whose number was given to another meanwhile gets the next one.
    """
    proven = memory_conversion.proven_messages(ctx.engines.keys, memory)
    unknown = unknown_messages(ctx, memory, session)
    if session is not None and session.generation != sessions.RESTORED_GENERATION:
        unknown = _renumbered(ctx, session, [message for message in unknown if message.id in proven])
    if session is not None:
        repeated = _repeated(ctx, session, proven)
        unknown = [message for message in unknown if message.id not in repeated]
    if unknown:
        session = session or create_session(ctx, memory, session_id, generation=sessions.RESTORED_GENERATION)
        add_messages(ctx, session, memory, unknown, proven)


def _renumbered(
    ctx: WriteContext, session: Session, messages: list[transcript.TranscriptMessage]
) -> list[transcript.TranscriptMessage]:
    used = set(sessions.sequence_numbers(ctx.tx, session)) if messages else set()
    last = max([session.last, *(message.seq for message in messages)])
    taken = [message for message in messages if message.seq in used]
    moved = [message._replace(seq=last + place) for place, message in enumerate(taken, 1)]
    return [*(message for message in messages if message.seq not in used), *moved]


def _repeated(ctx: WriteContext, session: Session, proven: Mapping[str, ClientIds]) -> dict[str, Message]:
    """Return the messages that a session has under other ids, as a client sent them again, by the ids in the file."""
    client_ids = [ids.client_id for ids in proven.values() if ids.client_id is not None]
    if not client_ids:
        return {}
    stored = sessions.lock_session(ctx.tx, (session.space.id, session.id), client_ids).repeated()
    found = {id_: stored[ids.client_id] for id_, ids in proven.items() if ids.client_id in stored}
    return {id_: message for id_, (message, _) in found.items() if message.id != id_}


def without_repeats(ctx: WriteContext, memory: StoredMemory) -> StoredMemory | None:
    """Return an episode of a new file as it is to be stored, if clients have sent some of its messages again before.

    Such a message is stored already: the episode has it under the id that it has now, and not at all if it is settled
    elsewhere or rewound. None if nothing else is in the episode.
    """
    proven = memory_conversion.proven_messages(ctx.engines.keys, memory)
    session = find_locked(ctx, memory.space, memory.session) if proven and memory.session else None
    repeated = _repeated(ctx, session, proven) if session else {}
    if session is None or not repeated:
        return memory
    parsed = transcript.parse(memory.text)
    kept = [(message, _as_stored(message, repeated.get(message.id))) for message in parsed.messages]
    messages = [stored for _, stored in kept if stored is not None]
    if not messages:
        return None
    lines = tuple(
        memory_conversion.message_line(ctx.engines.keys, session.space.id, session.id, stored, proven[message.id])
        for message, stored in kept
        if stored is not None and message.id in proven
    )
    text = transcript.render(messages, introduction=parsed.introduction)
    return memory._replace(text=text, message_lines=lines)


def _as_stored(message: transcript.TranscriptMessage, repeat: Message | None) -> transcript.TranscriptMessage | None:
    """Return a message of a file as its repeat is stored, with the words of the file; None if it is elsewhere."""
    if repeat is None:
        return message
    if repeat.episode is None and repeat.rewound_at is None:
        return message._replace(id=repeat.id, seq=repeat.seq, author=repeat.author, role=repeat.role, time=repeat.time)
    # Words that a person has edited here are in no other episode: they stay as text.
    return message if repeat.rewound_at is None and repeat.text != message.text else None


def find_locked(ctx: WriteContext, space: Space, session_id: str) -> Session | None:
    """Lock and return a session, or None."""
    ctx.lock_sessions((space.id, session_id))
    return sessions.find(ctx.tx, ctx.spaces, (space.id, session_id))


def add_messages(
    ctx: WriteContext,
    session: Session,
    memory: StoredMemory,
    messages: list[transcript.TranscriptMessage],
    proven: Mapping[str, ClientIds] = MappingProxyType({}),
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
            client_id=proven.get(message.id, _NO_IDS).client_id,
            episode=memory.id,
        )
        for message in messages
        if message.seq not in used_numbers
    ]
    if adopted:
        sent = [proven.get(message.id, _NO_IDS).sent for message in adopted]
        sessions.restore(ctx.tx, session, list(zip(adopted, sent, strict=True)))
        ctx.log(session.space, "session.adopt", (), session=session.id, messages=len(adopted))


def _session_space(ctx: WriteContext, memory: StoredMemory) -> Space | None:
    """Return the space of an episode's session: its own, unless the file names another one; None if that is unknown."""
    if memory.kind != "episode" or memory.session_space is None:
        return memory.space if memory.kind == "episode" else None
    return next((space for space in ctx.spaces.values() if space.name == memory.session_space), None)


def _settle(ctx: WriteContext, session: Session, memory: StoredMemory, known: list[Message]) -> None:
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


def unknown_messages(
    ctx: WriteContext, memory: StoredMemory, session: Session | None
) -> list[transcript.TranscriptMessage]:
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


def create_session(ctx: WriteContext, memory: StoredMemory, session_id: str, *, generation: int) -> Session:
    """Create the session of an episode in the space of the episode, without messages."""
    session = Session(session_id, memory.space, None, memory.tags, memory.created, None, generation, last=0)
    sessions.forget_move(ctx.tx, (memory.space.id, session_id))
    sessions.add(ctx.tx, session)
    return session
