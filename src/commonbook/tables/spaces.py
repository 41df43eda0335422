"""Spaces: named parts of the book, with an id that stays when the name changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import cached_property, lru_cache, partial

from commonbook.model.ids import format_time, parse_time
from commonbook.model.spaces import Space
from commonbook.ports.database import Reading, Row, Transaction


def get_all(tx: Reading) -> dict[str, Space]:
    """Return all spaces by id."""
    return _asking(tx)()


def _asking(tx: Reading, which: str = " ORDER BY name", **params: object) -> Callable[[], dict[str, Space]]:
    rows = tx.defer(f"SELECT id, name, created, depth FROM space{which}", **params)
    return lambda: {space.id: space for space in map(_space, rows())}


class LazySpaces(MutableMapping[str, Space]):
    """All spaces by id, asked for at once and waited for when somebody first looks; what is made meanwhile is added.

    Where some are `expected` to be enough, only those are asked for, and all when somebody looks for another.
    """

    def __init__(self, tx: Reading, expected: Sequence[str] = ()) -> None:
        """Ask for them."""
        self._expected = frozenset(expected)
        self._some: Callable[[], dict[str, Space]] = dict
        if expected:
            self._some = _asking(tx, " WHERE id IN :ids", ids=expected)
        self._all = partial(get_all, tx) if expected else _asking(tx)

    @cached_property
    def _found(self) -> dict[str, Space]:
        return self._all()

    @cached_property
    def _early(self) -> dict[str, Space]:
        return self._some()

    def _around(self, id_: object) -> dict[str, Space]:
        """Return spaces of which this is one, if it is there."""
        return self._early if id_ in self._expected and "_found" not in self.__dict__ else self._found

    def __getitem__(self, id_: str) -> Space:
        """Return a space."""
        return self._around(id_)[id_]

    def __setitem__(self, id_: str, space: Space) -> None:
        """Add a space, or what it is called now."""
        self._found[id_] = space

    def __delitem__(self, id_: str) -> None:
        """Leave out a space."""
        del self._found[id_]

    def __iter__(self) -> Iterator[str]:
        """Yield the ids."""
        return iter(self._found)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._found)

    def __contains__(self, id_: object) -> bool:
        """Tell whether there is such a space."""
        return id_ in self._around(id_)


def find_by_name(tx: Reading, name: str) -> Space | None:
    """Return the space of that name, or None."""
    row = tx.row("SELECT id, name, created, depth FROM space WHERE name = :name", name=name)
    return _space(row) if row else None


def find_by_names(tx: Reading, names: Sequence[str]) -> dict[str, Space]:
    """Return those of the spaces of these names that there are, by id."""
    rows = tx.rows("SELECT id, name, created, depth FROM space WHERE name IN :names ORDER BY name", names=tuple(names))
    return {space.id: space for space in map(_space, rows)}


def names_deferred(tx: Transaction, ids: Sequence[str]) -> Callable[[], dict[str, str]]:
    """Ask for the names that these spaces have now, and return what waits for them."""
    if not ids:
        return dict
    rows = tx.defer("SELECT id, name FROM space WHERE id IN :ids", ids=ids)
    return lambda: dict(rows())


def lock(tx: Transaction) -> None:
    """Let nobody make or rename a space until the transaction ends: what is there is all."""
    if tx.for_update:
        tx.run("LOCK TABLE space IN SHARE ROW EXCLUSIVE MODE")


def add(tx: Transaction, space: Space) -> None:
    """Add a space."""
    tx.run(
        "INSERT INTO space (id, name, created) VALUES (:id, :name, :created)",
        id=space.id,
        name=space.name,
        created=format_time(space.created),
    )


def rename(tx: Transaction, space: Space, name: str) -> Space:
    """Give a space another name."""
    tx.run("UPDATE space SET name = :name WHERE id = :id", id=space.id, name=name)
    return space._replace(name=name)


def set_depth(tx: Transaction, space: Space, depth: int | None) -> Space:
    """Set how deep reflections may go in a space; None: as in the one above it."""
    tx.run("UPDATE space SET depth = :depth WHERE id = :id", id=space.id, depth=depth)
    return space._replace(depth=depth)


# Everything is looked up again and again, and hardly ever changes.
@lru_cache(maxsize=10_000)
def _space(row: Row) -> Space:
    id_, name, created, depth = row
    return Space(id_, name, parse_time(created), depth)
