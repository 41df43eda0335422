"""The table `space`: a row is a named part of the book, with an id that stays when the name changes."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, Sequence, ValuesView
from functools import cached_property, lru_cache
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
    return {space.id: space for space in map(_space, tx.rows(f"SELECT {_COLUMNS} FROM space ORDER BY name"))}


def get_many(tx: Reading, ids: Sequence[str]) -> dict[str, Space]:
    """Return these spaces by id."""
    return {
        space.id: space for space in map(_space, tx.rows(f"SELECT {_COLUMNS} FROM space WHERE id IN :ids", ids=ids))
    }


class LazySpaces(MutableMapping[str, Space]):
    """All spaces by id, to which new ones can be added; they are read when a second one is looked up, or all are."""

    def __init__(self, tx: Reading) -> None:
        """Read nothing yet."""
        self._tx = tx
        self._first: dict[str, Space] = {}

    @cached_property
    def _every(self) -> dict[str, Space]:
        return get_all(self._tx)

    def __getitem__(self, id_: str) -> Space:
        """Return a space."""
        if "_every" not in self.__dict__:
            self._first = self._first or get_many(self._tx, [id_])
            if id_ in self._first:
                return self._first[id_]
        return self._every[id_]

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


def find_by_name(tx: Reading, name: str) -> Space | None:
    """Return the space of that name, or None."""
    row = tx.row(f"SELECT {_COLUMNS} FROM space WHERE name = :name", name=name)
    return _space(row) if row else None


def find_by_names(tx: Reading, names: Sequence[str]) -> dict[str, Space]:
    """Return the spaces with these names, by id; names without a space are left out."""
    rows = tx.rows(f"SELECT {_COLUMNS} FROM space WHERE name IN :names ORDER BY name", names=tuple(names))
    return {space.id: space for space in map(_space, rows)}


def lock(tx: Transaction) -> None:
    """Lock the table, so that nobody creates or renames a space until the transaction ends."""
    tx.lock_table("space")


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


# Every transaction reads spaces, and they hardly ever change.
@lru_cache(maxsize=10_000)
def _space(row: Row) -> Space:
    space = _SpaceRow._make(row)
    return Space(space.id, space.name, parse_time(space.created), space.depth, space.folder, space.review)
