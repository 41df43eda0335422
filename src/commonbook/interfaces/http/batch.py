"""Batches: `POST /v1/batch` takes one request on each line (NDJSON), and answers each with a line, in order.

    {"verb": "remember", "arguments": {"text": "Tea at four"}, "key": "note-1"}
    {"verb": "edit", "arguments": {"memory_id": "01a1…", "tags": ["tea"]}}

Each line is a request of its own: it is done or refused without the others.

    {"line": 1, "status": 200, "result": {"id": "01a1…", "new": true}}
    {"line": 2, "status": 404, "problem": {"type": "not_found", "detail": "…"}}
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from commonbook.errors import TooLarge
from commonbook.interfaces.http.authentication import credentials_of, default_space_of, view_of
from commonbook.interfaces.http.error_answers import BadShape, error_details
from commonbook.interfaces.http.routes import idempotency_key, keyed_body
from commonbook.interfaces.http.verb_calls import call_of
from commonbook.wire.encoding import dumps
from commonbook.wire.verbs import VERBS

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.interfaces.http.config import ServerConfig
    from commonbook.interfaces.http.threads import Threads

NDJSON: Final = "application/x-ndjson"
_FIELDS: Final = ("verb", "arguments", "key")
_SHAPE: Final = 'a line is {"verb": "remember", "arguments": {…}}, and may have a "key"'


class BatchHandler:
    """Answers the requests of `/v1/batch`."""

    def __init__(self, book: Book, threads: Threads, config: ServerConfig) -> None:
        """Answer from this book, in these threads."""
        self._book, self._threads, self._max_lines = book, threads, config.max_batch_lines

    async def __call__(self, request: Request) -> Response:
        """Answer a request: nothing runs before all lines are here, so that neither side waits for the other."""
        space = default_space_of(request)
        view = await self._threads.run(partial(view_of, self._book, request, credentials_of(request), space))
        media_type = request.headers.get("content-type", NDJSON).partition(";")[0].strip().lower()
        if media_type not in (NDJSON, "application/ndjson", "application/json"):
            raise BadShape(f"the body is not {NDJSON}", fix=f"send the header `Content-Type: {NDJSON}`", status=415)
        if request.query_params:
            raise BadShape("a batch has no query parameters", fix=_SHAPE)
        lines = [(number, line) for number, line in enumerate((await request.body()).split(b"\n"), 1) if line.strip()]
        if len(lines) > self._max_lines:
            raise TooLarge(f"a batch has at most {self._max_lines:,} lines", fix="send several batches")
        return StreamingResponse(self._answers(request, view, lines), media_type=NDJSON)

    async def _answers(self, request: Request, view: Book, lines: list[tuple[int, bytes]]) -> AsyncIterator[bytes]:
        key = idempotency_key(request)
        for number, line in lines:
            own_key = None if key is None else f"{key}/{number}"
            yield await self._threads.run(partial(_answer, request, view, number, line, own_key))


def _answer(request: Request, view: Book, number: int, line: bytes, key: str | None) -> bytes:
    """Run the request of one line, and return the line of its answer."""
    try:
        result = _run(view, line, key, space=default_space_of(request))
    except Exception as error:  # noqa: BLE001 - a fault of the program concerns its own line, and is logged without its text
        details, _ = error_details(error, request)
        return dumps({"line": number, "status": details["status"], "problem": details}) + b"\n"
    return b'{"line":%d,"status":200,"result":%s}\n' % (number, result)


def _run(view: Book, line: bytes, key: str | None, *, space: str | None) -> bytes:
    wanted = _parse(line)
    name = wanted.get("verb")
    if not isinstance(name, str) or name not in VERBS or VERBS[name].without_key:
        raise BadShape("the line names no verb", fix=f"{_SHAPE}; /openapi.json has the verbs as operation ids")
    own_key = wanted.get("key", key)
    if own_key is not None and not isinstance(own_key, str):
        raise BadShape("'key' is no text", fix=_SHAPE)
    call = call_of(name)
    arguments = call.parse_object(wanted.get("arguments", {}))
    if own_key is None or not call.verb.changes:
        return dumps(call.invoke(view, arguments))
    _, body = keyed_body(call, view, arguments, own_key, requested={**arguments, "default space": space})
    return body.encode()


def _parse(line: bytes) -> dict[str, Any]:
    try:
        wanted = json.loads(line.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadShape("the line is not JSON in UTF-8", fix=_SHAPE) from None
    if not isinstance(wanted, dict):
        raise BadShape("the line is no object", fix=_SHAPE)
    if unknown := [name for name in wanted if name not in _FIELDS]:
        raise BadShape(f"{unknown[0][:100]!r} is no field of a line", fix=_SHAPE)
    return wanted


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
