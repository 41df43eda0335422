"""A fake embedding service on a free local port, which misbehaves on command."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler", list[str]], None]


@dataclass
class ReceivedRequest:
    """A request that came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Service:
    """The service: each request consumes one order, which decides the response; without orders it answers correctly."""

    url: str = ""
    requests: list[ReceivedRequest] = field(default_factory=list)
    orders: list[Answer] = field(default_factory=list)

    @property
    def batches(self) -> list[list[str]]:
        return [request.body["input"] for request in self.requests]


def vector_of(text: str) -> list[float]:
    """Return the vector of a text: it depends on length and first letter, and is not of unit length."""
    return [float(len(text)), float(ord(text[0])), 1.0]


def items(texts: list[str]) -> list[dict[str, Any]]:
    return [{"object": "embedding", "index": at, "embedding": vector_of(text)} for at, text in enumerate(texts)]


class Handler(BaseHTTPRequestHandler):
    service: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.service.requests.append(ReceivedRequest(self.path, dict(self.headers), body))
        order = self.service.orders.pop(0) if self.service.orders else rightly
        order(self, body["input"])

    def reply(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Print nothing to the terminal of the tests."""


@contextmanager
def serving() -> Iterator[Service]:
    """Serve until the end of the block."""
    service = Service()
    handler = type("OwnHandler", (Handler,), {"service": service})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        service.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


# The orders


def rightly(handler: Handler, texts: list[str]) -> None:
    handler.reply(json.dumps({"object": "list", "data": items(texts)}).encode())


def shuffled(handler: Handler, texts: list[str]) -> None:
    handler.reply(json.dumps({"data": items(texts)[::-1]}).encode())


def in_chunks(handler: Handler, texts: list[str]) -> None:
    body = json.dumps({"data": items(texts)}).encode()
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.send_header("Connection", "close")
    handler.end_headers()
    for start in range(0, len(body), 10):
        piece = body[start : start + 10]
        handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")


def saying(body: str | bytes) -> Answer:
    return lambda handler, _texts: handler.reply(body if isinstance(body, bytes) else body.encode())


def giving(change: Callable[[list[dict[str, Any]]], object]) -> Answer:
    """Answer with the right items, changed."""

    def answer(handler: Handler, texts: list[str]) -> None:
        data = items(texts)
        changed = change(data)
        handler.reply(json.dumps({"data": data if changed is None else changed}).encode())

    return answer


def refusing(status: int, message: str = "", **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message}}).encode()
    return lambda handler, _texts: handler.reply(body, status, **headers)


def hanging_up(handler: Handler, texts: list[str]) -> None:
    """Reset the connection without a response."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def cut_short(handler: Handler, texts: list[str]) -> None:
    body = json.dumps({"data": items(texts)}).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:20])


def no_http(handler: Handler, texts: list[str]) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")


def silent_for(seconds: float) -> Answer:
    def answer(handler: Handler, texts: list[str]) -> None:
        time.sleep(seconds)
        _ignore_os_errors(lambda: rightly(handler, texts))

    return answer


def dripping(seconds: float) -> Answer:
    """Send a byte now and then, so that no single read times out."""

    def answer(handler: Handler, texts: list[str]) -> None:
        handler.send_response(200)
        handler.end_headers()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            _ignore_os_errors(lambda: handler.wfile.write(b" "))
            time.sleep(0.02)

    return answer


def _ignore_os_errors(action: Callable[[], object]) -> None:
    try:
        action()
    except OSError:
        return
