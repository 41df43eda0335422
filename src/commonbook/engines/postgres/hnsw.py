"""Graphs of neighbours (HNSW) for spaces that are too large to compare all their vectors.

A space that has grown beyond a limit gets an index of its own, a partial one, so that no other space has a part in it.
Whoever has written makes and drops them, in the background and without anybody waiting: an index that is not there, or
not whole yet, means only that all vectors are compared, as they are in every smaller space.

A graph finds most of the nearest, not surely all, and it knows of no filters. So it is asked for several times as many
as are wanted; where filters leave too few of them, all vectors of the space are compared, which is faster then too.
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

from commonbook.engines.postgres.passage_rows import SHORT
from commonbook.engines.postgres.pipeline import Connection, Pipeline, PipelineResult, Row

DEEPEST: Final = 250
"""So many neighbours a graph is good for."""

_MOST: Final = 100
"""So many graphs there are at most: whoever adds a passage looks at each of them."""

_LONGEST: Final = 4_000
"""Vectors of more numbers have no graph in pgvector."""

_NEVER: Final = 1 << 62
_PREFIX: Final = "recall_graph_"
_ATTEMPTS: Final = 5
_LATER: Final = (0.1, 1.0)
_PAUSE: Final = 600.0
"""After a failure, so many seconds pass before this process tries again."""

_logger: Final = logging.getLogger(__name__)

_OWN: Final = f"""
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = to_regclass('recall_passage') AND starts_with(c.relname::text, '{_PREFIX}')
"""

WHOLE: Final = f"SELECT string_agg(c.relname::text, ' ') {_OWN} AND i.indisvalid"
"""The names of the graphs that can be searched, behind one another."""

# --- searching

# Not prepared, since each space has its own. The plan must be in the order of the graph: any other would have to sort.
_NEAREST: Final = """
    SELECT space, uuid_send(id), distance FROM (
      SELECT space, id, owner, kind, time, valid_from, valid_until, superseded, expires,
        {column}::halfvec({dimensions}) <=> %(vector)s::halfvec AS distance
      FROM recall_passage WHERE space = ({space})::bigint AND vector_dims({column}) = {dimensions}
        AND (SELECT embedder FROM recall_index) = %(embedder)s
      ORDER BY {column}::halfvec({dimensions}) <=> %(vector)s::halfvec LIMIT {most}
    ) p WHERE {wanted}{others}
"""
_TIMES: Final = 4
"""So many times as many as are wanted are asked of a graph: if filters leave a quarter of them, that is enough."""

_BEGIN: Final = "SAVEPOINT graph"
_SETTINGS: Final = f"""
    SELECT set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
      set_config('hnsw.ef_search', '{_TIMES * DEEPEST}', true)
