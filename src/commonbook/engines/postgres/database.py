"""The database on PostgreSQL: any number of writers, on any number of machines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Final

import psycopg
from psycopg import errors as pg

from commonbook.engines.postgres import connections
from commonbook.engines.postgres.connections import ConnectionPool, PooledConnection
from commonbook.engines.postgres.pipeline import Connection, Pipeline, PipelineResult
from commonbook.engines.postgres.retry import TIDY, Backoff, TransactionRetry
from commonbook.engines.postgres.sql_dialect import PendingStatements, translate
from commonbook.errors import CommonbookError, DatabaseUnfit, DatabaseUnreachable, HomeIsNewer, NotReplicated
from commonbook.model.reports import Change
from commonbook.ports.database import Result, RetryTransaction, Row, Transaction
from commonbook.ports.keys import Clock

OLDEST: Final = 160000
"""PostgreSQL 16, as a server counts."""

_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_VERSION: Final = "SELECT version FROM schema_version"
_LAZILY: Final = "SET LOCAL synchronous_commit TO off"
_TIDIED_EVERY: Final = 1000
_COLLISIONS: Final = 50


class PostgresDatabase:
    """The Database port on PostgreSQL, in READ COMMITTED; what must hold still is locked row by row.

    A story that others got in the way of is told again, and so is one whose connection was lost. If that was in the
    commit itself, nobody knows whether it went through: `Attempts` finds it out.
    """

    def __init__(
        self,
        address: str,
        *,
        migrations: Sequence[str],
        clock: Clock,
        busy_seconds: float,
        connections: int = 20,
    ) -> None:
        """Connect, and bring the schema up to date; whatever stands in the way is said now."""
        self._lines = ConnectionPool(address, most=connections, wait=busy_seconds)
        self._migrations = tuple(migrations)
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._mine = threading.local()
        self._writes = 0
        with ExitStack() as undone:
            undone.callback(self._lines.close)
            with _typed(), self._lines.line() as line:
                _require_fit(line.connection)
                self._migrate(line.connection)
            undone.pop_all()

    @property
    def schema(self) -> int:
        """The version of the schema."""
        return len(self._migrations)

    def damage(self) -> list[str]:
        """Return nothing: a server looks after its own pages."""
        return []

    def bytes_used(self) -> int:
        """Return the size of the database."""
        with self.line() as line:
            (size,) = line.connection.execute("SELECT pg_database_size(current_database())").fetchone() or (0,)
        return int(size)

    @contextmanager
    def line(self) -> Iterator[PooledConnection]:
        """Lend a line in autocommit mode, for what is not part of the book's own transactions."""
        with _typed(), ExitStack() as lent:
            yield self._line_that_works(lent)

    # --- reading

    @contextmanager
    def reading(self) -> Iterator[PostgresReading]:
        """Open a consistent view of what is committed now."""
        # Beginning and end travel with the first and behind the last question.
        with _typed(), ExitStack() as lent, self._line_that_works(lent).pipe as pipe:
            pipe.ask(_READ)
            view = PostgresReading(pipe, self._clock.now(), partial(self._begun, pipe.ask(_VERSION)))
            yield view
            view.require_begun()
            pipe.ask("ROLLBACK")

    def _line_that_works(self, lent: ExitStack) -> PooledConnection:
        """Return a line that works; what is lost after that, the reader has to ask for again."""
        patience = Backoff(self._busy_seconds)
        while True:
            try:
                with ExitStack() as trying:
                    line = trying.enter_context(self._lines.line())
                    connections.require_heard(line)
                    lent.push(trying.pop_all())
                    return line
            except DatabaseUnreachable as error:
                patience.reconnect(error)

    # --- writing

    def write(self, operation: Callable[[Transaction], Result], *, durable: bool = True) -> Result:
        """Let a story happen in a writing transaction, told again for as long as others or the network disturb it."""
        attempts = TransactionRetry(operation, durable=durable)
        patience = Backoff(self._busy_seconds)
        while True:
            attempts.begin()
            try:
                with self._alone(), self._lines.line() as line:
                    told = self._tell(line, attempts, durable=durable)
                break
            except DatabaseUnreachable as error:
                attempts.lose()
                patience.reconnect(attempts.explained(error))
            except RetryTransaction as error:
                patience.collide(error, attempts.explained)
            except psycopg.Error as error:
                if not connections.is_collision(error):
                    raise attempts.explained(connections.translate_error(error)) from error
                patience.collide(error, attempts.explained)
        self._tidy_now_and_then()
        return told

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if getattr(self._mine, "writing", False):
            raise RuntimeError("a writing transaction was opened inside another")
        try:
            self._mine.writing = True
            yield
        finally:
            self._mine.writing = False

    def _tell(self, line: PooledConnection, attempts: TransactionRetry[Result], *, durable: bool) -> Result:
        now = self._clock.now()
        # In a pipeline nobody waits for the answer to a statement before the next is sent, unless somebody reads it.
        with line.pipe as pipe:
            pipe.ask(_WRITE)
            if not durable:
                pipe.ask(_LAZILY)
            tx = PostgresTransaction(pipe, now, partial(self._begun, pipe.ask(_VERSION)))
            told = attempts.tell(tx)
            tx.require_begun()
            tx.send()
            line.warnings.clear()
            pipe.ask("COMMIT")
        if line.warnings:
            raise NotReplicated(
                f"the change was made, but may be on one server alone: {'; '.join(line.warnings)}",
                fix="look at the standby; then send the same again with its key, or look whether it is there",
            )
        return told

    def _tidy_now_and_then(self) -> None:
        self._writes += 1
        if self._writes % _TIDIED_EVERY == 0:
            # What was asked for is done, whatever becomes of this.
            with suppress(CommonbookError, psycopg.Error), self._lines.line() as line:
                self._tidy(line.connection)

    @staticmethod
    def _tidy(connection: Connection) -> None:
        """Remove the marks that nobody can be in doubt about any more."""
        connection.execute(TIDY)

    # --- the schema

    def _begun(self, answer: PipelineResult) -> Row:
        """Wait for the first answer of a transaction; what went wrong behind it may come from another version."""
        return self._require_version(answer.row())

    def _require_version(self, found: Row | None) -> Row:
        (version,) = found or (0,)
        if found is None or version != self.schema:
            raise self._newer(version)
        return found

    def _newer(self, version: int) -> HomeIsNewer:
        return HomeIsNewer(
            f"the database has schema {version}, this program knows {self.schema}",
            fix="update Commonbook and start it again; nothing was changed",
        )

    def _migrate(self, connection: Connection) -> None:
        """Bring the schema up to date; of several who start at once, one does it and the others wait."""
        if self._version(connection) != self.schema:
            _make_version_table(connection)
            with connection.transaction():
                connection.execute("LOCK TABLE schema_version IN ACCESS EXCLUSIVE MODE")
                version = self._version(connection)
                if version > self.schema:
                    raise self._newer(version)
                # However long it takes: what was begun too late each time would never be done.
                connection.execute("SET LOCAL statement_timeout TO 0")
                for script in self._migrations[version:]:
                    connection.execute(script)
                connection.execute("DELETE FROM schema_version")
                connection.execute("INSERT INTO schema_version (version) VALUES (%s)", (self.schema,))
        self._tidy(connection)

    @staticmethod
    def _version(connection: Connection) -> int:
        if connection.execute("SELECT to_regclass('schema_version')").fetchone() == (None,):
            return 0
        try:
            (version,) = connection.execute(_VERSION).fetchone() or (0,)
        except pg.UndefinedColumn as error:
            raise connections.not_ours("schema_version") from error
        if not isinstance(version, int):
            raise connections.not_ours("schema_version")
        return version

    def close(self) -> None:
        """Close for good."""
        self._lines.close()


