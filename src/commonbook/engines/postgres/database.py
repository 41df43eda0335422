"""The Database port on PostgreSQL: transactions with retries, for any number of writers on any number of machines.

Reads see one snapshot (REPEATABLE READ). Writes run in READ COMMITTED, and lock the rows that must not change under
them. Statements go through the driver's pipeline, so that a transaction waits only for the results that it reads.
Retries of a transaction with exponential back-off, and the commit check after a lost answer.

When a connection is lost during the commit, it is unknown whether the transaction was committed. The next attempt finds
out first: by the commit check of the operation, if it set one, else by a row with a random mark in `committed`. Both
concern a row that the first attempt locked before its commit was sent, so the check waits until that attempt has ended.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from typing import Final, Generic, NamedTuple

import psycopg
from psycopg import errors as pg

from commonbook.engines import migration_steps
from commonbook.engines.postgres import connections
from commonbook.engines.postgres.connections import Connection, ConnectionPool, PooledConnection
from commonbook.errors import Busy, CommonbookError, DatabaseUnfit, DatabaseUnreachable, NoHome, NotReplicated
from commonbook.ports.database import Result, RetryTransaction, Row, Transaction
from commonbook.ports.keys import Clock
from commonbook.runtime import pause_seconds
from commonbook.values.ids import new_id
from commonbook.values.reports import Change, SchemaMigration

MIN_SERVER_VERSION: Final = 160000
"""PostgreSQL 16, in the notation of `server_version`."""

_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_VERSION: Final = "SELECT version FROM schema_version"
# A table of another build may have no fingerprint.
_SCHEMA: Final = "SELECT version, (to_jsonb(schema_version) ->> 'fingerprint')::bigint FROM schema_version"
_ASYNCHRONOUS_COMMIT: Final = "SET LOCAL synchronous_commit TO off"
_SHORT_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout TO '200ms'"
_WRITES_PER_TIDY: Final = 1000
_MAX_CREATE_ATTEMPTS: Final = 50


class PostgresDatabase:
    """The Database port on PostgreSQL.

    An operation is run again after a collision with other transactions, and after its connection was lost. If that
    happened during the commit, `TransactionRetry` finds out whether the transaction was committed.
    """

    compresses_texts = False

    def __init__(
        self,
        address: str,
        *,
        migrations: Sequence[str],
        clock: Clock,
        busy_seconds: float,
        connections: int = 20,
        create: bool = True,
    ) -> None:
        """Connect, check the server, and migrate the schema; an unfit server is reported now.

        Without `create`, a database that has no tables of ours raises NoHome.
        """
        self.migration: SchemaMigration | None = None
        self._pool = ConnectionPool(address, most=connections, wait=busy_seconds)
        self._migrations = tuple(migrations)
        self._clock = clock
        self.busy_seconds = busy_seconds
        self._thread_state = threading.local()
        self._writes = 0
        with ExitStack() as on_failure:
            on_failure.callback(self._pool.close)
            with _translated_errors(), self._pool.connection() as pooled:
                _require_fit(pooled.connection)
                if not create and self._schema_of(pooled.connection)[0] == 0:
                    raise NoHome("there is no book in this database yet", fix="`commonbook init` makes one")
                self._migrate(pooled.connection)
            on_failure.pop_all()

    @property
    def schema(self) -> int:
        """The version of the schema."""
        return len(self._migrations)

    def damage(self) -> list[str]:
        """Return nothing: a server checks its own pages."""
        return []

    def schema_copies(self) -> list[str]:
        """Return nothing: back-ups of a server are made by those who run it."""
        return []

    def remove_schema_copies(self) -> None:
        """Do nothing: there are no copies."""

    def bytes_used(self) -> int:
        """Return the size of the database."""
        with self.connection() as pooled:
            (size,) = pooled.connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
        return int(size)

    @contextmanager
    def connection(self) -> Iterator[PooledConnection]:
        """Check out a connection in autocommit mode, for work outside the book's own transactions."""
        with _translated_errors(), ExitStack() as checked_out:
            yield self._live_connection(checked_out)

    # --- reading

    @contextmanager
    def reading(self) -> Iterator[PostgresReading]:
        """Open a consistent snapshot of the committed state."""
        with _translated_errors(), ExitStack() as checked_out:
            connection = self._live_connection(checked_out).connection
            with connection.pipeline() as pipeline:
                connection.execute(_READ)
                self._require_version(connection.execute(_VERSION, prepare=True).fetchone())
                yield PostgresReading(connection, pipeline, self._clock.now())
                # After a ROLLBACK the driver would forget its prepared statements.
                connection.execute("COMMIT")

    def _live_connection(self, checked_out: ExitStack) -> PooledConnection:
        """Check out a connection that is alive; one that is lost later is for the reader to retry."""
        backoff = Backoff(self.busy_seconds)
        while True:
            try:
                with ExitStack() as attempt:
                    pooled = attempt.enter_context(self._pool.connection())
                    connections.require_alive(pooled)
                    checked_out.push(attempt.pop_all())
                    return pooled
            except DatabaseUnreachable as error:
                backoff.wait_to_reconnect(error)

    # --- writing

    def write(
        self, operation: Callable[[Transaction], Result], *, durable: bool = True, patient: bool = True
    ) -> Result:
        """Run an operation in a write transaction; repeat it after collisions and lost connections."""
        retry = TransactionRetry(operation, durable=durable, patient=patient)
        backoff = Backoff(self.busy_seconds)
        while True:
            retry.begin()
            try:
                with self._outermost(), self._pool.connection() as pooled:
                    result = self._run_attempt(pooled, retry, durable=durable)
                break
            except DatabaseUnreachable as error:
                retry.connection_lost()
                backoff.wait_to_reconnect(retry.explain(error))
            except RetryTransaction as error:
                backoff.wait_after_collision(error, retry.explain)
            except psycopg.Error as error:
                if not connections.is_collision(error):
                    raise retry.explain(connections.translate_error(error)) from error
                backoff.wait_after_collision(error, retry.explain)
        self._tidy_sometimes()
        return result

    @contextmanager
    def _outermost(self) -> Iterator[None]:
        if getattr(self._thread_state, "writing", False):
            raise RuntimeError("a writing transaction was opened inside another")
        try:
            self._thread_state.writing = True
            yield
        finally:
            self._thread_state.writing = False

    def _run_attempt(self, pooled: PooledConnection, retry: TransactionRetry[Result], *, durable: bool) -> Result:
        connection = pooled.connection
        with connection.pipeline() as pipeline:
            connection.execute(_WRITE)
            if not durable:
                connection.execute(_ASYNCHRONOUS_COMMIT)
            # Checked first, since an error of a later statement may come from another version.
            self._require_version(connection.execute(_VERSION, prepare=True).fetchone())
            result = retry.run(PostgresTransaction(connection, pipeline, self._clock.now()))
            pooled.warnings.clear()
            connection.execute("COMMIT")
        if pooled.warnings:
            raise NotReplicated(
                f"the change was made, but may be on one server only: {'; '.join(pooled.warnings)}",
                fix="look at the standby; then send the same again with its key, or check whether it is there",
            )
        return result

    def _tidy_sometimes(self) -> None:
        self._writes += 1
        if self._writes % _WRITES_PER_TIDY == 0:
            # The write itself is committed, whether this succeeds or not.
            with suppress(CommonbookError, psycopg.Error), self._pool.connection() as pooled:
                self._tidy(pooled.connection)

    @staticmethod
    def _tidy(connection: Connection) -> None:
        """Delete the commit marks that are too old to be uncertain."""
        connection.execute(DELETE_OLD_MARKS)

    # --- the schema

    def _require_version(self, row: Row | None) -> None:
        (version,) = row or (0,)
        if version != self.schema:
            raise migration_steps.another_build(version, self.schema, place="database")

    def _migrate(self, connection: Connection) -> None:
        """Migrate the schema; of several processes that start at once, one does it and the others wait."""
        if migration_steps.remaining(self._migrations, *self._schema_of(connection), place="database"):
            _make_version_table(connection)
            with connection.transaction():
                connection.execute("LOCK TABLE schema_version IN ACCESS EXCLUSIVE MODE")
                version, fingerprint = self._schema_of(connection)
                migrations = migration_steps.remaining(self._migrations, version, fingerprint, place="database")
                # Without a time limit: a migration that was cut off each time would never be finished.
                connection.execute("SET LOCAL statement_timeout TO 0")
                for script in migrations:
                    connection.execute(script)
                connection.execute("DELETE FROM schema_version")
                connection.execute(
                    "INSERT INTO schema_version (version, fingerprint) VALUES (%s, %s)",
                    (self.schema, migration_steps.fingerprint(self._migrations)),
                )
            if 0 < version < self.schema:
                self.migration = SchemaMigration(before=version, after=self.schema, copy=None)
        self._tidy(connection)

    @staticmethod
    def _schema_of(connection: Connection) -> tuple[int, int | None]:
        """Return the number and the fingerprint of the schema; the number is 0 if there is none."""
        if connection.execute("SELECT to_regclass('schema_version')").fetchone() == (None,):
            return 0, None
        try:
            version, fingerprint = connection.execute(_SCHEMA).fetchone() or (0, None)
        except pg.UndefinedColumn as error:
            raise connections.foreign_tables_error("schema_version") from error
        if not isinstance(version, int):
            raise connections.foreign_tables_error("schema_version")
        return version, fingerprint

    def make_durable(self) -> None:
        """Do nothing: the server shows a durable commit to others only when it is durable."""

    def is_last_commit(self, tx: Transaction) -> bool:  # noqa: ARG002 - it is not known of any
        """Return False: others may have committed at any time."""
        return False

    def close(self) -> None:
        """Close all connections for good."""
        self._pool.close()


