"""Making and renaming spaces."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from commonbook import audit, memories, paths, rights, spaces, sync, takein
from commonbook.desk import Desk
from commonbook.errors import BadInput, NotFound, SpaceExists
from commonbook.model import Memory, Space
from commonbook.new_memory import free_path
from commonbook.ports import Parts
from commonbook.principals import Actor
from commonbook.writing import write


def create(parts: Parts, actor: Actor, name: str) -> Space:
    """Make a space; one that is there already is a conflict."""
    paths.require_space_name(name)

    def story(desk: Desk) -> Space:
        if spaces.named(desk.tx, name) is not None:
            rights.require_create(desk.tx, actor, desk.spaces, name)
            raise SpaceExists(f"the space {name!r} is there already", fix="use it, or choose another name")
        return desk.space(name)

    return write(parts, actor, story)


def rename(parts: Parts, actor: Actor, old: str, new: str) -> Space:
    """Give a space another name; everything below goes along, files and all, and ids stay."""
    paths.require_space_name(old)
    paths.require_space_name(new)
    if paths.below(new, old):
        raise BadInput(f"{new!r} lies in {old!r} itself", fix="choose a name outside of it")
    return sync.write_with_a_look(parts, actor, partial(_rename, old=old, new=new))


def _rename(desk: Desk, *, old: str, new: str, looked: bool) -> Space:
    _know_all(desk)
    going = [space for space in desk.spaces.values() if paths.below(space.name, old)]
    if old not in {space.name for space in going}:
        rights.require_create(desk.tx, desk.actor, desk.spaces, old)
        raise NotFound(f"there is no space {old!r}", fix="`commonbook space list` shows the spaces")
    rights.require_admin(desk.tx, desk.actor, desk.spaces, old)
    rights.require_create(desk.tx, desk.actor, desk.spaces, new)
    # What others are about to write there waits, and is then told again under the new name.
    audit.hold(desk.tx, [space.id for space in going])
    for space in going:
        for memory in _live(desk, space):
            takein.fresh(desk, memory, looked=looked)
    taken = {space.name for space in desk.spaces.values()}
    renamed = {}
    for space in sorted(going, key=lambda one: one.name):
        # Notices go along with what they are about.
        name = paths.require_asked_name(new + space.name.removeprefix(old))
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
    path = free_path(desk, paths.moved(memory.path, old.name, new.name))
    desk.leave(memory, path)
    memories.relocate(desk.tx, memory, path)
    return memory._replace(path=path)
