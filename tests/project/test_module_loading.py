"""A command loads the modules of its own subject: each one costs time in every run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import commonbook

_PRINT_MODULES = """
import contextlib, io, sys
from commonbook.interfaces.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(sys.argv[1:]) == 0
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "commonbook"))
"""
MAX_OF_STATUS = 91
MAX_OF_APPEND = 134


def loaded_by(home: Path, *command: str) -> list[str]:
    """Return our modules that a command loads in a new process."""
    with commonbook.open(home, create=True) as book:
        book.append("talk", ["hello"])
    arguments = [sys.executable, "-c", _PRINT_MODULES, "--home", str(home), *command]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True, input="")
    return run.stdout.split()


def test_status_loads_few_modules(home):
    loaded = loaded_by(home, "status")
    assert len(loaded) < MAX_OF_STATUS, loaded


def test_a_server_starts_without_the_packages_that_only_make_its_document(home):
    script = """
import sys, commonbook
from commonbook.interfaces.http.app import make_app
with commonbook.open(sys.argv[1], create=True) as book:
    make_app(book)
print("starlette" in sys.modules, "fastapi" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script, str(home)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]


def test_an_append_loads_no_subject_whose_work_is_not_due(home):
    loaded = loaded_by(home, "session", "append", "talk", "hello again")
    assert len(loaded) < MAX_OF_APPEND, loaded
    subjects = {"commonbook.sharing", "commonbook.reasoning", "commonbook.sessions.settle", "commonbook.recall"}
    assert subjects.isdisjoint(loaded)
