"""The real Hermes with a scripted model: a home, a project and a book of its own, and a chat in a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commonbook
from tests.support.hermes import everything
from tests_clients.scripted_model import Script, offered, serve

HERMES = Path(os.environ.get("COMMONBOOK_HERMES", "")) / "bin" / "hermes"
PLUGIN = Path(__file__).parent / "recording_plugin"
LIMIT = 90.0
"""Seconds for anything that Hermes does; it takes a few to start."""

PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"

_CONFIG = """
model: {{default: stub, provider: custom, api_key: fake, base_url: "http://127.0.0.1:{port}/v1", context_length: 99000}}
memory: {{provider: commonbook}}
display: {{streaming: false}}
"""


class RealHermes:
    """One user of Hermes, whose memory is a book."""

    def __init__(self, folder: Path, steps: list[dict[str, Any]]) -> None:
        self.home, self.project, self.place = folder / "home", folder / "project", folder / "home" / "book"
        self.hermes_home, self._model, self._record = self.home / ".hermes", folder / "m.jsonl", folder / "calls.jsonl"
        self.script = Script(steps, self._model)
        self._server = serve(self.script)
        (self.hermes_home / "plugins").mkdir(parents=True)
        self.project.mkdir()
        (self.hermes_home / "plugins" / "commonbook").symlink_to(PLUGIN)
        (self.hermes_home / "config.yaml").write_text(_CONFIG.format(port=self._server.server_address[1]))
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{HERMES.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "COLUMNS": "200",
            "LINES": "50",
            "COMMONBOOK_HOME": str(self.place),
            "COMMONBOOK_RECORD": str(self._record),
        }

    def calls(self) -> list[dict[str, Any]]:
        """Return what Hermes called, in order."""
        lines = self._record.read_text(encoding="utf-8").splitlines() if self._record.exists() else []
        return [json.loads(line) for line in lines]

    def returned(self, name: str) -> int:
        """Return how many calls of a method have returned."""
        return sum(call.get("returned") == name for call in self.calls())

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests with tools that the model received."""
        lines = self._model.read_text(encoding="utf-8").splitlines() if self._model.exists() else []
        return [found for line in lines if offered((found := json.loads(line))["body"])]

    def once(self, prompt: str, *options: str) -> str:
        """Run `hermes -z`."""
        done = subprocess.run(
            [str(HERMES), "-z", prompt, *options],
            env=self.env, cwd=self.project, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def chat(self, *options: str) -> Chat:
        """Open a chat in a terminal."""
        return Chat(self, options)

    def stored(self) -> list[tuple[str, str]]:
        """Return role and text of every message that was not rewound, session after session."""
        with commonbook.open(self.place) as book:
            sessions = sorted(everything(book).items())
        return [(message.role, message.text) for _, (_, messages) in sessions for message in messages]

    def close(self) -> None:
        self.script.released.set()
        self._server.shutdown()
        self._server.server_close()


class Chat:
    """A chat in a pseudo-terminal."""

    def __init__(self, hermes: RealHermes, options: tuple[str, ...]) -> None:
        self._hermes = hermes
        self.screen = ""
        pid, self._terminal = pty.fork()
        if pid == 0:  # pragma: no cover - another process
            os.chdir(hermes.project)
            os.execve(HERMES, [str(HERMES), *options], hermes.env)
        self.pid = pid
        termios.tcsetwinsize(self._terminal, (50, 200))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait(lambda: PROMPT in self.screen)

    def _read(self) -> None:
        while True:
            try:
                select.select([self._terminal], [], [])
                data = os.read(self._terminal, 65536)
            except (OSError, ValueError):
                return
            if not data:
                return
            # A terminal answers when it is asked where the cursor is; prompt_toolkit waits for it.
            for _ in range(data.count(b"\x1b[6n")):
                os.write(self._terminal, b"\x1b[1;1R")
            self.screen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode("utf-8", "replace"))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        until = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < until, self.screen[-3000:]
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._terminal, text.encode())
        # A paste and a key are told apart by the time between them.
        shown = len(self.screen)
        self.wait(lambda: len(self.screen) > shown)
        time.sleep(0.5)
        os.write(self._terminal, b"\r")

    def turn(self, text: str, turns: int = 1) -> None:
        """Type a line, and wait until Hermes has handed the turn over."""
        before = self._hermes.returned("sync_turn")
        self.type(text)
        self.wait(lambda: self._hermes.returned("sync_turn") >= before + turns)

    def exit(self) -> None:
        """Leave the chat."""
        before = self._hermes.returned("shutdown")
        self.type("/exit")
        self.wait(lambda: self._hermes.returned("shutdown") > before)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def kill(self) -> None:
        """Kill Hermes at once."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
