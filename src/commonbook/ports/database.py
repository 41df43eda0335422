"""The database port: consistent reads, the write transaction, and retries of reads.

Both engines speak one SQL. A `Reading` is a snapshot; a `Transaction` is a snapshot that also writes. Where an engine
admits one writer at a time, a lock of rows or of a table is only a read, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from commonbook.errors import ServerLost
from commonbook.values.reports import Change, SchemaMigration

Row = tuple[Any, ...]
Result = TypeVar("Result")


class Reading(Protocol):
    """A consistent snapshot of the database. A parameter that is a sequence stands for a list: `IN :ids`."""

    now: datetime
    """The time that counts as now for everything in this snapshot or transaction."""

    def rows(self, sql: str, /, **params: object) -> list[Row]:
        """Return all rows of a query."""
        ...

    def row(self, sql: str, /, **params: object) -> Row | None:
        """Return the first row of a query, or None."""
        ...

    def rows_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> list[list[Row]]:
        """Run one query for each set of parameters, and return the rows of each."""
        ...


class Transaction(Reading, Protocol):
    """The write transaction: everything in it is committed together, or nothing is."""

    recorded: list[Change]
    """The changes that `finalize` numbers and appends to the log."""
    touched: dict[str, str | None]
    """Further subjects to number as changed, without a log entry, each with the id of its space.

    None stands for the space of a memory that `finalize` looks up.
    """
    compresses_texts: bool
    """Whether long texts are to be compressed before they are stored, since the engine does not do it itself."""
    commit_check: Callable[[Transaction], bool] | None
    """Tells in a later transaction whether this one was committed, after waiting until it has ended.

    It is used when the connection was lost during the commit. If it is None, the engine uses a check of its own.
    """
    committed: object | None
    """Set when the transaction is committed, for `Database.is_last_commit`; None before, and where that is not told."""

    def lock_rows(self, sql: str, /, *, if_free: bool = False, **params: object) -> list[Row]:
        """Return the rows of a SELECT, locked until the transaction ends, after waiting for those who have them locked.

        `if_free` leaves out the rows that another transaction has locked.
        """
        ...

    def lock_table(self, table: str, /) -> None:
        """Lock a table, so that nobody else writes to it until the transaction ends."""
        ...

    def run(self, sql: str, /, **params: object) -> int:
        """Run one statement and return how many rows it touched."""
        ...

    def run_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> None:
        """Run one statement for each set of parameters, without waiting: its error may be raised by a later call."""
        ...

    def record(self, change: Change) -> None:
        """Record a change, which `finalize` numbers and appends to the log."""
        ...


class RetryTransaction(Exception):
    """Rows that an operation has read were changed by another transaction: the operation must run again."""


class Database(Protocol):
    """The database of a book."""

    migration: SchemaMigration | None
    """The migration of the schema that opening the database did, or None if there was nothing to migrate."""
    busy_seconds: float
    """How long a writer waits for others before it raises Busy."""
    compresses_texts: bool
    """As that of its transactions."""

    @property
    def schema(self) -> int:
        """The version of the schema."""
        ...

    def schema_copies(self) -> list[str]:
        """Return the paths of the copies that were made before migrations of the schema."""
        ...

    def remove_schema_copies(self) -> None:
        """Remove the copies that were made before migrations of the schema."""
        ...

    def damage(self) -> list[str]:
        """Check the integrity of the database, and return a description of each fault."""
        ...

    def reading(self) -> AbstractContextManager[Reading]:
        """Open a consistent snapshot."""
        ...

    def write(
        self, operation: Callable[[Transaction], Result], *, durable: bool = True, patient: bool = True
    ) -> Result:
        """Run an operation in a write transaction: committed when it returns, rolled back by any error.

        It may run more than once, on conflicts with other transactions: any state that it changes besides the database
        must be created in each run. A commit that is not `durable` may be lost in a power cut, but never in a crash of
        the process; it is for facts that the next process would find out again. One that is not `patient` raises Busy
        (`single_lock`) as soon as a lock of rows takes more than a moment.
        """
        ...

    def make_durable(self) -> None:
        """Wait until everything that was committed before is durable, by whichever process.

        What can be read may not be durable yet. Call this before an answer that relies on what another process has
        written, without a durable write in between.
        """
        ...

    def is_last_commit(self, tx: Transaction) -> bool:
        """Tell whether nobody, in any process, has committed since this transaction was; False if that is not known."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def retry_read(verb: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Decorate a function that only reads: it is called once more if the connection to the server is lost."""

    @wraps(verb)
    def repeated(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        try:
            return verb(*args, **kwargs)
        except ServerLost:
            return verb(*args, **kwargs)

    return repeated
