"""Making and renaming spaces."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from commonbook.access import permissions
from commonbook.access.scope import readable
from commonbook.errors import BadInput, NotFound, SpaceExists
from commonbook.files import hand_edits, scan
from commonbook.log import chain
from commonbook.model.memory import Memory
from commonbook.model.spaces import Actor, Space
from commonbook.ports.engines import Parts
from commonbook.tables import memories, spaces
from commonbook.text import space_paths
from commonbook.write.context import Desk
from commonbook.write.new_memory import free_path
from commonbook.write.transaction import write


def create(parts: Parts, actor: Actor, name: str) -> Space:
    """Make a space; one that is there already is a conflict."""
    space_paths.require_space_name(name)

    def story(desk: Desk) -> Space:
        if spaces.named(desk.tx, name) is not None:
            permissions.require_create(desk.tx, actor, desk.spaces, name)
            raise SpaceExists(f"the space {name!r} is there already", fix="use it, or choose another name")
        return desk.space(name)

    return write(parts, actor, story)


def rename(parts: Parts, actor: Actor, old: str, new: str) -> Space:
    """Give a space another name; everything below goes along, files and all, and ids stay."""
    space_paths.require_space_name(old)
    space_paths.require_space_name(new)
    if space_paths.below(new, old):
        raise BadInput(f"{new!r} lies in {old!r} itself", fix="choose a name outside of it")
    return scan.write_with_a_look(parts, actor, partial(_rename, old=old, new=new))


def _rename(desk: Desk, *, old: str, new: str, looked: bool) -> Space:
    _know_all(desk)
    going = [space for space in desk.spaces.values() if space_paths.below(space.name, old)]
    if old not in {space.name for space in going}:
        permissions.require_create(desk.tx, desk.actor, desk.spaces, old)
        raise NotFound(f"there is no space {old!r}", fix="`commonbook space list` shows the spaces")
    permissions.require_admin(desk.tx, desk.actor, desk.spaces, old)
    permissions.require_create(desk.tx, desk.actor, desk.spaces, new)
    # What others are about to write there waits, and is then told again under the new name.
    chain.hold(desk.tx, [space.id for space in going])
    for space in going:
        for memory in _live(desk, space):
            hand_edits.fresh(desk, memory, looked=looked)
    taken = {space.name for space in desk.spaces.values()}
    renamed = {}
    for space in sorted(going, key=lambda one: one.name):
        # Notices go along with what they are about.
        name = space_paths.require_asked_name(new + space.name.removeprefix(old))
        if name in taken:
            raise SpaceExists(
                f"the space {name!r} is there already", fix="choose another name, or move memories singly"
            )
        renamed[space.id] = spaces.rename(desk.tx, space, name)
        desk.spaces[space.id] = renamed[space.id]
        desk.log(space, "space.rename", (), old=space.name, new=name)
    for space in going:
        _take_along(desk, space, renamed[space.id])
    return next(space for space in renamed.values() if space.name == new)


def _know_all(desk: Desk) -> None:
    """Let nobody make or rename a space until the story is over, and know those that were since it began."""
    spaces.hold(desk.tx)
    if desk.tx.locking:
        desk.spaces.update(spaces.everything(desk.tx))


def _take_along(desk: Desk, old: Space, new: Space) -> None:
    desk.issue([_relocated(desk, memory, old, new) for memory in _live(desk, new)])


def _live(desk: Desk, space: Space) -> Iterator[Memory]:
    after = ""
    while found := memories.in_space(desk.tx, {space.id: space}, space.id, after=after):
        after = found[-1].id
        yield from (memory for memory in found if memory.deleted is None)


def _relocated(desk: Desk, memory: Memory, old: Space, new: Space) -> Memory:
    path = free_path(desk, space_paths.moved(memory.path, old.name, new.name))
    desk.leave(memory, path)
    memories.relocate(desk.tx, memory, path)
    return memory._replace(path=path)


def all_spaces(parts: Parts, actor: Actor) -> tuple[Space, ...]:
    """Return the spaces that the actor may read, by name."""
    with parts.db.reading() as tx:
        return tuple(sorted(readable(tx, actor).values(), key=lambda space: space.name))


DEEPEST: Final = 10


def set_depth(parts: Parts, actor: Actor, name: str, depth: int | None) -> Space:
    """Set how deep reflections may stand on each other in a space and below it; None: as above it."""
    if depth is not None and (isinstance(depth, bool) or not 1 <= depth <= DEEPEST):
        raise BadInput(f"a depth of {depth} is out of range", fix=f"give 1 to {DEEPEST}")
    space_paths.require_space_name(name)

    def story(desk: Desk) -> Space:
        if name not in {space.name for space in desk.spaces.values()}:
            permissions.require_create(desk.tx, desk.actor, desk.spaces, name)
            raise NotFound(f"there is no space {name!r}", fix="`commonbook space list` shows the spaces")
        space = permissions.require_admin(desk.tx, desk.actor, desk.spaces, name)
        if space.depth == depth:
            return space
        changed = desk.spaces[space.id] = spaces.set_depth(desk.tx, space, depth)
        desk.log(changed, "space.depth", (), depth=depth)
        return changed

    return write(parts, actor, story)
