"""Real server processes: `commonbook serve` on a free port, called over real connections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2


class Server(NamedTuple):
    """A running server: its URL, the owner's key, and its process."""

    url: str
    key: str
    process: subprocess.Popen[str]
    log: Path
    """The file of its standard error; a pipe that nobody reads would stop the server when it is full."""
    metrics: str | None = None
    sign_in: str | None = None

    def client(self, key: str | None = None, **options: Any) -> httpx2.Client:
        """Return a client with the owner's key, or another."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, **options)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code; a server that waits for something else than its time does not end."""
        self.process.send_signal(number)
        return self.process.wait(60)


def command(*options: str) -> list[str]:
    """Return the command line of a server."""
    return [sys.executable, "-m", "commonbook", "serve", "--json", *options]


@contextmanager
def serving(
    home: Path | None, *options: str, port: int = 0, environ: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a server on a home that is made if there is none; it is killed at the end, if it still runs.

    Without a home, the environment says where the book is.
    """
    place = ["--init", "--home", str(home)] if home else []
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(
            command("--port", str(port), *place, *options),
            env={**os.environ, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        yield from _running(process, Path(log.name))


def _running(process: subprocess.Popen[str], log: Path) -> Iterator[Server]:
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise AssertionError(f"the server did not start: {log.read_text()}")
        answer = json.loads(line)
        key = Path(answer["key"]).read_text(encoding="ascii").strip() if answer["key"] else ""
        yield Server(answer["url"], key, process, log, answer["metrics"], answer["sign_in"])
    finally:
        process.kill()
        process.communicate()
