"""Records which memories and messages were put into which turns of a session, and tells it to those who may read both.

So one can ask which turns a wrong memory has reached. A reader is told of a turn if it may read the session, and of a
passage if it may read the memory or message that the passage is from, also after that was deleted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from commonbook.core.access import permissions
from commonbook.core.tables import memories, prompt_uses, sessions
from commonbook.core.tables.sessions import SessionKey
from commonbook.core.text import validation
from commonbook.core.write.context import WriteContext
from commonbook.core.write.transaction import write
from commonbook.errors import BadInput, NotFound, TooLarge
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.sessions.append import require_writable
from commonbook.subjects.sessions.read import require_readable, without_hidden_episodes
from commonbook.values.request import RequestContext
from commonbook.values.session import PromptPassage, PromptUse, Session
from commonbook.values.spaces import Actor, SpaceScope

MAX_PASSAGES: Final = 200
_HASH: Final = re.compile(r"[0-9a-f]{64}")


def record(
    engines: Engines, caller: RequestContext, key: SessionKey, passages: Sequence[PromptPassage], message: int | str
) -> int:
    """Store that these passages went with a message, given by its number or its client id; return how many are new."""
    checked = _validate(passages)

    def operation(ctx: WriteContext) -> int:
        session = require_writable(ctx, key)
        seq = _seq(ctx, session, message)
        added = prompt_uses.add(ctx.tx, session, seq, checked, by=caller.actor.principal)
        if added:
            # Readers of the log may not be allowed to read the memories, so that it names none of them.
            ids = ctx.engines.keys.keyed_hash(*(passage.id for passage in checked))
            ctx.log(session.space, "session.use", (), session=session.id, seq=seq, passages=added, ids=ids)
        return added

    return write(engines, caller.recording(), operation)


def _validate(passages: Sequence[PromptPassage]) -> tuple[PromptPassage, ...]:
    if len(passages) > MAX_PASSAGES:
        raise TooLarge(f"{len(passages):,} passages are too many at once", fix=f"send at most {MAX_PASSAGES}")
    checked = []
    for index, passage in enumerate(passages):
        with validation.error_item(index):
            if not _HASH.fullmatch(passage.hash):
                raise BadInput("a passage needs an id and a hash", fix="give the SHA-256 of its text, in 64 hex digits")
            if passage.revision is not None and not 0 <= passage.revision < 1 << 31:
                raise BadInput(f"{passage.revision} is no revision", fix="give that of the memory, or none")
            checked.append(passage._replace(id=validation.validate_memory_id(passage.id)))
    return tuple(checked)


def _seq(ctx: WriteContext, session: Session, message: int | str) -> int:
    if isinstance(message, str):
        sent = validation.validate_key(message)
        found, _ = (
            sessions.lock_session(ctx.tx, (session.space.id, session.id), [sent]).repeated().get(sent, (None, None))
        )
        if found is None:
            raise NotFound(
                f"the session {session.id} has no message with that client id", fix="append the message first"
            )
        return found.seq
    if not 0 <= message <= session.last:
        raise BadInput(
            f"the session {session.id} has no message {message}", fix=f"give a number from 0 to {session.last}"
        )
    return message


def of_memory(engines: Engines, actor: Actor, memory_id: str, *, limit: int) -> tuple[PromptUse, ...]:
    """Return the turns that a memory or a message has reached, the newest first; for an episode, also its messages."""
    memory_id = validation.validate_memory_id(memory_id)
    validation.require_page_limit(limit, has_next=False)
    with engines.db.reading() as tx:
        allowed = permissions.select(tx, actor)
        items = [memory_id]
        memory = memories.find(tx, allowed, memory_id)
        if memory is not None:
            items += sessions.messages_of_episodes(tx, {memory_id: memory.space.id}).get(memory_id, {})
        elif not sessions.get_many(tx, allowed, [memory_id]):
            raise permissions.no_memory(memory_id)
        return _with_memories(tx, allowed, prompt_uses.of_items(tx, allowed, items, limit=limit))


def of_session(
    engines: Engines, actor: Actor, session_id: str, *, space: str | None, first: int, last: int | None
) -> tuple[PromptUse, ...]:
    """Return what went with the messages between two numbers of a session, in order."""
    with engines.db.reading() as tx:
        session = require_readable(tx, actor, session_id, space)
        end = session.last if last is None else min(last, session.last)
        used = prompt_uses.of_session(tx, session, first=min(max(0, first), session.last), last=max(0, end))
        return _with_memories(tx, permissions.select(tx, actor), used)


def _with_memories(tx: Reading, allowed: SpaceScope, used: Sequence[PromptUse]) -> tuple[PromptUse, ...]:
    """Return the uses of what may be read, each with the memory that has it."""
    items = sorted({use.id for use in used})
    places = memories.spaces_of(tx, items)
    found: dict[str, str | None] = {item: item for item, space in places.items() if space in allowed}
    messages = [
        message for message, _ in sessions.get_many(tx, allowed, [id_ for id_ in items if id_ not in places]).values()
    ]
    found |= {message.id: message.episode for message in without_hidden_episodes(tx, allowed, messages)}
    return tuple(use._replace(memory=found[use.id]) for use in used if use.id in found)
