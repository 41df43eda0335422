"""The vector index of one space on PostgreSQL, made and dropped by `commonbook database index SPACE`."""

from __future__ import annotations

from contextlib import closing

from commonbook.compose.book import postgres_database
from commonbook.engines.process.clock import SystemClock
from commonbook.errors import BadInput, NotFound
from commonbook.model.reports import Progress
from commonbook.settings.settings import Settings
from commonbook.tables import spaces


def make_vector_index(settings: Settings, space: str, progress: Progress) -> None:
    """Make the vector index of a space, by its name; others read and write meanwhile."""
    _change(settings, space, progress)


def drop_vector_index(settings: Settings, space: str) -> None:
    """Drop the vector index of a space, by its name: all its vectors are compared again."""
    _change(settings, space, None)


def _change(settings: Settings, name: str, progress: Progress | None) -> None:
    """Make the index, or drop it where there is no progress to show."""
    if settings.database is None:
        raise BadInput(
            "only a book on PostgreSQL has vector indexes; a home compares all vectors",
            fix="name the database in COMMONBOOK_DATABASE",
        )
    with closing(postgres_database(settings, SystemClock(), create=False)) as database:
        # The driver is there, so this can be imported.
        from commonbook.engines.postgres.index import PostgresIndex

        with database.reading() as tx:
            space = spaces.find_by_name(tx, name)
        if space is None:
            raise NotFound(f"there is no space {name}", fix="`commonbook space list` shows them")
        index = PostgresIndex(database.connection, cache_bytes=0)
        if progress is None:
            index.drop_vector_index(space.id)
        else:
            index.make_vector_index(space.id, progress)
