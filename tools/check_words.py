"""Check the words of code and pages: no private terms, no vague names, and page lines that are not too long.

Run it with paths to check only those: `python tools/check_words.py src/commonbook/subjects/sharing`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
CODE: Final = ("src", "tests", "tests_models", "tests_clients", "tests_hermes", "benchmarks", "tools")
PAGES: Final = ("*.md", "docs/**/*.md", "src/**/*.md", "tools/**/*.md")
MAX_PAGE_LINE: Final = 120

VAGUE_NAMES: Final = frozenset({"desk", "desks", "story", "stories", "shaken", "said", "told", "asked"})
"""They name anything and therefore nothing: use the noun of the thing (receipt, memory, request, result)."""

VAGUE_CONSTANTS: Final = frozenset({"FEW", "MOST", "LONG", "MANY", "LEAST", "LONGEST", "LARGEST", "SHORT", "AT_ONCE"})
"""A limit is named with what it limits and its unit, such as MAX_HITS or MAX_QUERY_CHARS."""

PRIVATE_WORDS: Final = re.compile(r"\b(desks?|story|stories|shaken|whoever|whomever)\b", re.IGNORECASE)
"""Words of an old private narrative, in docstrings, comments and pages."""

VAGUE_BEGINNING: Final = re.compile(r"\s*(What|Whatever|Who|Whoever)\b")
"""The first sentence of a docstring has a subject and a verb."""


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        """Write it as other linters do."""
        return f"{self.path}:{self.line}: {self.message}"


def check_code(path: str, text: str) -> Iterator[Finding]:
    """Find vague names, private words, and docstrings whose first sentence has no subject."""
    tree = ast.parse(text, path)
    for node in ast.walk(tree):
        for name, line in _names(node):
            if name in VAGUE_NAMES:
                yield Finding(path, line, f"`{name}` is a vague name: use the noun of the thing")
            elif name.isupper() and name.lstrip("_") in VAGUE_CONSTANTS:
                yield Finding(path, line, f"`{name}` does not say what it limits, or in which unit")
        doc = _docstring(node)
        if doc is not None and VAGUE_BEGINNING.match(doc.value):
            yield Finding(path, doc.lineno, "a docstring begins with a subject and a verb, not with what or who")
        if doc is not None:
            yield from _private_words(path, doc.lineno, doc.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from _private_words(path, token.start[0], token.string)


def check_page(path: str, text: str) -> Iterator[Finding]:
    """Find long lines (rows of tables aside) and private words."""
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > MAX_PAGE_LINE and not line.lstrip().startswith("|"):
            yield Finding(path, number, f"a line of {len(line)} characters: at most {MAX_PAGE_LINE}")
        yield from _private_words(path, number, line)


def _private_words(path: str, line: int, text: str) -> Iterator[Finding]:
    for match in PRIVATE_WORDS.finditer(text):
        yield Finding(path, line + text.count("\n", 0, match.start()), f"`{match[0]}` is a private word")


class _Doc(NamedTuple):
    value: str
    lineno: int


def _docstring(node: ast.AST) -> _Doc | None:
    """Return the docstring of a module, class or function, or a string that documents an attribute."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return _Doc(node.value.value, node.lineno)
    return None


def _names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a node gives to something: definitions, parameters, variables, attributes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr, node.lineno
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, node.lineno


def _files(wanted: list[Path]) -> Iterator[Path]:
    if wanted:
        for path in wanted:
            yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
        return
    for folder in CODE:
        yield from sorted((ROOT / folder).rglob("*.py"))
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))


def main(arguments: list[str]) -> int:
    """Check these files, or all; return 1 if there is a finding."""
    found = 0
    for path in _files([Path(argument).resolve() for argument in arguments]):
        text = path.read_text(encoding="utf-8")
        check = check_page if path.suffix == ".md" else check_code
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for finding in check(str(shown), text):
            sys.stdout.write(f"{finding}\n")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
