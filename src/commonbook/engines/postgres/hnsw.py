"""HNSW graphs (pgvector indexes) for spaces that are too large to compare all their vectors.

A space with more passages than a limit gets a partial index of its own, so that no other space influences its results.
After a write, a background thread builds and drops these indexes; nobody waits for it. While an index is missing or
still being built, all vectors of the space are compared, as in every smaller space.

A graph returns most of the nearest neighbours, not certainly all, and it knows no filters. So it is asked for several
times as many as are wanted. Where the filters leave too few, all vectors of the space are compared, which is faster in
that case too.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as pg

from commonbook.engines.postgres.passage_rows import MAX_INDEXED_DIMENSIONS
from commonbook.engines.postgres.pipeline import Connection, Pipeline, PipelineResult, Row

MAX_NEIGHBOURS: Final = 250
"""The largest number of neighbours that is taken from a graph."""

_MAX_GRAPHS: Final = 100
"""The largest number of graphs: every insert of a passage checks each of them."""

_MAX_DIMENSIONS: Final = 4_000
"""The largest number of dimensions for which pgvector builds a graph."""

_UNREACHABLE: Final = 1 << 62
_PREFIX: Final = "recall_graph_"
_MAX_ATTEMPTS: Final = 5
_RETRY_SECONDS: Final = (0.1, 1.0)
_FAILURE_PAUSE_SECONDS: Final = 600.0
"""The time after a failure before this process tries again."""

_logger: Final = logging.getLogger(__name__)

_FROM_GRAPHS: Final = f"""
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass('recall_passage') AND starts_with(c.relname::text, '{_PREFIX}')
"""

VALID_GRAPHS: Final = f"SELECT string_agg(c.relname::text, ' ') {_FROM_GRAPHS} AND i.indisvalid"
"""Selects the names of the graphs that can be searched, separated by spaces."""

# --- search

# Not prepared, since each space has its own statement. The plan must follow the order of the graph: any other would
# need a sort.
_NEAREST: Final = """
    SELECT space, uuid_send(id), distance FROM (
      SELECT space, id, owner, kind, time, valid_from, valid_until, superseded, superseded_until, expires,
        {column}::halfvec({dimensions}) <=> %(vector)s::halfvec AS distance
      FROM recall_passage WHERE space = ({space})::bigint AND vector_dims({column}) = {dimensions}
        AND (SELECT embedder FROM recall_index) = %(embedder)s
      ORDER BY {column}::halfvec({dimensions}) <=> %(vector)s::halfvec LIMIT {most}
    ) p WHERE {wanted}{others}
"""
_OVERSAMPLING: Final = 4
"""How many times as many neighbours as are wanted a graph returns: enough if filters leave a quarter of them."""

_BEGIN_SETTINGS: Final = "SAVEPOINT graph"
_SETTINGS: Final = f"""
    SELECT set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
      set_config('hnsw.ef_search', '{_OVERSAMPLING * MAX_NEIGHBOURS}', true)
