"""Statements on one connection, sent together and answered in order: nobody waits for an answer before it is read.

The driver's own pipeline sends each statement by itself and looks for answers each time, which costs as much as most
statements do. Here they are handed to libpq, which the driver wraps, and go off when somebody reads; what is sent twice
is prepared, whatever was rolled back meanwhile.
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

_MOST_PREPARED: Final = 300
_BOOL, _BYTES, _INTEGER, _FLOAT = 16, 17, 20, 701
_BAD: Final = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)
_A_WHILE: Final = 100
"""So many milliseconds at a time are waited: a signal that another thread gets interrupts no wait."""

_READ: Final = select.POLLIN
_READ_OR_WRITE: Final = select.POLLIN | select.POLLOUT


class Binary(NamedTuple):
    """A parameter as the database itself writes it; the statement says of which type it is."""

    said: bytes


class PipelineResult:
    """What the server answers to one statement, waited for when somebody reads it."""

    __slots__ = ("_pipe", "result")

    def __init__(self, pipe: Pipeline) -> None:
        """Wait on this pipe."""
        self._pipe = pipe
        self.result: pq.abc.PGresult | None = None

    def rows(self) -> list[Row]:
        """Return all rows."""
        return self._pipe.rows(self._waited())

    def row(self) -> Row | None:
        """Return the first row, or None."""
        found = self._pipe.rows(self._waited(), most=1)
        return found[0] if found else None

    def count(self) -> int:
        """Return how many rows the statement touched."""
        return self._waited().command_tuples or 0

    def _waited(self) -> pq.abc.PGresult:
        if self.result is None:
            self._pipe.wait_for(self)
        if self.result is None:
            raise psycopg.OperationalError("the server has not answered a statement")
        return self.result


class _Prepared(NamedTuple):
    """A statement that the server is asked to prepare."""

    key: tuple[bytes, tuple[int, ...]]


class Pipeline:
    """The pipe of one connection; inside `with`, the connection belongs to it alone."""

    def __init__(self, connection: Connection) -> None:
        """Send on this connection, which must be idle."""
        self.connection = connection
        self._pgconn = connection.pgconn
        self._awaited: deque[PipelineResult | _Prepared] = deque()
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._made = 0
        self._loader = Transformer(connection)
        self._poll = select.poll()
        self._poll.register(self._pgconn.socket, _READ)
        self._unsent = self._synced = False

    def __enter__(self) -> Self:
        """Begin to send without waiting."""
        self._awaited.clear()
        self._unsent = False
        self._pgconn.enter_pipeline_mode()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Wait for what was not answered yet; what went wrong with it is told, unless something else did before."""
        if error is not None and not isinstance(error, Exception):
            # Interrupted: nobody waits for the server any more.
            with suppress(psycopg.Error):
                self.connection.cancel_safe(timeout=5)
            self.connection.close()
            return
        try:
            self._finish()
        except psycopg.Error:
            if error is None:
                raise

    def has_heard(self, wait: float) -> bool:
        """Tell whether the server says something, or hangs up, within so many seconds."""
        return bool(self._poll.poll(wait * 1000))

    def ask(
        self,
        statement: str,
        params: Mapping[str, object] | Sequence[object] | None = None,
        *,
        binary: bool = False,
        once: bool = False,
    ) -> PipelineResult:
        """Send a statement with parameters like `%(name)s`, soon, and return what waits for its answer.

        They are given by their names, or in the order in which these come up. One that is asked `once` is planned for
        itself, and not kept: prepared ones are limited in number.
        """
        sql, names = _numbered(statement)
        values: list[bytes | None] = []
        types: list[int] = []
        formats: list[pq.Format] | None = None
        for value in [params[name] for name in names] if isinstance(params, Mapping) else params or ():
            if type(value) is str and (said := value.encode()).find(0) < 0:
                # Most are texts.
                values.append(said)
                types.append(0)
                continue
            written = _written(value)
            values.append(written.value)
            types.append(written.type)
            if written.is_binary:
                formats = [pq.Format.TEXT] * len(names) if formats is None else formats
                formats[len(values) - 1] = pq.Format.BINARY
        form = pq.Format.BINARY if binary else pq.Format.TEXT
        if once:
            self._pgconn.send_query_params(sql, values, types, formats, form)
        else:
            self._pgconn.send_query_prepared(self._prepared(sql, tuple(types)), values, formats, form)
        answer = PipelineResult(self)
        self._awaited.append(answer)
        self._unsent = True
        return answer

    def _prepared(self, said: bytes, types: tuple[int, ...]) -> bytes:
        """Return the name under which the server knows a statement, once it has come to it."""
        key = (said, types)
        if key in self._names:
            return self._names[key]
        if len(self._names) >= _MOST_PREPARED:
            oldest = next(iter(self._names))
            self._pgconn.send_query_params(b"DEALLOCATE " + self._names.pop(oldest), None)
            self._awaited.append(PipelineResult(self))
        self._made += 1
        name = self._names[key] = b"commonbook_%d" % self._made
        self._pgconn.send_prepare(name, said, types)
        self._awaited.append(_Prepared(key))
        return name

    def flush(self) -> None:
        """Send what waits to be sent, and let the server answer it at once."""
        if self._unsent:
            self._pgconn.send_flush_request()
            self._send()
            self._unsent = False

    def rows(self, result: pq.abc.PGresult, *, most: int | None = None) -> list[Row]:
        """Return the rows of an answer."""
        there = result.ntuples
        if not there:
            return []
        self._loader.set_pgresult(result)
        return self._loader.load_rows(0, there if most is None else min(most, there), tuple)

    def wait_for(self, answer: PipelineResult) -> None:
        """Receive answers up to one."""
        self.flush()
        while answer.result is None and self._awaited:
            self._receive()

    # --- the connection

    def _send(self) -> None:
        while self._pgconn.flush():
            # Whoever does not listen meanwhile is not listened to.
            self._poll.modify(self._pgconn.socket, _READ_OR_WRITE)
            try:
                self._poll.poll(_A_WHILE)
            finally:
                self._poll.modify(self._pgconn.socket, _READ)
            self._pgconn.consume_input()

    def _receive(self) -> None:
        """Receive the next answer; raise what went wrong, once."""
        pgconn = self._pgconn
        # Each answer ends with nothing: that of the one before comes first.
        result = None if pgconn.is_busy() else pgconn.get_result()
        result = result or self._next() or self._next()
        if result is None:
            self.connection.close()
            raise psycopg.OperationalError("the server has nothing more to say")
        status = result.status
        if status == pq.ExecStatus.PIPELINE_SYNC:
            self._synced = True
            return
        answered = self._awaited.popleft() if self._awaited else None
        if status in _BAD or status == pq.ExecStatus.PIPELINE_ABORTED:
            if isinstance(answered, _Prepared):
                # Behind something that failed nothing is prepared.
                self._names.pop(answered.key, None)
            if status in _BAD:
                raise error_from_result(result, encoding="utf-8")
        elif isinstance(answered, PipelineResult):
            answered.result = result

    def _next(self) -> pq.abc.PGresult | None:
        pgconn = self._pgconn
        while pgconn.is_busy():
            self._poll.poll(_A_WHILE)
            pgconn.consume_input()
        return pgconn.get_result()

    def _finish(self) -> None:
        """Receive everything, and leave the connection as it was."""
        failed: psycopg.Error | None = None
        self._synced = False
        self._pgconn.pipeline_sync()
        self._send()
        while not self._synced:
            try:
                self._receive()
            except psycopg.Error as error:
                failed = failed or error
                if self.connection.closed:
                    raise failed from None
        self._pgconn.exit_pipeline_mode()
        if failed is not None:
            raise failed


