"""Connections: one that does not send the head of a request in time is closed, and one too many is refused.

uvicorn limits only the idle time between two requests: a client that sends its headers byte by byte, or connects and
sends nothing, would hold a connection for ever. It answers a connection too many, and bytes that are no HTTP, with a
bare text.
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


async def _refuse(scope: Scope, _receive: Receive, send: Send) -> None:
    error = Busy("this server has as many connections as it may", fix="try again in a moment, or on another server")
    await refuse(scope, send, error, 503)


_OVERLOADED: Final = SecurityHeaders(_refuse)

_NO_HTTP: Final = dumps(problems.problem(BadInput("this is no request of HTTP/1.1", fix="/openapi.json"), 400))


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a limit of connections, and a limit of time for the head of each request."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - those of uvicorn
        """Wait for no head yet."""
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None

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
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's
        """Answer what is no HTTP with problem details, unless its answer has begun already; close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            fields = {**HEADERS, "Content-Type": problems.MEDIA_TYPE, "Content-Length": str(len(_NO_HTTP))}
            headers = [(name.encode(), value.encode()) for name, value in {**fields, "Connection": "close"}.items()]
            response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (response, h11.Data(data=_NO_HTTP), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _start_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
