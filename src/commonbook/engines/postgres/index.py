"""The recall index in PostgreSQL: passages and postings are rows beside the book, shared by all servers.

A writer locks the row of `recall_index`; the rows that it adds and the new index state are one transaction. Readers
never wait. A search uses the snapshot of the recall's own read transaction. The index may be newer there than the view
that was opened before, but never newer than the book in that snapshot; pending deltas that it already holds are
applied twice without harm.

The tables are derived data: they can be dropped at any time, and the next writer creates them again.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol, runtime_checkable

import psycopg
from psycopg import errors as pg

from commonbook.engines.index.search import OverlaidIndex, search
from commonbook.engines.postgres import vector_index
from commonbook.engines.postgres.connections import Connection, PooledConnection
from commonbook.engines.postgres.passage_cache import PassageCache
from commonbook.engines.postgres.passage_rows import PASSAGE_COLUMNS, POSTING_COLUMNS, passage_lines, signed_hash
from commonbook.engines.postgres.search import Search, SearchResources
from commonbook.errors import Busy, HomeDamaged, HomeOfAnotherBuild
from commonbook.ports.database import Reading
from commonbook.ports.index import Delta, IndexQuery, IndexResult, IndexState, PendingDeltas, SpacePosition
from commonbook.values.reports import Progress

CheckOut = Callable[[], AbstractContextManager[PooledConnection]]
"""Checks out a connection in autocommit mode, and translates the errors of the driver."""

# --- the tables

# They are not part of the book and have no migrations: tables of an older format are dropped and filled again. Spaces,
# owners, threads and terms are stored as 64-bit hashes, the same as in the embedded index, so the tables contain no
# word of a passage. All keys begin with the space. Only `recall_index` has a single row: the index state, which a
# writer locks.

FORMAT: Final = 8
"""Changes with every change of the tables, or of the meaning of their contents."""

TABLES: Final = ("recall_index", "recall_space", "recall_passage", "recall_posting")
MISSING: Final = f"""
    SELECT count(*) FILTER (WHERE to_regclass(name) IS NULL), 2 - (
      SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('recall_passage') AND attname IN ('v', 'w'))
    FROM unnest(ARRAY{list(TABLES)}) name
"""
"""Counts missing tables and columns. A table that was created at this very moment may seem to lack its columns."""

LOCK_CREATION: Final = "SELECT pg_advisory_xact_lock(hashtext('commonbook recall_index'))"
"""Lets one process at a time create the tables, until the end of its transaction."""

DROP_ROWS: Final = "DROP TABLE IF EXISTS recall_posting; DROP TABLE IF EXISTS recall_passage"
DROP_ALL: Final = "; ".join(f"DROP TABLE IF EXISTS {table}" for table in reversed(TABLES))

CREATE_STATE: Final = f"""
    CREATE TABLE recall_index (
      one        smallint PRIMARY KEY CHECK (one = 1),
      format     integer NOT NULL,
      generation bigint NOT NULL,
      home       text,      -- NULL while the index is incomplete
      rules      text,
      embedder   text,
      dimensions integer
    );
    INSERT INTO recall_index (one, format, generation) VALUES (1, {FORMAT}, 0);
    CREATE TABLE recall_space (
      space      bigint PRIMARY KEY,
      name       text NOT NULL,
      passages   bigint NOT NULL,
      unembedded bigint NOT NULL,
      version    bigint NOT NULL,  -- changes whenever a passage is added or removed
      number     bigint,    -- NULL for a space without a recorded position
      seq        bigint,
      head       text,
      indexed    boolean NOT NULL DEFAULT false  -- whether a vector index of the space was made
    )
"""

# New rows are soon marked as visible to all, so that index-only scans need not read the tables for them.
_VACUUM: Final = "autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05"

CREATE_ROWS: Final = f"""
    CREATE TABLE recall_passage (
      space       bigint NOT NULL,
      id          uuid NOT NULL,   -- orders passages of equal score
      owner       bigint NOT NULL,
      thread      bigint NOT NULL,
      position    bigint NOT NULL,
      kind        smallint NOT NULL,
      flags       smallint NOT NULL,
      wording     bigint NOT NULL,  -- the same for copies that say the same
      time        bigint NOT NULL,
      valid_from  bigint NOT NULL,
      valid_until bigint NOT NULL,
      superseded  bigint NOT NULL,
      superseded_until bigint NOT NULL,
      expires     bigint NOT NULL,
      terms       bigint[] NOT NULL,
      columns     bytea NOT NULL,  -- from here on the data for scoring, as in the embedded index
      entries     bytea NOT NULL,
      name        bytea NOT NULL,
      speaker     bytea NOT NULL,
      vector      bytea,
      v           halfvec,         -- the same as halfvec, if it fits into an index row
      w           halfvec          -- if it does not
    ) WITH ({_VACUUM});
    CREATE TABLE recall_posting (space bigint NOT NULL, term bigint NOT NULL, id uuid NOT NULL) WITH ({_VACUUM})
