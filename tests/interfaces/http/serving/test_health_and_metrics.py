"""Health tells strangers nothing but a status; metrics are for the owner, or on a port of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import commonbook
from commonbook.errors import CommonbookError, DatabaseUnreachable, HomeError
from commonbook.interfaces.http.serving import server
from commonbook.interfaces.http.serving.addresses import ServeOptions
from commonbook.interfaces.http.serving.server import Health
from tests.support.crowds import until
from tests.support.servers import serving

FIGURES = (
    "commonbook_requests_total",
    "commonbook_recall_seconds_bucket",
    "commonbook_unsettled_messages",
    "commonbook_queue_age_seconds",
    "commonbook_stale_copies",
    "commonbook_open_notices",
    "commonbook_index_lag",
    "commonbook_open_streams",
    "process_resident_memory_bytes",
)


def test_a_server_is_alive_and_ready_as_long_as_the_book_can_be_read(book, monkeypatch):
    monkeypatch.setattr(server, "_KEPT_SECONDS", 0)
    health = Health(book)
    client = TestClient(Starlette(routes=health.routes()))

    def statuses() -> list[tuple[int, bytes]]:
        return [(answer.status_code, answer.content) for answer in map(client.get, ("/health/live", "/health/ready"))]

    assert statuses() == [(200, b""), (200, b"")]

    def unreachable() -> int:
        raise DatabaseUnreachable("the database at db.example is away", fix="start it")

    with monkeypatch.context() as patch:
        patch.setattr(book, "log_size", unreachable, raising=False)
        assert statuses() == [(200, b""), (503, b"")]
    assert statuses() == [(200, b""), (200, b"")]
    health.is_closing = True
    assert statuses() == [(200, b""), (503, b"")]


@pytest.mark.promise("servers.watcher")
def test_a_server_whose_watcher_has_died_is_ready_and_reports_it(home, monkeypatch, caplog):
    monkeypatch.setattr("commonbook.core.files.scan._FULL_SCAN_SECONDS", 0.05)
    with commonbook.open(home, create=True) as book:
        memory = book.remember("Alice owns billing", space="team")
        assert (book.status().findings, book.doctor()) == ((), ())
        process = server._Process(book, ServeOptions())
        client = TestClient(Starlette(routes=[*process._health.routes(), process._metrics.route(with_key=False)]))
        assert "commonbook_files_watched 1.0" in client.get("/metrics").text
        died = threading.Event()

        def dying(stop: threading.Event) -> Iterator[set[str]]:
            yield set()
            raise RuntimeError("OS file watch limit reached")

        def failed(error: CommonbookError) -> None:
            process.watcher_failed(error)
            died.set()

        def look_while_watching() -> None:
            with book.watching(failed=failed):
                assert died.wait(60)
                assert client.get("/health/live").status_code == 200
                assert client.get("/health/ready").status_code == 200
                assert "commonbook_files_watched 0.0" in client.get("/metrics").text
                for view in (book, book.with_key(book.create_key("user:local").secret)):
                    for (finding,) in (view.status().findings, view.doctor()):
                        assert (finding.what, "file watch limit" in finding.why) == ("files are not watched", True)
                # An edit is found all the same.
                path = Path(home, book.get(memory.id).path)
                path.write_text(path.read_text(encoding="utf-8").replace("Alice", "Bob"), encoding="utf-8")
                until(lambda: book.get(memory.id).text == "Bob owns billing")

        monkeypatch.setattr(book._engines.watcher, "changes", dying)
        with pytest.raises(HomeError, match="file watch limit"):
            look_while_watching()
        assert "the watcher of the files has ended" in caplog.text
        assert book.status().findings == ()


@pytest.mark.slow
def test_prometheus_reads_the_metrics_by_the_address_of_a_server_with_other_names(home):
    commonbook.open(home, create=True).close()
    options = ["--host", "0.0.0.0", "--behind-proxy", "10.0.0.7", "--allowed-host", "book.example"]
    with commonbook.open(home) as book:
        book.create_key("user:ana")
    with serving(home, *options, "--metrics-port", "0") as running:
        port = str(running.metrics).rpartition(":")[2]
        for host in ("127.0.0.1", "localhost", "10.1.2.3", "[fd00::1]", "book.example"):
            answer = httpx2.get(f"http://127.0.0.1:{port}", headers={"Host": f"{host}:9373"}, timeout=60)
            assert (answer.status_code, "commonbook_requests" in answer.text) == (200, True), host
        for host in ("evil.example", "10.1.2.3.evil.example"):
            assert httpx2.get(f"http://127.0.0.1:{port}", headers={"Host": host}, timeout=60).status_code == 421
        at_book = running.url.replace("book.example", "127.0.0.1")
        assert httpx2.get(f"{at_book}/v1/actor", headers={"Host": "10.1.2.3"}, timeout=60).status_code == 421


@pytest.mark.promise("keys.figures")
@pytest.mark.slow
def test_metrics_need_the_key_of_the_owner_or_a_port_of_their_own(home):
    with serving(home, "--metrics-port", "0") as server, server.client() as client:
        client.post("/v1/memories", json={"text": "Alice owns billing"})
        client.post("/v1/recall", json={"query": "who owns billing?"})
        client.post("/v1/sessions/talk/messages", json={"messages": [{"text": "hello"}]})
        reader = client.post("/v1/keys", json={"principal": "user:alice"}).json()["secret"]
        text = client.get("/metrics").text
        for name in FIGURES:
            assert name in text, name
        assert 'commonbook_requests_total{method="POST",route="/v1/recall",status="200"} 1.0' in text
        assert "commonbook_recall_seconds_count 1.0" in text
        assert "commonbook_unsettled_messages 1.0" in text
        assert httpx2.get(f"{server.url}/metrics", timeout=60).status_code == 401
        assert client.get("/metrics", headers={"Authorization": f"Bearer {reader}"}).status_code == 403
        assert server.metrics is not None
        assert "commonbook_unsettled_messages 1.0" in httpx2.get(server.metrics, timeout=60).text
        assert httpx2.get(server.metrics, headers={"Host": "evil.example"}, timeout=60).status_code == 421
        unknown = httpx2.get(server.metrics.replace("/metrics", "/nothing"), timeout=60)
        wrong = httpx2.post(server.metrics, timeout=60)
        for answer, status in ((unknown, 404), (wrong, 405)):
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
            assert answer.json()["instance"] == answer.headers["x-request-id"]
        assert "openapi" not in unknown.text
        elsewhere = server.metrics.removesuffix("/metrics")
        assert httpx2.get(f"{elsewhere}/v1/actor", headers=client.headers, timeout=60).status_code == 404
        for path in ("live", "ready"):
            answer = httpx2.get(f"{server.url}/health/{path}", timeout=60)
            assert (answer.status_code, answer.content) == (200, b"")
