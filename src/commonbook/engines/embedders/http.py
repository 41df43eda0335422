"""An embedder behind an address: whatever answers `POST .../embeddings` as OpenAI's service does.

The standard library's client is enough for one kind of request. It goes through the system's proxy, follows no
redirect (the key would go with it), waits a bounded time, and asks again where that can help. An answer is believed
only after `openai_wire` has looked at it: one finite vector for each text, all of one length, ordered by `index`.
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from commonbook.ports.arrays import Floats


_ENDPOINT: Final = "/embeddings"
_PROBE: Final = "dimensions"
_LARGEST_ANSWER: Final = 64 << 20
_CHUNK: Final = 1 << 16
_WAITS: Final = (0.5, 2.0, 8.0)
_LONGEST_WAIT: Final = 60.0
_REST: Final = 30.0
_IMPATIENCE: Final = 5.0
"""So many seconds at most somebody waits who only asks a question, and goes on without its vector."""

_LONGEST_QUOTE: Final = 200
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
    """Vectors of unit length from an OpenAI-compatible address."""

    slow: Final = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        dimensions: int | None = None,
        timeout: float = 60.0,
        rest: float = _REST,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Ask this address for vectors of this model; `dimensions` if they are known already.

        A service that stayed down through all attempts is not asked for so many seconds as `rest` says.
        """
        address = _address(url, key)
        path = address.path.removesuffix(_ENDPOINT) + _ENDPOINT
        self._url: Final = f"{address.scheme}://{address.netloc}{path}"
        self._place: Final = address.netloc.lower() + path
        self._model: Final = model
        self._key: Final = key
        self._dimensions = dimensions
        self._timeout: Final = timeout
        self._rest: Final = rest
        self._down: tuple[float, EmbedderFailed] | None = None
        self._sleep: Final = sleep
        self._opener: Final[OpenerDirector] = build_opener(_NoRedirects)

    def __repr__(self) -> str:
        """Show whom it asks, without the key."""
        return f"HttpEmbedder({self._url!r}, {self._model!r})"

    @property
    def fingerprint(self) -> str:
        """The name under which its vectors are kept: the address and the model; nobody has to be asked for it."""
        return f"openai/{self._place}/{self._model}"

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has: asked for once, if nobody said it."""
        if self._dimensions is None:
            self._dimensions = self._ask([_PROBE], patient=True).shape[1]
        return self._dimensions

    def embed(self, texts: Sequence[EmbeddingInput], *, patient: bool = False) -> Floats:
        """Return one row for each text, zeros for an empty one; raises EmbedderFailed when it cannot."""
        # Services refuse an empty text, and the whole request with it.
        telling = [row for row, said in enumerate(texts) if said.text.strip()]
        batches = request_batches([texts[row].text for row in telling])
        made = [self._ask(batch, patient=patient) for batch in batches]
        out: Floats = np.zeros((len(texts), self._dimensions or 0), np.float32)
        if made:
            out[telling] = np.concatenate(made)
        return out

    def _ask(self, batch: list[str], *, patient: bool) -> Floats:
        """Return the vectors of one request's texts."""
        answer = self._answer(question(self._model, batch), patient=patient)
        try:
            vectors = response_vectors(answer, len(batch))
        except BadAnswer as error:
            raise EmbedderFailed(f"{self._url} answered with {error}", fix=_ANSWER_FIX) from error
        if self._dimensions is None:
            self._dimensions = vectors.shape[1]
        if vectors.shape[1] != self._dimensions:
            raise EmbedderFailed(
                f"{self._url} answered with vectors of {vectors.shape[1]} numbers, not {self._dimensions}",
                fix=_ANSWER_FIX,
            )
        return vectors

    def _answer(self, body: bytes, *, patient: bool) -> bytes:
        """Return what the service answers; with patience, ask again a few times where that can help."""
        # Whoever works without vectors while there are none would wait through all attempts for each text.
        if self._down is not None and time.monotonic() < self._down[0]:
            raise EmbedderFailed(self._down[1].message, fix=self._down[1].fix)
        for wait in (*(_WAITS if patient else ()), None):
            try:
                return self._post(body, self._timeout if patient else min(self._timeout, _IMPATIENCE))
            except _AskAgain as error:
                if wait is None or error.after > _LONGEST_WAIT:
                    self._down = (time.monotonic() + self._rest, error)
                    raise EmbedderFailed(error.message, fix=error.fix) from None
                self._sleep(max(wait, error.after))
        raise AssertionError("the last attempt answers or raises")

    def _post(self, body: bytes, timeout: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "commonbook"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        request = Request(self._url, body, headers, method="POST")  # noqa: S310 - settings let only http(s) pass
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return self._whole(response, timeout)
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None  # Its own text is the service's, and may quote the key.
        except (OSError, HTTPException, UnicodeError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            message = f"{self._url} does not answer: {self._shown(str(reason)) or type(reason).__name__}"
            if isinstance(reason, ssl.SSLCertVerificationError | UnicodeError):
                raise EmbedderFailed(message, fix=_ADDRESS_FIX) from None
            raise _AskAgain(message, fix=_ADDRESS_FIX) from None

    def _whole(self, response: HTTPResponse, timeout: float) -> bytes:
        """Read an answer to its end, which must come in time and before it is too large."""
        end = time.monotonic() + timeout
        parts: list[bytes] = []
        size = 0
        while part := response.read1(_CHUNK):
            parts.append(part)
            size += len(part)
            if size > _LARGEST_ANSWER:
                raise EmbedderFailed(f"{self._url} answers without end", fix=_ANSWER_FIX)
            if time.monotonic() > end:
                raise TimeoutError("timed out")
        if response.length:
            raise ConnectionError("the answer was cut short")
        return b"".join(parts)

    def _refusal(self, error: HTTPError) -> EmbedderFailed:
        """Say why the service does not give vectors, and whether to ask again."""
        fix = _FIXES.get(error.code, _ADDRESS_FIX)
        message = f"{self._url} refused with status {error.code}"
        if error.code in (301, 302, 303, 307, 308):
            return EmbedderFailed(
                f"{self._url} answered with a redirect, which is not followed since the key would go with it",
                fix="set COMMONBOOK_EMBEDDER_URL to the address that it leads to",
            )
        # Who refuses a key may quote a part of it.
        if error.code not in (401, 403) and (said := self._shown(_complaint(error))):
            message += f": {said}"
        if error.code == 429 or error.code >= 500:
            after = _retry_after(error.headers.get("Retry-After"))
            message += f"; it asks to wait {after:.0f} seconds" if after > _LONGEST_WAIT else ""
            return _AskAgain(message, fix=fix, after=after)
        return EmbedderFailed(message, fix=fix)

    def _shown(self, text: str) -> str:
        """Return what others say in a form that is fit for a message: on one line, short, without the key."""
        hidden = text.replace(self._key, "...") if self._key else text
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in hidden).split())
        return line if len(line) <= _LONGEST_QUOTE else line[:_LONGEST_QUOTE] + "..."


