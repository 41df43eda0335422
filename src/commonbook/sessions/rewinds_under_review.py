"""Limits the rewinds of agents in a space under review: an agent takes back what it has appended, and nothing else.

A message does not say who appended it, since its author is what the caller says. The signed log does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from commonbook.access import review
from commonbook.errors import NotAllowed
from commonbook.log import chain
from commonbook.tables import revisions

if TYPE_CHECKING:
    from commonbook.model.session import Message, Session
    from commonbook.model.spaces import Space
    from commonbook.model.stored_memory import StoredMemory
    from commonbook.write.context import WriteContext

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
    return review.holds_back(ctx.actor, space.name, ctx.spaces)


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
