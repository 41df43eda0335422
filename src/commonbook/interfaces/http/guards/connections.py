"""Connections: one that does not send a head or read its answer in time is closed, and one too many is refused.

uvicorn limits only the idle time between two requests: a client that sends its headers byte by byte, connects and
sends nothing, or never reads its answer, would hold a connection for ever. It answers a connection too many, and bytes
that are no HTTP, with a bare text. It parses any number of chunks of one byte, while all other connections wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from commonbook.errors import BadInput, Busy
from commonbook.interfaces.http.guards.refusals import refuse
from commonbook.interfaces.http.guards.security_headers import HEADERS, SecurityHeaders
from commonbook.wire import problems
from commonbook.wire.encoding import dumps

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

MAX_CONNECTIONS: Final = 1000
"""How many connections a server has at once; requests of further ones are answered with 503."""

HEAD_SECONDS: Final = 10.0
"""How long the head of a request may take to arrive, from its first byte or the start of the connection."""

READ_SECONDS: Final = 30.0
MIN_READ_BYTES: Final = 32 << 10
"""How much of an answer that fills the buffers a client has to read in that time; one that reads less is cut off."""

SMALL_CHUNK_BYTES: Final = 256
MAX_SMALL_CHUNKS: Final = 20_000
"""How many chunks below that size a body may have: each takes as long to parse as a large one."""


async def _refuse(scope: Scope, _receive: Receive, send: Send) -> None:
    error = Busy("this server has as many connections as it may", fix="try again in a moment, or on another server")
    await refuse(scope, send, error, 503)


_OVERLOADED: Final = SecurityHeaders(_refuse)

_NO_HTTP: Final = dumps(problems.problem(BadInput("this is no request of HTTP/1.1", fix="/openapi.json"), 400))


class _ChunkLimit(h11.Connection):
    """The state of a connection whose requests have a limited number of small chunks."""

    _small_chunks = 0

    def next_event(self) -> Any:  # noqa: ANN401 - as in h11
        """Return the next event; RemoteProtocolError if it is a small chunk too many."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._small_chunks = 0
        elif isinstance(event, h11.Data) and event.chunk_start and len(event.data) < SMALL_CHUNK_BYTES:
            self._small_chunks += 1
            if self._small_chunks > MAX_SMALL_CHUNKS:
                raise h11.RemoteProtocolError("the body has too many small chunks")
        return event


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with limits of connections, of the time for a head and for reading an answer, and of small chunks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of uvicorn
        """Wait for no head yet."""
        super().__init__(*args, **kwargs)
        self.conn = _ChunkLimit(h11.SERVER)
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self.app = _OVERLOADED
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer when a head is complete; a part of the next one starts it."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the time in which the client has to read: the buffers are full."""
        super().pause_writing()
        self._require_read(self.transport.get_write_buffer_size() + MIN_READ_BYTES)

    def resume_writing(self) -> None:
        """Stop it: the client has read."""
        self._stop_read_timer()
        super().resume_writing()

    def _require_read(self, unread_before: int) -> None:
        """Cut the client off unless it has read enough since it had this much to read."""
        unread = self.transport.get_write_buffer_size()
        if unread > unread_before - MIN_READ_BYTES:
            self.transport.abort()
        else:
            self._read_timer = self.loop.call_later(READ_SECONDS, self._require_read, unread)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's
        """Answer what is no HTTP with problem details, unless its answer has begun already; close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            fields = {**HEADERS, "Content-Type": problems.MEDIA_TYPE, "Content-Length": str(len(_NO_HTTP))}
            headers = [(name.encode(), value.encode()) for name, value in {**fields, "Connection": "close"}.items()]
            response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (response, h11.Data(data=_NO_HTTP), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            # An app that has the head of this request already, and answers it now, is not heard any more.
            self.cycle.disconnected = True
        self.transport.close()

    def cut_off_upload(self) -> None:
        """Cut the client off if it is still sending a request; the app learns of it as of any client that goes away."""
        if self.conn.their_state is h11.SEND_BODY:
            # A closed connection with TLS would wait for the client.
            self.transport.abort()

    def _start_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