class PostgresReading:
    """A consistent snapshot, read through a pipeline, in which statements without a result are not waited for."""

    def __init__(self, connection: Connection, pipeline: psycopg.Pipeline, now: datetime) -> None:
        """Read through this connection, which is in pipeline mode; `now` is the one time of the whole transaction."""
        self.connection = connection
        self._pipeline = pipeline
        self.now = now

    def _send(self, sql: str, params: Mapping[str, object]) -> psycopg.Cursor[Row]:
        return self.connection.execute(_psycopg_notation(sql), params, prepare=True)

    def rows(self, sql: str, /, **params: object) -> list[Row]:
        """Return all rows of a query."""
        return self._send(sql, params).fetchall()

    def row(self, sql: str, /, **params: object) -> Row | None:
        """Return the first row of a query, or None."""
        return self._send(sql, params).fetchone()

    def rows_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> list[list[Row]]:
        """Send one query for each set of parameters, and return the rows of each."""
        cursors = [self._send(sql, values) for values in params]
        return [cursor.fetchall() for cursor in cursors]


class PostgresTransaction(PostgresReading):
    """The write transaction."""

    compresses_texts = False

    def __init__(self, connection: Connection, pipeline: psycopg.Pipeline, now: datetime) -> None:
        """Write through this connection, which is in pipeline mode; `now` is the one time of the whole transaction."""
        super().__init__(connection, pipeline, now)
        self.recorded: list[Change] = []
        self.touched: dict[str, str | None] = {}
        self.commit_check: Callable[[Transaction], bool] | None = None
        self.committed: object | None = None

    def lock_rows(self, sql: str, /, *, if_free: bool = False, **params: object) -> list[Row]:
        """Return the rows of a SELECT, locked until the transaction ends; `if_free` leaves out what others lock."""
        return self.rows(f"{sql} FOR UPDATE{' SKIP LOCKED' if if_free else ''}", **params)

    def lock_table(self, table: str, /) -> None:
        """Lock a table, so that nobody else writes to it until the transaction ends."""
        self.run(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")

    def run(self, sql: str, /, **params: object) -> int:
        """Run one statement and return how many rows it touched."""
        cursor = self._send(sql, params)
        self._pipeline.sync()
        return cursor.rowcount

    def run_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> None:
        """Run one statement for each set of parameters, without waiting for the results."""
        for values in params:
            self._send(sql, values)

    def record(self, change: Change) -> None:
        """Record a change, to be numbered and logged when the transaction is finalized."""
        self.recorded.append(change)


# Quoted text and casts are left alone. A list is compared as an array, so that lists of any length share one prepared
# statement.
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|::|%| IN :([a-z_]+)|:([a-z_]+)")


@lru_cache(maxsize=1024)
def _psycopg_notation(sql: str) -> str:
    """Return a statement of an operation with its parameters in the notation of psycopg."""
    return _TOKEN.sub(_replace_token, sql)


def _replace_token(match: re.Match[str]) -> str:
    if match[1]:
        return f" = ANY(%({match[1]})s)"
    if match[2]:
        return f"%({match[2]})s"
    return match[0].replace("%", "%%")


# --- requirements of a server


def _make_version_table(connection: Connection) -> None:
    for _ in range(_MAX_CREATE_ATTEMPTS):
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL, fingerprint BIGINT NOT NULL)"
            )
            return
        except (pg.UniqueViolation, pg.DuplicateTable, pg.DuplicateObject):
            # Another process is creating it at this moment: `IF NOT EXISTS` checks before, and does not wait.
            continue


