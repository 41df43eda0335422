"""The table `idempotency`: a row is the first answer to a request that came with an idempotency key.

A key belongs to a principal and a space. A repeat of the request gets the first answer and changes nothing; another
content under the same key is a conflict. An empty answer is a key that was given up and may be used again.

The rows without a space are of whole requests: the key is a hash, and the answer is encrypted. They are removed when
they are old; all others stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from commonbook.errors import KeyConflict
from commonbook.model.ids import format_time
from commonbook.ports.database import Reading, RetryTransaction, Transaction


def first_answer(tx: Reading, *, space: str, principal: str, key: str, content: str) -> str | None:
    """Return the first answer to this key, or None; KeyConflict if the key was used for other content."""
    row = tx.row(
        "SELECT content, answer FROM idempotency WHERE space = :space AND principal = :principal AND key = :key",
        space=space,
        principal=principal,
        key=key,
    )
    if row is None:
        return None
    first_content, answer = row
    if first_content != content:
        raise KeyConflict(
            f"the key {key!r} was used before for other content",
            fix="use a new key for new content; the same key only to repeat the same request",
        )
    return str(answer)


def find_by_prefix(tx: Reading, *, space: str, principal: str, prefix: str) -> dict[str, tuple[str, str]]:
    """Return (content, answer) of each key that begins with the prefix, by key."""
    rows = tx.rows(
        "SELECT key, content, answer FROM idempotency WHERE space = :space AND principal = :principal"
        " AND key >= :prefix AND key < :beyond",
        space=space,
        principal=principal,
        prefix=prefix,
        beyond=prefix + "\U0010ffff",
    )
    return {key: (content, answer) for key, content, answer in rows}


def find_many(
    tx: Reading, *, spaces: Sequence[str], principal: str, keys: Sequence[str]
) -> dict[str, tuple[str, str, str]]:
    """Return (space, content, answer) of those of the keys that were used in any of the spaces, by key."""
    if not spaces or not keys:
        return {}
    rows = tx.rows(
        "SELECT key, space, content, answer FROM idempotency"
        " WHERE space IN :spaces AND principal = :principal AND key IN :keys",
        spaces=spaces,
        principal=principal,
        keys=keys,
    )
    return {key: (space, content, answer) for key, space, content, answer in rows}


def claim(tx: Transaction, *, space: str, principal: str, key: str, content: str, answer: str) -> None:
    """Store the first answer to a key that is new or was given up; RetryTransaction if another request was first."""
    stored = tx.run(
        "INSERT INTO idempotency (space, principal, key, content, answer, at)"
        " VALUES (:space, :principal, :key, :content, :answer, :at)"
        " ON CONFLICT (space, principal, key) DO UPDATE SET content = :content, answer = :answer, at = :at"
        " WHERE idempotency.answer = ''",
        space=space,
        principal=principal,
        key=key,
        content=content,
        answer=answer,
        at=format_time(tx.now),
    )
    if not stored:
        raise RetryTransaction


def replace(tx: Transaction, *, space: str, principal: str, key: str, content: str, answer: str) -> None:
    """Store the answer to a key, in place of an earlier one."""
    tx.run(
        "INSERT INTO idempotency (space, principal, key, content, answer, at)"
        " VALUES (:space, :principal, :key, :content, :answer, :at)"
        " ON CONFLICT (space, principal, key) DO UPDATE SET content = :content, answer = :answer, at = :at",
        space=space,
        principal=principal,
        key=key,
        content=content,
        answer=answer,
        at=format_time(tx.now),
    )


# --- whole requests


def claim_request(tx: Transaction, *, principal: str, key: str, content: str) -> Callable[[], bool]:
    """Claim the key of a request, until its answer is stored in the same transaction.

    The returned function waits for the end of another transaction that has claimed the key; it returns False if that
    one, or an earlier one, has stored an answer.
    """
    claimed = tx.defer(
        "INSERT INTO idempotency (space, principal, key, content, answer, at)"
        " VALUES ('', :principal, :key, :content, '', :at) ON CONFLICT DO NOTHING RETURNING key",
        principal=principal,
        key=key,
        content=content,
        at=format_time(tx.now),
    )
    return lambda: bool(claimed())


def answer_request(tx: Transaction, *, principal: str, key: str, answer: str) -> None:
    """Store the answer to a request whose key was claimed."""
    tx.run_many(
        "UPDATE idempotency SET answer = :answer WHERE space = '' AND principal = :principal AND key = :key",
        [{"answer": answer, "principal": principal, "key": key}],
    )


def find_request(tx: Reading, *, principal: str, key: str) -> tuple[str, str] | None:
    """Return the content of a request and its answer."""
    row = tx.row(
        "SELECT content, answer FROM idempotency WHERE space = '' AND principal = :principal AND key = :key",
        principal=principal,
        key=key,
    )
    if row is None:
        return None
    content, answer = row
    return str(content), str(answer)


REQUESTS_KEPT_FOR: Final = timedelta(hours=48)
"""Requests are kept for so long; twice as long as is promised, so that a clock may be wrong."""

MAX_REMOVED: Final = 1000


def has_old_requests(tx: Reading) -> bool:
    """Tell whether there are requests that are old enough to be removed."""
    sql = "SELECT 1 FROM idempotency WHERE space = '' AND at < :before LIMIT 1"
    return tx.row(sql, before=format_time(tx.now - REQUESTS_KEPT_FOR)) is not None


def remove_old_requests(tx: Transaction) -> int:
    """Remove a number of requests that are old enough; return how many these were."""
    return tx.run(
        "DELETE FROM idempotency WHERE space = '' AND (principal, key) IN (SELECT principal, key FROM idempotency"
        " WHERE space = '' AND at < :before ORDER BY at LIMIT :limit)",
        before=format_time(tx.now - REQUESTS_KEPT_FOR),
        limit=MAX_REMOVED,
    )
