"""Repeats of requests: the first answer to an idempotency key is stored in the transaction of its change.

The transaction begins by claiming the key. If another transaction has it, this one waits for the end of that one. So
of two concurrent requests with one key, one runs, and the other gets its answer (`Repeated`).

Neither the key nor the answer can be read in the database. The key is stored as a keyed hash, and the answer is
encrypted with a key that is derived from it: an answer may have the secret of a new API key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonbook.errors import KeyConflict
from commonbook.ports.database import Result, RetryTransaction, Transaction
from commonbook.tables import idempotency
from commonbook.write.context import WriteContext

if TYPE_CHECKING:
    from commonbook.model.keyed_request import KeyedRequest
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines


class Repeated(Exception):
    """The request was made before, and has this answer; nothing was changed."""

    def __init__(self, answer: str) -> None:
        """Keep the first answer."""
        super().__init__("the request was made before")
        self.answer = answer


def answer_once(ctx: WriteContext, request: KeyedRequest, operation: Callable[[WriteContext], Result]) -> Result:
    """Run the operation of a request and store its answer; raise `Repeated` if the request was answered before."""
    claim(ctx.tx, ctx.engines, request)()
    result = operation(ctx)
    store(ctx.tx, ctx.engines, request, request.encode(result))
    return result


def claim(tx: Transaction, engines: Engines, request: KeyedRequest) -> Callable[[], None]:
    """Claim the key of a request for this transaction, which has to store its answer.

    The returned function waits for the claim; it raises Repeated if there is an answer already.
    """
    claimed = idempotency.claim_request(tx, **_row(engines, request), content=_content(engines, request))

    def require_claimed() -> None:
        if claimed():
            return
        answer = find_answer(tx, engines, request)
        if answer is None:
            # The transaction that had claimed it ended without an answer.
            raise RetryTransaction
        raise Repeated(answer)

    return require_claimed


def store(tx: Transaction, engines: Engines, request: KeyedRequest, answer: str) -> None:
    """Store the answer to a request whose key this transaction has claimed."""
    encrypted = engines.keys.encrypt(_cipher_name(request), answer.encode())
    idempotency.answer_request(tx, **_row(engines, request), answer=encrypted)
    request.is_answered = True


def find_answer(tx: Reading, engines: Engines, request: KeyedRequest) -> str | None:
    """Return the first answer to a request, or None; KeyConflict if its key was used for another content."""
    found = idempotency.find_request(tx, **_row(engines, request))
    if found is None:
        return None
    content, answer = found
    if content != _content(engines, request):
        raise KeyConflict(
            f"the key {request.key!r} was used before for another request",
            fix="use a new key for a new request; the same key only to repeat the same request",
        )
    return engines.keys.decrypt(_cipher_name(request), answer).decode()


def remove_old_answers(engines: Engines) -> None:
    """Remove answers that are old enough, if there are any."""
    with engines.db.reading() as tx:
        if not idempotency.has_old_requests(tx):
            return
    engines.db.write(idempotency.remove_old_requests, durable=False)


def _row(engines: Engines, request: KeyedRequest) -> dict[str, str]:
    """Return the primary key of the row: two API keys of one principal do not see the answers of each other."""
    key = engines.keys.keyed_hash("request", request.actor.key_id or "", request.key)
    return {"principal": request.actor.principal, "key": key}


def _content(engines: Engines, request: KeyedRequest) -> str:
    return engines.keys.keyed_hash("content of a request", request.content)


def _cipher_name(request: KeyedRequest) -> Sequence[str]:
    return ("answer", request.actor.principal, request.actor.key_id or "", request.key)
