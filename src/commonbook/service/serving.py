"""For servers of a book: answers to repeated requests, announced appends, and sessions of browsers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from commonbook.core.text import space_names, validation
from commonbook.core.write import idempotency
from commonbook.core.write.idempotency import Repeated
from commonbook.errors import Busy, CommonbookError
from commonbook.ports.database import retry_read
from commonbook.subjects.admin import sign_in
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor

if TYPE_CHECKING:
    from commonbook.ports.database import Transaction
    from commonbook.ports.engines import Engines
    from commonbook.service.book import Book
    from commonbook.values.spaces import BrowserSession

REMOVAL_INTERVAL: Final = 200
"""After so many calls old answers are removed; a removal takes away more than come in between."""

_calls: Final = count()


def answer_once(
    book: Book,
    call: Callable[[Book], object],
    *,
    key: str,
    content: str,
    encode: Callable[[object], str],
    in_parts: bool = False,
) -> str:
    """Call a verb of the book at most once for an idempotency key, and return the encoded result: the first answer.

    The answer is stored in the transaction of the change. A verb that writes `in_parts`, each of which can be repeated,
    has its answer stored after the last one. An error is no answer: the call may be made again with the same key.
    """
    engines = book._engines  # noqa: SLF001 - this module is a part of the facade
    if next(_calls) % REMOVAL_INTERVAL == 0:
        # Another process may be removing them, and the next time is near.
        with suppress(Busy):
            idempotency.remove_old_answers(engines)
    caller = RequestContext(book._actor, validation.validate_key(key), content, encode)  # noqa: SLF001 - as above
    if in_parts:
        return _find(engines, caller) or _keep(engines, caller, encode(call(book)))
    try:
        result = call(book._view(caller))  # noqa: SLF001 - as above
    except Repeated as repeated:
        # The first request may still wait for the disk, in another process.
        engines.db.make_durable()
        return repeated.answer
    except CommonbookError:
        # The first request has changed the state that this one assumes.
        if (answer := _find(engines, caller)) is None:
            raise
        return answer
    # A verb that has written nothing has not stored its answer.
    return _find(engines, caller) or _keep(engines, caller, encode(result))


@retry_read
def _find(engines: Engines, caller: RequestContext) -> str | None:
    with engines.db.reading() as tx:
        answer = idempotency.find_answer(tx, engines, caller)
    if answer is not None:
        engines.db.make_durable()
    return answer


def _keep(engines: Engines, caller: RequestContext, answer: str) -> str:
    """Store an answer in a transaction of its own, unless a concurrent request has stored its own; return the first."""

    def operation(tx: Transaction) -> str:
        try:
            idempotency.claim_request(tx, engines, caller)
        except Repeated as repeated:
            return repeated.answer
        idempotency.store_answer(tx, engines, caller, answer)
        return answer

    return engines.db.write(operation)


def announce_append(book: Book) -> AbstractContextManager[None]:
    """Announce the append that this context, or a thread that runs in a copy of it, is going to make."""
    return book._appender.group_commit.announce()  # noqa: SLF001 - this module is a part of the facade


def require_importer(book: Book) -> None:
    """Raise NotAllowed if `Book.import_folder` would."""
    book._require_owner("read folders of this machine")  # noqa: SLF001 - this module is a part of the facade


def begin_session(book: Book, code: str) -> tuple[str, BrowserSession]:
    """Exchange the code of a sign-in link, once, for a session; return its secret, and the session."""
    return sign_in.exchange(book._engines, code)  # noqa: SLF001 - this module is a part of the facade


def find_session(book: Book, secret: str) -> BrowserSession:
    """Return a session by its secret; NotAllowed if it has ended."""
    return sign_in.find_session(book._engines, secret)  # noqa: SLF001 - this module is a part of the facade


def end_session(book: Book, secret: str) -> None:
    """Sign a browser out."""
    sign_in.end_session(book._engines, secret)  # noqa: SLF001 - this module is a part of the facade


def view_of_session(book: Book, session: BrowserSession, *, space: str | None = None) -> Book:
    """Return a view of the book for a session, as `Book.with_key` does for the secret of a key."""
    named = None if space is None else space_names.require_space_name(space)
    key = session.key
    caller = RequestContext(Actor(key.principal, key.id, has_limits=key.limits is not None))
    return book._view(caller, space=named)  # noqa: SLF001 - this module is a part of the facade
