"""The guided tour of `make tour` does what it says."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "tools" / "tour.py"


@pytest.mark.slow
def test_the_tour_shows_everything_and_leaves_nothing_behind(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "COMMONBOOK_SPACE": "elsewhere", "COLUMNS": "60", "LINES": "24"}
    done = subprocess.run(
        [sys.executable, str(TOUR)], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for expected in (
        "$ commonbook remember",
        "$ commonbook recall",
        "+Bob owns billing",
        "$ commonbook supersede",
        "$ commonbook session append",
        "[masked: ",
        "the log is intact",
        "COMMONBOOK_HOME",
    ):
        assert expected in done.stdout
    assert "correct-h0rse" not in done.stdout.replace("My password=correct-h0rse", "", 1)
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_the_tour_fits_a_terminal_of_80_columns(tmp_path):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen([sys.executable, str(TOUR)], cwd=tmp_path, stdout=slave, stderr=slave)
    os.close(slave)
    seen = bytearray()
    with suppress(OSError):  # Linux reports the end of a terminal as an error.
        while part := os.read(master, 65536):
            seen += part
    os.close(master)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r\n", "\n").splitlines()
    assert process.wait(60) == 0, "\n".join(lines)
    # The path of a file is one line however long it is, so that it can be copied.
    wide = [line for line in lines if line.startswith("    ") and len(line) > 80]
    assert [line for line in wide if not re.fullmatch(r" +file +\S+\.md", line)] == []
    assert any("─" * 40 in line for line in lines), "there are tables"


def test_the_tour_fails_when_a_step_fails(tmp_path):
    package = tmp_path / "commonbook"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise SystemExit(7)")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(TOUR)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the tour stopped: that ended with 7" in done.stderr
