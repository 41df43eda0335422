"""Lines to a PostgreSQL server: a few connections that the threads of a process share, and what their errors mean.

A line is connected by whoever needs it, not in the background: so a server that is gone, or refuses us, is told to the
one who asked and at once, and after a failover the next one who asks finds the new server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, PipelineStatus, TransactionStatus

from commonbook.engines.postgres.pipeline import Connection, Pipeline
from commonbook.engines.process.fork_gate import Gate
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

_DEFAULTS: Final = {
    "application_name": "commonbook",
    "connect_timeout": "5",
    # Of several hosts, the one that takes writes; a single one that does not is told to be a standby.
    "target_session_attrs": "read-write",
    # A host that vanished without a word is given up after half a minute, whether we speak or wait for its answer.
    "tcp_user_timeout": "30000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
}
# Any text must come through, whatever the address says.
_ALWAYS: Final = {"client_encoding": "utf8"}
_SETTINGS: Final = """
    SELECT set_config('lock_timeout', %(lock)s, false), set_config('statement_timeout', %(statement)s, false),
      -- Planning anew costs more than most statements; rows are found by their keys, however many are asked for.
      set_config('plan_cache_mode', 'force_generic_plan', false),
      -- That a commit was not replicated is told as a warning, and nowhere else.
      set_config('client_min_messages', 'warning', false),
      -- A number comes back as it was stored.
      set_config('extra_float_digits', '1', false),
      -- What is acknowledged must be durable, whatever the server's default is.
      CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
_LONG_STATEMENT: Final = 60.0
_OPEN: Final = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_GOODBYE: Final = 0.05
_PAUSE: Final = 0.05

# The driver warns of what goes wrong after something has gone wrong already; where nobody has set up logging, that
# would go to standard error, beside our own answer.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class PooledConnection(NamedTuple):
    """One connection, its pipe, and what the server has said on it beside its answers."""

    connection: Connection
    pipe: Pipeline
    warnings: list[str]


class ConnectionPool:
    """The lines of one process to one database: at most so many at a time, each thread with its own."""

    def __init__(self, address: str, *, most: int, wait: float) -> None:
        """Connect when a line is first needed; wait so many seconds for one, or for a lock."""
        self._address = complete(address)
        self._most = most
        self._wait = wait
        self._free = threading.BoundedSemaphore(most)
        self._idle: list[PooledConnection] = []
        self._closed = False
        self._gate = Gate(self.hang_up)

    @contextmanager
    def line(self) -> Iterator[PooledConnection]:
        """Use a line; one that is lost meanwhile is told as DatabaseUnreachable, whatever was under way."""
        with self._gate.inside(), self._turn():
            line = self._waiting() or self._connect()
            try:
                yield line
            except psycopg.Error as error:
                if not is_lost(error, line):
                    raise
                # What lost one line has lost the others too, or they lead to a server that takes no writes any more.
                self.hang_up()
                line.connection.close()
                raise server_lost(error) from error
            finally:
                self._give_back(line)

    def _waiting(self) -> PooledConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._free.acquire(timeout=self._wait):
            raise Busy(
                f"all {self._most} connections of this process to the database have been in use for {self._wait:g} s",
                fix="set COMMONBOOK_CONNECTIONS higher, or ask for less at the same time",
            )
        try:
            yield
        finally:
            self._free.release()

    def _give_back(self, line: PooledConnection) -> None:
        """Keep a line for the next; one that was interrupted in the middle of something is of no use to anybody."""
        connection, status = line.connection, line.connection.pgconn.transaction_status
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            connection.close()
        with suppress(psycopg.Error):
            if status in _OPEN and not connection.closed:
                connection.execute("ROLLBACK")
                status = connection.pgconn.transaction_status
        if status == TransactionStatus.IDLE and not self._closed and not connection.closed:
            self._idle.append(line)
        else:
            connection.close()

    def _connect(self) -> PooledConnection:
        """Make a line; where the server has none left, wait until it does, or until one of ours is free."""
        until = time.monotonic() + self._wait
        while True:
            try:
                return self._connected()
            except Busy:
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)
            if line := self._waiting():
                return line

    def _connected(self) -> PooledConnection:
        if self._closed:
            raise HomeError("the book is closed", fix="open it again with commonbook.open()")
        try:
            connection = psycopg.connect(self._address, autocommit=True, prepare_threshold=None)
            warnings: list[str] = []
            connection.add_notice_handler(lambda told: _note(told, warnings))
            wait = max(self._wait, 0.001)
            seconds = {"lock": f"{wait * 1000:.0f}ms", "statement": f"{(wait + _LONG_STATEMENT) * 1000:.0f}ms"}
            connection.execute(_SETTINGS, seconds)
        except psycopg.Error as error:
            raise unconnected(error, self._address) from error
        return PooledConnection(connection, Pipeline(connection), warnings)

    def hang_up(self) -> None:
        """Let go of every line that nobody uses: after a fork, a failover, or at the end."""
        while line := self._waiting():
            line.connection.close()

    def close(self) -> None:
        """Let go of everything, for good."""
        self._closed = True
        self.hang_up()


def require_heard(line: PooledConnection) -> None:
    """Raise that a server hung up, if it has since the line was last used; nothing is sent for it."""
    connection, wait = line.connection, 0.0
    try:
        while line.pipe.has_heard(wait):
            connection.pgconn.consume_input()
            if connection.pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError("the server hung up")
            # What it says unasked is mostly why it hangs up: the end comes behind it.
            wait = _GOODBYE
    except psycopg.OperationalError:
        connection.close()
        raise


