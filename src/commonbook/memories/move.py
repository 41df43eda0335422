"""Moves a memory into another space, in one transaction."""

from __future__ import annotations

from commonbook.errors import BadInput
from commonbook.memories.edit import change
from commonbook.model.memory import Memory, Receipt
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.tables import memories
from commonbook.text import space_names
from commonbook.write import store_version
from commonbook.write.context import WriteContext
from commonbook.write.new_memory import moved_path


def move(engines: Engines, actor: Actor, memory_id: str, to: str, *, expected_version: int | None) -> Receipt:
    """Move a memory into another space, with its file and its history."""
    space_names.require_space_name(to)

    def operation(ctx: WriteContext, memory: Memory) -> Memory:
        space = ctx.require_writable_space(to)
        if space.id == memory.space.id:
            return memory
        if memory.notice is not None:
            raise BadInput("a notice stays where the memory is that it is about", fix="move that memory")
        path = moved_path(ctx, memory, space)
        ctx.record_move(memory, path)
        # A copy follows its source for the readers of a space that its sharer chose: only a reader of the source may
        # choose another.
        moved_copy = _without_unreadable_words(ctx, memory._replace(space=space, path=path))
        changed = ["space", "shared"] if moved_copy.shared != memory.shared else ["space"]
        return store_version.store_version(ctx, memory, moved_copy, changed, how="move")

    return change(engines, actor, memory_id, operation, expected_version=expected_version)


def _without_unreadable_words(ctx: WriteContext, memory: Memory) -> Memory:
    """Return a copy as a snapshot if the actor may not read its source; any other memory as it is."""
    link = memory.source
    if link is None or memories.find(ctx.tx, ctx.readable, link.target) is not None:
        return memory
    return store_version.following_no_more(ctx, memory)
