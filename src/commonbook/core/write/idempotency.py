"""Repeats of requests: the first answer to an idempotency key is stored in the transaction of its change.

The transaction begins by claiming the key. If another transaction has it, this one waits for the end of that one. So
of two concurrent requests with one key, one runs, and the other gets its answer.

A key belongs to a principal and a space. Another content under the same key is a conflict. An empty answer is a key
that was given up and may be used again.

Keys of whole requests, such as the header `Idempotency-Key`, have no space. Neither such a key nor its answer can be
read in the database: the key is stored as a keyed hash, and the answer is encrypted with a key that is derived from
it, since it may have the secret of a new API key. They are removed when they are old; all others stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.errors import KeyConflict
from commonbook.ports.database import Result, RetryTransaction
from commonbook.values.ids import format_time

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext
    from commonbook.ports.database import Reading, Transaction
    from commonbook.ports.engines import Engines
    from commonbook.values.request import RequestContext

REQUESTS_KEPT_FOR: Final = timedelta(hours=48)
"""Requests are kept for so long; twice as long as is promised, so that a clock may be wrong."""

MAX_REMOVED: Final = 1000


class StoredKey(NamedTuple):
    """The primary key of a row of the table `idempotency`."""

    space: str
    principal: str
    key: str


def claim(tx: Transaction, key: StoredKey, content: str) -> bool:
    """Claim a key for this transaction, which has to store its answer; return whether it had no answer yet.

    Wait for the end of another transaction that has claimed it.
    """
    claimed = tx.run(
        "INSERT INTO idempotency (space, principal, key, content, answer, at)"
        " VALUES (:space, :principal, :key, :content, '', :at)"
        " ON CONFLICT (space, principal, key) DO UPDATE SET content = :content, at = :at"
        " WHERE idempotency.answer = ''",
        **key._asdict(),
        content=content,
        at=format_time(tx.now),
    )
    return claimed > 0


def store(tx: Transaction, key: StoredKey, content: str, answer: str) -> None:
    """Store the answer to a key, in place of an earlier one."""
    tx.run_many(
        "INSERT INTO idempotency (space, principal, key, content, answer, at)"
        " VALUES (:space, :principal, :key, :content, :answer, :at)"
        " ON CONFLICT (space, principal, key) DO UPDATE SET content = :content, answer = :answer, at = :at",
        [{**key._asdict(), "content": content, "answer": answer, "at": format_time(tx.now)}],
    )


def find(tx: Reading, key: StoredKey, content: str, *, sent: str) -> str | None:
    """Return the first answer to a key; KeyConflict, which names the key as it was `sent`, if its content differs."""
    row = tx.row(
        "SELECT content, answer FROM idempotency WHERE space = :space AND principal = :principal AND key = :key",
        **key._asdict(),
    )
    if row is None:
        return None
    first_content, answer = row
    if first_content != content:
        raise KeyConflict(
            f"the key {sent!r} was used before for another request",
            fix="use a new key for a new request; the same key only to repeat the same request",
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


# --- whole requests


class Repeated(Exception):
    """The request was made before, and has this answer; nothing was changed."""

    def __init__(self, answer: str) -> None:
        """Keep the first answer."""
        super().__init__("the request was made before")
        self.answer = answer


def answer_once(ctx: WriteContext, caller: RequestContext, operation: Callable[[WriteContext], Result]) -> Result:
    """Run an operation and store its result as the answer to the request; `Repeated` if that was answered before."""
    if caller.key is None:
        return operation(ctx)
    claim_request(ctx.tx, ctx.engines, caller)
    result = operation(ctx)
    store_answer(ctx.tx, ctx.engines, caller, caller.encode(result))
    return result


def claim_request(tx: Transaction, engines: Engines, caller: RequestContext) -> None:
    """Claim the key of a request for this transaction; `Repeated` if there is an answer already."""
    if claim(tx, _stored_key(engines, caller), _content(engines, caller)):
        return
    answer = find_answer(tx, engines, caller)
    if answer is None:
        raise RetryTransaction
    raise Repeated(answer)


def store_answer(tx: Transaction, engines: Engines, caller: RequestContext, answer: str) -> None:
    """Store the answer to a request whose key this transaction has claimed."""
    encrypted = engines.keys.encrypt(_cipher_name(caller), answer.encode())
    store(tx, _stored_key(engines, caller), _content(engines, caller), encrypted)


def find_answer(tx: Reading, engines: Engines, caller: RequestContext) -> str | None:
    """Return the first answer to a request, or None; KeyConflict if its key was used for another content."""
    encrypted = find(tx, _stored_key(engines, caller), _content(engines, caller), sent=caller.key or "")
    return engines.keys.decrypt(_cipher_name(caller), encrypted).decode() if encrypted else None


def remove_old_answers(engines: Engines) -> None:
    """Remove a number of answers that are old enough, if there are any."""
    with engines.db.reading() as tx:
        sql = "SELECT 1 FROM idempotency WHERE space = '' AND at < :before LIMIT 1"
        if tx.row(sql, before=format_time(tx.now - REQUESTS_KEPT_FOR)) is None:
            return
    engines.db.write(_remove_old, durable=False)


def _remove_old(tx: Transaction) -> int:
    return tx.run(
        "DELETE FROM idempotency WHERE space = '' AND (principal, key) IN (SELECT principal, key FROM idempotency"
        " WHERE space = '' AND at < :before ORDER BY at LIMIT :limit)",
        before=format_time(tx.now - REQUESTS_KEPT_FOR),
        limit=MAX_REMOVED,
    )


def _stored_key(engines: Engines, caller: RequestContext) -> StoredKey:
    """Return the key of the row: two API keys of one principal do not see the answers of each other."""
    actor = caller.actor
    return StoredKey("", actor.principal, engines.keys.keyed_hash("request", actor.key_id or "", caller.key or ""))


def _content(engines: Engines, caller: RequestContext) -> str:
    return engines.keys.keyed_hash("content of a request", caller.content)


def _cipher_name(caller: RequestContext) -> Sequence[str]:
    return ("answer", caller.actor.principal, caller.actor.key_id or "", caller.key or "")
