"""The pages about the code name modules, functions and files that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import commonbook

ROOT = Path(__file__).parents[2]
PACKAGES = {path.name for path in Path(commonbook.__file__).parent.iterdir() if path.is_dir()}
PAGES = ["docs/ARCHITECTURE.md", "CONTRIBUTING.md"]


def dotted_names(page: str) -> list[str]:
    """The names such as `write.transaction.write` that a page gives in backticks."""
    names = re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)(?:\([^`]*\))?`", (ROOT / page).read_text(encoding="utf-8"))
    return [
        name
        for name in names
        if name.split(".")[0] in PACKAGES and not name.endswith((".lock", ".working", ".watching"))
    ]


def exists(name: str) -> bool:
    parts = ["commonbook", *name.split(".")]
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.mark.parametrize("page", PAGES)
def test_every_module_and_function_that_a_page_names_exists(page):
    names = dotted_names(page)
    assert names
    assert [name for name in names if not exists(name)] == []


def test_a_name_that_is_gone_would_be_found():
    assert exists("write.transaction.write")
    assert not exists("write.transaction.seal_by_hand")
    assert not exists("desk.hold")


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md))`", text)
    places = (ROOT, ROOT / "src" / "commonbook")
    assert paths
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []


def test_the_table_of_packages_is_complete():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.split("| package | subject |")[1].split("\n\n")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert listed == PACKAGES - {"__pycache__", "data"}
