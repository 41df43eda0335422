"""The pages about the code name modules, functions, members of classes and files that exist."""

from __future__ import annotations

import ast
import importlib
import re
import sqlite3
from pathlib import Path

import pytest

import commonbook
from commonbook.service.book import Book

ROOT = Path(__file__).parents[2]
SOURCE = Path(commonbook.__file__).parent
PACKAGES = {
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in [
        *SOURCE.glob("*/__init__.py"),
        *SOURCE.glob("subjects/*/__init__.py"),
        *SOURCE.glob("core/*/__init__.py"),
    ]
}
PAGES_ABOUT_CODE = ["docs/ARCHITECTURE.md", "CONTRIBUTING.md"]
PAGES = [
    *PAGES_ABOUT_CODE,
    "docs/GUIDE.md",
    "docs/SCALING.md",
    "docs/SETTINGS.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "decisions").glob("*.md")),
]
ENTRY_POINTS = {"commonbook.embedders"}


def names_in_backticks(page: str, pattern: str) -> list[str]:
    """The names of a page in backticks that match a pattern; a call's arguments may follow."""
    return re.findall(rf"`({pattern})(?:\([^`]*\))?`", (ROOT / page).read_text(encoding="utf-8"))


def dotted_names(page: str) -> list[str]:
    """The names such as `core.write.transaction.write` that a page gives, without the names of lock files."""
    names = names_in_backticks(page, r"[a-z_]+(?:\.[A-Za-z_]+)+")
    return [
        name.removeprefix("commonbook.")
        for name in names
        if name not in ENTRY_POINTS
        and name.split(".")[0] in PACKAGES | {"commonbook"}
        and not re.fullmatch(r"\w+\.lock", name)
    ]


def exists(name: str) -> bool:
    """Tell whether a name is a module, a member of a module, or a verb such as `service.working`."""
    parts = ["commonbook", *name.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            if not hasattr(value, attribute):
                return len(parts) == 3 and parts[1] == "service" and hasattr(Book, attribute)
            value = getattr(value, attribute)
        return True
    return False


def members_of_classes() -> set[str]:
    """The names such as `Book.remember` of all methods and attributes in the package."""
    members = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                members |= {f"{node.name}.{name}" for name in _members(node)}
    return members


def _members(node: ast.ClassDef) -> set[str]:
    names = set()
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
    return names


@pytest.mark.parametrize("page", PAGES)
def test_every_module_and_function_that_a_page_names_exists(page):
    names = dotted_names(page)
    assert names or page not in PAGES_ABOUT_CODE
    assert [name for name in names if not exists(name)] == []


def test_every_member_of_a_class_that_a_page_names_exists():
    named = {name for page in PAGES for name in names_in_backticks(page, r"[A-Z]\w+\.\w+")}
    assert "WriteContext.lock" in named
    assert named - members_of_classes() == set()


def test_a_name_that_is_gone_would_be_found():
    assert exists("core.write.transaction.write")
    assert not exists("core.write.transaction.seal_by_hand")
    assert not exists("desk.hold")
    assert exists("service.working")
    assert not exists("service.desk")
    assert "WriteContext.seal" not in members_of_classes()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md))`", text)
    places = (ROOT, SOURCE)
    assert paths or page not in PAGES_ABOUT_CODE
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def test_the_table_of_packages_is_complete():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.split("| package | subject |")[1].split("\n\n")[0]
    listed = set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))
    assert listed == PACKAGES


def test_the_table_of_the_databases_tables_is_complete(tmp_path):
    commonbook.open(tmp_path, create=True).close()
    database = sqlite3.connect(tmp_path / ".commonbook" / "state.db")
    stored = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database.close()
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = text.split("| table | owner | holds |")[1].split("\n\n")[0].splitlines()
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", "|".join(row.split("|")[:2]))}
    assert listed == {name for name in stored if not name.startswith("sqlite_")} - {"schema_version"}
