"""Pipeline mode of one connection: statements are sent without waiting, and results are read in order when needed.

The driver's own pipeline sends each statement by itself and polls for results each time, which costs as much as most
statements do. Here statements are handed to libpq, which the driver wraps, and are sent when a result is read. Every
statement is prepared on its first use, and stays prepared even if its transaction is rolled back.
"""

from __future__ import annotations

import re
import select
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Row: TypeAlias = tuple[Any, ...]

_MAX_PREPARED: Final = 300
_BOOL, _BYTEA, _INTEGER, _FLOAT = 16, 17, 20, 701
_ERROR_STATUSES: Final = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)
_POLL_MILLISECONDS: Final = 100
"""Upper limit of one poll: a signal that another thread receives interrupts no poll."""

_POLL_READ: Final = select.POLLIN
_POLL_READ_WRITE: Final = select.POLLIN | select.POLLOUT


class Binary(NamedTuple):
    """A parameter in the binary format of the database; the statement casts it to its type."""

    data: bytes


class PipelineResult:
    """The result of one statement; the server's answer is awaited when it is first read."""

    __slots__ = ("_pipeline", "result")

    def __init__(self, pipeline: Pipeline) -> None:
        """Create the pending result of a statement of this pipeline."""
        self._pipeline = pipeline
        self.result: pq.abc.PGresult | None = None

    def rows(self) -> list[Row]:
        """Return all rows."""
        return self._pipeline.rows(self._wait())

    def row(self) -> Row | None:
        """Return the first row, or None."""
        return next(iter(self._pipeline.rows(self._wait(), limit=1)), None)

    def count(self) -> int:
        """Return how many rows the statement touched."""
        return self._wait().command_tuples or 0

    def _wait(self) -> pq.abc.PGresult:
        if self.result is None:
            self._pipeline.wait_for(self)
        if self.result is None:
            raise psycopg.OperationalError("the server has not answered a statement")
        return self.result


class _PendingPrepare(NamedTuple):
    """A PREPARE that was sent, and whose confirmation is awaited."""

    key: tuple[bytes, tuple[int, ...]]


