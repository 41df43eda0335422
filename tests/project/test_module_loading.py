"""A server loads only the packages that it needs: each one costs time at every start."""

from __future__ import annotations

import subprocess
import sys


def test_a_server_starts_without_the_packages_that_only_make_its_document(home):
    script = """
import sys, commonbook
from commonbook.interfaces.http.app import make_app
with commonbook.open(sys.argv[1], create=True) as book:
    make_app(book)
print("starlette" in sys.modules, "pydantic" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script, str(home)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]