"""
# What was set is as before for all other statements of the transaction.
_END: Final = ("ROLLBACK TO SAVEPOINT graph", "RELEASE SAVEPOINT graph")


class GraphQuery(NamedTuple):
    """What the nearest of one question are asked with."""

    given: Mapping[str, object]
    column: str
    dimensions: int
    wanted: str
    others: str
    depth: int


class Nearest:
    """The nearest of some spaces by their graphs, and of the others by comparing all."""

    def __init__(
        self,
        pipe: Pipeline,
        asked: GraphQuery,
        spaces: Collection[int],
        others: Collection[int],
        compare: Callable[[Collection[int]], PipelineResult],
    ) -> None:
        """Ask; `compare` asks for the nearest of spaces by comparing all, with their distances."""
        self._asked = asked
        self._compare = compare
        pipe.ask(_BEGIN)
        pipe.ask(_SETTINGS)
        self._by_graph: Final = {
            space: pipe.ask(_statement(asked, space), asked.given, binary=True, once=True) for space in spaces
        }
        for statement in _END:
            pipe.ask(statement)
        self._compared: Final = compare(others) if others else None

    def rows(self) -> list[Row]:
        """Return space and id of the nearest; of equally near ones those whose ids come first."""
        found = self._compared.rows() if self._compared else []
        short = []
        for space, answer in self._by_graph.items():
            some = answer.rows()
            if len(some) < self._asked.depth:
                short.append(space)
            else:
                found += some
        if short:
            found += self._compare(short).rows()
        found.sort(key=_nearness)
        return [(space, id_) for space, id_, _ in found[: self._asked.depth]]


def _nearness(row: Row) -> tuple[float, bytes]:
    _, id_, distance = row
    return distance, id_


def _statement(asked: GraphQuery, space: int) -> str:
    return _NEAREST.format(
        space=space,
        column=asked.column,
        dimensions=asked.dimensions,
        wanted=asked.wanted,
        others=asked.others,
        most=_TIMES * asked.depth,
    )


# --- making and dropping

_DUE: Final = f"""
    SELECT (SELECT count(*) FROM pg_stat_progress_create_index WHERE relid = to_regclass('recall_passage')),
      coalesce(dimensions, 0),
      ARRAY(SELECT space FROM recall_space WHERE passages - unembedded > %(above)s
        ORDER BY passages DESC, space LIMIT {_MOST}),
      ARRAY(SELECT space FROM recall_space WHERE passages - unembedded > %(above)s / 2),
      ARRAY(SELECT c.relname::text {_OWN} ORDER BY 1), ARRAY(SELECT c.relname::text {_OWN} AND i.indisvalid)
    FROM recall_index
"""
_ANY: Final = f"SELECT c.relname::text {_OWN} ORDER BY 1"
_MAKE: Final = """
    CREATE INDEX CONCURRENTLY {name} ON recall_passage USING hnsw (({column}::halfvec({dimensions})) halfvec_cosine_ops)
    WHERE space = ({space})::bigint AND vector_dims({column}) = {dimensions}
"""
_DROP: Final = "DROP INDEX CONCURRENTLY IF EXISTS {name}"
# However long it takes; not every version has each of them.
_PATIENT: Final = """
    SELECT set_config(name, '0', false) FROM pg_settings
    WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout')
