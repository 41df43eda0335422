"""Review: in a space that has the memories of agents reviewed, an agent reads, talks and proposes, and no more.

The role of an agent is limited there, whatever it was granted. So every verb that would change a memory of the space,
or its grants, refuses it, and none has to know about reviews. What it remembers goes into the space of the proposals.
For an agent that proposes (`Actor.proposes`), every space is one under review.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from commonbook.errors import NotAllowed
from commonbook.model.spaces import READER, WRITER, Actor, Space, SpaceScope, is_reviewed
from commonbook.text import space_names

if TYPE_CHECKING:
    from commonbook.model.stored_memory import StoredMemory


def holds_back(actor: Actor, name: str, spaces: SpaceScope) -> bool:
    """Tell whether a review keeps an actor from changing the memories of a space."""
    return actor.is_agent and (actor.proposes or is_reviewed(name, spaces))


def within_review(actor: Actor, roles: Mapping[str, str], spaces: SpaceScope) -> Mapping[str, str]:
    """Return the roles of an agent: it reads the spaces under review, and writes to those of their proposals."""
    if not actor.proposes and all(space.review is None for space in spaces.values()):
        return roles
    return {id_: _role(actor, role, spaces[id_], spaces) for id_, role in roles.items()}


def _role(actor: Actor, role: str, space: Space, spaces: SpaceScope) -> str:
    if role == READER:
        return role
    if space.holds_proposals:
        return WRITER if holds_back(actor, space_names.reviewed_space(space.name), spaces) else role
    return READER if holds_back(actor, space.name, spaces) else role


def require_own_proposal(actor: Actor, memory: StoredMemory) -> None:
    """Raise NotAllowed if an agent would change a memory that somebody else has proposed."""
    if memory.space.holds_proposals and memory.author != actor.principal:
        raise NotAllowed(
            f"memory {memory.id} was proposed by {memory.author}", fix="let that agent, or a person, change it"
        )


def require_none_below(actor: Actor, name: str, spaces: SpaceScope) -> None:
    """Raise NotAllowed if an agent would change the grants or the name of spaces under review from a space above."""
    below = (space for space in spaces.values() if space_names.is_within(space.name, name))
    if actor.is_agent and any(space.review is not None for space in below):
        raise NotAllowed(
            f"{actor.principal} is an agent, and a space in {name!r} is under review", fix="let a person do it"
        )


def refusal(actor: Actor, name: str) -> NotAllowed:
    """Return the error for a change by an agent in a space that it may read, and where it may only propose."""
    return NotAllowed(
        f"{actor.principal} may only propose in the space {name!r}",
        fix="remember a new memory there, with `replaces` in place of an edit: a person approves it",
    )
