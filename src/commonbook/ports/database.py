"""The database seam: consistent reads, the write transaction, and retries of reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from commonbook.errors import ServerLost
from commonbook.model.reports import Change

if TYPE_CHECKING:
    pass


Row = tuple[Any, ...]
Result = TypeVar("Result")
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


class Reading(Protocol):
    """One consistent view of the database. A sequence as a parameter stands for a list: `IN :ids`."""

    now: datetime
    """The one time of everything that is read or written together."""

    def rows(self, sql: str, /, **params: object) -> list[Row]:
        """Return all rows of a query."""
        ...

    def row(self, sql: str, /, **params: object) -> Row | None:
        """Return the first row of a query, or None."""
        ...

    def defer(self, sql: str, /, **params: object) -> Callable[[], list[Row]]:
        """Send a query, and return what waits for its rows: so several are sent before anybody waits.

        In a transaction each sees what those before it have done, and waited for.
        """
        ...


class Transaction(Reading, Protocol):
    """The writing transaction: everything in it is committed together, or nothing is."""

    recorded: list[Change]
    touched: dict[str, str | None]
    """What is to be numbered besides, with its space; None for a memory, wherever it is: it is served otherwise now."""
    for_update: str
    """What a SELECT ends with to keep the rows that it finds as they are, for all others, until this is over.

    Nothing where only one can write at a time. What is read without it may have changed when it is acted on.
    """
    skip_locked: str
    """The same, but rows that others keep already are left out."""
    no_wait: str
    """Ends a list of columns so that from then on the transaction waits for nobody, or for a moment only."""
    commit_check: Callable[[Transaction], bool] | None
    """Finds out in a later transaction whether this one was committed, and waits until it has ended; if there is such.

    For whoever lost the answer. Where nobody says how, the database sees to it by itself.
    """

    def run(self, sql: str, /, **params: object) -> int:
        """Run one statement and return how many rows it touched."""
        ...

    def run_many(self, sql: str, params: Sequence[Mapping[str, object]], /) -> None:
        """Run one statement for each set of parameters, soon: what goes wrong with it may be told by a later call."""
        ...

    def record(self, change: Change) -> None:
        """Note a change, to be numbered and logged when the transaction is sealed."""
        ...


class RetryTransaction(Exception):
    """What a story has read was changed by another meanwhile: it is to be told again from the beginning."""


class Database(Protocol):
    """Where rows live."""

    @property
    def schema(self) -> int:
        """The version of the schema."""
        ...

    def damage(self) -> list[str]:
        """Return what is broken in the database itself."""
        ...

    def reading(self) -> AbstractContextManager[Reading]:
        """Open a consistent view."""
        ...

    def write(self, operation: Callable[[Transaction], Result], *, durable: bool = True) -> Result:
        """Let a story happen in a writing transaction: committed when it returns, rolled back by any error.

        It may be told more than once, when others were in its way: whatever it changes besides the database must be
        its own, made anew each time. What is not `durable` may be lost in a power cut (never in a crash of ours): only
        for what the next process would find out again by itself.
        """
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def retry_read(verb: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Repeat a verb that only reads, once, when the server is lost in the middle of its answer."""

    @wraps(verb)
    def repeated(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        try:
            return verb(*args, **kwargs)
        except ServerLost:
            return verb(*args, **kwargs)

    return repeated
