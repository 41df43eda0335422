"""The Embedder port over HTTP: any service that answers `POST .../embeddings` as OpenAI's does.

The client of the standard library is enough for one kind of request. It uses the system's proxy, follows no redirect
(the key would go with it), has a time-out, and retries with growing waits where that can help. Every response is
validated: one finite vector for each text, all of one length, ordered by `index`.
"""

from __future__ import annotations

import itertools
import json
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

import numpy as np

from commonbook.errors import BadInput, EmbedderFailed
from commonbook.ports.embedding import EmbeddingInput
from commonbook.runtime import pause_seconds

if TYPE_CHECKING:
    from commonbook.ports.embedding import Floats


_ENDPOINT: Final = "/embeddings"
_PROBE: Final = "dimensions"
_MAX_RESPONSE_BYTES: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 16
_RETRIES: Final = 3
_FIRST_PAUSE_SECONDS: Final = 2.0
_MAX_PAUSE_SECONDS: Final = 8.0
_MAX_WAIT_SECONDS: Final = 60.0
_REST_SECONDS: Final = 30.0
_IMPATIENT_TIMEOUT_SECONDS: Final = 5.0
"""The time-out of a request that may not wait, such as a recall, which then continues without the vector."""

_MAX_QUOTE_CHARS: Final = 200
_ADDRESS_FIX: Final = "check COMMONBOOK_EMBEDDER_URL, the network, and whether the service is up"
_ANSWER_FIX: Final = (
    "check that COMMONBOOK_EMBEDDER_URL is an OpenAI-compatible address and the model one for embeddings"
)
_FIXES: Final = {
    400: "check the model's name in COMMONBOOK_EMBEDDER",
    401: "set COMMONBOOK_EMBEDDER_KEY to a valid key",
    403: "set COMMONBOOK_EMBEDDER_KEY to a key that may use this model",
    404: "check COMMONBOOK_EMBEDDER_URL, and the model's name in COMMONBOOK_EMBEDDER",
    429: "wait, or raise the limit of the account that the key belongs to",
}