# --- statements and parameters

_PARAMETER: Final = re.compile(r"%\(([a-z_0-9]+)\)s|%%")


@lru_cache(maxsize=2048)
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with its parameters by number, and their names in that order."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}" if match[1] else "%"

    said = _PARAMETER.sub(number, statement)
    return said.encode(), tuple(names)


class _Written(NamedTuple):
    """A parameter as it is sent: what, of which type, if we say that, and in which form."""

    value: bytes | None
    type: int = 0
    is_binary: bool = False


_NOTHING: Final = _Written(None)


def _written(value: object) -> _Written:
    """Return a parameter as the server reads it."""
    if value is None:
        return _NOTHING
    if isinstance(value, bool):
        return _Written(b"t" if value else b"f", _BOOL)
    if isinstance(value, int):
        return _Written(b"%d" % value, _INTEGER)
    if isinstance(value, float):
        return _Written(repr(value).encode(), _FLOAT)
    if isinstance(value, str):
        return _Written(_text(value))
    if isinstance(value, Binary):
        return _Written(value.said, is_binary=True)
    if isinstance(value, bytes):
        return _Written(value, _BYTES, is_binary=True)
    if isinstance(value, list | tuple):
        return _Written(_text(_array(value)))
    raise TypeError(f"a {type(value).__name__} is nothing that the database keeps")


def _text(value: str) -> bytes:
    said = value.encode()
    if b"\0" in said:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return said


def _array(values: Sequence[object]) -> str:
    """Return a list as the database reads an array."""
    return "{" + ",".join(map(_item, values)) + "}"


def _item(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