class PostgresReading:
    """A consistent view, in a pipeline: nobody waits for an answer before it is read."""

    def __init__(self, pipe: Pipeline, now: datetime, begun: Callable[[], object] | None = None) -> None:
        """Read through this pipe; `now` is the one time of everything in it.

        `begun` finds out, when the first answer is waited for, whether there is anything here that we understand.
        """
        self._pipe = pipe
        self._begun = begun
        self.now = now

    @property
    def pipe(self) -> Pipeline:
        """The pipe of the connection whose transaction this is."""
        self.require_begun()
        self.send()
        return self._pipe

    def require_begun(self) -> None:
        """Wait for the first answer, if nobody has yet: whether there is anything here that we understand."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun()

    def send(self) -> None:
        """Send what waits to be sent."""

    def _sent(self, sql: str, params: Mapping[str, object]) -> PipelineResult:
        self.send()
        return self._pipe.ask(translate(sql), params)

    def rows(self, sql: str, /, **params: object) -> list[Row]:
        """Return all rows of a query."""
        return self.defer(sql, **params)()

    def row(self, sql: str, /, **params: object) -> Row | None:
        """Return the first row of a query, or None."""
        asked = self._sent(sql, params)
        self.require_begun()
        return asked.row()

    def defer(self, sql: str, /, **params: object) -> Callable[[], list[Row]]:
        """Send a query into the pipeline, and return what waits for its rows."""
        asked = self._sent(sql, params)
        if self._begun is None:
            return asked.rows
        return lambda: self._first_rows(asked)

    def _first_rows(self, asked: PipelineResult) -> list[Row]:
        self.require_begun()
        return asked.rows()


class PostgresTransaction(PostgresReading):
    """The writing transaction."""

    for_update = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"
    no_wait = ", set_config('lock_timeout', '200ms', true)"

    def __init__(self, pipe: Pipeline, now: datetime, begun: Callable[[], object] | None) -> None:
        """Write through this pipe; `now` is the one time of everything in it."""
        super().__init__(pipe, now, begun)
        self._unsent = PendingStatements()
        self.recorded: list[Change] = []
        self.touched: dict[str, str | None] = {}
        self.commit_check: Callable[[Transaction], bool] | None = None

    def run(self, sql: str, /, **params: object) -> int:
        """Run one statement and return how many rows it touched."""
        asked = self._sent(sql, params)
        self.require_begun()
        return asked.count()

    def run_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> None:
        """Run one statement for each set of parameters, without waiting for the answer."""
        if len(params) == 1:
            # Several that have nothing to do with each other are sent as one, which costs little more than each.
            if not self._unsent.takes(sql):
                self.send()
            self._unsent.add(sql, params[0])
            return
        for one in params:
            self._sent(sql, one)

    def send(self) -> None:
        """Send the statements that were kept to be sent together."""
        if self._unsent.statements:
            statement, params = self._unsent.joined()
            self._unsent = PendingStatements()
            self._pipe.ask(statement, params)

    def record(self, change: Change) -> None:
        """Note a change for the seal."""
        self.recorded.append(change)


# --- what a server must have


def _make_version_table(connection: Connection) -> None:
    for _ in range(_COLLISIONS):
        try:
            connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
            return
        except (pg.UniqueViolation, pg.DuplicateTable, pg.DuplicateObject):
            # Another server is making it at this moment: `IF NOT EXISTS` looks before, and does not wait.
            continue


_FITNESS: Final = """
    SELECT current_setting('server_encoding'),
      (SELECT format('pgvector %s in the schema %s', extversion, extnamespace::regnamespace)
       FROM pg_extension WHERE extname = 'vector'),
      EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'vector'), to_regtype('halfvec') IS NOT NULL
