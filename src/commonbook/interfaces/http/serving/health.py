"""Health: a load balancer learns whether the process runs, and whether it can read the book.

A server whose watcher of files has ended is ready: it answers every request, and finds edits of files by a scan every
minute. All servers of a machine reach the limit of watches together, and a balancer would then have none left. The log,
`status`, `doctor` and the metrics report it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from commonbook.errors import CommonbookError
from commonbook.interfaces.http.routes import LoggedRoute

if TYPE_CHECKING:
    from commonbook.book.book import Book

_ANSWER_SECONDS: Final = 3.0
_THREADS: Final = 2
"""A database that does not answer holds no more threads than these; then the answer is 503 without asking it."""

_KEPT_SECONDS: Final = 1.0
"""How long an answer is kept, so that nobody makes the book work by asking often."""


class Health:
    """Answers whether the server is alive and ready."""

    def __init__(self, book: Book) -> None:
        """Ask this book."""
        self._book = book
        self._is_ready, self._asked_at = False, -_KEPT_SECONDS
        self._asking = asyncio.Lock()
        self._threads: anyio.CapacityLimiter | None = None
        self.is_closing = False

    def routes(self) -> list[LoggedRoute]:
        """Return the routes of both questions."""
        return [LoggedRoute("/health/live", self._live), LoggedRoute("/health/ready", self._ready)]

    async def _live(self, _request: Request) -> Response:
        return Response(status_code=200)

    async def _ready(self, _request: Request) -> Response:
        async with self._asking:
            if time.monotonic() - self._asked_at >= _KEPT_SECONDS:
                self._is_ready, self._asked_at = await self._can_read(), time.monotonic()
        return Response(status_code=200 if self._is_ready and not self.is_closing else 503)

    async def _can_read(self) -> bool:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await anyio.to_thread.run_sync(self._book.log_size, abandon_on_cancel=True, limiter=self._threads)
        except (CommonbookError, TimeoutError):
            return False
        return True
