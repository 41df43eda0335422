"""Attempts at a transaction on PostgreSQL: how often a story is told, and whether one without an answer was committed.

When a connection is lost in the commit itself, nobody knows whether it went through. So the next attempt finds out
first: by the proof that the story left, if it did, else by a mark under a name of its own. Both are held before the
commit is sent, so that whoever looks for them waits until the first attempt has ended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple

import psycopg
from psycopg import errors as pg

from commonbook.engines.postgres import connections
from commonbook.errors import Busy, CommonbookError, DatabaseUnreachable
from commonbook.model.ids import new_id
from commonbook.ports.database import Result, RetryTransaction, Transaction

# By the server's clock: whoever has a clock that is ahead must not take away the marks of others.
_NOW: Final = """to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
_LONG_AGO: Final = "(now() - interval '1 hour')"
_MARK: Final = f"INSERT INTO committed (mark, at) VALUES (:mark, {_NOW}) ON CONFLICT"
_LEAVE: Final = f"{_MARK} DO NOTHING"
_KEEP: Final = f"{_MARK} (mark) DO UPDATE SET at = excluded.at"
TIDY: Final = f"DELETE FROM committed WHERE at < {_NOW.replace('now()', _LONG_AGO)}"
"""Removes the marks that nobody can be in doubt about any more."""

_COLLISIONS: Final = 50
_LONGEST_PAUSE: Final = 0.5


class _Sent(NamedTuple, Generic[Result]):
    """What a story told when its commit was sent, and what shows whether it was made."""

    told: Result
    commit_check: Callable[[Transaction], bool] | None


class TransactionRetry(Generic[Result]):
    """What one story told: in this attempt, when its commit was sent, and in an earlier one without an answer."""

    def __init__(self, operation: Callable[[Transaction], Result], *, durable: bool) -> None:
        """Begin with none; what is not durable is made again, whatever became of it."""
        self._story = operation
        self._durable = durable
        self._name = ""
        self._marked = False
        self._sent: _Sent[Result] | None = None
        self._doubtful: _Sent[Result] | None = None

    @property
    def _mark(self) -> str:
        self._name = self._name or new_id()
        return self._name

    def begin(self) -> None:
        """Note that nothing was sent yet in this attempt."""
        self._sent, self._marked = None, False

    def tell(self, tx: Transaction) -> Result:
        """Tell the story, if the attempt without an answer was not made; what is returned is to be committed now."""
        if self._doubtful is not None and self._was_made(tx, self._doubtful):
            # It may have been cut off while it waited for the standby, so this one waits for it: no commit is safe
            # before those that it follows.
            tx.run(_KEEP, mark=self._mark)
            return self._doubtful.told
        self._doubtful = None
        told = self._story(tx)
        if self._durable and tx.commit_check is None and not self._marked:
            tx.run(_LEAVE, mark=self._mark)
        self._sent = _Sent(told, tx.commit_check)
        return told

    def _was_made(self, tx: Transaction, doubtful: _Sent[Result]) -> bool:
        """Tell whether an attempt was made, when it has ended."""
        if doubtful.commit_check is not None:
            return doubtful.commit_check(tx)
        # It waits for that of the other attempt, and is not left a second time.
        self._marked = tx.run(_LEAVE, mark=self._mark) == 1
        return not self._marked

    def lose(self) -> None:
        """Note that the connection was lost: if the commit was sent, it may have been made or not."""
        if self._durable and self._sent is not None:
            self._doubtful = self._sent

    def explained(self, error: CommonbookError) -> CommonbookError:
        """Say in the error that nobody knows, where nobody does."""
        if self._doubtful is None:
            return error
        return DatabaseUnreachable(
            f"the answer to a commit was lost, so the change may have been made or not: {error.message}",
            fix="send the same again with its key, or look whether it is there",
        )


class Backoff:
    """How long to go on when something is in the way, and how long to pause before each new attempt."""

    def __init__(self, seconds: float) -> None:
        """Go on for so many seconds."""
        self._until = time.monotonic() + seconds
        self._attempts = 0

    def reconnect(self, error: CommonbookError) -> None:
        """Pause until a server may be there again, or give up."""
        self._pause(error)

    def collide(
        self, error: psycopg.Error | RetryTransaction, explained: Callable[[CommonbookError], CommonbookError]
    ) -> None:
        """Let the others go first, or give up, with an error that says what else is to be said."""
        if isinstance(error, pg.UniqueViolation):
            final: CommonbookError = connections.translate_error(error)
        else:
            final = Busy("others change the same things all the time", fix="try again when less is going on")
        if self._attempts > _COLLISIONS:
            raise explained(final) from error
        self._pause(explained(final))

    def _pause(self, final: CommonbookError) -> None:
        if time.monotonic() > self._until:
            raise final
        pause = min(_LONGEST_PAUSE, 0.005 * 2**self._attempts)
        # Two that collided must not come back at the same moment.
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - nothing to be guessed
        self._attempts += 1
