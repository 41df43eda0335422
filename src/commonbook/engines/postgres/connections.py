"""Connection pool for a PostgreSQL server, and the translation of its errors.

The threads of a process share a few connections. A thread opens a connection when it needs one, and none is opened in
the background. So a server that is gone or refuses us raises an error in the calling thread at once, and after a
failover the next caller connects to the new server.
"""

from __future__ import annotations

import logging
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, PipelineStatus, TransactionStatus
from psycopg.types.array import ListDumper
from psycopg.types.numeric import Int8Dumper

from commonbook.engines.process import ForkGate
from commonbook.errors import (
    BadInput,
    Busy,
    CommonbookError,
    DatabaseRefused,
    DatabaseUnfit,
    DatabaseUnreachable,
    DiskFull,
    HomeDamaged,
    HomeError,
    ServerLost,
)

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Row: TypeAlias = tuple[Any, ...]

_DEFAULTS: Final = {
    "application_name": "commonbook",
    "connect_timeout": "5",
    # Of several hosts, take the one that accepts writes; a single host that does not is reported as a standby.
    "target_session_attrs": "read-write",
    # A host that vanished silently is given up after half a minute, while sending as well as while waiting.
    "tcp_user_timeout": "30000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
}
# Every text must be storable, also if the address names another encoding.
_REQUIRED: Final = {"client_encoding": "utf8"}
_SESSION_SETTINGS: Final = """
    SELECT set_config('lock_timeout', %(lock)s, false), set_config('statement_timeout', %(statement)s, false),
      -- Planning each time costs more than most statements; rows are found by their keys with any parameters.
      set_config('plan_cache_mode', 'force_generic_plan', false),
      -- PostgreSQL reports that a commit was not replicated by a warning only.
      set_config('client_min_messages', 'warning', false),
      -- A number is returned exactly as it was stored.
      set_config('extra_float_digits', '1', false),
      -- An acknowledged commit must be durable, also if the server's default is another.
      CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
_STATEMENT_SECONDS: Final = 60.0
_IN_TRANSACTION: Final = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_CLOSE_REASON_SECONDS: Final = 0.05
_CONNECT_RETRY_SECONDS: Final = 0.05
_MAX_PREPARED: Final = 300

# The driver logs follow-up warnings after an error. Where logging is not set up, they would be printed to standard
# error, beside our own error message.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class PooledConnection(NamedTuple):
    """One connection, and the warnings that the server has sent beside its results."""

    connection: Connection
    warnings: list[str]


class ConnectionPool:
    """The connections of one process to one database: a bounded number, each used by one thread at a time."""

    def __init__(self, address: str, *, most: int, wait: float) -> None:
        """Open at most `most` connections, each when it is first needed.

        `wait` is how many seconds a caller waits for a free connection, and a statement for a lock.
        """
        self._address = complete_address(address)
        self._max_connections = most
        self._wait_seconds = wait
        self._slots = threading.BoundedSemaphore(most)
        self._idle: list[PooledConnection] = []
        self._closed = False
        self._gate = ForkGate(self.close_idle)

    @contextmanager
    def connection(self) -> Iterator[PooledConnection]:
        """Check out a connection; raise ServerLost if it is lost meanwhile, at any point."""
        with self._gate, self._slot():
            pooled = self._pop_idle() or self._connect()
            try:
                yield pooled
            except psycopg.Error as error:
                if not is_connection_lost(error, pooled):
                    raise
                # The idle connections are lost too, or lead to a server that takes no writes any more.
                self.close_idle()
                pooled.connection.close()
                raise connection_lost_error(error) from error
            finally:
                self._release(pooled)

    def _pop_idle(self) -> PooledConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(timeout=self._wait_seconds):
            raise Busy(
                f"all {self._max_connections} connections of this process to the database"
                f" have been in use for {self._wait_seconds:g} s",
                fix="set COMMONBOOK_CONNECTIONS higher, or send fewer requests at a time",
            )
        try:
            yield
        finally:
            self._slots.release()

    def _release(self, pooled: PooledConnection) -> None:
        """Return a connection to the pool; close one that was interrupted in the middle of a statement."""
        connection, status = pooled.connection, pooled.connection.pgconn.transaction_status
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            connection.close()
        with suppress(psycopg.Error):
            if status in _IN_TRANSACTION and not connection.closed:
                connection.execute("ROLLBACK")
                status = connection.pgconn.transaction_status
        if status == TransactionStatus.IDLE and not self._closed and not connection.closed:
            self._idle.append(pooled)
        else:
            connection.close()

    def _connect(self) -> PooledConnection:
        """Open a connection; if the server has none left, wait until it does or one of ours is idle."""
        until = time.monotonic() + self._wait_seconds
        while True:
            try:
                return self._open_connection()
            except Busy:
                if time.monotonic() > until:
                    raise
            time.sleep(_CONNECT_RETRY_SECONDS)
            if pooled := self._pop_idle():
                return pooled

    def _open_connection(self) -> PooledConnection:
        if self._closed:
            raise HomeError("the book is closed", fix="open it again with commonbook.open()")
        try:
            # Only the statements for which it is asked are prepared.
            connection = psycopg.connect(self._address, autocommit=True, prepare_threshold=sys.maxsize)
            connection.prepared_max = _MAX_PREPARED
            # One type for all whole numbers, so that a statement is prepared once.
            connection.adapters.register_dumper(int, Int8Dumper)
            connection.adapters.register_dumper(tuple, ListDumper)
            warnings: list[str] = []
            connection.add_notice_handler(lambda notice: _collect_warning(notice, warnings))
            lock_seconds = max(self._wait_seconds, 0.001)
            timeouts = {
                "lock": f"{lock_seconds * 1000:.0f}ms",
                "statement": f"{(lock_seconds + _STATEMENT_SECONDS) * 1000:.0f}ms",
            }
            connection.execute(_SESSION_SETTINGS, timeouts)
        except psycopg.Error as error:
            raise connect_error(error, self._address) from error
        return PooledConnection(connection, warnings)

    def close_idle(self) -> None:
        """Close every idle connection: after a fork, after a failover, or at the end."""
        while pooled := self._pop_idle():
            pooled.connection.close()

    def close(self) -> None:
        """Close the pool for good."""
        self._closed = True
        self.close_idle()


def require_alive(pooled: PooledConnection) -> None:
    """Raise OperationalError if the server has closed the connection since its last use; nothing is sent."""
    connection, wait = pooled.connection, 0.0
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    try:
        while poller.poll(wait * 1000):
            connection.pgconn.consume_input()
            if connection.pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError("the server closed the connection")
            # An unrequested message mostly gives the reason for closing: the end of the connection follows it.
            wait = _CLOSE_REASON_SECONDS
    except psycopg.OperationalError:
        connection.close()
        raise


def _collect_warning(notice: psycopg.errors.Diagnostic, warnings: list[str]) -> None:
    if notice.severity_nonlocalized == "WARNING":
        warnings.append(notice.message_primary or "")


def complete_address(address: str) -> str:
    """Return an address with our default options; raise BadInput, without showing it, if it cannot be parsed."""
    try:
        options = conninfo_to_dict(address)
        return make_conninfo("", **{**_DEFAULTS, **options, **_REQUIRED})
    except psycopg.ProgrammingError as error:
        raise BadInput(
            "COMMONBOOK_DATABASE is not an address of PostgreSQL",
            fix="write it like postgresql://user:password@host:5432/name; other characters of a password as %xx",
        ) from error


def redact(address: str) -> str:
    """Return user, hosts, ports and database name of an address, without its password."""
    options = conninfo_to_dict(address)
    hosts, ports = str(options.get("host") or "localhost").split(","), str(options.get("port") or 5432).split(",")
    servers = [f"{host}:{ports[index] if index < len(ports) else ports[-1]}" for index, host in enumerate(hosts)]
    return f"postgresql://{options.get('user') or ''}@{','.join(servers)}/{options.get('dbname') or ''}"


# --- translation of errors

# The protocol has no error codes before a session exists: there is only the text of the server and of libpq.
_SESSION_POOLING_FIX: Final = "let the pooler lend a connection for a whole session, or connect to the server itself"
_REFUSALS: Final = (
    ("authentication failed", DatabaseRefused, "check user and password in COMMONBOOK_DATABASE"),
    ("no password supplied", DatabaseRefused, "put the password into COMMONBOOK_DATABASE, or into ~/.pgpass"),
    (
        "does not exist",
        DatabaseRefused,
        "create the user (`createuser`) or the database (`createdb`) first, or correct the address",
    ),
    ("no pg_hba.conf entry", DatabaseRefused, "allow this host, user and database in the server's pg_hba.conf"),
    ("too many clients", Busy, "raise max_connections of the server, or lower COMMONBOOK_CONNECTIONS"),
    ("remaining connection slots", Busy, "raise max_connections of the server, or lower COMMONBOOK_CONNECTIONS"),
    ("too many connections", Busy, "raise the connection limit of the user or database"),
    ("query_wait_timeout", Busy, "give the pooler as many connections as all processes have together"),
    (
        "session is read-only",
        DatabaseUnreachable,
        "name the primary in COMMONBOOK_DATABASE, or all servers: postgresql://user@one,two/name",
    ),
    ("server is in hot standby", DatabaseUnreachable, "name the primary in COMMONBOOK_DATABASE"),
)


def connect_error(error: psycopg.Error, address: str) -> CommonbookError:
    """Return the error that explains why a connection could not be opened."""
    text = " ".join(str(error).split())
    for phrase, kind, fix in _REFUSALS:
        if phrase in text:
            return kind(f"{redact(address)} refused the connection: {text}", fix=fix)
    return DatabaseUnreachable(
        f"{redact(address)} cannot be reached: {text}",
        # With messages in another language, none of the phrases above is recognized.
        fix="start the server, or mend COMMONBOOK_DATABASE: host and port, then user, password and name",
    )


def is_connection_lost(error: psycopg.Error, pooled: PooledConnection) -> bool:
    """Return whether an error concerns the connection and not the statement: the server is gone, or takes no writes."""
    if pooled.connection.closed or isinstance(error, pg.ReadOnlySqlTransaction):
        return True
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        # The server gives every error a code: this one is the driver's, whose connection broke off in the middle.
        return True
    return (
        (error.sqlstate or "").startswith("08")
        or isinstance(error, pg.AdminShutdown | pg.CrashShutdown | pg.CannotConnectNow)
        or _is_statement_cache_invalid(error)
    )


def _is_statement_cache_invalid(error: psycopg.Error) -> bool:
    """Return whether the prepared statements of a connection are gone, or invalid since a type or column was recreated.

    Such a connection is treated as lost: on a new one every statement is prepared again.
    """
    if isinstance(error, pg.InternalError_):
        # This message is never translated, and has no code of its own.
        return "cache lookup failed" in str(error)
    return isinstance(error, pg.InvalidSqlStatementName) or error.diag.source_function == "RevalidateCachedQuery"


def connection_lost_error(error: psycopg.Error) -> ServerLost:
    """Return the error for a connection that was lost."""
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return ServerLost("the server takes no writes", fix="name the primary in COMMONBOOK_DATABASE")
    if _is_statement_cache_invalid(error):
        return ServerLost(f"the connection has lost its prepared statements: {error}", fix=_SESSION_POOLING_FIX)
    return ServerLost(f"the server was lost: {error}", fix="look at the server, then try again")


def is_collision(error: psycopg.Error) -> bool:
    """Return whether concurrent transactions caused the error, so that the same operation may succeed when repeated.

    A unique violation counts: another transaction has inserted the row since this one looked for it.
    """
    return isinstance(error, pg.SerializationFailure | pg.DeadlockDetected | pg.UniqueViolation)


def foreign_tables_error(tables: str) -> DatabaseUnfit:
    """Return the error for a database in which another program has tables with our names."""
    return DatabaseUnfit(
        f"another program has tables in this database: {tables}", fix="give the book a database of its own"
    )


def translate_error(error: psycopg.Error) -> CommonbookError:
    """Return our own error, with its fix, for an error of the driver."""
    if isinstance(error, pg.LockNotAvailable):
        busy = Busy(
            "another writer has held a lock that this needs for too long",
            fix="try again; find out which transaction holds the lock",
        )
        busy.single_lock = True
        return busy
    if isinstance(error, pg.QueryCanceled | pg.DeadlockDetected | pg.SerializationFailure):
        reason = (
            "the database took too long" if isinstance(error, pg.QueryCanceled) else "concurrent transactions collided"
        )
        return Busy(f"{reason}: {error}", fix="try again; look at the server's load")
    if isinstance(error, pg.DiskFull):
        return DiskFull("there is no room left for the database", fix="free some space on the server and try again")
    if isinstance(error, pg.DuplicatePreparedStatement):
        return DatabaseUnfit(
            f"others use the same connection to the server: {error}",
            fix=_SESSION_POOLING_FIX,
        )
    if isinstance(error, pg.InvalidSchemaName):
        return DatabaseUnfit(
            f"there is no schema for the tables of a book: {error}",
            fix="let the search_path of the database's user begin with an existing schema, such as public",
        )
    if isinstance(error, pg.DuplicateTable):
        return foreign_tables_error(str(error))
    if isinstance(error, pg.InsufficientPrivilege):
        return DatabaseUnfit(f"the database's user may not do that: {error}", fix="make it the database's owner")
    return HomeDamaged(f"the database refused a statement: {error}", fix="run `commonbook doctor` and report this")