class HttpEmbedder:
    """Vectors of unit length from an OpenAI-compatible service."""

    slow: Final = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        dimensions: int | None = None,
        timeout: float = 60.0,
        rest: float = _REST_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Request vectors of this model from this address; `dimensions` if the length is known already.

        A service that failed through all attempts gets no requests for `rest` seconds (a circuit breaker).
        """
        address = _parse_address(url, key)
        path = address.path.removesuffix(_ENDPOINT) + _ENDPOINT
        self._url: Final = f"{address.scheme}://{address.netloc}{path}"
        self._fingerprint_address: Final = address.netloc.lower() + path
        self._model: Final = model
        self._key: Final = key
        self._dimensions = dimensions
        self._timeout: Final = timeout
        self._rest: Final = rest
        self._down: tuple[float, EmbedderFailed] | None = None
        self._sleep: Final = sleep
        self._opener: Final[OpenerDirector] = build_opener(_NoRedirects)

    def __repr__(self) -> str:
        """Show the address and the model, without the key."""
        return f"HttpEmbedder({self._url!r}, {self._model!r})"

    @property
    def fingerprint(self) -> str:
        """The name under which its vectors are stored: address and model, known without a request."""
        return f"openai/{self._fingerprint_address}/{self._model}"

    @property
    def dimensions(self) -> int:
        """The length of a vector; one request finds it out if it was not given."""
        if self._dimensions is None:
            self._dimensions = self._embed_batch([_PROBE], patient=True).shape[1]
        return self._dimensions

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:
        """Return one row for each text, zeros for an empty one; raises EmbedderFailed when it cannot."""
        # Services reject an empty text, and the whole request with it.
        filled = [row for row, text in enumerate(texts) if text.text.strip()]
        batches = request_batches([texts[row].text for row in filled])
        vectors = [self._embed_batch(batch, patient=patient) for batch in batches]
        out: Floats = np.zeros((len(texts), self._dimensions or 0), np.float32)
        if vectors:
            out[filled] = np.concatenate(vectors)
        return out

    def _embed_batch(self, batch: list[str], *, patient: bool) -> Floats:
        """Return the vectors of one batch of texts."""
        response = self._request(request_body(self._model, batch), patient=patient)
        try:
            vectors = response_vectors(response, len(batch))
        except BadResponse as error:
            raise EmbedderFailed(f"{self._url} answered with {error}", fix=_ANSWER_FIX) from error
        if self._dimensions is None:
            self._dimensions = vectors.shape[1]
        if vectors.shape[1] != self._dimensions:
            raise EmbedderFailed(
                f"{self._url} answered with vectors of {vectors.shape[1]} numbers, not {self._dimensions}",
                fix=_ANSWER_FIX,
            )
        return vectors

    def _request(self, body: bytes, *, patient: bool) -> bytes:
        """Return the body of the response; with `patient`, retry a few times where that can help."""
        # Callers can go on without vectors: during an outage each text would otherwise wait through all attempts.
        if self._down is not None and time.monotonic() < self._down[0]:
            raise EmbedderFailed(self._down[1].message, fix=self._down[1].fix)
        for tries in itertools.count():
            try:
                return self._post(body, self._timeout if patient else min(self._timeout, _IMPATIENT_TIMEOUT_SECONDS))
            except _RetryableError as error:
                if not patient or tries == _RETRIES or error.after > _MAX_WAIT_SECONDS:
                    self._down = (time.monotonic() + self._rest, error)
                    raise EmbedderFailed(error.message, fix=error.fix) from None
                pause = pause_seconds(tries, first=_FIRST_PAUSE_SECONDS, most=_MAX_PAUSE_SECONDS)
                self._sleep(max(pause, error.after))
        raise AssertionError("the last attempt answers or raises")

    def _post(self, body: bytes, timeout: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "commonbook"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        request = Request(self._url, body, headers, method="POST")  # noqa: S310 - settings let only http(s) pass
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return self._read_whole(response, timeout)
        except HTTPError as error:
            with error:
                # Without a cause: the error's own text comes from the service, and may quote the key.
                raise self._status_error(error) from None
        except (OSError, HTTPException, UnicodeError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            message = f"{self._url} does not answer: {self._printable(str(reason)) or type(reason).__name__}"
            if isinstance(reason, ssl.SSLCertVerificationError | UnicodeError):
                raise EmbedderFailed(message, fix=_ADDRESS_FIX) from None
            raise _RetryableError(message, fix=_ADDRESS_FIX) from None

    def _read_whole(self, response: HTTPResponse, timeout: float) -> bytes:
        """Read the whole response, with a limit of time and size."""
        end = time.monotonic() + timeout
        parts: list[bytes] = []
        size = 0
        while part := response.read1(_CHUNK_BYTES):
            parts.append(part)
            size += len(part)
            if size > _MAX_RESPONSE_BYTES:
                raise EmbedderFailed(f"{self._url} answers without end", fix=_ANSWER_FIX)
            if time.monotonic() > end:
                raise TimeoutError("timed out")
        if response.length:
            raise ConnectionError("the answer was cut short")
        return b"".join(parts)

    def _status_error(self, error: HTTPError) -> EmbedderFailed:
        """Translate an HTTP status into an error, which says whether a retry can help."""
        fix = _FIXES.get(error.code, _ADDRESS_FIX)
        message = f"{self._url} refused with status {error.code}"
        if error.code in (301, 302, 303, 307, 308):
            return EmbedderFailed(
                f"{self._url} answered with a redirect, which is not followed since the key would go with it",
                fix="set COMMONBOOK_EMBEDDER_URL to the address that it leads to",
            )
        # A service that rejects a key may quote a part of it.
        if error.code not in (401, 403) and (reason := self._printable(_read_error_message(error))):
            message += f": {reason}"
        if error.code == 429 or error.code >= 500:
            after = _retry_after(error.headers.get("Retry-After"))
            message += f"; it asks to wait {after:.0f} seconds" if after > _MAX_WAIT_SECONDS else ""
            return _RetryableError(message, fix=fix, after=after)
        return EmbedderFailed(message, fix=fix)

    def _printable(self, text: str) -> str:
        """Return text of the service for use in a message: on one line, short, without the key."""
        hidden = text.replace(self._key, "...") if self._key else text
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in hidden).split())
        return line if len(line) <= _MAX_QUOTE_CHARS else line[:_MAX_QUOTE_CHARS] + "..."


class _RetryableError(EmbedderFailed):
    """A failure that a retry may overcome, after `after` seconds if the service asked for that."""

    def __init__(self, message: str, *, fix: str, after: float = 0.0) -> None:
        super().__init__(message, fix=fix)
        self.after = after


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _parse_address(url: str, key: str | None) -> SplitResult:
    """Parse an address; raises BadInput if it or the key is unusable, or if the address may contain a secret."""
    try:
        address = urlsplit(url.rstrip("/"))
        usable = address.scheme in ("http", "https") and address.hostname and (address.port or 1)
    except ValueError:
        usable = False
    if not usable or any(mark in url for mark in "@?#"):
        raise BadInput("the embedder's address is not an http or https address", fix=_ADDRESS_FIX)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise BadInput("the embedder's key has characters that no key has", fix=_FIXES[401])
    return address


def _read_error_message(error: HTTPError) -> str:
    try:
        return error_message(error.read(_CHUNK_BYTES))
    except (OSError, HTTPException):
        return ""


def _retry_after(value: str | None) -> float:
    """Return the seconds to wait from a Retry-After header: a number or a date."""
    if not value:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


# Services limit the texts and the tokens of one request; these limits are below all known ones.
_MAX_BATCH_TEXTS: Final = 96
_MAX_BATCH_CHARS: Final = 100_000


class BadResponse(Exception):
    """A response without valid vectors; the message names what it has instead."""


def request_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Split texts into batches within the limits of services; a single text is never split."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _MAX_BATCH_TEXTS or size + len(text) > _MAX_BATCH_CHARS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def request_body(model: str, texts: Sequence[str]) -> bytes:
    """Return the body of a request."""
    return json.dumps({"model": model, "input": list(texts)}).encode()


def response_vectors(response: bytes, count: int) -> Floats:
    """Return the vectors of a response in the order of the texts, each normalised to unit length."""
    try:
        data: Any = json.loads(response)["data"]
        rows = {item["index"]: item["embedding"] for item in data}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadResponse("something else than embeddings") from error
    if len(data) != count or set(rows) != set(range(count)):
        raise BadResponse(f"other vectors than the {count} that were asked for")
    try:
        raw = np.array([rows[index] for index in range(count)])
    except (ValueError, OverflowError) as error:
        raise BadResponse("vectors of different lengths") from error
    if raw.ndim != 2 or raw.shape[1] == 0 or raw.dtype.kind not in "fi":
        raise BadResponse("vectors that are no lists of numbers")
    exact = raw.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise BadResponse("numbers that are not finite")
    lengths[lengths == 0] = 1
    unit: Floats = (exact / lengths).astype(np.float32)
    return unit


def error_message(body: bytes) -> str:
    """Return the error message in the body of a response, in the format of OpenAI, or an empty text."""
    try:
        error: Any = json.loads(body)["error"]
        message = error if isinstance(error, str) else error["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return message if isinstance(message, str) else ""
