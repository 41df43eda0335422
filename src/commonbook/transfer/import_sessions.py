"""Decides what an imported episode means for the session that it names: it begins one, or changes none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.files import episode_files
from commonbook.tables import sessions

if TYPE_CHECKING:
    from commonbook.model.memory import Memory
    from commonbook.tables.sessions import SessionKey
    from commonbook.write.context import WriteContext


def begin_session(ctx: WriteContext, memory: Memory, begun: set[SessionKey]) -> None:
    """Make the session that an imported episode names, in the space of the episode, with the messages of the episode.

    `begun` are the sessions that the same import has made. Any other existing session is not changed: nobody appends
    to a log by an import.
    """
    if memory.kind != "episode" or not memory.session:
        return
    key = (memory.space.id, memory.session)
    session = episode_files.find_locked(ctx, memory.space, memory.session)
    unknown = episode_files.unknown_messages(ctx, memory, session) if session is None or key in begun else []
    if unknown:
        begun.add(key)
        session = session or episode_files.create_session(
            ctx, memory, memory.session, generation=sessions.FIRST_GENERATION
        )
        episode_files.add_messages(ctx, session, memory, unknown)
