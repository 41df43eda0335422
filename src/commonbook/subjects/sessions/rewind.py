"""Rewinds a session: its later messages leave recall and episodes, and the session log keeps them, marked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from commonbook.core.access import permissions
from commonbook.core.files import hand_edits, scan
from commonbook.core.log import chain
from commonbook.core.markdown import transcript
from commonbook.core.tables import memories, revisions, sessions
from commonbook.core.tables.sessions import SessionKey
from commonbook.core.text import validation
from commonbook.core.write import store_version
from commonbook.core.write.context import WriteContext
from commonbook.errors import BadInput, FileInTheWay, NotAllowed, NotFound
from commonbook.ports.engines import Engines
from commonbook.subjects.sessions.append import require_writable
from commonbook.subjects.sessions.read import without_hidden_episodes
from commonbook.values.request import RequestContext
from commonbook.values.session import Message, Session

if TYPE_CHECKING:
    from commonbook.values.spaces import Space
    from commonbook.values.stored_memory import StoredMemory


def rewind(engines: Engines, caller: RequestContext, key: SessionKey, after: int | str) -> tuple[Message, ...]:
    """Rewind a session: remove all messages after one (its number or id) from recall and episodes, not from the log.

    An episode that was moved into another space changes only if the actor may write to that space. Live and lazy copies
    follow, each in the name of its sharer. In a space under review, an agent takes back only what it has appended.
    """

    def operation(ctx: WriteContext, *, scanned: bool) -> tuple[Message, ...]:
        session = require_writable(ctx, key)
        rewound = sessions.rewind(ctx.tx, session, after=_seq(ctx, session, after))
        require_own_messages(ctx, session, rewound)
        for episode in dict.fromkeys(message.episode for message in rewound if message.episode):
            removed = frozenset(message.id for message in rewound if message.episode == episode)
            _remove_from_episode(ctx, session, episode, removed, scanned=scanned)
        sessions.next_generation(ctx.tx, session)
        ctx.touch(session.space, (message.id for message in rewound))
        ctx.log(session.space, "session.rewind", (), session=session.id, seqs=[message.seq for message in rewound])
        return without_hidden_episodes(ctx.tx, ctx.readable, rewound)

    return scan.write_with_scan(engines, caller.recording(), operation)


def _seq(ctx: WriteContext, session: Session, after: int | str) -> int:
    if isinstance(after, int):
        if not 0 <= after <= session.last:
            raise BadInput(
                f"the session {session.id} has no message {after}", fix=f"give a number from 0 to {session.last}"
            )
        return after
    message_id: object = after
    is_valid = isinstance(message_id, str) and validation.is_unicode(message_id) and "\0" not in message_id
    ids = [after] if is_valid else []
    message, _ = sessions.get_many(ctx.tx, {session.space.id: session.space}, ids).get(after, (None, ""))
    if message is None or message.session != session.id:
        raise NotFound(
            f"the session {session.id} has no message {after}", fix="`commonbook session show` lists its messages"
        )
    return message.seq


def _remove_from_episode(
    ctx: WriteContext, session: Session, episode: str, removed: frozenset[str], *, scanned: bool
) -> None:
    """Remove messages from an episode by a new revision; an episode without messages is deleted.

    One that is deleted already loses them too, if it is away from its session. Beside its session, an undelete goes by
    the rows of the messages.
    """
    ctx.lock([episode])
    memory = memories.find(ctx.tx, ctx.writable, episode)
    if memory is None or is_out_of_reach(ctx, session, memory):
        return
    if memory.deleted is not None and memory.space.id == session.space.id:
        return
    try:
        if memory.deleted is None:
            memory = hand_edits.with_file_changes(ctx, memory, scanned=scanned)
    except (NotFound, NotAllowed):
        # A person has moved its file into a space that the actor may not write to, or deleted it.
        return
    except FileInTheWay:
        # A person is editing the file, which is not overwritten. Recall goes by the stored messages all the same.
        ctx.touch(memory.space, [memory.id])
        ctx.pending.note_changed_text(memory)
        return
    require_unedited(ctx, memory)
    text = transcript.without(memory.text, removed)
    if text is None:
        store_version.delete(ctx, memory, how="rewind")
        # The copies that follow it go too.
        ctx.pending.note_changed_text(memory)
    elif text != memory.text:
        store_version.store_version(ctx, memory, memory._replace(text=text), ["text"], how="rewind")


_BY_THE_BOOK: Final = frozenset({"settle", "rewind"})
"""The verbs whose revisions of an episode follow from its messages."""


def require_own_messages(ctx: WriteContext, session: Session, rewound: Iterable[Message]) -> None:
    """Raise NotAllowed if an agent would take back messages of others in a space under review."""
    if not _is_limited(ctx, session.space):
        return
    own = _own_numbers(ctx, session)
    if any(message.seq not in own for message in rewound):
        raise NotAllowed(
            f"{ctx.actor.principal} may take back only what it has appended itself to the session {session.id}",
            fix="let a person rewind it: the space is under review",
        )


def is_out_of_reach(ctx: WriteContext, session: Session, episode: StoredMemory) -> bool:
    """Tell whether an episode was moved away from its session, into a space where the actor may only propose."""
    return episode.space.id != session.space.id and _is_limited(ctx, episode.space)


def require_unedited(ctx: WriteContext, episode: StoredMemory) -> None:
    """Raise NotAllowed if an agent would change an episode of a space under review that somebody has edited."""
    if not _is_limited(ctx, episode.space):
        return
    verbs = {episode.revised_how, *(revision.how for revision in revisions.past_revisions(ctx.tx, episode))}
    if verbs - _BY_THE_BOOK:
        raise NotAllowed(
            f"the episode {episode.id} was edited, and {ctx.actor.principal} may take nothing out of it",
            fix="let a person rewind the session: the space is under review",
        )


def _is_limited(ctx: WriteContext, space: Space) -> bool:
    return permissions.holds_back(ctx.actor, space.name, ctx.spaces)


def _own_numbers(ctx: WriteContext, session: Session) -> set[int]:
    """Return the numbers of the messages that the actor has appended since the session began, or came, here."""
    numbers: set[int] = set()
    for entry in chain.appends_by(ctx.tx, session.space.id, ctx.actor.principal):
        payload = json.loads(entry.payload)
        if payload["session"] != session.id:
            continue
        if entry.action == "append":
            numbers.update(range(payload["first"], payload["last"] + 1))
        else:
            # Another session may have had this name before.
            numbers.clear()
    return numbers
