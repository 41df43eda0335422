"""Says of an episode that is moved in which space its session is, and signs its messages for that space."""

from __future__ import annotations

from commonbook.markdown import keyed_hashes, transcript
from commonbook.model.spaces import Space
from commonbook.model.stored_memory import StoredMemory
from commonbook.tables.session_places import moves as session_moves
from commonbook.write.context import WriteContext


def after_move(ctx: WriteContext, old: StoredMemory, new: StoredMemory) -> StoredMemory:
    """Return an episode with the space of its session, after one of both was moved; none if it is beside the session.

    The session may have been moved while the episode was elsewhere: its messages tell where it is.
    """
    if new.session is None:
        return new
    former = old.session_space or old.space.name
    present = ctx.spaces.get(session_moves.space_of_episode(ctx.tx, new.id) or "")
    name = former if present is None else present.name
    source = next((space for space in ctx.spaces.values() if space.name == former), None)
    if present is not None and source is not None and present.id != source.id:
        new = new._replace(message_lines=_signed_again(ctx, new, source, present))
    return new._replace(session_space=None if name == new.space.name else name)


def _signed_again(ctx: WriteContext, memory: StoredMemory, source: Space, target: Space) -> tuple[str, ...]:
    """Return the lines that prove the messages of an episode whose session was moved, with MACs for its new space."""
    keys = ctx.engines.keys
    proven = keyed_hashes.proven_messages(keys, memory._replace(space=source))
    return tuple(
        keyed_hashes.message_line(keys, target.id, memory.session or "", message, proven[message.id])
        for message in transcript.parse(memory.text).messages
        if message.id in proven
    )
