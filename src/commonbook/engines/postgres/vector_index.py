"""A vector index (pgvector's HNSW) of one space, made and dropped by `commonbook database index SPACE`.

Without one, a search compares all vectors of a space, which is exact. An index returns most of the nearest neighbours,
not certainly all, and it knows no filters: so it is asked for several times as many as are wanted, and where the
filters leave too few, all vectors are compared after all. It is partial, so that no other space influences its results.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from typing import Final

import psycopg
from psycopg import errors as pg

from commonbook.engines.postgres.connections import Connection
from commonbook.engines.postgres.passage_rows import MAX_INDEXED_DIMENSIONS
from commonbook.errors import BadInput
from commonbook.values.reports import Progress

MAX_NEIGHBOURS: Final = 250
"""The largest number of neighbours that is taken from an index."""

_MAX_DIMENSIONS: Final = 4_000
"""The largest number of dimensions for which pgvector builds an index."""

_OVERSAMPLING: Final = 4
"""How many times as many neighbours as are wanted an index returns: enough if filters leave a quarter of them."""

_PREFIX: Final = "recall_vectors_"
_POLL_SECONDS: Final = 0.2

# The plan must follow the order of the index: any other would need a sort.
BEFORE_NEAREST: Final = f"""
    SELECT set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
      set_config('hnsw.ef_search', '{_OVERSAMPLING * MAX_NEIGHBOURS}', true)
"""
AFTER_NEAREST: Final = "SET LOCAL enable_sort TO on"
_NEAREST: Final = """
    SELECT space, uuid_send(id), distance FROM (
      SELECT space, id, owner, kind, time, valid_from, valid_until, superseded, superseded_until, expires,
        {column}::halfvec({dimensions}) <=> %(vector)s::halfvec AS distance
      FROM recall_passage WHERE space = ({space})::bigint AND vector_dims({column}) = {dimensions}
        AND (SELECT embedder FROM recall_index) = %(embedder)s
      ORDER BY {column}::halfvec({dimensions}) <=> %(vector)s::halfvec LIMIT {limit}
    ) p WHERE {wanted}
"""
_CREATE: Final = """
    CREATE INDEX CONCURRENTLY {name} ON recall_passage USING hnsw (({column}::halfvec({dimensions})) halfvec_cosine_ops)
    WHERE space = ({space})::bigint AND vector_dims({column}) = {dimensions}
"""
_DROP: Final = "DROP INDEX CONCURRENTLY IF EXISTS {name}"
_NAMES: Final = f"""
    SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass('recall_passage') AND starts_with(c.relname::text, '{_PREFIX}') ORDER BY 1
"""
_PROGRESS: Final = """
    SELECT tuples_done, (SELECT passages - unembedded FROM recall_space WHERE space = %(space)s)
    FROM pg_stat_progress_create_index WHERE pid = %(pid)s
"""
_NO_TIMEOUTS: Final = "SET statement_timeout TO 0; SET lock_timeout TO 0"


def nearest_statement(space: int, dimensions: int, *, wanted: str, depth: int) -> str:
    """Return the query for the nearest neighbours in a space with an index, with the condition for those wanted.

    The space and the limit are part of it, so that the planner finds the index: it is not to be prepared.
    """
    column, limit = vector_column(dimensions), _OVERSAMPLING * depth
    return _NEAREST.format(space=space, column=column, dimensions=dimensions, wanted=wanted, limit=limit)


def create(connection: Connection, space: int, dimensions: int, progress: Progress) -> None:
    """Build the index of a space, in place of one that it has; others read and write meanwhile."""
    if not 0 < dimensions <= _MAX_DIMENSIONS:
        raise BadInput(
            f"vectors of {dimensions:,} numbers cannot be indexed",
            fix=f"an index is for up to {_MAX_DIMENSIONS:,} numbers; if there are none, run `commonbook reindex` first",
        )
    statement = _CREATE.format(name=_name(space), space=space, column=vector_column(dimensions), dimensions=dimensions)
    address, password = connection.info.dsn, connection.info.password or None
    with (
        closing(psycopg.connect(address, password=password, autocommit=True)) as builder,
        ThreadPoolExecutor(1) as thread,
    ):
        builder.execute(_NO_TIMEOUTS)
        builder.execute(_DROP.format(name=_name(space)))
        building = thread.submit(builder.execute, statement)
        try:
            while not building.done():
                wait([building], timeout=_POLL_SECONDS)
                params = {"space": space, "pid": builder.info.backend_pid}
                done, total = connection.execute(_PROGRESS, params).fetchone() or (0, 0)
                progress("indexing vectors", done, total)
        finally:
            # It is still at work if this thread was interrupted.
            if not building.done():
                builder.cancel_safe()
        building.result()


def drop(connection: Connection, space: int) -> None:
    """Drop the index of a space, if it has one."""
    connection.execute(_DROP.format(name=_name(space)))


def drop_all(connection: Connection) -> None:
    """Drop all indexes before all rows are deleted: inserting into an index of dead rows would be slow.

    Indexes that cannot be locked in time stay; they cost time, but do no harm.
    """
    with suppress(pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected):
        for name in names(connection):
            connection.execute(_DROP.format(name=name))


def names(connection: Connection) -> list[str]:
    """Return the names of all vector indexes of spaces, complete or being built."""
    return [name for (name,) in connection.execute(_NAMES)]


def vector_column(dimensions: int) -> str:
    """Return the column for vectors of this number of dimensions."""
    return "w" if dimensions > MAX_INDEXED_DIMENSIONS else "v"


def _name(space: int) -> str:
    return f"{_PREFIX}{space & ((1 << 64) - 1):016x}"
