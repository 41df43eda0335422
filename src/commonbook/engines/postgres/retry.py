"""Retries of a transaction with exponential back-off, and the commit check after a lost answer.

When a connection is lost during the commit, it is unknown whether the transaction was committed. The next attempt finds
out first: by the commit check of the operation, if it set one, else by a row with a random mark in `committed`. Both
concern a row that the first attempt locked before its commit was sent, so the check waits until that attempt has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple

import psycopg
from psycopg import errors as pg

from commonbook.engines.postgres import connections
from commonbook.errors import Busy, CommonbookError, DatabaseUnreachable
from commonbook.model.ids import new_id
from commonbook.ports.database import Result, RetryTransaction, Transaction
from commonbook.runtime import pause_seconds

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

    def __init__(self, operation: Callable[[Transaction], Result], *, durable: bool) -> None:
        """Prepare to run this operation; one that is not durable is repeated without a commit check."""
        self._operation = operation
        self._durable = durable
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
