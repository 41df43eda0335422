"""The class `RemoteBook`: the verbs of a book on a server, over HTTP.

A verb is one request, made by the table of verbs, and its answer is decoded to the value that the local book returns.
Errors of the server are raised as the same classes. `append` never loses a message: if no server answers, it goes into
the outbox of this machine, and from there to the server in order.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from commonbook.client import outbox_first
from commonbook.client.http import Answer, HttpCaller, Patience, SentFiles, problem_of
from commonbook.client.http_transport import append_receipt, append_request, send_append
from commonbook.client.lazy_outbox import LazyOutbox, PreparedMessage
from commonbook.client.outbox_client import Client, session_context
from commonbook.client.transfer import TransferVerbs
from commonbook.errors import Busy, HomeError, ServerFailed, TransportError
from commonbook.model.ids import new_id
from commonbook.model.session import AppendReceipt, ChatMessage, MessageReceipt, NewMessage
from commonbook.model.spaces import NewKey
from commonbook.ports.files import ArchiveFiles
from commonbook.verbs.declaration import Verb
from commonbook.wire.encoding import Malformed, decode
from commonbook.wire.requests import Request, request_of
from commonbook.wire.verbs import DEFAULT_SPACE_HEADER, result_of

_SLOW_SECONDS: Final = 3600.0
"""The time that a server has for the answer of a slow verb."""


class RemoteBook(TransferVerbs):
    """A book on a server, with the verbs of `Book`; `commonbook.connect` opens one.

    It is safe to use from any thread. Close it, or use it in a `with` statement. Every error is a `CommonbookError`; if
    no server answers it is `Unreachable`. Callbacks such as `progress` are accepted and not called.
    """

    def __init__(
        self,
        http: HttpCaller,
        outbox: LazyOutbox,
        files: ArchiveFiles,
        *,
        space: str | None = None,
        answer_seconds: float = 15.0,
        patience_seconds: float = 30.0,
    ) -> None:
        """Use these connections and this outbox, which are closed with the book, and files of this machine.

        A server has `answer_seconds` for an answer; for `patience_seconds` a call is tried again.
        """
        self._http, self._outbox, self._files, self._space = http, outbox, files, space
        self._answer_seconds, self._patience_seconds = answer_seconds, patience_seconds

    @property
    def outbox(self) -> Client:
        """The outbox of this machine for this server: which messages wait, and which the server has refused."""
        return self._outbox.client()

    def append(
        self,
        session: str,
        messages: Iterable[NewMessage | str | ChatMessage],
        *,
        space: str | None = None,
        parent: str | None = None,
        tags: Iterable[str] = (),
    ) -> AppendReceipt:
        """Append messages to a session in order, all or none; they are durable when this returns.

        If no server answers, or messages of the session wait already, they go into the outbox of this machine, and are
        sent in order as soon as a server answers. The receipt then has `searchable=False`, and its messages have an
        empty id and the number 0. Otherwise it is as for `Book.append`, which explains the arguments.
        """
        context = session_context(session, self._space if space is None else space, parent, tags)
        prepared = self._outbox.prepare(messages)
        if not prepared or not (self._http.is_down or self._outbox.is_waiting(session, context.space)):
            try:
                request = append_request(session, [message.message for message in prepared], context)
                return self._append_directly(request, prepared)
            except (TransportError, Busy, HomeError):
                if not prepared:
                    raise
        new = self._outbox.enqueue(session, prepared, context)
        receipts = tuple(
            MessageReceipt("", 0, new=is_new, masked=message.masked)
            for message, is_new in zip(prepared, new, strict=True)
        )
        return AppendReceipt(session, receipts, searchable=False, space=context.space or "")

    def exchange_login(self, code: str, *, nonce: str | None = None) -> NewKey:
        """Exchange a login code, as `Book.exchange_login`; the nonce is made here if there is none.

        The answer is not stored: by the nonce a repeat after a lost answer gets the same secret.
        """
        return super().exchange_login(code, nonce=nonce or secrets.token_urlsafe(24))

    def close(self) -> None:
        """Close all connections. Messages that wait in the outbox stay there, for the next process that connects."""
        self._outbox.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _append_directly(self, request: Request, prepared: list[PreparedMessage]) -> AppendReceipt:
        answer = send_append(self._http, request, seconds=self._answer_seconds)
        return append_receipt(answer, len(prepared))

    def _call(self, verb: Verb, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any verb
        """Send a call to the server, and return its result; the error of the server is raised here."""
        arguments = verb.bind(args, kwargs)
        outbox_first.send_waiting(
            self._outbox, verb.name, arguments, default_space=self._space, seconds=self._patience_seconds
        )
        answer = self._send(verb, arguments)
        try:
            return decode(result_of(verb.name), answer.json())
        except Malformed as error:
            raise ServerFailed(
                f"{answer.address} answered {verb.name} with something else: {error}",
                fix="update Commonbook here or there",
            ) from error

    def _send(self, verb: Verb, arguments: Mapping[str, object], files: SentFiles | None = None) -> Answer:
        """Send a call to the server, and return its answer; the error of the server is raised here."""
        headers = {}
        if verb.changes:
            headers["Idempotency-Key"] = f'"{new_id()}"'
        if self._space is not None:
            headers[DEFAULT_SPACE_HEADER] = quote(self._space)
        answer_seconds = _SLOW_SECONDS if verb.slow else self._answer_seconds
        patience = Patience(self._patience_seconds, answer_seconds, slow=verb.slow)
        answer = self._http.send(request_of(verb, arguments), patience=patience, headers=headers, files=files)
        if answer.status >= 400:
            raise problem_of(answer)
        return answer
