"""A proxy that adds an API key to requests: the conformance suite of MCP sends no headers of its own."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class KeyProxy:
    """Passes connections to a server on loopback; each has one request, with the key added."""

    def __init__(self, port: int, key: str) -> None:
        self._target, self._key = port, key
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            while b"\r\n\r\n" not in head:
                part = client.recv(65536)
                if not part:
                    return
                head += part
            line, _, rest = head.partition(b"\r\n")
            added = f"Authorization: Bearer {self._key}\r\nConnection: close\r\n".encode()
            kept = b"\r\n".join(
                each
                for each in rest.split(b"\r\n\r\n")[0].split(b"\r\n")
                if not each.lower().startswith(b"connection:")
            )
            server.sendall(line + b"\r\n" + added + kept + b"\r\n\r\n" + rest.split(b"\r\n\r\n", 1)[1])
            threading.Thread(target=_pass, args=(client, server), daemon=True).start()
            _pass(server, client)

    def close(self) -> None:
        self._listening.close()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
