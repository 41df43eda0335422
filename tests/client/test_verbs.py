"""The verbs of a remote book: made from those of the book, with the same arguments and results."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from commonbook import aio
from commonbook.book.book import Book
from commonbook.client.remote_book import RemoteBook
from commonbook.wire.verbs import EXPORT, IMPORT, LEFT_OUT, VERBS

pytestmark = pytest.mark.promise("client.same")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "commonbook" / "client" / "verbs"
PRINT_MODULES = "import json, make_client; print(json.dumps({p.name: t for p, t in make_client.modules().items()}))"


def test_the_modules_are_those_that_the_tool_makes():
    command = [sys.executable, "-c", PRINT_MODULES]
    made = subprocess.run(command, cwd=ROOT / "tools", capture_output=True, text=True, check=True)
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    by_hand = {name: written.pop(name) for name in ("__init__.py", "base.py")}
    assert by_hand
    assert written == json.loads(made.stdout), "run `python tools/make_client.py`"


@pytest.mark.parametrize("name", sorted({*VERBS, IMPORT.name, EXPORT.name}))
def test_a_remote_book_has_the_verbs_of_a_book(name):
    remote, local = getattr(RemoteBook, name), getattr(Book, name)
    if isinstance(local, property):
        assert isinstance(remote, property)
        return
    assert inspect.signature(remote) == inspect.signature(local)


def test_a_remote_book_has_nothing_else():
    public = {name for name in dir(RemoteBook) if not name.startswith("_")}
    assert public - VERBS.keys() == {"close", "outbox", IMPORT.name, EXPORT.name}
    assert {name for name in dir(Book) if not name.startswith("_")} - public <= {*LEFT_OUT}


def test_a_remote_book_for_asyncio_has_the_same_verbs():
    names = {name for name in dir(RemoteBook) if not name.startswith("_")}
    assert {name for name in dir(aio.RemoteBook) if not name.startswith("_")} == names
