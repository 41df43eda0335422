"""Proposals: memories that wait in a space of their own, beside the space that they are for, until a person decides.

A proposed memory is an ordinary one. Its place alone tells that it is proposed, in the rows and in the files: a move
into the other space, by a verb or by hand, is its approval. Until then it supersedes nothing: its links say only that
it would.
"""

from __future__ import annotations

from typing import Final

from commonbook.access import permissions
from commonbook.errors import Conflict
from commonbook.model.memory import WOULD_SUPERSEDE
from commonbook.model.spaces import Actor, Space
from commonbook.model.stored_memory import StoredLink, StoredMemory
from commonbook.text import space_names
from commonbook.write.context import ForeignWrite, WriteContext

_SUPERSEDES: Final = "supersedes"


def space_for_new_memory(ctx: WriteContext, name: str) -> tuple[Space, Space]:
    """Return the space of that name, and the one that a new memory of the actor goes into: it may have to be proposed.

    Spaces are created if needed; the actor must be allowed to write to them or create them.
    """
    if not permissions.holds_back(ctx.actor, name, ctx.spaces):
        space = ctx.require_writable_space(name)
        return space, space
    named = ctx.space_named(name) or _new_space(ctx, name)
    proposals = ctx.system_space(space_names.proposals_of(name))
    if proposals.id not in ctx.writable:
        raise permissions.refusal(ctx.actor, name)
    return named, proposals


def _new_space(ctx: WriteContext, name: str) -> Space:
    """Create a space below one that is under review, by the right that the actor has without the review."""
    permissions.require_create(ctx.tx, ctx.actor.recording(), ctx.spaces, name)
    proposing = ctx.because(ForeignWrite.PROPOSAL)
    return proposing.add_space(space_names.require_new_name(name), ctx.choose_folder(name), origin="new")


def proposed_relation(relation: str) -> str:
    """Return the relation that a proposed memory has in place of one that would take effect at once."""
    return WOULD_SUPERSEDE if relation == _SUPERSEDES else relation


def to_be_superseded(memory: StoredMemory) -> list[str]:
    """Return the ids of the memories that a proposed one supersedes once it is approved."""
    return [link.target for link in memory.links if link.relation == WOULD_SUPERSEDE]


def _proposed_links(memory: StoredMemory) -> tuple[StoredLink, ...]:
    links = (link._replace(relation=proposed_relation(link.relation)) for link in memory.links)
    return tuple({(link.relation, link.target): link for link in links}.values())


def require_approved(memory: StoredMemory) -> None:
    """Raise Conflict if a memory is proposed: it supersedes nothing, and is not copied, before a person approves it."""
    if memory.space.holds_proposals:
        raise Conflict(
            f"memory {memory.id} is only proposed",
            fix="let a person approve it first; `remember` with `replaces` proposes a successor",
        )


def approved_links(memory: StoredMemory) -> tuple[StoredLink, ...]:
    """Return the links of a proposed memory as they are after its approval."""
    links = (link._replace(relation=_SUPERSEDES) if link.relation == WOULD_SUPERSEDE else link for link in memory.links)
    # An older file of an approved memory may have the one link, and the memory the other.
    return tuple({(link.relation, link.target): link for link in links}.values())


def after_move(old: StoredMemory, new: StoredMemory) -> StoredMemory:
    """Return a moved memory, whose links take effect if it was proposed before and is no longer."""
    return in_effect(new) if old.space.holds_proposals else new


def in_effect(memory: StoredMemory) -> StoredMemory:
    """Return the memory of a file with its links as they are where it is: they take effect outside of the proposals.

    A file may have been moved out of the proposals while no database knew it. Only agents propose, so the links of a
    memory of a person take no effect by that.
    """
    if memory.space.holds_proposals:
        return memory._replace(links=_proposed_links(memory))
    return memory._replace(links=approved_links(memory)) if Actor(memory.author).is_agent else memory
