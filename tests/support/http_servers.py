"""Real servers in processes of their own, which tests start, kill, freeze and cut off."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.support import crashing

ROOT = Path(__file__).resolve().parents[2]


class ServerProcess:
    """A server of the book of the environment, in a process of its own."""

    def __init__(self, *, port: int = 0, program: str = "commonbook", **environ: str) -> None:
        command = [sys.executable, "-m", program, "serve", "--json", "--port", str(port), "--no-request-log"]
        env = {**crashing.environment(), **os.environ, "PYTHONPATH": str(ROOT / "src"), **environ}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=env)
        self.port = int(str(self._answer()["url"]).rpartition(":")[2])

    def _answer(self) -> dict[str, object]:
        """Wait until the server listens: then it prints its address."""
        assert self._process.stdout
        printed = b""
        while line := self._process.stdout.readline():
            printed += line
            with suppress(ValueError):
                answer: dict[str, object] = json.loads(printed)
                return answer
        raise AssertionError("the server did not start")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page_faults(self) -> int:
        """Return how many pages the process has got from the system until now, without reading a disk."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(fields[7])

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stop the process, and wait until it stands still."""
        self.send(signal.SIGSTOP)
        crashing.wait_until_stopped(self._process)

    def wait_until_frozen(self) -> None:
        """Wait until a server that stops itself stands still."""
        crashing.wait_until_stopped(self._process)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with -9."""
        self._process.kill()
        self._process.wait(60)

    def stop(self) -> None:
        """End the process as an administrator does."""
        self.thaw()
        self._process.terminate()
        self._process.wait(60)

    def close(self) -> None:
        self.kill()
        self._process.communicate()


class Cable:
    """A proxy on a port of its own, which passes bytes to the first server that takes them, until it is cut."""

    def __init__(self, *ports: int) -> None:
        self._targets = ports
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self.cut_after: int | None = None
        """After so many bytes of the next answer both sides are cut off, once; None for never."""
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = self._connected()
                if server is None:
                    _shut(client)
                    continue
                self._open += [client, server]
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_answers, args=(server, client), daemon=True).start()

    def _connected(self) -> socket.socket | None:
        for port in self._targets:
            with suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", port))
        return None

    def _pass_answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self.cut_after is not None:
                    client.sendall(data[: self.cut_after])
                    self.cut_after = None
                    self.cuts += 1
                    break
                client.sendall(data)
        _shut(server, client)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        _shut(source, target)

    def close(self) -> None:
        for one in (self._listening, *self._open):
            with suppress(OSError):
                one.close()


def _shut(*sides: socket.socket) -> None:
    for side in sides:
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