"""


def _require_fit(connection: Connection) -> None:
    """Refuse a server or database that lacks what a book needs."""
    version = connection.info.server_version
    if version < OLDEST:
        raise DatabaseUnfit(
            f"the server is PostgreSQL {version // 10000}, and a book needs {OLDEST // 10000} or newer",
            fix="upgrade the server, or name another in COMMONBOOK_DATABASE",
        )
    found = connection.execute(_FITNESS).fetchone()
    encoding, there, available, known = found or ("", None, False, False)
    if encoding != "UTF8":
        raise DatabaseUnfit(
            f"the database has the encoding {encoding}, which cannot hold every text",
            fix="create it anew: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0",
        )
    if there is None:
        _add_extension(connection, available=available)
    elif not known:
        raise DatabaseUnfit(
            f"the database has {there}, whose type halfvec is not found",
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
        # Another server has made it at this moment.
        return
    except pg.InsufficientPrivilege as error:
        raise DatabaseUnfit(
            "the database has no pgvector yet, and its user may not add it",
            fix="run CREATE EXTENSION vector in the database as an administrator",
        ) from error


@contextmanager
def _typed() -> Iterator[None]:
    """Turn the database's errors into ours, each with its fix."""
    try:
        yield
    except psycopg.Error as error:
        raise connections.translate_error(error) from error
