"""`make run` serves example memories, and the commands that it and the README show work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@contextmanager
def running(tmp_path: Path, *arguments: str) -> Iterator[list[str]]:
    """Run the server of `make run`, and yield the lines that it prints; it must end well at Ctrl-C."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)
    process = subprocess.Popen(
        # Another test may serve at the usual port meanwhile.
        [sys.executable, str(ROOT / "tools" / "run.py"), *arguments, "0"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary), "COMMONBOOK_SPACE": "elsewhere"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        assert all(lines), process.communicate()
        yield lines
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert list(temporary.iterdir()) == []
    finally:
        process.kill()
        process.communicate()


def run_in_shell(commands: str, tmp_path: Path) -> list[dict[str, Any]]:
    """Run shell commands, and return the JSON values that they print."""
    done = subprocess.run(["sh", "-eu", "-c", commands], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    decoder, text, values = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:].strip()
    return values


def test_the_lines_that_are_printed_remember_and_recall(tmp_path):
    with running(tmp_path, "") as lines:
        assert re.search(r" at http://127\.0\.0\.1:\d+\n", lines[0])
        remembered, recalled = run_in_shell("".join(lines[2:]), tmp_path)
    assert remembered["space"] == "personal"
    assert recalled["hits"][0]["memory"] == remembered["id"], "the question is about the memory of the line before"


def test_help_makes_no_home(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "run.py"), "--help"]
    folder = tmp_path / "empty"
    folder.mkdir()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage:")
    assert list(folder.iterdir()) == []


def test_the_commands_of_the_readme_remember_and_recall(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Over HTTP\n")[1].split("\n## ")[0]
    home = tmp_path / "first-book"
    (target,) = re.findall(r"make run HOME_DIR=(\S+)", section)
    commands = "\n".join(line for line in section.splitlines() if line.startswith("    ") and "make run" not in line)
    with running(tmp_path, str(home)) as lines:
        url = lines[0].split(" at ")[1].strip()
        used = commands.replace(target, str(home)).replace("http://127.0.0.1:7373", url)
        remembered, recalled = run_in_shell(used, tmp_path)
    assert "Bob owns the web shop" in json.dumps(recalled)
    assert [path for path in home.rglob("*.md") if str(remembered["id"])[-8:] in path.name]
    with running(tmp_path, str(home)) as lines:
        (recalled,) = run_in_shell("".join(lines[2:3] + lines[4:]), tmp_path)
    assert "Bob owns the web shop" in json.dumps(recalled)
    assert len(list(home.rglob("alice-owns-the-billing-service*.md"))) == 1


def test_make_run_installs_what_the_server_needs_and_nothing_of_the_tests():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ready = makefile.split("$(READY): ")[1].split("\n\n")[0]
    assert "--editable '.[server]'" in ready
    assert "[dev]" not in ready
