"""The spaces that a name or a list of names reaches, among those that an actor may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from commonbook.access import permissions
from commonbook.model.spaces import Actor, Space, SpaceScope
from commonbook.ports.database import Reading
from commonbook.tables import spaces
from commonbook.text import space_paths


def readable(tx: Reading, actor: Actor, name: str | None = None) -> SpaceScope:
    """Return the spaces that a question reaches: one by its name, with a final '/' all below it too, or all ('/')."""
    return scope_of(tx, actor, ["/" if name is None else name])


def scope_of(tx: Reading, actor: Actor, names: Sequence[str]) -> SpaceScope:
    """Return the spaces that a question to all of these names reaches, each once."""
    tops = {name: name if name == "/" else space_paths.require_query_name(name.removesuffix("/")) for name in names}
    few = permissions.is_owner(actor) and not any(name.endswith("/") for name in names)
    known = spaces.find_by_names(tx, tuple(tops.values())) if few else spaces.get_all(tx)
    allowed = permissions.readable(tx, actor, known)
    found: dict[str, Space] = {}
    for name, top in tops.items():
        chosen = {id_: space for id_, space in allowed.items() if _reaches(name, top, space)}
        if not chosen and name != "/":
            permissions.require_create(tx, actor, known, top)
        found |= chosen
    return found


class LazyScope(Mapping[str, Space]):
    """Spaces that are looked up when somebody first asks which they are."""

    def __init__(self, look_up: Callable[[], SpaceScope]) -> None:
        """Look them up like this."""
        self._look_up = look_up
        self._found: SpaceScope | None = None

    def _spaces(self) -> SpaceScope:
        if self._found is None:
            self._found = self._look_up()
        return self._found

    def __getitem__(self, id_: str) -> Space:
        return self._spaces()[id_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces())

    def __len__(self) -> int:
        return len(self._spaces())


def _reaches(name: str, top: str, space: Space) -> bool:
    if name == "/":
        return True
    return space_paths.below(space.name, top) if name.endswith("/") else space.name == top
