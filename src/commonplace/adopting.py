"""Adopting: the messages of an episode that came as a file go back into the log of their session."""

from __future__ import annotations

from commonplace import sessions, transcripts
from commonplace.desk import Desk
from commonplace.model import Memory, Message, Session


def adopt(desk: Desk, memory: Memory) -> None:
    """Take the messages of an episode into its session's log, where they are not known yet; who has them keeps them."""
    if memory.kind != "episode" or not memory.session:
        return
    told = transcripts.parse(memory.text).messages
    known = sessions.several(desk.tx, desk.spaces, [message.id for message in told])
    session = _session(desk, memory, memory.session)
    if session is None:
        return
    taken = sessions.numbers(desk.tx, session)
    fresh: dict[int, Message] = {}
    for one in told:
        if one.id not in known and one.seq > 0 and one.seq not in taken and one.seq not in fresh:
            fresh[one.seq] = Message(
                one.id, session.id, one.seq, one.role, one.author, one.text, one.time, episode=memory.id
            )
    if fresh:
        sessions.append(desk.tx, session, [(fresh[seq], None) for seq in sorted(fresh)])
        desk.log(session.space, "session.adopt", (), session=session.id, messages=len(fresh))


def _session(desk: Desk, memory: Memory, session_id: str) -> Session | None:
    if sessions.place(desk.tx, session_id) is not None:
        desk.hold_sessions(session_id)
        return sessions.find(desk.tx, desk.spaces, session_id)
    session = Session(session_id, memory.space, None, memory.tags, memory.created, None, 1, 0)
    sessions.add(desk.tx, session)
    return session