_REQUIREMENTS: Final = """
    SELECT current_setting('server_encoding'),
      (SELECT format('pgvector %s in the schema %s', extversion, extnamespace::regnamespace)
       FROM pg_extension WHERE extname = 'vector'),
      EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector'), to_regtype('halfvec') IS NOT NULL
"""


def _require_fit(connection: Connection) -> None:
    """Raise DatabaseUnfit for a server or database that lacks a requirement of a book."""
    version = connection.info.server_version
    if version < MIN_SERVER_VERSION:
        raise DatabaseUnfit(
            f"the server is PostgreSQL {version // 10000}, and a book needs {MIN_SERVER_VERSION // 10000} or newer",
            fix="upgrade the server, or name another in COMMONBOOK_DATABASE",
        )
    row = connection.execute(_REQUIREMENTS).fetchone()
    encoding, installed, available, has_halfvec = row or ("", None, False, False)
    if encoding != "UTF8":
        raise DatabaseUnfit(
            f"the database has the encoding {encoding}, which cannot hold every text",
            fix="create it anew: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0",
        )
    if installed is None:
        _add_extension(connection, available=available)
    elif not has_halfvec:
        raise DatabaseUnfit(
            f"the database has {installed}, whose type halfvec is not found",
            fix="put that schema into the search_path of the database's user, or upgrade pgvector to 0.7 or newer",
        )


