"""The real Hermes with a scripted model: a home, a project and a book of its own, and a chat in a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import commonbook
from tests.support.hermes import everything
from tests_clients.scripted_model import Script, offered, serve

HERMES = Path(os.environ.get("COMMONBOOK_HERMES", "")) / "bin" / "hermes"
PLUGIN = Path(__file__).parent / "recording_plugin"
LIMIT = 300.0
"""Seconds for anything that Hermes does; it takes a few to start, and many on a busy machine."""

LOST_AFTER = 20.0
"""Words that a terminal has not shown after so many seconds are typed again."""

PROMPT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
RUNNING, RESTING = "\N{STOPWATCH}", "\N{TIMER CLOCK}"
"""The signs beside the time of a turn, while it runs and afterwards."""

_CONFIG = """
model: {{default: stub, provider: custom, api_key: fake, base_url: "http://127.0.0.1:{port}/v1", context_length: 99000}}
memory: {{provider: commonbook}}
display: {{streaming: false}}
approvals: {{destructive_slash_confirm: false}}
compression: {{protect_first_n: 0, protect_last_n: 3}}
"""


class Conversation(NamedTuple):
    """A session as it is stored: role and text of its messages."""

    id: str
    parent: str | None
    messages: list[tuple[str, str]]


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
        # A machine that is busy with other things may be slow.
        (self.hermes_home / "commonbook").mkdir()
        (self.hermes_home / "commonbook" / "config.json").write_text('{"recall_seconds": 7, "write_seconds": 60}')
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
        return self.run("-z", prompt, *options)

    def run(self, *words: str) -> str:
        """Run a command of Hermes."""
        done = subprocess.run(
            [str(HERMES), *words],
            env=self.env, cwd=self.project, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def chat(self, *options: str) -> Chat:
        """Open a chat in a terminal."""
        return Chat(self, options)

    def sessions(self) -> list[Conversation]:
        """Return every session with the messages that were not rewound, in the order of their ids."""
        with commonbook.open(self.place) as book:
            found = sorted(everything(book).items())
        return [
            Conversation(name, session.parent, [(message.role, message.text) for message in messages])
            for name, (session, messages) in found
        ]

    def spaces(self) -> dict[str, str]:
        """Return the spaces of all sessions by their ids."""
        with commonbook.open(self.place) as book:
            return {session.id: session.space.name for session in book.sessions(limit=1000)}

    def stored(self) -> list[tuple[str, str]]:
        """Return role and text of every message that was not rewound, session after session."""
        return [message for session in self.sessions() for message in session.messages]

    def forget_book(self) -> None:
        """Remove the book, and the record of the calls that filled it."""
        shutil.rmtree(self.place)
        self._record.unlink()

    def close(self) -> None:
        self.script.released.set()
        self._server.shutdown()
        self._server.server_close()


def _letters(text: str) -> str:
    """Return a text without its spaces, for which a terminal may move the cursor."""
    return "".join(text.split())


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
        shown, begun = len(self.screen), time.monotonic()
        self.press(text)
        while _letters(text) not in _letters(self.screen[shown:]):
            assert time.monotonic() < begun + LIMIT, self.screen[-3000:]
            time.sleep(0.05)
            if (time.monotonic() - begun) % LOST_AFTER < 0.05:
                # Hermes drops what is typed while a command runs.
                self.clear()
                self.press(text)
        # A paste and a key are told apart by the time between them.
        time.sleep(0.5)
        self.press("\r")

    def clear(self) -> None:
        """Clear the line, which Hermes fills with the words of a turn that was undone."""
        self.press("\x15")
        # Only the letters that differ would be drawn, if the next line were typed before the empty one is.
        time.sleep(0.5)

    def press(self, key: str) -> None:
        """Press a key."""
        os.write(self._terminal, key.encode())

    def turn(self, text: str, turns: int = 1) -> None:
        """Type a line, and wait until Hermes has handed the turn over."""
        before, started = self._hermes.returned("sync_turn"), self._hermes.returned("on_turn_start")
        self.type(text)
        typed = time.monotonic()
        # Hermes 0.13 loses what is typed at the very end of a turn.
        self.wait(lambda: self._hermes.returned("on_turn_start") > started or time.monotonic() > typed + 3 * LOST_AFTER)
        if self._hermes.returned("on_turn_start") == started:
            self.type(text)
        self.wait(lambda: self._hermes.returned("sync_turn") >= before + turns)
        # Hermes takes what is typed before the end of a turn for an interruption.
        self.wait(lambda: self.screen.rfind(RESTING) >= self.screen.rfind(RUNNING))

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