"""
# The filter columns and the position among neighbours are in the primary key's index: no second look-up is needed.
CREATE_INDEXES: Final = """
    ALTER TABLE recall_passage ADD PRIMARY KEY (space, id)
      INCLUDE (thread, position, kind, flags, wording, time, valid_from, valid_until, superseded, superseded_until,
        expires);
    ALTER TABLE recall_posting ADD PRIMARY KEY (space, term, id);
    CREATE INDEX recall_owner ON recall_passage (owner);
    CREATE INDEX recall_newest ON recall_passage (space, time DESC, position DESC, id);
    CREATE INDEX recall_thread ON recall_passage (thread, position);
    CREATE INDEX recall_nearest ON recall_passage (space, id)
      INCLUDE (owner, kind, time, valid_from, valid_until, superseded, superseded_until,
        expires, v) WHERE v IS NOT NULL
"""

# --- statements


_VACUUM_MIN_PASSAGES: Final = 1_000
_MAX_GENERATION: Final = 1 << 63
_VACUUM_MIN_SHARE: Final = 0.05
"""A commit of at least this number and this share of all passages is followed by VACUUM; others wait for autovacuum."""

_VACUUMED: Final = "recall_passage, recall_posting, recall_space"

_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = """
    BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
    SET LOCAL lock_timeout TO {milliseconds};
    SET LOCAL statement_timeout TO 0;
    -- A writer that hangs while it holds the lock loses it.
    SET LOCAL idle_in_transaction_session_timeout TO '120s';
    -- Commits that a crash of the server loses are indexed again, and nobody waits for a standby.
    SET LOCAL synchronous_commit TO off;
    -- Rows are always found by an index here; a new table has no statistics yet.
    SET LOCAL enable_seqscan TO off; SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off
"""
_MAX_ATTEMPTS: Final = 4
# Recreating the extension drops the columns of its types.
_MISSING: Final = """
    SELECT count(*) FILTER (WHERE to_regclass(name) IS NULL), 2 - (
      SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('recall_passage') AND attname IN ('v', 'w'))
    FROM unnest(%(tables)s::text[]) name
"""
_GENERATION: Final = """
    SELECT format, generation FROM recall_index
    WHERE to_regclass('recall_passage') IS NOT NULL AND to_regclass('recall_posting') IS NOT NULL
"""
_STATE: Final = """
    SELECT format, generation, home, rules, embedder, dimensions, s.name, s.number, s.seq, s.head,
      (SELECT coalesce(sum(unembedded), 0)::bigint FROM recall_space)
    FROM recall_index LEFT JOIN recall_space s ON s.number IS NOT NULL
"""
_LOCK: Final = "SELECT format, generation FROM recall_index FOR UPDATE"
_LOCK_HOLDER: Final = """
    SELECT pid, application_name, coalesce(client_addr::text, 'this machine') FROM pg_stat_activity
    WHERE pid IN (
      SELECT pid FROM pg_locks WHERE relation = to_regclass('recall_index') AND mode = 'RowShareLock' AND granted)
    ORDER BY xact_start LIMIT 1
"""
_DELETE_OWNERS: Final = """
    WITH gone AS (
      DELETE FROM recall_passage WHERE owner = ANY(%(owners)s::bigint[])
      RETURNING space, id, terms, v IS NULL AND w IS NULL AS bare
    ), unposted AS (
      DELETE FROM recall_posting o USING (SELECT space, id, unnest(terms) AS term FROM gone) g
      WHERE o.space = g.space AND o.term = g.term AND o.id = g.id
    )
    SELECT space, count(*), count(*) FILTER (WHERE bare) FROM gone GROUP BY space
