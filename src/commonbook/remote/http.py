"""Requests over HTTP with a limited time, and with retries that are safe.

A request that changes something has an `Idempotency-Key`, made before the first attempt, so that it may be repeated
after a lost answer. Redirects are not followed: the key goes to the address of the server alone.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from ipaddress import ip_address
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import httpx2

from commonbook.errors import BadInput, Busy, CommonbookError, HomeError, ServerFailed, Unreachable, UntrustedServer
from commonbook.runtime import pause_seconds, reset_in_child
from commonbook.values.problems import error_of
from commonbook.verbs.requests import Request
from commonbook.version import __version__

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_ADDRESS_FIX: Final = "write it like https://memory.example.com, without user, query and fragment"


class Address(NamedTuple):
    """The address of a server: its origin, and the path below which it serves."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def origin(self) -> str:
        """The origin, to which alone a key is sent."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        """Return the whole address."""
        return self.origin + self.path


def parse_address(text: str, *, allow_http: bool = False) -> Address:
    """Return the address of a server.

    Plain http is for this machine alone, unless it is allowed: others on the way could read the key.
    """
    if not text.strip():
        raise BadInput("there is no address of a server", fix="name one, or set COMMONBOOK_URL")
    address = _parse(text.strip())
    if address.scheme == "http" and not address.is_loopback and not allow_http:
        raise BadInput(
            f"{address} is not encrypted: others on the way could read the key",
            fix="use https, or say allow_http=True if the network between is your own",
        )
    return address


def _parse(text: str) -> Address:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = SplitResult("", "", "", "", ""), None, None
    if parts.scheme not in _DEFAULT_PORTS or not host or not text.isascii() or not text.isprintable():
        # The text is not repeated: it may hold a password.
        raise BadInput("the address of the server is not an http or https address", fix=_ADDRESS_FIX)
    if any(mark in text for mark in "@?#\\ ,"):
        raise BadInput("the address of the server has more than host, port and path", fix=_ADDRESS_FIX)
    return Address(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], parts.path.rstrip("/"))


_CONNECT_SECONDS: Final = 5.0
_MAX_ANSWER_BYTES: Final = 512 << 20
_PART_BYTES: Final = 1 << 18
_MAX_CONNECTIONS: Final = 64
_GATEWAY_STATUS: Final = frozenset({502, 504})
_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 5.0
_FIX: Final = "check the address, the network, and whether `commonbook serve` runs there"
_TRUST_FIX: Final = "name the file of its certificate authority in SSL_CERT_FILE, or call it by the certificate's name"


class Patience(NamedTuple):
    """How long a request may take: in all, in one attempt, and whether there is only one attempt.

    The attempts of a `slow` request have their whole time, also if the request is not tried again after them. With
    `connects_once`, it is tried again only if a server was there, whose answer was lost.
    """

    seconds: float
    attempt_seconds: float
    once: bool = False
    slow: bool = False
    connects_once: bool = False


class Answer(NamedTuple):
    """The answer of a server: its status, its headers, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    address: Address

    def json(self) -> Any:  # noqa: ANN401 - any JSON
        """Return the JSON of the body, None if it is empty; ServerFailed if it is none."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise ServerFailed(
                f"{self.address} answered with something else than JSON (status {self.status})", fix=_FIX
            ) from error


class Outlook(IntEnum):
    """How likely another attempt gets an answer, worst first."""

    UNTRUSTED = 0
    """The certificate is not trusted, which will not change; nothing was sent."""
    NO_SERVER = 1
    """Nothing is there, or an address that leads elsewhere."""
    LOST = 2
    """A server is there, but its answer was lost, or it is busy."""


class NoAnswer(Exception):
    """An attempt without an answer."""

    def __init__(self, reason: str, outlook: Outlook = Outlook.LOST) -> None:
        """Describe why."""
        super().__init__(reason)
        self.reason, self.outlook = reason, outlook


class Deadline:
    """The end of an attempt, by the clock that never goes back."""

    def __init__(self, seconds: float) -> None:
        """Begin now."""
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left, not less than 0."""
        return max(0.0, self._end - time.monotonic())