def _add_extension(connection: Connection, *, available: bool) -> None:
    if not available:
        raise DatabaseUnfit(
            "the server has no pgvector, which recall needs",
            fix="install it on the server (on Debian and Ubuntu: apt-get install postgresql-18-pgvector)",
        )
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except pg.UniqueViolation:
        # Another process has just created it.
        return
    except pg.InsufficientPrivilege as error:
        raise DatabaseUnfit(
            "the database has no pgvector yet, and its user may not add it",
            fix="run CREATE EXTENSION vector in the database as an administrator",
        ) from error


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Translate the errors of the driver into ours, each with its fix."""
    try:
        yield
    except psycopg.Error as error:
        raise connections.translate_error(error) from error


# By the server's clock: a client whose clock is ahead must not delete the marks of others.
_NOW: Final = """to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
_ONE_HOUR_AGO: Final = "(now() - interval '1 hour')"
_INSERT_MARK: Final = f"INSERT INTO committed (mark, at) VALUES (:mark, {_NOW}) ON CONFLICT"
_WRITE_MARK: Final = f"{_INSERT_MARK} DO NOTHING"
_REFRESH_MARK: Final = f"{_INSERT_MARK} (mark) DO UPDATE SET at = excluded.at"
DELETE_OLD_MARKS: Final = f"DELETE FROM committed WHERE at < {_NOW.replace('now()', _ONE_HOUR_AGO)}"
"""Deletes the marks of commits that are too old to be uncertain."""

_MAX_COLLISIONS: Final = 50
_FIRST_PAUSE_SECONDS: Final = 0.005
_MAX_PAUSE_SECONDS: Final = 0.5


