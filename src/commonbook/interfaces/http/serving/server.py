"""The server process: the app with its guards, the worker and the watcher, until a signal ends it.

A signal ends the streams at once and lets running requests complete. What still runs after the time of grace is cut
off: every acknowledged write is durable, and an unacknowledged one is as after a crash. Metrics for Prometheus:
requests, the time that recalls take, open streams, and the pending work of the book. Logs of the server: one JSON
object a line, on standard error, without memory text and keys.

The text of an exception may quote a memory. So an exception is logged by its type and its places in the code, wherever
it ends: in a request, a thread, a task of asyncio or a destructor. A message of another library may quote it too; of
these the log has the place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.to_thread
import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from commonbook.errors import CommonbookError
from commonbook.interfaces.http.app import make_app
from commonbook.interfaces.http.error_answers import http_error
from commonbook.interfaces.http.guards.access_log import places_of
from commonbook.interfaces.http.guards.config import LOOPBACK_NAMES
from commonbook.interfaces.http.guards.stack import guarded
from commonbook.interfaces.http.openapi import make_document
from commonbook.interfaces.http.routes import Credentials, LoggedRoute, answering, credentials_of, view_of
from commonbook.interfaces.http.serving import addresses
from commonbook.interfaces.http.serving.events import ChangeStreams, with_stream
from commonbook.interfaces.http.serving.mcp import McpEndpoint
from commonbook.values.ids import format_time

if TYPE_CHECKING:
    import socket
    from sys import UnraisableHookArgs
    from types import FrameType

    from prometheus_client.core import Metric
    from starlette.types import ASGIApp

    from commonbook.interfaces.http.guards.access_log import Served
    from commonbook.interfaces.http.serving.addresses import ServeOptions
    from commonbook.service.book import Book
    from commonbook.values.reports import Metrics

_LOG: Final = logging.getLogger("commonbook.server")
_GRACE_SECONDS: Final = 2
"""How long running requests may take after a signal."""

_CUT_OFF_SECONDS: Final = 2.75
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_KEEP_ALIVE_SECONDS: Final = 30
_MAX_CONNECTIONS: Final = 1000
"""How many connections a server has at once; requests of further ones are answered with 503."""


def serve(book: Book, options: ServeOptions, *, ready: Callable[[Sequence[str]], None]) -> None:
    """Serve a book of the owner until SIGINT or SIGTERM; `ready` is called with the URLs when it listens."""
    addresses.require_safe(options, has_keys=_has_keys(book))
    write_to_stderr(with_requests=options.log_requests)
    with ExitStack() as stack:
        sockets = [stack.enter_context(addresses.bind(options.host, options.port))]
        if options.metrics_port is not None:
            sockets.append(stack.enter_context(addresses.bind(options.host, options.metrics_port)))
        process = _Process(book, options)
        stack.enter_context(process.signals())
        stack.enter_context(book.watching(failed=process.watcher_failed))
        if options.worker:
            stack.enter_context(book.working())
        asyncio.run(process.run(sockets, ready=lambda: ready(addresses.urls_of(sockets, options))))


def _has_keys(book: Book) -> bool:
    now, keys = datetime.now(UTC), book.keys()
    return any(key.revoked is None and (key.expires is None or key.expires > now) for key in keys)


class _Process:
    """The servers of one process, and how they end together."""

    def __init__(self, book: Book, options: ServeOptions) -> None:
        self._options = options
        self._metrics = ServerMetrics(book)
        self._health = Health(book)
        self._streams = ChangeStreams(book, self._metrics.open_streams)
        self._book = book
        self._servers: list[uvicorn.Server] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, sockets: Sequence[socket.socket], *, ready: Callable[[], None]) -> None:
        """Serve on these sockets: the first is for the book, the second for metrics alone."""
        self._loop = asyncio.get_running_loop()
        apps = [self._book_app(), self._metrics_app()]
        self._servers = [_Server(self._config(app)) for app, _ in zip(apps, sockets, strict=False)]
        serving = [
            asyncio.create_task(server.serve(sockets=[sock]))
            for server, sock in zip(self._servers, sockets, strict=True)
        ]
        while not all(server.started for server in self._servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.01)
        ready()
        await asyncio.gather(*serving)

    def _book_app(self) -> ASGIApp:
        app = make_app(self._book, document=with_stream(make_document))
        app.router.routes[:0] = [
            *self._health.routes(),
            self._metrics.route(with_key=True),
            self._streams.route(),
            McpEndpoint(self._book).route(),
        ]
        return guarded(app, addresses.guard_config(self._options), self._metrics.count)

    def _metrics_app(self) -> ASGIApp:
        routes = [*self._health.routes(), self._metrics.route(with_key=False)]
        refuse = partial(http_error, paths=f"the paths of this port are {', '.join(route.path for route in routes)}")
        app = Starlette(routes=routes, exception_handlers={HTTPException: refuse})
        # Who watches a server comes from elsewhere than its proxies, and calls it by its address.
        config = addresses.guard_config(self._options)
        hosts = config.allowed_hosts | LOOPBACK_NAMES
        return guarded(app, config._replace(proxies=(), allowed_hosts=hosts, any_address=True))

    def _config(self, app: ASGIApp) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ssl_certfile=self._options.tls_cert,
            ssl_keyfile=self._options.tls_key,
        )

    def watcher_failed(self, error: CommonbookError) -> None:
        """Report that changes of files are no longer noticed at once: in the log, and by the metrics."""
        self._metrics.files_watched.set(0)
        _LOG.error("the watcher of the files has ended", extra={"fields": {"error": error.type}})

    @contextmanager
    def signals(self) -> Iterator[None]:
        """End the servers at a signal, while the `with` block runs."""
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        cut_off = threading.Timer(_CUT_OFF_SECONDS, _cut_off)
        cut_off.daemon = True
        cut_off.start()
        self._health.is_closing = True
        for server in self._servers:
            server.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._streams.close)


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _cut_off() -> None:
    """End the process now, whatever still runs."""
    sys.stderr.flush()
    os._exit(0)


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


_RECALL_ROUTE: Final = "/v1/recall"
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_GAUGES: Final = {
    "unsettled_messages": "Messages that are in no episode yet.",
    "waiting_jobs": "Jobs that wait or run.",
    "failed_jobs": "Jobs that failed for good and wait for a person.",
    "queue_age_seconds": "How long the oldest job that is due has waited.",
    "stale_copies": "Copies that took over other words than their source has now.",
    "open_notices": "Notices that wait for a decision.",
    "index_lag": "Changed memories and messages that are not in the index yet.",
    "pending_files": "Files that are still to be written.",
}


class ServerMetrics:
    """The metrics of one server process."""

    def __init__(self, book: Book) -> None:
        """Count nothing yet."""
        self._book = book
        self._registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self._requests = Counter("commonbook_requests", "Answered requests.", labels, registry=self._registry)
        self._seconds = Histogram(
            "commonbook_request_seconds", "Time until the answer is sent.", ("route",), buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        self._recalls = Histogram(
            "commonbook_recall_seconds", "Time of a recall.", buckets=_SECONDS, registry=self._registry
        )
        self.open_streams = Gauge("commonbook_open_streams", "Open streams of changes.", registry=self._registry)
        self.files_watched = Gauge(
            "commonbook_files_watched", "1 if edits of files are noticed at once, 0 if within a minute.",
            registry=self._registry,
        )  # fmt: skip
        self.files_watched.set(1)
        ProcessCollector(registry=self._registry)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, served: Served) -> None:
        """Count a request."""
        labels = served.route, served.method, served.status
        found = self._children.get(labels)
        if found is None:
            # To look a child up by its labels takes a lock and several copies each time.
            found = self._requests.labels(*map(str, labels)), self._seconds.labels(served.route)
            self._children[labels] = found
        found[0].inc()
        found[1].observe(served.seconds)
        if served.route == _RECALL_ROUTE and served.status == 200:
            self._recalls.observe(served.seconds)

    def route(self, *, with_key: bool) -> LoggedRoute:
        """Return the route of the metrics, for the owner's key or, on a port of its own, for everybody."""

        async def answer(request: Request) -> Response:
            given = credentials_of(request) if with_key else None
            text = await anyio.to_thread.run_sync(partial(self._render, request, given))
            return Response(text, media_type=CONTENT_TYPE_LATEST)

        return LoggedRoute("/metrics", answering(answer))

    def _render(self, request: Request, given: Credentials | None) -> bytes:
        book = self._book if given is None else view_of(self._book, request, given)
        pending = CollectorRegistry()
        pending.register(_Pending(book.metrics()))
        return generate_latest(self._registry) + generate_latest(pending)