class SentFiles(NamedTuple):
    """Files in place of bodies: the body of a request is read from `upload`, and that of an answer is written."""

    upload: str | None = None
    download: str | None = None

    @contextmanager
    def opened(self) -> Iterator[BinaryIO | None]:
        """Open the file to send, from its beginning, for one attempt."""
        if self.upload is None:
            yield None
            return
        with open(self.upload, "rb") as file:
            yield file

    def receive(self, response: httpx2.Response, end: Deadline) -> bytes:
        """Write the body of an answer to its file; the body of the answer is empty then."""
        with open(str(self.download), "wb") as file:
            for part in response.iter_bytes():
                file.write(part)
                if not end.left:
                    raise NoAnswer("its answer took too long")
        return b""


class HttpCaller:
    """Sends requests to one server; safe to use from any thread, and after a fork."""

    def __init__(self, address: Address, key: str | None) -> None:
        """Connect to nothing yet."""
        self._address, self._key = address, key
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Begin without connections, at first and in a forked child, which must not use those of its parent."""
        self._client: httpx2.Client | None = None
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._failures, self._down_until = 0, 0.0

    @property
    def is_down(self) -> bool:
        """Whether the server did not answer just now, and is not expected to answer yet."""
        return time.monotonic() < self._down_until

    def close(self) -> None:
        """Close all connections; a request that waits for a retry gives up."""
        self._closed.set()
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def send(
        self,
        request: Request,
        *,
        patience: Patience,
        headers: Mapping[str, str] | None = None,
        files: SentFiles | None = None,
    ) -> Answer:
        """Return the answer to a request; Unreachable if there is none in time.

        An answer that says that the server is busy counts as none while there is time to ask again.
        """
        files = files or SentFiles()
        end = Deadline(patience.seconds)
        tries = 0
        while True:
            seconds = patience.attempt_seconds if patience.slow else min(patience.attempt_seconds, end.left)
            try:
                return self._try(request, headers or {}, files, Deadline(max(seconds, 0.001)))
            except _TryAgainError as error:
                pause = max(_pause(tries), error.retry_after)
                is_final = patience.once or error.outlook < _least_outlook(patience, tries)
                if is_final or pause >= end.left or self._closed.wait(pause):
                    raise error.final from None
                tries += 1

    def _try(self, request: Request, headers: Mapping[str, str], files: SentFiles, end: Deadline) -> Answer:
        """Ask once; remember whether the server has answered."""
        try:
            answer = self._attempt(request, headers, files, end)
        except NoAnswer as error:
            self._failed()
            raise _no_answer(self._address, error) from None
        if answer.status in _GATEWAY_STATUS:
            self._failed()
            raise _TryAgainError(Unreachable(f"{self._address} answered with status {answer.status}", fix=_FIX))
        self._failures, self._down_until = 0, 0.0
        if (busy := _busy(answer)) is not None:
            raise busy
        return answer

    def _failed(self) -> None:
        self._down_until = time.monotonic() + _pause(self._failures)
        self._failures += 1

    def _attempt(self, request: Request, headers: Mapping[str, str], files: SentFiles, end: Deadline) -> Answer:
        sent = {**headers, "Content-Type": "application/json"} if request.body is not None else dict(headers)
        client = self._open_client()
        with files.opened() as body, _network_errors():
            if body is not None:
                sent |= {"Content-Type": "application/zip", "Content-Length": str(os.fstat(body.fileno()).st_size)}
            message = client.build_request(
                request.method,
                str(self._address) + request.path,
                params=list(request.query),
                content=request.body if body is None else _parts(body),
                headers=sent,
                timeout=httpx2.Timeout(end.left, connect=min(end.left, _CONNECT_SECONDS)),
            )
            response = client.send(message, stream=True)
            try:
                is_file = files.download is not None and response.status_code == 200
                content = files.receive(response, end) if is_file else _read_whole(response, end)
            finally:
                response.close()
        if 300 <= response.status_code < 400:
            raise NoAnswer("it redirects to another address, which the key must not go to", Outlook.NO_SERVER)
        return Answer(response.status_code, response.headers, content, self._address)

    def _open_client(self) -> httpx2.Client:
        with self._guard:
            if self._closed.is_set():
                raise HomeError("the remote book is closed", fix="connect again")
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> httpx2.Client:
        headers = {"Accept": "application/json", "User-Agent": f"commonbook/{__version__}"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return httpx2.Client(
            headers=headers,
            follow_redirects=False,
            # The certificates of the system, or those of SSL_CERT_FILE.
            verify=httpx2.create_ssl_context(),
            # A proxy of the system is no way to this machine.
            trust_env=not self._address.is_loopback,
            limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
        )


class _TryAgainError(Exception):
    """The server has not answered; `final` is the error if the request is not tried again."""

    def __init__(self, final: CommonbookError, retry_after: float = 0.0, *, outlook: Outlook = Outlook.LOST) -> None:
        super().__init__(final.message)
        self.final, self.retry_after, self.outlook = final, retry_after, outlook


def _pause(failures: int) -> float:
    return pause_seconds(failures, first=_FIRST_PAUSE_SECONDS, most=_MAX_PAUSE_SECONDS)


def _least_outlook(patience: Patience, tries: int) -> Outlook:
    """Return the least outlook with which a request is tried again; an answer that was lost may come later."""
    return Outlook.LOST if patience.connects_once and not tries else Outlook.NO_SERVER


def _no_answer(address: Address, error: NoAnswer) -> _TryAgainError:
    final: CommonbookError = Unreachable(f"{address} does not answer: {error.reason}", fix=_FIX)
    if error.outlook == Outlook.UNTRUSTED:
        final = UntrustedServer(f"the certificate of {address} is not trusted: {error.reason}", fix=_TRUST_FIX)
    return _TryAgainError(final, outlook=error.outlook)


def _busy(answer: Answer) -> _TryAgainError | None:
    """Return an error if the server asks to come again soon, else None."""
    if answer.status != 503:
        return None
    error = problem_of(answer)
    return _TryAgainError(error, _retry_after(answer.headers)) if isinstance(error, Busy) else None


def problem_of(answer: Answer) -> CommonbookError:
    """Return the error that an answer with a status of 400 or more describes."""
    try:
        details = answer.json()
    except ServerFailed:
        details = None
    if not isinstance(details, Mapping) or "type" not in details:
        # A proxy or another program has answered.
        if answer.status >= 500:
            return Unreachable(f"{answer.address} answered with status {answer.status}", fix=_FIX)
        return ServerFailed(f"{answer.address} is no Commonbook server: status {answer.status}", fix=_FIX)
    return error_of(details, answer.status)


def _retry_after(headers: Mapping[str, str]) -> float:
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdecimal() else 0.0


def _parts(file: BinaryIO) -> Iterator[bytes]:
    while part := file.read(_PART_BYTES):
        yield part


def _read_whole(response: httpx2.Response, end: Deadline) -> bytes:
    """Return the body of an answer, with limits of time and size."""
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > _MAX_ANSWER_BYTES:
            raise NoAnswer("its answer has no end")
        if not end.left:
            raise NoAnswer("its answer took too long")
    return b"".join(parts)


@contextmanager
def _network_errors() -> Iterator[None]:
    """Turn the errors of the HTTP library into NoAnswer; their texts name neither key nor content."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        outlook = Outlook.UNTRUSTED if _is_certificate_error(error) else Outlook.NO_SERVER
        raise NoAnswer(_reason(error), outlook) from None
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, RuntimeError) as error:
        # A RuntimeError says that another thread has closed the connections.
        raise NoAnswer(_reason(error)) from None


def _is_certificate_error(error: BaseException | None) -> bool:
    """Tell whether an error was caused by a certificate that the checks have refused."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "no answer in time"
    line = " ".join(str(error).split())
    return line[:200] or type(error).__name__