class Pipeline:
    """The pipeline of one connection; inside `with`, nothing else may use the connection."""

    def __init__(self, connection: Connection) -> None:
        """Send on this connection, which must be idle."""
        self.connection = connection
        self._pgconn = connection.pgconn
        self._awaited: deque[PipelineResult | _PendingPrepare] = deque()
        self._prepared_names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._prepared_count = 0
        self._loader = Transformer(connection)
        self._poller = select.poll()
        self._poller.register(self._pgconn.socket, _POLL_READ)
        self._has_unsent = self._synced = False

    def __enter__(self) -> Self:
        """Enter pipeline mode."""
        self._awaited.clear()
        self._has_unsent = False
        self._pgconn.enter_pipeline_mode()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Wait for all outstanding results; raise their first error, unless the block has raised one itself."""
        if error is not None and not isinstance(error, Exception):
            # Interrupted: the result is of no use to anybody any more.
            with suppress(psycopg.Error):
                self.connection.cancel_safe(timeout=5)
            self.connection.close()
            return
        try:
            self._drain()
        except psycopg.Error:
            if error is None:
                raise

    def has_input(self, wait: float) -> bool:
        """Tell whether the server sends something, or closes the connection, within so many seconds."""
        return bool(self._poller.poll(wait * 1000))

    def send(
        self,
        statement: str,
        params: Mapping[str, object] | Sequence[object] | None = None,
        *,
        binary: bool = False,
        unprepared: bool = False,
    ) -> PipelineResult:
        """Queue a statement with parameters like `%(name)s`, and return its pending result.

        Parameters are given by name, or as a sequence in the order of their first use. An `unprepared` statement is
        planned for this use alone and not kept: the number of prepared statements is limited.
        """
        sql, names = _number_parameters(statement)
        values: list[bytes | None] = []
        types: list[int] = []
        formats: list[pq.Format] | None = None
        for value in [params[name] for name in names] if isinstance(params, Mapping) else params or ():
            if type(value) is str and (text := value.encode()).find(0) < 0:
                # The fast path: most parameters are texts.
                values.append(text)
                types.append(0)
                continue
            parameter = _encode(value)
            values.append(parameter.value)
            types.append(parameter.type)
            if parameter.is_binary:
                formats = [pq.Format.TEXT] * len(names) if formats is None else formats
                formats[len(values) - 1] = pq.Format.BINARY
        result_format = pq.Format.BINARY if binary else pq.Format.TEXT
        if unprepared:
            self._pgconn.send_query_params(sql, values, types, formats, result_format)
        else:
            self._pgconn.send_query_prepared(self._prepare(sql, tuple(types)), values, formats, result_format)
        result = PipelineResult(self)
        self._awaited.append(result)
        self._has_unsent = True
        self._deallocate_oldest()
        return result

    def _prepare(self, sql: bytes, types: tuple[int, ...]) -> bytes:
        """Return the name of a prepared statement, sending its PREPARE first if it is new."""
        key = (sql, types)
        if (known := self._prepared_names.pop(key, None)) is not None:
            # The dictionary is ordered by the last use.
            self._prepared_names[key] = known
            return known
        self._prepared_count += 1
        name = self._prepared_names[key] = b"commonbook_%d" % self._prepared_count
        self._pgconn.send_prepare(name, sql, types)
        self._awaited.append(_PendingPrepare(key))
        return name

    def _deallocate_oldest(self) -> None:
        """Deallocate the least recently used statement if there are too many.

        It follows the statement that is new: nothing may stand before a BEGIN that sets the isolation level.
        """
        if len(self._prepared_names) > _MAX_PREPARED:
            oldest = next(iter(self._prepared_names))
            self._pgconn.send_query_params(b"DEALLOCATE " + self._prepared_names.pop(oldest), None)
            self._awaited.append(PipelineResult(self))

    def flush(self) -> None:
        """Send all queued statements, and let the server answer them at once."""
        if self._has_unsent:
            self._pgconn.send_flush_request()
            self._write_output()
            self._has_unsent = False

    def rows(self, result: pq.abc.PGresult, *, limit: int | None = None) -> list[Row]:
        """Return the rows of a result."""
        available = result.ntuples
        if not available:
            return []
        self._loader.set_pgresult(result)
        return self._loader.load_rows(0, available if limit is None else min(limit, available), tuple)

    def wait_for(self, result: PipelineResult) -> None:
        """Receive results up to this one."""
        self.flush()
        while result.result is None and self._awaited:
            self._receive()

    # --- the connection

    def _write_output(self) -> None:
        while self._pgconn.flush():
            # Read while writing: if both sides only write, both buffers fill up and neither goes on.
            self._poller.modify(self._pgconn.socket, _POLL_READ_WRITE)
            try:
                self._poller.poll(_POLL_MILLISECONDS)
            finally:
                self._poller.modify(self._pgconn.socket, _POLL_READ)
            self._pgconn.consume_input()

    def _receive(self) -> None:
        """Receive the next result; raise its error, once."""
        pgconn = self._pgconn
        # The results of each statement end with None: that of the previous statement comes first.
        result = None if pgconn.is_busy() else pgconn.get_result()
        result = result or self._next_result() or self._next_result()
        if result is None:
            self.connection.close()
            raise psycopg.OperationalError("the server sends no more results")
        status = result.status
        if status == pq.ExecStatus.PIPELINE_SYNC:
            self._synced = True
            return
        pending = self._awaited.popleft() if self._awaited else None
        if status in _ERROR_STATUSES or status == pq.ExecStatus.PIPELINE_ABORTED:
            if isinstance(pending, _PendingPrepare):
                # After an error in the pipeline the server prepares nothing.
                self._prepared_names.pop(pending.key, None)
            if status in _ERROR_STATUSES:
                raise error_from_result(result, encoding="utf-8")
        elif isinstance(pending, PipelineResult):
            pending.result = result

    def _next_result(self) -> pq.abc.PGresult | None:
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._poller.poll(_POLL_MILLISECONDS)
            pgconn.consume_input()
        return pgconn.get_result()

    def _drain(self) -> None:
        """Receive all outstanding results, and leave pipeline mode."""
        first_error: psycopg.Error | None = None
        self._synced = False
        self._pgconn.pipeline_sync()
        self._write_output()
        while not self._synced:
            try:
                self._receive()
            except psycopg.Error as error:
                first_error = first_error or error
                if self.connection.closed:
                    raise first_error from None
        self._pgconn.exit_pipeline_mode()
        if first_error is not None:
            raise first_error


# --- statements and parameters

_PARAMETER: Final = re.compile(r"%\(([a-z_0-9]+)\)s|%%")


@lru_cache(maxsize=2048)
def _number_parameters(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with numbered parameters, and their names in that order."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}" if match[1] else "%"

    numbered = _PARAMETER.sub(number, statement)
    return numbered.encode(), tuple(names)


class _Parameter(NamedTuple):
    """A parameter as it is sent: its value, its type if we state it, and its format."""

    value: bytes | None
    type: int = 0
    is_binary: bool = False


_NULL: Final = _Parameter(None)


def _encode(value: object) -> _Parameter:
    """Return a parameter in the form that the server reads."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _Parameter(b"t" if value else b"f", _BOOL)
    if isinstance(value, int):
        return _Parameter(b"%d" % value, _INTEGER)
    if isinstance(value, float):
        return _Parameter(repr(value).encode(), _FLOAT)
    if isinstance(value, str):
        return _Parameter(_encode_text(value))
    if isinstance(value, Binary):
        return _Parameter(value.data, is_binary=True)
    if isinstance(value, bytes):
        return _Parameter(value, _BYTEA, is_binary=True)
    if isinstance(value, list | tuple):
        return _Parameter(_encode_text(_array_literal(value)))
    raise TypeError(f"a {type(value).__name__} cannot be stored in the database")


def _encode_text(value: str) -> bytes:
    encoded = value.encode()
    if b"\0" in encoded:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return encoded


def _array_literal(values: Sequence[object]) -> str:
    """Return a list as an array literal of PostgreSQL."""
    return "{" + ",".join(map(_array_item, values)) + "}"


def _array_item(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
