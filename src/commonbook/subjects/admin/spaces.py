"""Spaces: create, rename and list them, and set how many levels reflections may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from commonbook.core.access import permissions
from commonbook.core.files import hand_edits, scan
from commonbook.core.log import chain
from commonbook.core.tables import memories, spaces
from commonbook.core.text import space_names, titles
from commonbook.core.write import space_folders, store_version
from commonbook.core.write.context import WriteContext
from commonbook.core.write.store_version import free_path
from commonbook.core.write.transaction import write
from commonbook.errors import BadInput, NotAllowed, NotFound, SpaceExists
from commonbook.ports.engines import Engines
from commonbook.values.request import RequestContext
from commonbook.values.spaces import AGENTS, Actor, Review, Space
from commonbook.values.stored_memory import StoredMemory


def create(engines: Engines, caller: RequestContext, name: str) -> Space:
    """Create a space; SpaceExists if there is one of that name.

    A folder of the home that has this name, in small or capital letters, becomes the space: its notes move into it, if
    the owner of the home asks for that. For others the space gets a folder of its own.
    """
    space_names.require_space_name(name)

    def operation(ctx: WriteContext) -> Space:
        if spaces.find_by_name(ctx.tx, name) is not None:
            permissions.require_create(ctx.tx, caller.actor, ctx.spaces, name)
            raise SpaceExists(f"the space {name!r} is there already", fix="use it, or choose another name")
        permissions.require_create(ctx.tx, caller.actor, ctx.spaces, name)
        space_names.require_new_name(name)
        with_its_notes = permissions.is_owner(caller.actor)
        space = ctx.add_space(name, ctx.choose_folder(name, with_its_notes=with_its_notes), origin="new")
        if with_its_notes:
            _take_notes(ctx, space)
        return space

    return write(engines, caller, operation)


def _take_notes(ctx: WriteContext, space: Space) -> None:
    """Move the memories whose files lie in the folder of a new space into it; the files stay where they are."""
    if not space.folder:
        return
    for other in space_folders.others_below(ctx.tx, ctx.spaces.values(), space.folder):
        for memory in list(_live_memories(ctx, other)):
            if titles.is_below(memory.path, space.folder) and memory.notice is None:
                store_version.store_version(ctx, memory, memory._replace(space=space), ["space"], how="move")


def rename(engines: Engines, caller: RequestContext, old: str, new: str) -> Space:
    """Rename a space and all spaces below it, and move their files; ids stay."""
    space_names.require_space_name(old)
    space_names.require_new_name(new)
    if space_names.is_within(new, old):
        raise BadInput(f"{new!r} is inside {old!r}", fix="choose a name outside of it")
    return scan.write_with_scan(engines, caller, partial(_rename, old=old, new=new))


def _rename(ctx: WriteContext, *, old: str, new: str, scanned: bool) -> Space:
    _lock_all(ctx)
    moving = [space for space in ctx.spaces.values() if space_names.is_within(space.name, old)]
    if old not in {space.name for space in moving}:
        permissions.require_create(ctx.tx, ctx.actor, ctx.spaces, old)
        raise NotFound(f"there is no space {old!r}", fix="`commonbook space list` shows the spaces")
    permissions.require_admin(ctx.tx, ctx.actor, ctx.spaces, old)
    permissions.require_create(ctx.tx, ctx.actor, ctx.spaces, new)
    # Other writers to these spaces wait, and are then run again with the new name.
    chain.lock(ctx.tx, [space.id for space in moving])
    for space in moving:
        for memory in _live_memories(ctx, space):
            hand_edits.with_file_changes(ctx, memory, scanned=scanned)
    taken = {space.name for space in ctx.spaces.values()}
    ids = {space.id for space in moving}
    others = [space for space in ctx.spaces.values() if space.id not in ids]
    renamed: dict[str, Space] = {}
    for space in sorted(moving, key=lambda space: space.name):
        # The spaces of notices are renamed along with the spaces that they are about.
        name = space_names.require_query_name(new + space.name.removeprefix(old))
        if name in taken:
            raise SpaceExists(
                f"the space {name!r} is there already", fix="choose another name, or move the memories one by one"
            )
        folder = _new_folder(ctx, space, name, moving, [*others, *renamed.values()])
        renamed[space.id] = spaces.rename(ctx.tx, space, name, folder)
        ctx.spaces[space.id] = renamed[space.id]
        ctx.log(space, "space.rename", (), old=space.name, new=name)
    ctx.enqueue_space_files(renamed.values())
    for space in moving:
        _move_files(ctx, space, renamed[space.id])
        # Episodes that were moved away from their sessions name the space of the session in their files.
        ctx.enqueue_files(memories.rename_session_space(ctx.tx, ctx.spaces, space.name, renamed[space.id].name))
    return next(space for space in renamed.values() if space.name == new)


def _new_folder(ctx: WriteContext, space: Space, name: str, moving: Sequence[Space], others: Sequence[Space]) -> str:
    """Return the folder of a space under its new name; `others` are the spaces that stay, and those renamed already.

    A space below the renamed one keeps the place and the spelling of its folder, below the new folder.
    """
    if not space.folder and space.name != space_names.PERSONAL:
        return ""
    old_names = {other.name: other for other in moving}
    new_names = {other.name: other for other in others}
    above, new_above = old_names.get(_above(space.name)), new_names.get(_above(name))
    if above is not None and new_above is not None and titles.is_below(space.folder, above.base):
        folder = new_above.base + space.folder.removeprefix(above.base)
        if space_folders.is_free(ctx.tx, others, folder):
            return folder
    return space_folders.choose_folder(ctx.tx, ctx.engines, others, name)


def _named(spaces_: Sequence[Space], name: str) -> Space:
    return next(space for space in spaces_ if space.name == name)


def _above(name: str) -> str:
    return name.rpartition("/")[0]


def _lock_all(ctx: WriteContext) -> None:
    """Lock all spaces until the transaction ends, and read those that were created or renamed since it began."""
    spaces.lock(ctx.tx)
    ctx.spaces.update(spaces.get_all(ctx.tx))


def _move_files(ctx: WriteContext, old: Space, new: Space) -> None:
    ctx.enqueue_files([_relocate(ctx, memory, old, new) for memory in _live_memories(ctx, new)])


def _live_memories(ctx: WriteContext, space: Space) -> Iterator[StoredMemory]:
    after = ""
    while batch := memories.in_space(ctx.tx, {space.id: space}, space.id, after=after):
        after = batch[-1].id
        yield from (memory for memory in batch if memory.deleted is None)


def _relocate(ctx: WriteContext, memory: StoredMemory, old: Space, new: Space) -> StoredMemory:
    if old.folder == new.folder:
        # The home itself is the folder of the space.
        return memory
    path = titles.moved_path(memory.path, old, new, ctx.spaces.values())
    if path == memory.path:
        # A person has renamed the folder already.
        return memory
    path = free_path(ctx, path)
    ctx.record_move(memory, path)
    memories.relocate(ctx.tx, memory, path)
    return memory._replace(path=path)


def list_spaces(engines: Engines, actor: Actor) -> tuple[Space, ...]:
    """Return the spaces that the actor may read, by name."""
    with engines.db.reading() as tx:
        return tuple(sorted(permissions.select(tx, actor).values(), key=lambda space: space.name))


MAX_DEPTH: Final = 10


def set_depth(engines: Engines, caller: RequestContext, name: str, depth: int | None) -> Space:
    """Set how many levels reflections may have in a space and below it; None: as in its parent space."""
    if depth is not None and (isinstance(depth, bool) or not 1 <= depth <= MAX_DEPTH):
        raise BadInput(f"a depth of {depth} is out of range", fix=f"give 1 to {MAX_DEPTH}")
    space_names.require_space_name(name)

    def operation(ctx: WriteContext) -> Space:
        space = _require_administered(ctx, name)
        if space.depth == depth:
            return space
        changed = ctx.spaces[space.id] = spaces.set_depth(ctx.tx, space, depth)
        ctx.log(changed, "space.depth", (), depth=depth)
        return changed

    return write(engines, caller, operation)


def _require_administered(ctx: WriteContext, name: str) -> Space:
    """Return the existing space of that name, which the actor must administer."""
    if name not in {space.name for space in ctx.spaces.values()}:
        permissions.require_create(ctx.tx, ctx.actor, ctx.spaces, name)
        raise NotFound(f"there is no space {name!r}", fix="`commonbook space list` shows the spaces")
    return permissions.require_admin(ctx.tx, ctx.actor, ctx.spaces, name)


def set_review(engines: Engines, caller: RequestContext, name: str, review: Review | None) -> Space:
    """Have the memories of agents reviewed in a space and below it, or, with None, no longer."""
    if review not in {None, AGENTS}:
        raise BadInput(f"{review!r} is nobody whose memories can be reviewed", fix=f"give {AGENTS!r}, or None")
    space_names.require_space_name(name)

    def operation(ctx: WriteContext) -> Space:
        space = _require_administered(ctx, name)
        if ctx.actor.is_agent:
            raise NotAllowed(f"{ctx.actor.principal} is an agent", fix="let a person decide what is reviewed")
        if space.review == review:
            return space
        # Agents that write to these spaces now wait, and are then run again under the review.
        _lock_all(ctx)
        chain.lock(ctx.tx, [other.id for other in ctx.spaces.values() if space_names.is_within(other.name, name)])
        changed = ctx.spaces[space.id] = spaces.set_review(ctx.tx, ctx.spaces[space.id], review)
        ctx.log(changed, "space.review", (), review=review)
        ctx.enqueue_space_files([changed])
        return changed

    return write(engines, caller, operation)