def _note(told: psycopg.errors.Diagnostic, warnings: list[str]) -> None:
    if told.severity_nonlocalized == "WARNING":
        warnings.append(told.message_primary or "")


def complete(address: str) -> str:
    """Return an address with what it leaves open; BadInput for what is none, without showing it."""
    try:
        said = conninfo_to_dict(address)
        return make_conninfo("", **{**_DEFAULTS, **said, **_ALWAYS})
    except psycopg.ProgrammingError as error:
        raise BadInput(
            "COMMONBOOK_DATABASE is not an address of PostgreSQL",
            fix="write it like postgresql://user:password@host:5432/name; other characters of a password as %xx",
        ) from error


def shown(address: str) -> str:
    """Return where an address leads, without its secrets."""
    said = conninfo_to_dict(address)
    hosts, ports = str(said.get("host") or "localhost").split(","), str(said.get("port") or 5432).split(",")
    places = [f"{host}:{ports[at] if at < len(ports) else ports[-1]}" for at, host in enumerate(hosts)]
    return f"postgresql://{said.get('user') or ''}@{','.join(places)}/{said.get('dbname') or ''}"


# --- what errors mean

# The protocol has no codes for what goes wrong before there is a session: only the words of the server and of libpq.
_SESSIONS: Final = "let the pooler lend a connection for a whole session, or connect to the server itself"
_REFUSALS: Final = (
    ("authentication failed", DatabaseRefused, "check user and password in COMMONBOOK_DATABASE"),
    ("no password supplied", DatabaseRefused, "put the password into COMMONBOOK_DATABASE, or into ~/.pgpass"),
    ("does not exist", DatabaseRefused, "create the user and the database first, or mend COMMONBOOK_DATABASE"),
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


def unconnected(error: psycopg.Error, address: str) -> CommonbookError:
    """Say why a line could not be had."""
    said = " ".join(str(error).split())
    for words, kind, fix in _REFUSALS:
        if words in said:
            return kind(f"{shown(address)} does not take us: {said}", fix=fix)
    return DatabaseUnreachable(
        f"{shown(address)} cannot be reached: {said}",
        # A server that speaks another language may have said anything.
        fix="start the server, or mend COMMONBOOK_DATABASE: host and port, then user, password and name",
    )


def is_lost(error: psycopg.Error, line: PooledConnection) -> bool:
    """Tell whether an error is the line's and not the statement's: the server is gone, or takes no writes any more."""
    if line.connection.closed or isinstance(error, pg.ReadOnlySqlTransaction):
        return True
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        # The server has a code for whatever it says: this is the driver's, whose line has broken off in the middle.
        return True
    return (
        (error.sqlstate or "").startswith("08")
        or isinstance(error, pg.AdminShutdown | pg.CrashShutdown | pg.CannotConnectNow)
        or _is_outdated(error)
    )


def _is_outdated(error: psycopg.Error) -> bool:
    """Tell whether what we prepared on a line is gone, or of no use since somebody made a type or a column anew.

    A line of which that is so is as good as none: on a new one everything is prepared again.
    """
    if isinstance(error, pg.InternalError_):
        # Never translated, and without a code of its own.
        return "cache lookup failed" in str(error)
    return isinstance(error, pg.InvalidSqlStatementName) or error.diag.source_function == "RevalidateCachedQuery"


def server_lost(error: psycopg.Error) -> ServerLost:
    """Say that the line is gone."""
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return ServerLost("the server takes no writes", fix="name the primary in COMMONBOOK_DATABASE")
    if _is_outdated(error):
        return ServerLost(f"the connection is not the one that it was: {error}", fix=_SESSIONS)
    return ServerLost(f"the server was lost: {error}", fix="look at the server, then try again")


def is_collision(error: psycopg.Error) -> bool:
    """Tell whether others were in the way, so that the same story may well go through when it is told again.

    What must be there once and is there twice counts: another has made it since it was looked for.
    """
    return isinstance(error, pg.SerializationFailure | pg.DeadlockDetected | pg.UniqueViolation)


def not_ours(what: str) -> DatabaseUnfit:
    """Say that somebody else's tables are where ours would be."""
    return DatabaseUnfit(
        f"another program has tables in this database: {what}", fix="give the book a database of its own"
    )


def translate_error(error: psycopg.Error) -> CommonbookError:
    """Return our own error for one of the database's, with its fix."""
    if isinstance(error, pg.LockNotAvailable):
        held = Busy("another writer has held what this needs for too long", fix="try again; find out what it does")
        held.one_thing = True
        return held
    if isinstance(error, pg.QueryCanceled | pg.DeadlockDetected | pg.SerializationFailure):
        what = "the database took too long" if isinstance(error, pg.QueryCanceled) else "others were in the way"
        return Busy(f"{what}: {error}", fix="try again; look at the server's load")
    if isinstance(error, pg.DiskFull):
        return DiskFull("there is no room left for the database", fix="free some space on the server and try again")
    if isinstance(error, pg.DuplicatePreparedStatement):
        return DatabaseUnfit(
            f"others use the same connection to the server: {error}",
            fix=_SESSIONS,
        )
    if isinstance(error, pg.InvalidSchemaName):
        return DatabaseUnfit(
            f"the tables of a book have no schema to be in: {error}",
            fix="let the search_path of the database's user begin with a schema that there is, such as public",
        )
    if isinstance(error, pg.DuplicateTable):
        return not_ours(str(error))
    if isinstance(error, pg.InsufficientPrivilege):
        return DatabaseUnfit(f"the database's user may not do that: {error}", fix="make it the database's owner")
    return HomeDamaged(f"the database refused a statement: {error}", fix="run `commonbook doctor` and report this")
