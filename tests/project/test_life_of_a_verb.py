"""The lives of `remember` and `recall` in ARCHITECTURE.md are the functions that these verbs call, in this order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import commonbook
from commonbook.service.book import Book

PAGE = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"
SOURCE = Path(commonbook.__file__).parent
STEP = re.compile(r"^(\d+)\. \[`([\w.]+)`\]\(([^)]+)\)", re.MULTILINE)

CALLS: dict[str, Callable[[Book], object]] = {
    "remember": lambda book: book.remember("Alice owns the billing service", tags=["billing"]),
    "recall": lambda book: book.recall("who owns billing"),
}


def life_of(verb: str) -> list[tuple[str, str]]:
    """Return the functions that the page names for a verb, each with the file that its link leads to."""
    section = PAGE.read_text(encoding="utf-8").split(f"## The life of a `{verb}`\n")[1].split("\n## ")[0]
    steps = STEP.findall(section)
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    return [(name, target) for _, name, target in steps]


def calls_of(run: Callable[[], object]) -> list[str]:
    """Return the functions of the package that a call enters, each once, in the order of the first calls."""
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            entered[f"{module}.{frame.f_code.co_qualname}"] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(entered)


@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_calls_the_functions_that_the_page_names_in_their_order(verb, tmp_path):
    with commonbook.open(tmp_path / "home", create=True) as book:
        book.remember("Bob runs the deploys")
        book.recall("who runs deploys")
        entered = calls_of(lambda: CALLS[verb](book))
    named = [name for name, _ in life_of(verb)]
    assert 5 <= len(named) <= 8
    assert [name for name in entered if name in named] == named


@pytest.mark.parametrize("verb", CALLS)
def test_each_step_links_to_the_file_of_its_function(verb):
    for name, target in life_of(verb):
        path = (PAGE.parent / target).resolve().relative_to(SOURCE).with_suffix("")
        assert name.startswith(".".join(path.parts) + "."), target


def test_another_chain_would_be_found(tmp_path):
    with commonbook.open(tmp_path / "home", create=True) as book:
        entered = calls_of(lambda: CALLS["remember"](book))
    named = [name for name, _ in life_of("remember")]
    for changed in (named[::-1], [*named, "write.transaction.undo"]):
        assert [name for name in entered if name in changed] != changed
