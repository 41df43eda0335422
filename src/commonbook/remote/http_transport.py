"""The transport of an outbox over HTTP: messages are appended to sessions of the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commonbook.errors import (
    Busy,
    CommonbookError,
    HomeError,
    Refused,
    ServerBusy,
    ServerFailed,
    TooMany,
    TransportError,
    Unreachable,
)
from commonbook.ports.outbox import OutboxEntry, SessionContext
from commonbook.remote.http import Answer, HttpCaller, Patience, problem_of
from commonbook.values.encoding import Malformed, decode
from commonbook.values.session import AppendReceipt, NewMessage
from commonbook.verbs.requests import VERBS, Request, request_of

_BUSY_SECONDS = 1.0
_KEY_REFUSED_STATUS = 401


class HttpTransport:
    """The Transport port over HTTP. Client ids make a repeated append harmless, so it needs no `Idempotency-Key`."""

    def __init__(self, http: HttpCaller) -> None:
        """Send by this caller, which its owner closes."""
        self._http = http

    def append(
        self, session: str, messages: Sequence[OutboxEntry], *, context: SessionContext, timeout: float
    ) -> Mapping[str, object]:
        """Append messages in this order; return the receipt of each by its client id."""
        sent = [
            NewMessage(entry.text, entry.role, entry.author, entry.time, entry.client_id, entry.masked)
            for entry in messages
        ]
        try:
            request = append_request(session, sent, context)
            answer = send_append(self._http, request, seconds=timeout)
            if answer.status == _KEY_REFUSED_STATUS:
                # A missing or revoked key says nothing about the messages: they wait for another one.
                refusal = problem_of(answer)
                raise Unreachable(refusal.message, fix=refusal.fix)
            receipt = append_receipt(answer, len(messages))
        except CommonbookError as error:
            raise transport_error(error, messages) from error
        return dict(zip((entry.client_id for entry in messages), receipt.messages, strict=True))


def append_request(session: str, messages: Sequence[NewMessage], context: SessionContext) -> Request:
    """Return the request of an append."""
    options = {"space": context.space, "parent": context.parent, "tags": context.tags}
    given = {name: value for name, value in options.items() if value}
    return request_of(VERBS["append"], {"session": session, "messages": messages, **given})


def send_append(http: HttpCaller, request: Request, *, seconds: float) -> Answer:
    """Send an append once."""
    return http.send(request, patience=Patience(seconds, seconds, once=True))


def append_receipt(answer: Answer, count: int) -> AppendReceipt:
    """Return the receipt of an append of so many messages; raises the error that the server answered with."""
    if answer.status >= 400:
        raise problem_of(answer)
    try:
        receipt: AppendReceipt = decode(AppendReceipt, answer.json())
    except Malformed as error:
        raise ServerFailed(f"{answer.address} answered an append with something else: {error}") from error
    if len(receipt.messages) != count:
        raise ServerFailed(f"{answer.address} answered an append with other messages")
    return receipt


def transport_error(error: CommonbookError, messages: Sequence[OutboxEntry]) -> TransportError:
    """Translate an error of a server for the outbox: whether to wait, to try again, or to set messages aside."""
    if isinstance(error, TransportError):
        return error
    if isinstance(error, TooMany):
        return ServerBusy(error.message, retry_after=error.retry_after, fix=error.fix)
    if isinstance(error, Busy):
        return ServerBusy(error.message, retry_after=_BUSY_SECONDS, fix=error.fix)
    # A database that is away says nothing about the messages.
    if isinstance(error, HomeError):
        return Unreachable(error.message, fix=error.fix)
    item = error.item
    named = [messages[item].client_id] if item is not None and 0 <= item < len(messages) else []
    return Refused(error.message, client_ids=named, fix=error.fix)
