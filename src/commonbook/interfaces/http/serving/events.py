"""Server-sent events: a stream of the changes in the spaces that a key may read.

`GET /v1/changes` with `Accept: text/event-stream` gives one event for each page of changes. Its id is the position
after them: a client that sends it as `Last-Event-ID` continues there, on any server of the book. The key is looked up
for every page, so that a stream ends as soon as the key or a grant is revoked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match

from commonbook.errors import Busy, CommonbookError, TooMany
from commonbook.interfaces.http.error_answers import BadShape, Unauthenticated
from commonbook.interfaces.http.routes import Credentials, LoggedRoute, answering, credentials_of, view_of
from commonbook.values.encoding import dumps

if TYPE_CHECKING:
    from prometheus_client import Gauge
    from starlette.types import Receive, Scope, Send

    from commonbook.service.book import Book
    from commonbook.values.reports import ChangePage

_MEDIA_TYPE: Final = "text/event-stream"
_PATH: Final = "/v1/changes"
_MAX_STREAMS: Final = 200
_MAX_STREAMS_OF_PRINCIPAL: Final = 20
_PAGE: Final = 100
_LOOK_SECONDS: Final = 0.2
"""How often a server looks whether anything has changed: one short query for all its streams."""

_CHECK_SECONDS: Final = 5.0
"""How often a stream looks again without a change: a key or a grant may have expired. It tells the client it lives."""

_RETRY_MILLISECONDS: Final = 2000
_THREADS: Final = 8
_ARGUMENTS: Final = frozenset({"after", "space"})

_LAST_EVENT_ID: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Of a stream: the id of the last event that the client got, in place of `after`.",
}
_EXAMPLE: Final = (
    'event: changes\nid: AQGTx…\ndata: [{"space": "team", "number": 17, "time": "2026-11-17T13:40:30Z",'
    ' "actor": "user:ana", "action": "remember", "subjects": ["0193a1b2-0000-7000-8000-000000000000"]}]\n\n'
)

_Result = TypeVar("_Result")


class ChangeStreams:
    """The open streams of a server."""

    def __init__(self, book: Book, gauge: Gauge | None = None) -> None:
        """Stream the changes of this book; the gauge shows how many streams are open."""
        self._book, self._gauge = book, gauge
        self._open: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self._threads: anyio.CapacityLimiter | None = None
        self._is_closing = False

    def route(self) -> LoggedRoute:
        """Return the route of the streams; requests that want JSON go to the verb of the same path."""
        return _StreamRoute(_PATH, answering(self._answer))

    def close(self) -> None:
        """End all streams: the server shuts down."""
        self._is_closing = True
        self._wake()

    async def _answer(self, request: Request) -> Response:
        if unknown := request.query_params.keys() - _ARGUMENTS:
            raise BadShape(f"{min(unknown)[:100]!r} is no query parameter", fix="give `space` or `after`, or neither")
        given = credentials_of(request)
        after = request.headers.get("last-event-id") or request.query_params.get("after")
        read = partial(self._read, request, given, request.query_params.get("space"))
        changed = self._changed
        page, principal = await self._in_thread(partial(read, after))
        # The place is taken in the same step as the check, so that streams that begin at once do not exceed the limit.
        self._take_place(principal)
        headers = {"X-Accel-Buffering": "no"}
        response = _Stream(self._events(read, page, changed), media_type=_MEDIA_TYPE, headers=headers)
        response.leave = partial(self._leave_place, principal)
        return response

    def _read(
        self, request: Request, given: Credentials, space: str | None, after: str | None
    ) -> tuple[ChangePage, str]:
        view = view_of(self._book, request, given)
        return view.changes(after=after, space=space, limit=_PAGE), view.actor

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        # Streams have threads of their own: however many wake up, requests do not wait for them.
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    async def _events(
        self, read: partial[tuple[ChangePage, str]], page: ChangePage, changed: asyncio.Event
    ) -> AsyncIterator[bytes]:
        """Yield the events of one stream, until it is to end; `changed` was taken before the page was read."""
        yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
        while not self._is_closing:
            yield _event(page) if page.items else f"id: {page.next}\n\n".encode()
            if len(page.items) < _PAGE:
                try:
                    async with asyncio.timeout(_CHECK_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    yield b":\n\n"
            if self._is_closing:
                return
            changed = self._changed
            try:
                page, _ = await self._in_thread(partial(read, page.next))
            except (Unauthenticated, CommonbookError):
                # The client learns why when it connects again.
                return
            if page.lost_spaces:
                return

    # --- who waits, and who wakes them

    def _take_place(self, principal: str) -> None:
        if self._open.total() >= _MAX_STREAMS:
            raise Busy("this server has as many open streams as it may", fix="try again later, or on another server")
        if self._open[principal] >= _MAX_STREAMS_OF_PRINCIPAL:
            raise TooMany(
                f"{principal} has {_MAX_STREAMS_OF_PRINCIPAL} open streams, and may have no more",
                retry_after=_CHECK_SECONDS,
                fix="close one of them",
            )
        self._open[principal] += 1
        self._show()
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._watch_log())

    def _leave_place(self, principal: str) -> None:
        self._open[principal] -= 1
        self._open += Counter()
        self._show()

    def _show(self) -> None:
        if self._gauge is not None:
            self._gauge.set(self._open.total())

    async def _watch_log(self) -> None:
        """Wake all streams when the log has grown, as long as there are any."""
        size = -1
        while self._open and not self._is_closing:
            try:
                now = await self._in_thread(self._book.log_size)
            except CommonbookError:
                now = size
            if now != size:
                size = now
                self._wake()
            await asyncio.sleep(_LOOK_SECONDS)

    def _wake(self) -> None:
        # A stream takes the event before it reads, so that it misses no change between reading and waiting.
        self._changed.set()
        self._changed = asyncio.Event()


def with_stream(make_document: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return a function that adds the stream to the OpenAPI document, beside the pages of the same path."""

    def openapi() -> dict[str, Any]:
        document = make_document()
        operation = document["paths"][_PATH]["get"]
        if not any(parameter["name"] == "Last-Event-ID" for parameter in operation["parameters"]):
            operation["parameters"].append(_LAST_EVENT_ID)
        operation["responses"]["200"]["content"][_MEDIA_TYPE] = {"schema": {"type": "string"}, "example": _EXAMPLE}
        return document

    return openapi


def _event(page: ChangePage) -> bytes:
    return b"event: changes\nid: " + page.next.encode() + b"\ndata: " + dumps(page.items) + b"\n\n"


class _Stream(StreamingResponse):
    """A response that holds a place among the open streams."""

    leave: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.leave()


class _StreamRoute(LoggedRoute):
    """A route for requests that want server-sent events."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a GET of the path that accepts a stream of events; any other request goes to another route."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return Match.NONE, {}
        accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
        if _MEDIA_TYPE.encode() not in accepted.lower():
            return Match.NONE, {}
        return super().matches(scope)