"""
# The rollback restores the settings for all other statements of the transaction.
_END_SETTINGS: Final = ("ROLLBACK TO SAVEPOINT graph", "RELEASE SAVEPOINT graph")


class GraphQuery(NamedTuple):
    """The query for the nearest neighbours of one vector: parameters, column, filters and number of results."""

    params: Mapping[str, object]
    column: str
    dimensions: int
    filters: str
    exclusion: str
    depth: int


class NearestSearch:
    """A search for the nearest neighbours: by graph in the spaces that have one, by full comparison in the others."""

    def __init__(
        self,
        pipeline: Pipeline,
        query: GraphQuery,
        spaces: Collection[int],
        others: Collection[int],
        compare: Callable[[Collection[int]], PipelineResult],
    ) -> None:
        """Send the queries; `compare` sends a full comparison of the given spaces, with distances.

        `others` are the spaces without a graph.
        """
        self._query = query
        self._compare = compare
        pipeline.send(_BEGIN_SETTINGS)
        pipeline.send(_SETTINGS)
        self._graph_results: Final = {
            space: pipeline.send(_statement(query, space), query.params, binary=True, unprepared=True)
            for space in spaces
        }
        for statement in _END_SETTINGS:
            pipeline.send(statement)
        self._compared_result: Final = compare(others) if others else None

    def rows(self) -> list[Row]:
        """Return space and id of the nearest passages; equal distances are ordered by id."""
        nearest = self._compared_result.rows() if self._compared_result else []
        incomplete = []
        for space, result in self._graph_results.items():
            rows = result.rows()
            if len(rows) < self._query.depth:
                incomplete.append(space)
            else:
                nearest += rows
        if incomplete:
            nearest += self._compare(incomplete).rows()
        nearest.sort(key=_nearness)
        return [(space, id_) for space, id_, _ in nearest[: self._query.depth]]


def _nearness(row: Row) -> tuple[float, bytes]:
    _, id_, distance = row
    return distance, id_


def _statement(query: GraphQuery, space: int) -> str:
    return _NEAREST.format(
        space=space,
        column=query.column,
        dimensions=query.dimensions,
        wanted=query.filters,
        others=query.exclusion,
        most=_OVERSAMPLING * query.depth,
    )


# --- building and dropping

_MAINTENANCE: Final = f"""
    SELECT (SELECT count(*) FROM pg_stat_progress_create_index WHERE relid = to_regclass('recall_passage')),
      coalesce(dimensions, 0),
      ARRAY(SELECT space FROM recall_space WHERE passages - unembedded > %(above)s
        ORDER BY passages DESC, space LIMIT {_MAX_GRAPHS}),
      ARRAY(SELECT space FROM recall_space WHERE passages - unembedded > %(above)s / 2),
      ARRAY(SELECT c.relname::text {_FROM_GRAPHS} ORDER BY 1),
      ARRAY(SELECT c.relname::text {_FROM_GRAPHS} AND i.indisvalid)
    FROM recall_index
"""
_GRAPH_NAMES: Final = f"SELECT c.relname::text {_FROM_GRAPHS} ORDER BY 1"
_BUILD: Final = """
    CREATE INDEX CONCURRENTLY {name} ON recall_passage USING hnsw (({column}::halfvec({dimensions})) halfvec_cosine_ops)
    WHERE space = ({space})::bigint AND vector_dims({column}) = {dimensions}
"""
_DROP: Final = "DROP INDEX CONCURRENTLY IF EXISTS {name}"
# No time limits; not every server version has each of these settings.
_NO_TIMEOUTS: Final = """
    SELECT set_config(name, '0', false) FROM pg_settings
    WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')
