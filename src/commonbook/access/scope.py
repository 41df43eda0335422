"""Resolves names of spaces to the spaces in reach: those that an actor may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from commonbook.access import permissions
from commonbook.model.spaces import Actor, Space, SpaceScope
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.tables import spaces

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.text import space_names
else:
    space_names = LazyModule("commonbook.text.space_names")

_MAX_NAMED_SPACES: Final = 5


def select(tx: Reading, actor: Actor, name: str | None = None) -> SpaceScope:
    """Return the spaces that a name selects and the actor may read; refuse a name that selects none.

    A name selects the space of that name, with a final '/' all below it too; '/' and None select all spaces. A name of
    a space that the actor may create is not refused: it selects nothing yet.
    """
    return scope_of(tx, actor, ["/" if name is None else name])


def without_proposals(spaces_: SpaceScope, *names: str | None) -> SpaceScope:
    """Return the spaces without those that hold proposals, unless one of the names is that of such a space itself."""
    named = {name.removesuffix("/") for name in names if name is not None}
    return {id_: space for id_, space in spaces_.items() if not space.holds_proposals or space.name in named}


def scope_of(tx: Reading, actor: Actor, names: Sequence[str], *, refuse: bool = True) -> SpaceScope:
    """Return the spaces that these names select together, each once.

    A name that selects nothing is refused, unless the actor may create that space; without `refuse` it is left out.
    """
    tops = {name: name if name == "/" else space_names.require_query_name(name.removesuffix("/")) for name in names}
    exact = permissions.is_owner(actor) and not any(name.endswith("/") for name in names)
    known = spaces.find_by_names(tx, tuple(tops.values())) if exact else spaces.get_all(tx)
    allowed = permissions.readable(tx, actor, known)
    scope: dict[str, Space] = {}
    for name, top in tops.items():
        selected = {id_: space for id_, space in allowed.items() if _selects(name, top, space)}
        if refuse and not selected and name != "/":
            permissions.require_create(tx, actor, known, top)
        scope |= selected
    return scope


def note_other_spaces(tx: Reading, actor: Actor) -> list[str]:
    """Return a note for somebody who may read none of the spaces that are searched by default, but others."""
    readable = without_proposals(select(tx, actor))
    names = sorted(space.name for space in readable.values() if not space_names.is_system(space.name))
    if permissions.is_owner(actor) or not names:
        return []
    listed = ", ".join(names[:_MAX_NAMED_SPACES]) + (", ..." if len(names) > _MAX_NAMED_SPACES else "")
    return [f"no space that is searched by default may be read by {actor.principal}; name one: {listed}, or / for all"]


class LazyScope(Mapping[str, Space]):
    """A scope that is looked up at first use."""

    def __init__(self, look_up: Callable[[], SpaceScope]) -> None:
        """Keep the function that looks the spaces up."""
        self._look_up = look_up
        self._scope: SpaceScope | None = None

    def _spaces(self) -> SpaceScope:
        if self._scope is None:
            self._scope = self._look_up()
        return self._scope

    def __getitem__(self, id_: str) -> Space:
        return self._spaces()[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces())

    def __len__(self) -> int:
        return len(self._spaces())


def _selects(name: str, top: str, space: Space) -> bool:
    if name == "/":
        return True
    return space_names.is_within(space.name, top) if name.endswith("/") else space.name == top
