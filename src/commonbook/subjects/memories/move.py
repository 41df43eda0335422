"""Moves a memory into another space, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from commonbook.core.tables import memories
from commonbook.core.text import space_names
from commonbook.core.write import store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import moved_path
from commonbook.core.write.transaction import logging_refusal
from commonbook.errors import BadInput
from commonbook.ports.engines import Engines
from commonbook.subjects.memories.edit import change
from commonbook.subjects.memories.marks import live_ids
from commonbook.subjects.memories.remember import resolve_links
from commonbook.subjects.reasoning import link_checks
from commonbook.values.memory import WOULD_SUPERSEDE, Receipt
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor, Space
from commonbook.values.stored_memory import StoredLink, StoredMemory


def move(engines: Engines, caller: RequestContext, memory_id: str, to: str, *, expected_version: int | None) -> Receipt:
    """Move a memory into another space, with its file and its history; one that was proposed is approved by that."""
    space_names.require_space_name(to)

    def operation(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
        note_proposal(memory)
        return move_to(ctx, memory, ctx.require_writable_space(to))

    with logging_refused_approval(engines, caller.actor) as note_proposal:
        return change(engines, caller, memory_id, operation, expected_version=expected_version)


@contextmanager
def logging_refused_approval(engines: Engines, actor: Actor) -> Iterator[Callable[[StoredMemory], None]]:
    """If the block is refused, log that in the spaces of what the memory would supersede that it has noted.

    The block notes the memory by the function that it gets, inside of its transaction.
    """
    superseded: list[str] = []

    def note_proposal(memory: StoredMemory) -> None:
        superseded[:] = store_version.to_be_superseded(memory)

    with logging_refusal(engines, actor, "supersede", superseded):
        yield note_proposal


def move_to(ctx: WriteContext, memory: StoredMemory, space: Space) -> StoredMemory:
    """Move a memory that the actor may write to into a space that it may write to."""
    if space.id == memory.space.id:
        return memory
    if memory.notice is not None:
        raise BadInput("a notice stays where the memory is that it is about", fix="move that memory")
    links = _links_to_take_effect(ctx, memory) if memory.space.holds_proposals else memory.links
    path = moved_path(ctx, memory, space)
    ctx.record_move(memory, path)
    # A copy follows its source for the readers of a space that its sharer chose: only a reader of the source may
    # choose another.
    moved_copy = _without_unreadable_words(ctx, memory._replace(space=space, path=path, links=links))
    changed = ["space", "shared"] if moved_copy.shared != memory.shared else ["space"]
    return store_version.store_version(ctx, memory, moved_copy, changed, how="move")


def _links_to_take_effect(ctx: WriteContext, memory: StoredMemory) -> tuple[StoredLink, ...]:
    """Return the links of a proposed memory without those to memories that were deleted meanwhile; check the others.

    Its links take effect by the move, so they need the rights and fulfil the conditions of links that are made now.
    """
    superseded = store_version.to_be_superseded(memory)
    ctx.lock(superseded)
    live = live_ids(ctx.tx, ctx.spaces, superseded)
    new = resolve_links(ctx, memory.id, [("supersedes", target) for target in superseded if target in live])
    if new:
        link_checks.require_valid_links(ctx, memory, new)
    return tuple(link for link in memory.links if link.relation != WOULD_SUPERSEDE or link.target in live)


def _without_unreadable_words(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
    """Return a copy as a snapshot if the actor may not read its source; any other memory as it is."""
    link = memory.source
    if link is None or memories.find(ctx.tx, ctx.readable, link.target) is not None:
        return memory
    return store_version.following_no_more(ctx, memory)