"""
_APPLICATION_NAME: Final = "commonbook-graphs"
_END_BUILDS: Final = f"""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = '{_APPLICATION_NAME}' AND datname = current_database()
"""


class _Maintenance(NamedTuple):
    """The maintenance that is due: indexes to drop, then spaces whose index is missing."""

    dimensions: int
    drop: Sequence[str]
    build: Sequence[int]

    def __bool__(self) -> bool:
        return bool(self.drop or self.build)


class GraphMaintainer:
    """Knows which graphs of one index exist, and builds and drops them in the background."""

    def __init__(self, above: int) -> None:
        """Give spaces of more than `above` passages a graph; 0 means that no space has one."""
        self._above = above
        self._valid_names: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._not_before = 0.0

    @property
    def max_passages_without(self) -> int:
        """Spaces that together have no more passages than this have no graph."""
        return self._above // 2 if self._above else _UNREACHABLE

    def with_graph(self, spaces: Iterable[int], dimensions: int) -> list[int]:
        """Return the spaces among these that have a graph, as far as is known."""
        names = self._valid_names
        return [space for space in spaces if _graph_name(space, dimensions) in names] if names else []

    def update_known(self, names: str | None, spaces: Collection[int], dimensions: int) -> bool:
        """Store which graphs exist, and tell whether that changes anything for these spaces.

        `names` are those that `VALID_GRAPHS` selects; None means that these spaces have no graph.
        """
        before = self.with_graph(spaces, dimensions)
        if names is not None:
            self._valid_names = frozenset(names.split())
        elif before:
            self._valid_names -= {_graph_name(space, dimensions) for space in before}
        return self.with_graph(spaces, dimensions) != before

    def maintain(self, connection: Connection) -> None:
        """Start a background thread, if graphs are missing or no longer needed and no thread is at work."""
        with self._lock:
            working = self._worker is not None and self._worker.is_alive()
            if working or time.monotonic() < self._not_before or not self._maintenance(connection):
                return
            # A separate connection: the pool must not be short of one while a graph is built.
            address, password = connection.info.dsn, connection.info.password
            self._worker = threading.Thread(
                target=self._work, args=(address, password), name="commonbook-graph", daemon=True
            )
            self._worker.start()

    def _work(self, address: str, password: str) -> None:
        try:
            with closing(
                psycopg.connect(address, password=password or None, autocommit=True, application_name=_APPLICATION_NAME)
            ) as connection:
                connection.execute(_NO_TIMEOUTS)
                self._maintain_all(connection)
        except (pg.AdminShutdown, pg.UndefinedTable):
            # The index is being recreated; graphs are maintained after that.
            return
        except psycopg.Error as error:
            # Without a graph a search returns the same, only more slowly.
            self._not_before = time.monotonic() + _FAILURE_PAUSE_SECONDS
            _logger.info("an HNSW graph could not be built: %s", error)

    def _maintain_all(self, connection: Connection) -> None:
        for attempt in range(_MAX_GRAPHS * 2):
            maintenance = self._maintenance(connection)
            if not maintenance:
                return
            try:
                _maintain_one(connection, maintenance)
            except (pg.DeadlockDetected, pg.DuplicateTable, pg.UndefinedObject):
                # Of two builds that begin at the same moment, the second waits for the table, and the first for the
                # snapshot of the second, until the database resolves the deadlock. After a random pause, one is first.
                if attempt > _MAX_ATTEMPTS:
                    raise
                time.sleep(random.uniform(*_RETRY_SECONDS))  # noqa: S311 - not for keeping a secret

    def _maintenance(self, connection: Connection) -> _Maintenance:
        """Return the maintenance that is due."""
        with suppress(pg.UndefinedTable):
            counts = connection.execute(_MAINTENANCE, {"above": self._above}).fetchone()
            if counts:
                building, dimensions, above_limit, above_half, names, valid = counts
                if building:
                    # Invalid indexes may be those of another process that builds them; after a crash nobody does.
                    return _Maintenance(0, (), ())
                enabled = self._above > 0 and 0 < dimensions <= _MAX_DIMENSIONS
                return (
                    _plan(dimensions, above_limit, above_half, names, valid)
                    if enabled
                    else _Maintenance(dimensions, names, ())
                )
        return _Maintenance(0, (), ())


def _plan(
    dimensions: int, above_limit: Sequence[int], above_half: Sequence[int], names: Sequence[str], valid: Sequence[str]
) -> _Maintenance:
    """Plan the maintenance, given the names of all graphs and of the valid ones."""
    needed = {_graph_name(space, dimensions) for space in above_half}.intersection(valid)
    missing = [space for space in above_limit if _graph_name(space, dimensions) not in needed]
    return _Maintenance(
        dimensions, [name for name in names if name not in needed], missing[: max(_MAX_GRAPHS - len(needed), 0)]
    )


def _maintain_one(connection: Connection, maintenance: _Maintenance) -> None:
    """Drop or build one index: the rest is planned again after it, since it may have changed by then."""
    if maintenance.drop:
        connection.execute(_trusted(_DROP.format(name=maintenance.drop[0])))
        return
    space, dimensions = maintenance.build[0], maintenance.dimensions
    column = vector_column(dimensions)
    connection.execute(
        _trusted(_BUILD.format(name=_graph_name(space, dimensions), space=space, column=column, dimensions=dimensions))
    )


def drop_graphs(connection: Connection) -> None:
    """Drop all graphs before all rows are deleted: inserting into a graph of dead rows would be slow.

    Graphs that cannot be locked in time stay; they cost time, but do no harm.
    """
    end_builds(connection)
    with suppress(pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected):
        for (name,) in connection.execute(_GRAPH_NAMES).fetchall():
            connection.execute(_trusted(_DROP.format(name=name)))


def has_graphs(connection: Connection) -> bool:
    """Tell whether there is a graph, complete or being built."""
    return connection.execute(_GRAPH_NAMES).fetchone() is not None


def end_builds(connection: Connection) -> None:
    """End the connections that build graphs at this moment, if the user has the privilege."""
    with suppress(pg.InsufficientPrivilege):
        connection.execute(_END_BUILDS)


def vector_column(dimensions: int) -> str:
    """Return the column for vectors of so many dimensions."""
    return "w" if dimensions > MAX_INDEXED_DIMENSIONS else "v"


def _graph_name(space: int, dimensions: int) -> str:
    return f"{_PREFIX}{space & ((1 << 64) - 1):016x}_{dimensions}"


def _trusted(statement: str) -> Any:  # noqa: ANN401 - the driver's types ask for a literal string
    return statement
