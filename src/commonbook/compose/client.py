"""The composition root of remote clients: wires a client or a remote book to its outbox file on this machine.

Login: exchanges a login code for an API key over HTTP.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Final

from commonbook.core.settings.project_files import default_space
from commonbook.engines.process import SystemClock
from commonbook.errors import BadInput, CommonbookError, ServerFailed
from commonbook.values.encoding import Malformed, decode
from commonbook.values.reports import Finding, OutboxStatus
from commonbook.values.spaces import NewKey
from commonbook.verbs.requests import VERBS, request_of

if TYPE_CHECKING:
    from commonbook.core.settings.remote import RemoteSettings
    from commonbook.core.settings.settings import Settings
    from commonbook.engines.sqlite.outbox import OutboxFile
    from commonbook.ports.keys import Clock
    from commonbook.ports.outbox import Transport
    from commonbook.remote.http import Address
    from commonbook.remote.outbox_client import Client, Mask
    from commonbook.remote.remote_book import RemoteBook
    from commonbook.values.spaces import ApiKey


_MAX_NAMED_MESSAGES: Final = 20
"""The maximum of refused messages that become findings; all are counted."""


def open_client(
    settings: Settings,
    transport: Transport,
    *,
    clock: Clock | None = None,
    background: bool = True,
    senders: int = 4,
    answer_seconds: float = 15.0,
) -> Client:
    """Make a client that sends through this transport; messages are masked and stored in the outbox first."""
    from commonbook.core.text.masking import mask

    return open_outbox(
        settings.outbox,
        transport,
        mask=mask,
        clock=clock,
        space=default_space(settings),
        busy_seconds=settings.busy_seconds,
        background=background,
        senders=senders,
        answer_seconds=answer_seconds,
    )


def _outbox(settings: Settings, clock: Clock) -> OutboxFile:
    from commonbook.engines.sqlite.outbox import OutboxFile

    return OutboxFile(settings.outbox, clock=clock, busy_seconds=settings.busy_seconds)


def outbox_status(settings: Settings, clock: Clock) -> OutboxStatus:
    """Return the status of this machine's outbox, if there is one; an error becomes a finding and is not raised."""
    if not os.path.exists(settings.outbox):
        return OutboxStatus()
    from commonbook.ports.outbox import REFUSED

    try:
        with closing(_outbox(settings, clock)) as outbox:
            counts, refused = outbox.counts(), outbox.held(REFUSED, limit=_MAX_NAMED_MESSAGES)
    except CommonbookError as error:
        return OutboxStatus(findings=(Finding("outbox", settings.outbox, error.message, error.fix),))
    findings = [
        Finding(
            what="refused message",
            where=f"message {message.id} of the outbox, session {message.session} in {message.context.space}",
            why=message.reason,
            fix="correct the cause, then let the client `retry` it, or `discard` it",
        )
        for message in refused
    ]
    return OutboxStatus(*counts, tuple(findings))


def open_outbox(
    path: str,
    transport: Transport,
    *,
    mask: Mask,
    space: str | None,
    clock: Clock | None = None,
    busy_seconds: float = 5.0,
    background: bool = True,
    senders: int = 4,
    answer_seconds: float = 15.0,
) -> Client:
    """Make a client whose outbox is this file, created if it does not exist, and send its messages.

    `space` is the space of messages that name none; without one it is the default space of the key on the server.
    """
    from commonbook.engines.sqlite.outbox import OutboxFile
    from commonbook.remote.outbox_client import Client

    clock = clock or SystemClock()
    return Client(
        transport,
        OutboxFile(path, clock=clock, busy_seconds=busy_seconds),
        mask=mask,
        clock=clock,
        space=space,
        background=background,
        senders=senders,
        answer_seconds=answer_seconds,
    )


def connect(
    settings: RemoteSettings,
    url: str | None = None,
    key: str | None = None,
    *,
    space: str | None = None,
    outbox: str | os.PathLike[str] | None = None,
    allow_http: bool = False,
    answer_seconds: float = 15.0,
    patience_seconds: float = 30.0,
) -> RemoteBook:
    """Make a remote book over the URL of a server; its outbox is opened if it exists. Nothing is sent yet."""
    _require_http()
    from commonbook.core.settings import remote
    from commonbook.core.text.masking import mask
    from commonbook.engines.disk.import_export import ExternalFolder
    from commonbook.remote.http import HttpCaller, parse_address
    from commonbook.remote.http_transport import HttpTransport
    from commonbook.remote.lazy_outbox import LazyOutbox
    from commonbook.remote.remote_book import RemoteBook

    address = parse_address(url or settings.url or settings.default or "", allow_http=allow_http)
    given = remote.require_key(key, "the key") if key is not None else settings.key
    saved = None if given else remote.saved_key(settings, address.origin)
    if given is None and saved is None:
        raise BadInput(
            f"there is no key for {address}",
            fix="`commonbook login URL CODE` saves one; or give it as an argument, or in COMMONBOOK_KEY",
        )
    path = os.fspath(outbox) if outbox is not None else remote.outbox_path(settings, address.origin, given)
    http, clock, default = HttpCaller(address, given or saved), SystemClock(), space or settings.space
    transport = HttpTransport(http)

    def open_client() -> Client:
        return open_outbox(
            path,
            transport,
            mask=mask,
            clock=clock,
            space=default,
            answer_seconds=answer_seconds,
        )

    lazy = LazyOutbox(open_client, lambda: os.path.exists(path), mask=mask, clock=clock)
    files = ExternalFolder(None)
    return RemoteBook(
        http, lazy, files, space=default, answer_seconds=answer_seconds, patience_seconds=patience_seconds
    )


def log_in(settings: RemoteSettings, url: str, code: str, *, allow_http: bool = False) -> tuple[ApiKey, str]:
    """Exchange a login code for a key, and save it; return the key and the path of its file."""
    _require_http()
    from commonbook.core.settings import remote
    from commonbook.remote.http import parse_address

    address = parse_address(url, allow_http=allow_http)
    remote.require_savable(settings)
    new = exchange(address, code)
    return new.key, remote.save_key(settings, address.origin, new.secret)


def _require_http() -> None:
    """Raise an error that says what to install if the HTTP library is missing."""
    try:
        import httpx2  # noqa: F401 - is it installed?
    except ImportError as error:
        raise BadInput(
            f"a remote book needs a package that is not installed: {error.name}", fix="pip install 'commonbook[client]'"
        ) from error


_SECONDS: Final = 15.0
_ATTEMPT_SECONDS: Final = 5.0


def exchange(address: Address, code: str) -> NewKey:
    """Exchange a login code for a secret of its key; a lost answer is asked for again, with the same nonce.

    An address where no server is, such as a mistyped one, is an error at once: a person waits for the answer.
    """
    from commonbook.remote.http import HttpCaller, Patience, problem_of

    http = HttpCaller(address, key=None)
    try:
        request = request_of(VERBS["exchange_login"], {"code": code, "nonce": secrets.token_urlsafe(24)})
        answer = http.send(request, patience=Patience(_SECONDS, _ATTEMPT_SECONDS, connects_once=True))
    finally:
        http.close()
    if answer.status >= 400:
        raise problem_of(answer)
    try:
        key: NewKey = decode(NewKey, answer.json())
    except Malformed as error:
        raise ServerFailed(f"{answer.address} answered a login with something else", fix="update Commonbook") from error
    return key