class _AskAgain(EmbedderFailed):
    """It did not work, but may the next time; `after` so many seconds, if the service said so."""

    def __init__(self, message: str, *, fix: str, after: float = 0.0) -> None:
        super().__init__(message, fix=fix)
        self.after = after


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_args: object, **_kwargs: object) -> None:
        return None


def _address(url: str, key: str | None) -> SplitResult:
    """Return the parts of an address, if it and the key can be used and shown without telling a secret."""
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


def _complaint(error: HTTPError) -> str:
    try:
        return complaint(error.read(_CHUNK))
    except (OSError, HTTPException):
        return ""


def _retry_after(value: str | None) -> float:
    """Return how many seconds to wait, from a number of them or a date."""
    if not value:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0


# Services limit how many texts and how many tokens one request may have; these are below all known limits.
_MOST_TEXTS: Final = 96
_MOST_CHARACTERS: Final = 100_000


class BadAnswer(Exception):
    """What an answer holds in place of the vectors."""


def request_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cut texts into requests that no service finds too large; a text is never cut."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _MOST_TEXTS or size + len(text) > _MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def question(model: str, texts: Sequence[str]) -> bytes:
    """Return the body of a request."""
    return json.dumps({"model": model, "input": list(texts)}).encode()


def response_vectors(answer: bytes, count: int) -> Floats:
    """Return the vectors of an answer in the order of the texts, each at unit length."""
    try:
        data: Any = json.loads(answer)["data"]
        rows = {item["index"]: item["embedding"] for item in data}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadAnswer("something else than embeddings") from error
    if len(data) != count or set(rows) != set(range(count)):
        raise BadAnswer(f"other vectors than the {count} that were asked for")
    try:
        raw = np.array([rows[index] for index in range(count)])
    except (ValueError, OverflowError) as error:
        raise BadAnswer("vectors of different lengths") from error
    if raw.ndim != 2 or raw.shape[1] == 0 or raw.dtype.kind not in "fi":
        raise BadAnswer("vectors that are no lists of numbers")
    exact = raw.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise BadAnswer("numbers that are not finite")
    lengths[lengths == 0] = 1
    unit: Floats = (exact / lengths).astype(np.float32)
    return unit


def complaint(body: bytes) -> str:
    """Return the message of a refusal as OpenAI and others word it, or nothing."""
    try:
        said: Any = json.loads(body)["error"]
        message = said if isinstance(said, str) else said["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return message if isinstance(message, str) else ""
