"""Check the rules of this code that no other linter knows; print each finding as `path:line: message`.

A check is a function that takes one parsed file and yields its findings. A new one is added to `CHECKS`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
CHECKED: Final = ("src",)

MAX_LOOSE_COLUMNS: Final = 4
"""A row of more columns is a named tuple, or is unpacked into the names of one."""

_ROWS: Final = frozenset({"row", "rows"})


class Source(NamedTuple):
    """A parsed Python file; its path is relative to the repository."""

    path: str
    text: str
    tree: ast.Module


class Finding(NamedTuple):
    """A place that breaks a rule."""

    line: int
    message: str


def rows_by_number(source: Source) -> Iterator[Finding]:
    """Find columns that are read by their position, as in `row[3]`, `tx.row(...)[0]` or `row[4:7]`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Subscript) and _is_position(node.slice) and _is_row(node.value):
            yield Finding(node.lineno, f"`{ast.unparse(node)}` reads a row by number: unpack it, or name its columns")
        elif isinstance(node, ast.Subscript) and _is_column_slice(node):
            yield Finding(node.lineno, f"`{ast.unparse(node)}` cuts a row by number: unpack it, or name its columns")


def rows_out_of_order(source: Source) -> Iterator[Finding]:
    """Find wide rows that are unpacked into other names than the fields of a named tuple, or in another order."""
    tuples = set(_named_tuples(source.tree))
    for node in ast.walk(source.tree):
        names = _unpacked_row(node)
        if len(names) > MAX_LOOSE_COLUMNS and names not in tuples:
            line = getattr(node, "lineno", 0)
            yield Finding(line, "`row` is unpacked into names that are not the fields of a named tuple of this module")


CHECKS: Final[tuple[Callable[[Source], Iterator[Finding]], ...]] = (rows_by_number, rows_out_of_order)


def _is_row(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _ROWS
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ROWS


def _is_position(node: ast.expr | None) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_column_slice(node: ast.Subscript) -> bool:
    """Tell whether this is a piece of one row; a piece of several rows is a list as any other."""
    one_row = isinstance(node.value, ast.Name) and node.value.id == "row"
    return (
        one_row and isinstance(node.slice, ast.Slice) and any(map(_is_position, (node.slice.lower, node.slice.upper)))
    )


def _named_tuples(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("NamedTuple") for base in node.bases):
            fields = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            yield tuple(field.id for field in fields if isinstance(field, ast.Name))


def _unpacked_row(node: ast.AST) -> tuple[str, ...]:
    """Return the names into which `row` is unpacked; one that would hide a builtin has an underscore behind it."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Name) or node.value.id != "row":
        return ()
    names = [target.elts for target in node.targets if isinstance(target, ast.Tuple)]
    return tuple(ast.unparse(name).removesuffix("_") for some in names for name in some)


def _sources() -> Iterator[Source]:
    for folder in CHECKED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield Source(str(path.relative_to(ROOT)), text, ast.parse(text, str(path)))


def main() -> int:
    """Check every file; return 1 if there is a finding."""
    found = [(source.path, *finding) for source in _sources() for check in CHECKS for finding in check(source)]
    for path, line, message in sorted(found):
        sys.stdout.write(f"{path}:{line}: {message}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
