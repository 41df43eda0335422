"""Moves a session with its messages and episodes into another space, in one transaction.

The old space keeps a row that says where the session is (`core.tables.sessions`). An append that names the old
space goes to the new one, so that a client that sends a message again, or has it in its outbox, does not store it
twice.
"""

from __future__ import annotations

from commonbook.core.files import hand_edits, scan
from commonbook.core.tables import memories, prompt_uses, sessions
from commonbook.core.tables.sessions import SessionKey
from commonbook.core.text import space_names
from commonbook.core.write import rewound_messages, store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import moved_path
from commonbook.errors import BadInput, Conflict
from commonbook.ports.engines import Engines
from commonbook.subjects.sessions.append import require_writable
from commonbook.values.request import RequestContext
from commonbook.values.session import Session
from commonbook.values.spaces import Space
from commonbook.values.stored_memory import StoredMemory


def move(engines: Engines, caller: RequestContext, key: SessionKey, to: str) -> Session:
    """Move a session into another space; Conflict if that has a session of this name. Return the moved session.

    Episodes that somebody moved into a third space stay there, and name the former space until they are moved.
    """
    space_names.require_space_name(to)

    def operation(ctx: WriteContext, *, scanned: bool) -> Session:
        session = require_writable(ctx, key)
        target = ctx.require_writable_space(to)
        if target.id == session.space.id:
            return session
        if space_names.is_system(target.name):
            raise BadInput(f"the space {target.name!r} is for the book's own memories", fix="name another space")
        _require_free(ctx, session, target)
        episodes = sessions.episodes(ctx.tx, session)
        ctx.lock(episodes)
        unsettled = [message.id for message in sessions.unsettled(ctx.tx, session)]
        count = sessions.move(ctx.tx, session, target.id, by=ctx.actor.principal)
        prompt_uses.move(ctx.tx, session, target.id)
        for episode in episodes:
            _move_episode(ctx, session, target, episode, scanned=scanned)
        # A job that is queued for settling names the old space, and finds the session all the same.
        ctx.touch(target, unsettled)
        # Neither entry names the other space, whose name the readers of this one may not be allowed to know.
        ctx.log(session.space, "session.move.out", (), session=session.id, messages=count)
        ctx.log(target, "session.move.in", (), session=session.id, messages=count)
        moved = sessions.find(ctx.tx, {**ctx.readable, target.id: target}, (target.id, session.id))
        return moved or session._replace(space=target)

    return scan.write_with_scan(engines, caller, operation)


def _require_free(ctx: WriteContext, session: Session, target: Space) -> None:
    """Refuse a space that has a session of this name, had one that others still look for, or would make a cycle."""
    key, there = (session.space.id, session.id), (target.id, session.id)
    ctx.lock_sessions(there)
    present = sessions.present_key(ctx.tx, there)
    if present not in {key, there} or sessions.find(ctx.tx, ctx.spaces, there) is not None:
        raise Conflict(
            f"the space {target.name!r} has or had a session {session.id} already",
            fix="name another space, or append to that session",
        )
    if present == there and sessions.descends_from(ctx.tx, key, there):
        raise Conflict(
            f"a session of {target.name!r} names {session.id} as its parent, and the session goes on from that one",
            fix="name another space",
        )


def _move_episode(ctx: WriteContext, session: Session, target: Space, episode: str, *, scanned: bool) -> None:
    """Move an episode along with its session; one that is in the new space already is joined to the session again.

    It loses what was rewound while it was elsewhere, and is deleted if nothing else is in it.
    """
    memory = memories.find(ctx.tx, ctx.writable, episode)
    if memory is None or memory.space.id not in {session.space.id, target.id}:
        return
    if memory.deleted is None:
        memory = hand_edits.with_file_changes(ctx, memory, scanned=scanned)
    if memory.space.id not in {session.space.id, target.id}:
        # A person has moved its file into a third space meanwhile.
        return
    is_empty = memory.deleted is None and rewound_messages.remaining_text(ctx.tx, memory._replace(space=target)) is None
    if is_empty:
        memory = store_version.delete(ctx, memory, how="rewind")
    moved = _join(ctx, memory) if memory.space.id == target.id else _take_along(ctx, memory, target)
    if is_empty:
        # The copies that follow it go too.
        ctx.pending.note_changed_text(moved)


def _join(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
    """Join an episode to its session again, without what was rewound while the session was elsewhere."""
    text = rewound_messages.text_after_move(ctx.tx, memory, memory, by_hand=False)
    joined = store_version.with_session_space(ctx, memory, memory._replace(text=text))
    changed = ["session_space"] if text == memory.text else ["session_space", "text"]
    return store_version.store_version(ctx, memory, joined, changed, how="move")


def _take_along(ctx: WriteContext, memory: StoredMemory, target: Space) -> StoredMemory:
    path = memory.path if memory.deleted is not None else moved_path(ctx, memory, target)
    if memory.deleted is None:
        ctx.record_move(memory, path)
    return store_version.store_version(ctx, memory, memory._replace(space=target, path=path), ["space"], how="move")
