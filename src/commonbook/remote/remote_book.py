"""The class `RemoteBook`: the verbs of a book on a server, over HTTP.

A verb is one request, made from its declaration, and its answer is decoded to the value that the local book returns.
Errors of the server are raised as the same classes. `append` never loses a message: if no server answers, it goes into
the outbox of this machine, and from there to the server in order.

Folders that are imported or exported are streamed as zip archives, through a file of this machine. An archive is packed
once: a repeat after a lost answer sends the same bytes, so that the server knows it as a repeat.
"""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from commonbook.errors import Busy, DiskFull, HomeError, ServerFailed, TransportError
from commonbook.ports.files import ArchiveFiles, Outcome
from commonbook.remote.http import Answer, HttpCaller, Patience, SentFiles, problem_of
from commonbook.remote.http_transport import append_receipt, append_request, send_append
from commonbook.remote.lazy_outbox import LazyOutbox, PreparedMessage, send_waiting
from commonbook.remote.outbox_client import Client, session_context
from commonbook.values.encoding import Malformed, decode
from commonbook.values.ids import new_id
from commonbook.values.path_filter import PathFilter
from commonbook.values.reports import Progress, TransferReport, no_progress, not_exported
from commonbook.values.session import AppendReceipt, ChatMessage, MessageReceipt, NewMessage
from commonbook.values.spaces import NewKey
from commonbook.verbs import Verbs
from commonbook.verbs.declaration import Verb, implements
from commonbook.verbs.requests import DEFAULT_SPACE_HEADER, REPORT_MEMBER, VERBS, Request, request_of, result_of
from commonbook.verbs.upkeep import Upkeep

_SLOW_SECONDS: Final = 3600.0
"""The time that a server has for the answer of a slow verb."""


class RemoteBook(Verbs):
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

    @implements(Upkeep.import_folder)
    def import_folder(  # noqa: D102 - as declared
        self,
        folder: str,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress = no_progress,  # noqa: ARG002 - as in the book
        **options: Any,  # noqa: ANN401 - of the request
    ) -> TransferReport:
        from commonbook.subjects.transfer import attachments

        chosen = PathFilter.of(include, exclude)
        # The server knows a folder of this machine by its name, and updates what it has imported from it before.
        arguments = {"folder": _source_name(folder), "include": chosen.include, "exclude": chosen.exclude, **options}
        with _temporary_archive() as place:
            archive, findings = self._files.pack(folder, place, wanted=attachments.selects(chosen))
            answer = self._send(VERBS["import_folder"], arguments, SentFiles(upload=archive))
        report = _decode(answer)
        return report._replace(skipped=(*findings, *report.skipped))

    @implements(Upkeep.export)
    def export(  # noqa: D102 - as declared
        self,
        target: str,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress = no_progress,  # noqa: ARG002 - as in the book
        **options: Any,  # noqa: ANN401 - of the request
    ) -> TransferReport:
        chosen = PathFilter.of(include, exclude)
        arguments = {"include": chosen.include, "exclude": chosen.exclude, **options}
        with _temporary_archive() as place:
            answer = self._send(VERBS["export"], arguments, SentFiles(download=place))
            report = _decode(answer._replace(body=_read_report(answer, place)))
            return _with_outcomes(report, self._files.unpack(place, target))

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
        send_waiting(self._outbox, verb.name, arguments, default_space=self._space, seconds=self._patience_seconds)
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


_MAX_REPORT_BYTES: Final = 512 << 20


@contextmanager
def _temporary_archive() -> Iterator[str]:
    """Make a folder that nobody else can read, and yield the path of an archive in it."""
    try:
        with tempfile.TemporaryDirectory(prefix="commonbook-") as folder:
            yield os.path.join(folder, "archive.zip")
    except OSError as error:
        raise DiskFull(
            f"no archive can be kept here: {error.strerror}", fix="free some space, or set TMPDIR"
        ) from error


def _source_name(folder: str) -> str:
    """Return a name for a folder of this machine, which tells the server neither."""
    return sha256(f"{socket.gethostname()}\n{os.path.realpath(folder)}".encode(errors="surrogateescape")).hexdigest()


def _read_report(answer: Answer, place: str) -> bytes:
    try:
        with zipfile.ZipFile(place) as archive, archive.open(REPORT_MEMBER) as member:
            return member.read(_MAX_REPORT_BYTES)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ServerFailed(f"{answer.address} sent no whole export", fix="try again, or update Commonbook") from error


def _decode(answer: Answer) -> TransferReport:
    try:
        report: TransferReport = decode(TransferReport, answer.json())
    except Malformed as error:
        raise ServerFailed(f"{answer.address} sent another report: {error}", fix="update Commonbook") from error
    return report


def _with_outcomes(report: TransferReport, outcomes: Sequence[tuple[str, Outcome]]) -> TransferReport:
    """Return the report about the target here; an exported archive begins with the memories, in the order of `ids`."""
    of_memories = outcomes[: len(report.ids)]
    counts = Counter(outcome for _, outcome in of_memories)
    foreign = [path for path, outcome in outcomes if outcome == "foreign"]
    return report._replace(
        done=counts["new"],
        updated=counts["changed"],
        unchanged=counts["same"],
        skipped=(*map(not_exported, foreign), *report.skipped),
        ids=tuple(id_ for id_, (_, outcome) in zip(report.ids, of_memories, strict=True) if outcome != "foreign"),
        attachments=tuple(path for path in report.attachments if path not in foreign),
    )
