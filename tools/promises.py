"""List the tests of each promise, or check them: `python tools/promises.py [--check] [WORDS]`.

A promise is a line of a page that begins with its id, such as `sessions.one-order`. A test carries the ids of the
promises that it tries to break: `@pytest.mark.promise("sessions.one-order")`, or `pytestmark` for a whole module.
"""

from __future__ import annotations

import ast
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ("docs/GUARANTEES.md", "docs/SECURITY.md")
TESTS: Final = ("tests", "tests_models", "tests_clients", "tests_hermes")

PROMISE: Final = re.compile(r"(?:(?<=\n\n)|^\| |^- )`([a-z]+\.[a-z0-9-]+)` (?:\| )?(.*)", re.MULTILINE)
"""A paragraph, an item of a list or a row of a table that begins with an id."""

NAMED: Final = re.compile(r"`([a-z]+)(\.[a-z0-9-]+)`")
"""An id in the text of a page, if other promises begin with its first word."""

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Promise(NamedTuple):
    """A promise of a page: its place, its id, and the first line of its text."""

    place: str
    id: str
    text: str


class Marked(NamedTuple):
    """A test, or a module of tests, that carries the id of a promise; `line` is that of the marker."""

    path: str
    line: int
    test: str
    promise: str | None


def promises(root: Path) -> Iterator[Promise]:
    """Yield the promises of the pages in their order."""
    for page in PAGES:
        text = (root / page).read_text(encoding="utf-8")
        for match in PROMISE.finditer(text):
            yield Promise(f"{page}:{text.count(chr(10), 0, match.start()) + 1}", match[1], match[2])


def marked(root: Path) -> Iterator[Marked]:
    """Yield each test with each id that it carries, in the order of files and lines."""
    for folder in TESTS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if ".promise(" in text:
                yield from _marked_in(path.relative_to(root).as_posix(), ast.parse(text, str(path)))


def findings(root: Path) -> Iterator[str]:
    """Yield each promise without a test or with a double id, and each marker or text that names an unknown one."""
    known: set[str] = set()
    tested = list(marked(root))
    proven = {test.promise for test in tested}
    for place, promise, _ in promises(root):
        if promise in known:
            yield f"{place}: there is a promise `{promise}` already"
        elif promise not in proven:
            yield f"{place}: no test is marked with `{promise}`"
        known.add(promise)
    for test in tested:
        if test.promise is None:
            yield f"{test.path}:{test.line}: a marker needs the ids of promises, each as a string"
        elif test.promise not in known:
            yield f"{test.path}:{test.line}: no page has a promise `{test.promise}`"
    subjects = {promise.partition(".")[0] for promise in known}
    for page in PAGES:
        for subject, rest in NAMED.findall((root / page).read_text(encoding="utf-8")):
            if subject in subjects and subject + rest not in known:
                yield f"{page}: there is no promise `{subject}{rest}`"


def listing(root: Path, words: str) -> Iterator[str]:
    """Yield each promise whose id or text contains the words, with its tests below it."""
    tests: dict[str | None, list[str]] = {}
    for test in marked(root):
        tests.setdefault(test.promise, []).append(f"{test.path}::{test.test}".removesuffix("::"))
    for _, promise, text in promises(root):
        if words in f"{promise} {text}":
            yield f"{promise}: {text}"
            yield from (f"    {test}" for test in tests.get(promise, ()))


def _marked_in(path: str, module: ast.Module) -> Iterator[Marked]:
    for statement in module.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            yield from _of_markers(path, "", [statement.value])
    for node in ast.walk(module):
        if isinstance(node, _Definition):
            yield from _of_markers(path, node.name, node.decorator_list)


def _of_markers(path: str, test: str, markers: list[ast.expr]) -> Iterator[Marked]:
    for call in (node for marker in markers for node in ast.walk(marker) if isinstance(node, ast.Call)):
        if ast.unparse(call.func) != "pytest.mark.promise":
            continue
        ids = [part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if not ids or len(ids) < len(call.args):
            yield Marked(path, call.lineno, test, None)
        yield from (Marked(path, call.lineno, test, promise) for promise in ids)


def main(arguments: list[str]) -> int:
    """Print the list, or the findings; return 1 if there is a finding."""
    check = arguments == ["--check"]
    lines = list(findings(ROOT) if check else listing(ROOT, " ".join(arguments)))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if check and lines else 0


if __name__ == "__main__":
    # The list is long: a reader such as `head` may end before it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
