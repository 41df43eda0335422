"""Metrics for Prometheus: requests, the time that recalls take, open streams, and the pending work of the book."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from commonbook.interfaces.http.authentication import Credentials, credentials_of, view_of
from commonbook.interfaces.http.routes import LoggedRoute, answering

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from commonbook.book.book import Book
    from commonbook.interfaces.http.guards.access_log import Served
    from commonbook.model.reports import Metrics

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
