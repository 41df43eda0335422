"""The guided tour of `make tour` does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_the_tour_fails_when_a_step_fails(tmp_path):
    package = tmp_path / "commonbook"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise SystemExit(7)")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(TOUR)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the tour stopped: that ended with 7" in done.stderr
