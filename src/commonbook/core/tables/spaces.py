"""The table `space`: a row is a named part of the book, with an id that stays when the name changes."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, MutableMapping, Sequence, ValuesView
from functools import cached_property, lru_cache, partial
from typing import Final, NamedTuple

from commonbook.ports.database import Reading, Row, Transaction
from commonbook.values.ids import format_time, parse_time
from commonbook.values.spaces import Review, Space, default_folder


class _SpaceRow(NamedTuple):
    """A row of the table `space`: the fields are the columns, in the order of every SELECT."""

    id: str
    name: str
    created: str
    depth: int | None
    folder: str | None
    review: Review | None


_COLUMNS: Final = ", ".join(_SpaceRow._fields)


def get_all(tx: Reading) -> dict[str, Space]:
    """Return all spaces by id."""
    return _query(tx)()


def _query(tx: Reading, which: str = " ORDER BY name", **params: object) -> Callable[[], dict[str, Space]]:
    rows = tx.defer(f"SELECT {_COLUMNS} FROM space{which}", **params)
    return lambda: {space.id: space for space in map(_space, rows())}


class LazySpaces(MutableMapping[str, Space]):
    """All spaces by id: the query is sent at once, its rows are read on first use, and new spaces can be added.

    Where a few `expected` ids are likely to be enough, only those are queried. The first look-up of another id, or of
    all spaces, queries all.
    """

    def __init__(self, tx: Reading, expected: Sequence[str] = ()) -> None:
        """Send the query for the expected spaces, or for all."""
        self._expected = frozenset(expected)
        self._query_expected: Callable[[], dict[str, Space]] = dict
        if expected:
            self._query_expected = _query(tx, " WHERE id IN :ids", ids=expected)
        self._query_all = partial(get_all, tx) if expected else _query(tx)

    @cached_property
    def _every(self) -> dict[str, Space]:
        return self._query_all()

    @cached_property
    def _known_early(self) -> dict[str, Space]:
        return self._query_expected()

    def _lookup_in(self, id_: object) -> dict[str, Space]:
        """Return a mapping that has this id, if there is such a space; the expected spaces where they are enough."""
        return self._known_early if id_ in self._expected and "_every" not in self.__dict__ else self._every

    def __getitem__(self, id_: str) -> Space:
        """Return a space."""
        return self._lookup_in(id_)[id_]

    def __setitem__(self, id_: str, space: Space) -> None:
        """Add a space, or replace one by its renamed self."""
        self._every[id_] = space

    def __delitem__(self, id_: str) -> None:
        """Remove a space from the mapping."""
        del self._every[id_]

    def __iter__(self) -> Iterator[str]:
        """Yield the ids."""
        return iter(self._every)

    def __len__(self) -> int:
        """Return the number of spaces."""
        return len(self._every)

    # The mixin of `MutableMapping` would look up each id again.

    def values(self) -> ValuesView[Space]:
        """Return all spaces."""
        return self._every.values()

    def items(self) -> ItemsView[str, Space]:
        """Return all ids and spaces."""
        return self._every.items()

    def __contains__(self, id_: object) -> bool:
        """Tell whether there is such a space."""
        return id_ in self._lookup_in(id_)


def find_by_name(tx: Reading, name: str) -> Space | None:
    """Return the space of that name, or None."""
    row = tx.row(f"SELECT {_COLUMNS} FROM space WHERE name = :name", name=name)
    return _space(row) if row else None


def find_by_names(tx: Reading, names: Sequence[str]) -> dict[str, Space]:
    """Return the spaces with these names, by id; names without a space are left out."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM space WHERE name IN :names ORDER BY name", names=tuple(names))
    return {space.id: space for space in map(_space, rows)}


def names_deferred(tx: Transaction, ids: Sequence[str]) -> Callable[[], dict[str, str]]:
    """Send the query for the current names of these spaces, by id; call the result to read them."""
    if not ids:
        return dict
    rows = tx.defer("SELECT id, name FROM space WHERE id IN :ids", ids=ids)
    return lambda: dict(rows())


def lock(tx: Transaction) -> None:
    """Lock the table, so that nobody creates or renames a space until the transaction ends."""
    if tx.has_concurrent_writers:
        tx.run("LOCK TABLE space IN SHARE ROW EXCLUSIVE MODE")


def add(tx: Transaction, space: Space) -> None:
    """Add a space."""
    tx.run(
        "INSERT INTO space (id, name, created, folder, review) VALUES (:id, :name, :created, :folder, :review)",
        id=space.id,
        name=space.name,
        created=format_time(space.created),
        folder=space.own_folder,
        review=space.review,
    )


def rename(tx: Transaction, space: Space, name: str, folder: str) -> Space:
    """Give a space another name and the folder that belongs to it."""
    tx.run("UPDATE space SET name = :name WHERE id = :id", id=space.id, name=name)
    return set_folder(tx, space._replace(name=name), folder)


def set_folder(tx: Transaction, space: Space, folder: str) -> Space:
    """Give a space another folder."""
    own = own_folder(space.name, folder)
    tx.run("UPDATE space SET folder = :folder WHERE id = :id", id=space.id, folder=own)
    return space._replace(own_folder=own)


def own_folder(name: str, folder: str) -> str | None:
    """Return the folder of a space as it is stored: None for the default one."""
    return None if folder == default_folder(name) else folder


def with_files_below(tx: Reading, folder: str) -> set[str]:
    """Return the ids of the spaces that have live memories with a path below a folder."""
    rows = tx.rows(
        "SELECT DISTINCT space FROM memory WHERE path > :first AND path < :last AND deleted IS NULL",
        first=f"{folder}/",
        # The character after the slash.
        last=f"{folder}0",
    )
    return {space for (space,) in rows}


def without_file(tx: Reading) -> list[str]:
    """Return the ids of the spaces whose space file was never written and is not in the journal either.

    The spaces of the system that have no such file are left out: those of notices and proposals, and that of the home.
    """
    rows = tx.rows(
        "SELECT id FROM space WHERE name <> '_home' AND substr(name, -15) <> '/_invalidations'"
        " AND substr(name, -10) <> '/_proposed'"
        " AND NOT EXISTS (SELECT 1 FROM file WHERE file.memory = space.id)"
        " AND NOT EXISTS (SELECT 1 FROM file_journal WHERE file_journal.memory = space.id)"
    )
    return [id_ for (id_,) in rows]


def set_depth(tx: Transaction, space: Space, depth: int | None) -> Space:
    """Set how many levels reflections may have in a space; None: as in its parent space."""
    tx.run("UPDATE space SET depth = :depth WHERE id = :id", id=space.id, depth=depth)
    return space._replace(depth=depth)


def set_review(tx: Transaction, space: Space, review: Review | None) -> Space:
    """Set whose memories a space has reviewed."""
    tx.run("UPDATE space SET review = :review WHERE id = :id", id=space.id, review=review)
    return space._replace(review=review)


def reviewed_deferred(tx: Transaction) -> Callable[[], set[str]]:
    """Send the query for the ids of the spaces that have memories reviewed; call the result to read them."""
    rows = tx.defer("SELECT id FROM space WHERE review IS NOT NULL")
    return lambda: {id_ for (id_,) in rows()}


# Every transaction reads spaces, and they hardly ever change.
@lru_cache(maxsize=10_000)
def _space(row: Row) -> Space:
    space = _SpaceRow._make(row)
    return Space(space.id, space.name, parse_time(space.created), space.depth, space.folder, space.review)