class _Pending(Collector):
    """The figures of the book itself, read when they are asked for."""

    def __init__(self, figures: Metrics) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"commonbook_{name}", text, value=getattr(self._figures, name))


_LOGGERS: Final = ("commonbook", "uvicorn")
"""The loggers whose messages quote nothing."""

_LOGGER: Final = logging.getLogger("commonbook.server")


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object; of an exception, its type and places without its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        fields = {
            "time": format_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "event": _event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields |= {"error": type(record.exc_info[1]).__name__, "places": places_of(record.exc_info[1])}
        return json.dumps(fields, ensure_ascii=True)


def _event(record: logging.LogRecord) -> str:
    if record.name.partition(".")[0] in _LOGGERS:
        return record.getMessage()
    return f"a message of {record.name} at {record.pathname}:{record.lineno}"


def write_to_stderr(*, with_requests: bool) -> None:
    """Write the logs of the server to standard error; each request has a line unless it was switched off."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers = [handler]
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    logging.getLogger("commonbook.core.access").setLevel(logging.INFO if with_requests else logging.WARNING)
    threading.excepthook = _log_end_of_thread
    sys.unraisablehook = _log_unraisable


def _log_end_of_thread(ended: threading.ExceptHookArgs) -> None:
    _log_fault("a thread ended by a fault", ended.exc_value)


def _log_unraisable(fault: UnraisableHookArgs) -> None:
    _log_fault("a fault was ignored", fault.exc_value)


def _log_fault(event: str, error: BaseException | None) -> None:
    if not isinstance(error, SystemExit):
        _LOGGER.error(event, exc_info=error)