"""
_NAME: Final = "commonbook-graphs"
_INTERRUPT: Final = f"""
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = '{_NAME}' AND datname = current_database()
"""


class _Due(NamedTuple):
    """What is to be done: indexes to drop, then spaces that lack one."""

    dimensions: int
    drop: Sequence[str]
    make: Sequence[int]

    def __bool__(self) -> bool:
        return bool(self.drop or self.make)


class GraphMaintainer:
    """The graphs of one index, as far as this process knows and tends them."""

    def __init__(self, above: int) -> None:
        """Let spaces of more than so many passages have a graph; none at all if that is 0."""
        self._above = above
        self._names: frozenset[str] = frozenset()
        self._turn = threading.Lock()
        self._worker: threading.Thread | None = None
        self._not_before = 0.0

    @property
    def least(self) -> int:
        """Spaces that have no more than this together have no graph."""
        return self._above // 2 if self._above else _NEVER

    def of(self, spaces: Iterable[int], dimensions: int) -> list[int]:
        """Return which of these spaces have one, as far as is known."""
        names = self._names
        return [space for space in spaces if _name(space, dimensions) in names] if names else []

    def learn(self, said: str | None, spaces: Collection[int], dimensions: int) -> bool:
        """Take in which graphs there are, and tell whether that is news of these spaces; None: they have none."""
        before = self.of(spaces, dimensions)
        if said is not None:
            self._names = frozenset(said.split())
        elif before:
            self._names -= {_name(space, dimensions) for space in before}
        return self.of(spaces, dimensions) != before

    def tend(self, connection: Connection) -> None:
        """Let graphs be made that are missing, and dropped that have no use any more, in the background."""
        with self._turn:
            working = self._worker is not None and self._worker.is_alive()
            if working or time.monotonic() < self._not_before or not self._due(connection):
                return
            # A connection of its own: others must not wait for those of the process while a graph is made.
            address, password = connection.info.dsn, connection.info.password
            self._worker = threading.Thread(
                target=self._work, args=(address, password), name="commonbook-graph", daemon=True
            )
            self._worker.start()

    def _work(self, address: str, password: str) -> None:
        try:
            with closing(
                psycopg.connect(address, password=password or None, autocommit=True, application_name=_NAME)
            ) as connection:
                connection.execute(_PATIENT)
                self._do_all(connection)
        except (pg.AdminShutdown, pg.UndefinedTable):
            # Somebody makes everything anew, and will tend the graphs after that.
            return
        except psycopg.Error as error:
            # Without a graph all is found as well, only later.
            self._not_before = time.monotonic() + _PAUSE
            _logger.info("a graph of neighbours was not made: %s", error)

    def _do_all(self, connection: Connection) -> None:
        for attempt in range(_MOST * 2):
            due = self._due(connection)
            if not due:
                return
            try:
                _do_one(connection, due)
            except (pg.DeadlockDetected, pg.DuplicateTable, pg.UndefinedObject):
                # Of two that begin at the same moment the second waits for the table, and the first for whatever the
                # second looks at, until the database breaks one off: a little later, one of them is first.
                if attempt > _ATTEMPTS:
                    raise
                time.sleep(random.uniform(*_LATER))  # noqa: S311 - not for keeping a secret

    def _due(self, connection: Connection) -> _Due:
        """Return what is to be done."""
        with suppress(pg.UndefinedTable):
            found = connection.execute(_DUE, {"above": self._above}).fetchone()
            if found:
                building, dimensions, large, enough, names, whole = found
                if building:
                    # What is not whole is another's who works on it; if it was left by somebody, nobody does.
                    return _Due(0, (), ())
                able = self._above > 0 and 0 < dimensions <= _LONGEST
                return _planned(dimensions, large, enough, names, whole) if able else _Due(dimensions, names, ())
        return _Due(0, (), ())


def _planned(
    dimensions: int, large: Sequence[int], enough: Sequence[int], names: Sequence[str], whole: Sequence[str]
) -> _Due:
    """Return what is to be done with these names of graphs, of which some are whole."""
    of_use = {_name(space, dimensions) for space in enough}.intersection(whole)
    missing = [space for space in large if _name(space, dimensions) not in of_use]
    return _Due(dimensions, [name for name in names if name not in of_use], missing[: max(_MOST - len(of_use), 0)])


def _do_one(connection: Connection, due: _Due) -> None:
    """Drop one, or make one: what is to be done next may be something else by then."""
    if due.drop:
        connection.execute(_said(_DROP.format(name=due.drop[0])))
        return
    space, dimensions = due.make[0], due.dimensions
    column = column_of(dimensions)
    connection.execute(
        _said(_MAKE.format(name=_name(space, dimensions), space=space, column=column, dimensions=dimensions))
    )


def without_graphs(connection: Connection) -> None:
    """Drop all graphs, where everything is about to be deleted: new rows would find their places among the dead.

    What cannot be dropped in time stays; that takes time, but does no harm.
    """
    interrupt(connection)
    with suppress(pg.LockNotAvailable, pg.QueryCanceled, pg.DeadlockDetected):
        for (name,) in connection.execute(_ANY).fetchall():
            connection.execute(_said(_DROP.format(name=name)))


def has_graphs(connection: Connection) -> bool:
    """Tell whether there is any, or may soon be."""
    return connection.execute(_ANY).fetchone() is not None


def interrupt(connection: Connection) -> None:
    """Break off whoever makes a graph at this moment, if the database lets us."""
    with suppress(pg.InsufficientPrivilege):
        connection.execute(_INTERRUPT)


def column_of(dimensions: int) -> str:
    """Return the column in which vectors of so many numbers are."""
    return "w" if dimensions > SHORT else "v"


def _name(space: int, dimensions: int) -> str:
    return f"{_PREFIX}{space & ((1 << 64) - 1):016x}_{dimensions}"


def _said(statement: str) -> Any:  # noqa: ANN401 - the driver wants text that was written down
    return statement