"""
_SUBTRACT_COUNTS: Final = """
    UPDATE recall_space SET passages = passages - %(passages)s, unembedded = unembedded - %(unembedded)s,
      version = %(version)s
    WHERE space = %(space)s
"""
_ADD_COUNTS: Final = """
    INSERT INTO recall_space (space, name, passages, unembedded, version)
    VALUES (%(space)s, %(name)s, %(passages)s, %(unembedded)s, %(version)s)
    ON CONFLICT (space) DO UPDATE SET
      passages = recall_space.passages + excluded.passages, unembedded = recall_space.unembedded + excluded.unembedded,
      version = excluded.version
"""
_SET_POSITION: Final = """
    INSERT INTO recall_space (space, name, passages, unembedded, version, number, seq, head)
    VALUES (%(space)s, %(name)s, 0, 0, 0, %(number)s, %(seq)s, %(hash)s)
    ON CONFLICT (space) DO UPDATE SET number = excluded.number, seq = excluded.seq, head = excluded.head
"""
_SET_STATE: Final = """
    UPDATE recall_index SET format = %(format)s, generation = %(generation)s, home = %(home)s, rules = %(rules)s,
      embedder = %(embedder)s, dimensions = %(dimensions)s
"""
_INDEXED: Final = "SELECT space FROM recall_space WHERE indexed"
# A new generation, so that every process reads which spaces have a vector index.
_SET_INDEXED: Final = """
    WITH next AS (
      UPDATE recall_index
      SET generation = greatest(generation + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    )
    UPDATE recall_space SET indexed = %(indexed)s WHERE space = %(space)s
"""
_DELETE_ALL: Final = "DELETE FROM recall_posting; DELETE FROM recall_passage; DELETE FROM recall_space"
_CHECKS: Final = {
    "recall_space counts differ from the passages": """
        SELECT count(*) FROM (
          SELECT space, count(*) AS n, count(*) FILTER (WHERE v IS NULL AND w IS NULL) AS bare
          FROM recall_passage GROUP BY space
        ) p FULL JOIN (SELECT * FROM recall_space WHERE passages <> 0) s USING (space)
        WHERE n IS DISTINCT FROM passages OR bare IS DISTINCT FROM unembedded
    """,
    "recall_posting differs from the terms of the passages": """
        SELECT count(*) FROM (SELECT space, id, unnest(terms) AS term FROM recall_passage) p
        FULL JOIN recall_posting o USING (space, id, term) WHERE p.id IS NULL OR o.id IS NULL
    """,
}


@runtime_checkable
class HasConnection(Protocol):
    """A read transaction in the database that the index is in."""

    connection: Connection
    """The connection whose transaction it is, in pipeline mode."""


class PostgresIndex:
    """The Index port in the database that the book is in."""

    def __init__(self, check_out: CheckOut, *, cache_bytes: int) -> None:
        """Use connections from `check_out`, and a cache of up to `cache_bytes`; the first write creates the tables."""
        self._check_out = check_out
        self._thread_lock = threading.Lock()
        self._resources: Final = SearchResources(PassageCache(cache_bytes))
        self._empty_view = _View(self._check_out, self._resources, 0, None)
        self._view = self._empty_view

    def last_view(self) -> _View:
        """Return the last view without a query; a search in a read transaction checks whether it is current."""
        return self._view.as_known()

    def empty_view(self) -> _View:
        """Return a view of an empty index."""
        return self._empty_view

    def view(self) -> _View:
        """Query the generation, and read the whole index state if it has changed."""
        with self._check_out() as pooled:
            try:
                format_, generation = pooled.connection.execute(_GENERATION).fetchone() or (None, None)
                if format_ != FORMAT:
                    self._view = self._empty_view
                elif generation != self._view.generation:
                    generation, state = _read_state(pooled.connection)
                    indexed = frozenset(space for (space,) in pooled.connection.execute(_INDEXED))
                    self._view = _View(self._check_out, self._resources._replace(indexed=indexed), generation, state)
            except pg.UndefinedTable:
                self._view = self._empty_view
            return self._view

    @contextmanager
    def writing(self, *, wait: float, hurried: bool = False, thorough: bool = False) -> Iterator[_Writer]:  # noqa: ARG002 - nothing is merged
        """Lock the index for writing."""
        # Only one thread of a process waits in the database, so that connections remain for the others.
        if not self._thread_lock.acquire(timeout=wait):
            raise _busy_error("another thread of this process")
        try:
            with self._check_out() as pooled:
                _ensure_tables(pooled.connection)
                writer = _Writer(pooled.connection, wait)
                try:
                    writer.begin()
                    yield writer
                finally:
                    writer.end()
                # Only after the block: in it, the caller's open snapshot of the book hides the new rows from VACUUM.
                writer.vacuum()
        finally:
            self._thread_lock.release()

    def make_vector_index(self, space: str, progress: Progress) -> None:
        """Make a vector index of a space, given by its id; from then on it is searched by that."""
        state = self.view().state
        with self._check_out() as pooled:
            number = signed_hash(space)
            vector_index.create(pooled.connection, number, state.dimensions if state else 0, progress)
            pooled.connection.execute(_SET_INDEXED, {"space": number, "indexed": True})

    def drop_vector_index(self, space: str) -> None:
        """Drop the vector index of a space, given by its id, if it has one."""
        with self._check_out() as pooled:
            number = signed_hash(space)
            pooled.connection.execute(_SET_INDEXED, {"space": number, "indexed": False})
            vector_index.drop(pooled.connection, number)

    def damage(self) -> list[str]:
        """Check all rows, and return the inconsistencies."""
        if self.view().state is None:
            return []
        with self._check_out() as pooled, _snapshot(pooled.connection) as connection:
            counts = [(problem, count) for problem, check in _CHECKS.items() for (count,) in connection.execute(check)]
        return [f"{problem}: {rows} rows" for problem, rows in counts if rows]

    def close(self) -> None:
        """Forget the last view and the cache; connections belong to the pool."""
        self._view = self._empty_view
        self._resources.cache.clear()


class _View:
    """The contents of the index when its state was read."""

    def __init__(
        self,
        check_out: CheckOut,
        resources: SearchResources,
        generation: int,
        state: IndexState | None,
        overlay: OverlaidIndex | None = None,
    ) -> None:
        self.generation: Final = generation
        self.state: Final = state
        self._check_out = check_out
        self._resources = resources
        self._overlay: Final = OverlaidIndex() if overlay is None else overlay
        self._max_generation = _MAX_GENERATION

    def as_known(self) -> _View:
        """Return a copy whose search accepts exactly this generation."""
        view = _View(self._check_out, self._resources, self.generation, self.state, self._overlay)
        view._max_generation = self.generation
        return view

    def search(self, query: IndexQuery, pending: PendingDeltas, tx: Reading | None = None) -> IndexResult:
        """Search the pending deltas, and the database in a snapshot that is not older than this view."""
        parts = self._overlay.under(pending)
        if self.state is None:
            return search(parts, query)
        owners = frozenset(owner for delta in pending for owner in delta.replaced_owners)
        owners |= {passage.owner for delta in pending for passage in delta.entries}
        if isinstance(tx, HasConnection):
            try:
                generation, result = Search(tx.connection, query, parts, owners, self._resources).run(self.state)
            except (pg.UndefinedTable, pg.UndefinedColumn, pg.DeadlockDetected) as error:
                raise _changed_error() from error
            if not self.generation <= generation <= self._max_generation:
                raise _changed_error()
            return result
        with self._check_out() as pooled, _snapshot(pooled.connection) as connection:
            generation, result = Search(connection, query, parts, owners, self._resources).run(self.state)
        if generation != self.generation:
            raise _changed_error()
        return result


class _Writer:
    """Adds to the index, in one transaction that holds its lock."""

    def __init__(self, connection: Connection, wait: float) -> None:
        self._connection = connection
        self._wait_seconds = wait
        self._state: IndexState | None = None
        self._generation = -1
        self._open = False
        self._unindexed = self._empty = False
        self._dimensions = self._version = 0
        self._added_owners: set[str] = set()
        self._uncounted: dict[str, tuple[int, int]] = {}
        self._added_count = self._committed_count = 0

    @property
    def state(self) -> IndexState | None:
        """The state of the index before this commit."""
        return self._state

    def begin(self) -> None:
        """Begin a transaction and lock the index."""
        self._connection.execute(_WRITE.format(milliseconds=max(int(self._wait_seconds * 1000), 1)))
        self._open = True
        # Random: a counted version could come again after a restored back-up, for other contents.
        self._version = secrets.randbits(62)
        try:
            format_, generation = self._connection.execute(_LOCK).fetchone() or (None, None)
        except pg.LockNotAvailable as error:
            self.end()
            holder = self._connection.execute(_LOCK_HOLDER).fetchone()
            raise _busy_error("connection {} of {} from {}".format(*holder) if holder else "another server") from error
        if format_ != FORMAT:
            raise HomeDamaged(
                "the row of recall_index is missing or of another format",
                fix="drop the tables recall_*; they are created again",
            )
        if self._generation not in (-1, generation):
            raise Busy("another process has written the index between two commits", fix="try again")
        self._generation, self._state = _read_state(self._connection)
        self._dimensions = self._state.dimensions if self._state else 0

    def end(self) -> None:
        """Release the lock, rolling back what was not committed."""
        if self._open and not self._connection.closed:
            self._connection.execute("ROLLBACK")
        self._open = False

    def clear(self) -> None:
        """Empty the index."""
        if not self._open:
            self.begin()
        self._uncounted, self._added_owners = {}, set()
        if self._state is None:
            # Nobody reads an index without a state: new tables are indexed when they are full, several times as fast.
            self._connection.execute("DELETE FROM recall_space")
            self._connection.execute(f"{DROP_ROWS}; {CREATE_ROWS}")
            self._unindexed = True
        else:
            if vector_index.names(self._connection):
                self.end()
                vector_index.drop_all(self._connection)
                self.begin()
            self._connection.execute(_DELETE_ALL)
        self._state, self._dimensions, self._empty = None, 0, True

    def add(self, delta: Delta) -> None:
        """Delete the owners that a delta replaces, and copy its passages."""
        self._ensure_begun()
        owners = {passage.owner for passage in delta.entries}
        self._delete_owners(delta.replaced_owners | owners)
        self._added_owners |= owners
        lengths = (len(passage.vector) for passage in delta.entries if passage.vector is not None)
        self._dimensions = self._dimensions or next(lengths, 0)
        passages = passage_lines(delta.entries, dimensions=self._dimensions)
        self._copy(f"recall_passage ({PASSAGE_COLUMNS})", passages.rows)
        self._copy(f"recall_posting ({POSTING_COLUMNS})", passages.postings)
        for space, sizes in passages.spaces.items():
            size, unembedded = (a + b for a, b in zip(sizes, self._uncounted.get(space, (0, 0)), strict=True))
            self._uncounted[space] = (size, unembedded)
        self._added_count += len(delta.entries)

    def commit(self, state: IndexState) -> None:
        """Commit the added passages and the new index state in one step."""
        self._ensure_begun()
        if self._unindexed:
            self._connection.execute(CREATE_INDEXES)
        with self._connection.cursor() as cursor:
            self._add_counts(cursor)
            before = self._state.applied if self._state else {}
            changed = {space: position for space, position in state.applied.items() if before.get(space) != position}
            cursor.executemany(
                _SET_POSITION, [_position_params(space, position) for space, position in changed.items()]
            )
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        params = {**state._asdict(), "dimensions": self._dimensions, "format": FORMAT, "generation": self._generation}
        self._connection.execute(_SET_STATE, params)
        self._connection.execute("COMMIT")
        self._open = False
        self._state = state._replace(dimensions=self._dimensions)
        self._unindexed, self._empty, self._uncounted, self._added_owners = False, False, {}, set()
        self._committed_count += self._added_count
        self._added_count = 0

    def _ensure_begun(self) -> None:
        """Begin a transaction if none is open, and clear an index that is incomplete."""
        if not self._open:
            self.begin()
        if self._state is None and not self._empty:
            self.clear()

    def _delete_owners(self, owners: frozenset[str]) -> None:
        if self._empty and owners.isdisjoint(self._added_owners):
            return
        if self._unindexed:
            self._connection.execute(CREATE_INDEXES)
            self._unindexed = False
        params = {"owners": [signed_hash(owner) for owner in owners]}
        deleted = self._connection.execute(_DELETE_OWNERS, params).fetchall()
        with self._connection.cursor() as cursor:
            # Passages that this transaction has added itself are not counted yet.
            self._add_counts(cursor)
            cursor.executemany(
                _SUBTRACT_COUNTS,
                [
                    {"space": space, "passages": size, "unembedded": unembedded, "version": self._version}
                    for space, size, unembedded in deleted
                ],
            )

    def _add_counts(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        counts = [
            {
                "space": signed_hash(space),
                "name": space,
                "passages": size,
                "unembedded": unembedded,
                "version": self._version,
            }
            for space, (size, unembedded) in self._uncounted.items()
        ]
        cursor.executemany(_ADD_COUNTS, counts)
        self._uncounted = {}

    def _copy(self, target: str, lines: str) -> None:
        with self._connection.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN") as copy:
            copy.write(lines)

    def vacuum(self) -> None:
        """Run VACUUM after a large commit; until then, index-only scans read the table for each new row."""
        if self._committed_count < _VACUUM_MIN_PASSAGES:
            return
        (passages,) = self._connection.execute("SELECT coalesce(sum(passages), 0) FROM recall_space").fetchone() or (0,)
        if self._committed_count < _VACUUM_MIN_SHARE * int(passages):
            return
        (timeout,) = self._connection.execute("SELECT current_setting('statement_timeout')").fetchone() or ("0",)
        try:
            self._connection.execute("SET statement_timeout TO 0")
            # First, since it commits synchronously: VACUUM marks no rows as visible whose commit is not yet on disk.
            self._connection.execute(f"ANALYZE (SKIP_LOCKED) {_VACUUMED}")
            # Tables that another process vacuums at this moment are skipped.
            self._connection.execute(f"VACUUM (SKIP_LOCKED) {_VACUUMED}")
        finally:
            self._connection.execute("SELECT set_config('statement_timeout', %s, false)", (timeout,))


@contextmanager
def _snapshot(connection: Connection) -> Iterator[Connection]:
    """Open a read transaction on a connection, in pipeline mode."""
    with connection.pipeline():
        connection.execute(_READ)
        yield connection
        connection.execute("COMMIT")


def _position_params(space: str, position: SpacePosition) -> dict[str, object]:
    return {"space": signed_hash(space), "name": space, **position._asdict()}


def _read_state(connection: Connection) -> tuple[int, IndexState | None]:
    """Read the generation and the state of the index."""
    rows = connection.execute(_STATE).fetchall()
    if not rows:
        return 0, None
    first, *_ = rows
    _, generation, home, rules, embedder, dimensions, *_, unembedded = first
    applied = {name: SpacePosition(number, seq, head) for *_, name, number, seq, head, _ in rows if name is not None}
    if home is None:
        return generation, None
    return generation, IndexState(home, rules, embedder, applied, dimensions, unembedded)


def _ensure_tables(connection: Connection) -> None:
    """Create the tables if they are missing, incomplete, or of an older format."""
    for _ in range(_MAX_ATTEMPTS):
        # Of several processes that begin at the same moment, one creates the tables; the others check again.
        with suppress(
            pg.UniqueViolation,
            pg.DuplicateTable,
            pg.DuplicateObject,
            pg.UndefinedTable,
            pg.LockNotAvailable,
            pg.DeadlockDetected,
        ):
            missing, lost = connection.execute(MISSING).fetchone() or (0, 0)
            if not missing and not lost and not _is_older(connection, "SELECT format FROM recall_index"):
                return
            with connection.transaction():
                _create_tables(connection)
    raise _busy_error("other processes that create it again")


def _create_tables(connection: Connection) -> None:
    """Create what is missing; what another process has created in the meantime is left as it is."""
    connection.execute(LOCK_CREATION)
    missing, lost = connection.execute(MISSING).fetchone() or (0, 0)
    if missing == len(TABLES):
        connection.execute(f"{CREATE_STATE}; {CREATE_ROWS}; {CREATE_INDEXES}")
    elif missing or lost or _is_older(connection, "SELECT format FROM recall_index FOR UPDATE"):
        connection.execute(f"{DROP_ALL}; {CREATE_STATE}; {CREATE_ROWS}; {CREATE_INDEXES}")


def _is_older(connection: Connection, statement: str) -> bool:
    (format_,) = connection.execute(statement).fetchone() or (0,)
    if format_ > FORMAT:
        raise HomeOfAnotherBuild(
            f"the index has format {format_}, this program knows {FORMAT}",
            fix="update Commonbook and start it again; nothing was changed",
        )
    return bool(format_ < FORMAT)


def _changed_error() -> Busy:
    return Busy("the index was changed during the search", fix="search again")


def _busy_error(holder: str) -> Busy:
    return Busy(f"the index is being written by {holder}", fix="try again in a moment")