class _SentCommit(NamedTuple, Generic[Result]):
    """The result of an attempt whose commit was sent, and the check that shows whether it was committed."""

    result: Result
    commit_check: Callable[[Transaction], bool] | None


class TransactionRetry(Generic[Result]):
    """The state of one operation over several attempts.

    It has the result of the current attempt, once its commit is about to be sent, and that of an earlier attempt whose
    commit had no answer.
    """

    def __init__(self, operation: Callable[[Transaction], Result], *, durable: bool, patient: bool = True) -> None:
        """Prepare to run this operation; one that is not durable is repeated without a commit check."""
        self._operation = operation
        self._durable = durable
        self._patient = patient
        self._mark_value = ""
        self._has_mark = False
        self._sent: _SentCommit[Result] | None = None
        self._uncertain: _SentCommit[Result] | None = None

    @property
    def _mark(self) -> str:
        self._mark_value = self._mark_value or new_id()
        return self._mark_value

    def begin(self) -> None:
        """Start an attempt: no commit was sent in it yet."""
        self._sent, self._has_mark = None, False

    def run(self, tx: Transaction) -> Result:
        """Run the operation, unless the uncertain attempt was committed; the caller commits next."""
        if self._uncertain is not None and self._was_committed(tx, self._uncertain):
            # The commit may have been cut off while it waited for a standby. This one writes too, and so waits for the
            # standby: no commit is replicated before those that it follows.
            tx.run(_REFRESH_MARK, mark=self._mark)
            return self._uncertain.result
        self._uncertain = None
        if not self._patient:
            tx.run_many(_SHORT_LOCK_TIMEOUT, [{}])
        result = self._operation(tx)
        if self._durable and tx.commit_check is None and not self._has_mark:
            tx.run(_WRITE_MARK, mark=self._mark)
        self._sent = _SentCommit(result, tx.commit_check)
        return result

    def _was_committed(self, tx: Transaction, attempt: _SentCommit[Result]) -> bool:
        """Return whether an attempt was committed; this waits until it has ended."""
        if attempt.commit_check is not None:
            return attempt.commit_check(tx)
        # The insert waits for the other attempt's insert of the same mark, and does nothing if that was committed.
        self._has_mark = tx.run(_WRITE_MARK, mark=self._mark) == 1
        return not self._has_mark

    def connection_lost(self) -> None:
        """Note that the connection was lost: if the commit was sent, its outcome is uncertain."""
        if self._durable and self._sent is not None:
            self._uncertain = self._sent

    def explain(self, error: CommonbookError) -> CommonbookError:
        """Return an error that says so if the outcome of a commit is unknown, else the error itself."""
        if self._uncertain is None:
            return error
        return DatabaseUnreachable(
            f"the answer to a commit was lost, so the change may have been made or not: {error.message}",
            fix="send the same again with its key, or check whether it is there",
        )


class Backoff:
    """Exponential back-off with a deadline and a limit of collisions."""

    def __init__(self, seconds: float) -> None:
        """Give up after this number of seconds."""
        self._deadline = time.monotonic() + seconds
        self._attempts = 0

    def wait_to_reconnect(self, error: CommonbookError) -> None:
        """Pause before the next attempt to connect, or raise the error."""
        self._pause(error)

    def wait_after_collision(
        self, error: psycopg.Error | RetryTransaction, explain: Callable[[CommonbookError], CommonbookError]
    ) -> None:
        """Pause after a collision with other transactions, or raise an error, passed through `explain`."""
        if isinstance(error, pg.UniqueViolation):
            give_up_error: CommonbookError = connections.translate_error(error)
        else:
            give_up_error = Busy(
                "other transactions keep changing the same rows", fix="try again when there is less load"
            )
        if self._attempts > _MAX_COLLISIONS:
            raise explain(give_up_error) from error
        self._pause(explain(give_up_error))

    def _pause(self, give_up_error: CommonbookError) -> None:
        if time.monotonic() > self._deadline:
            raise give_up_error
        time.sleep(pause_seconds(self._attempts, first=_FIRST_PAUSE_SECONDS, most=_MAX_PAUSE_SECONDS))
        self._attempts += 1
