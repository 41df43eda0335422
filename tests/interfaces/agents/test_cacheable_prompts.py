"""Hooks keep prompts cacheable: over 20 turns, unchanged memory gives unchanged bytes, and news is only appended."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import commonbook
from tests.interfaces.agents.test_hooks import RECORDED, SESSION, garden, hook

__all__ = ["garden"]

TURNS = 20
TOPICS = ("tulips", "roses", "compost", "the greenhouse", "hedges")
NEWS = "Hedges are cut on the last Friday of June"
QUESTION_ABOUT_NEWS = 14
"""The first turn after the news that asks about hedges."""


def recorded_events() -> dict[str, dict[str, Any]]:
    """The events that a real agent sent, by their names."""
    lines = (RECORDED / "claude-code.jsonl").read_text(encoding="utf-8").splitlines()
    return {event["hook_event_name"]: {**event, "session_id": SESSION} for event in map(json.loads, lines)}


def requests(before_turn: Callable[[int], None] = lambda turn: None) -> list[list[str]]:
    """Replay a conversation, and return the parts of the request that the model gets in each turn."""
    events = recorded_events()
    parts = [hook(events["SessionStart"])]
    found = []
    for turn in range(TURNS):
        before_turn(turn)
        prompt = f"Question {turn}: what do we know about {TOPICS[turn % len(TOPICS)]} in our garden?"
        parts += [prompt, hook({**events["UserPromptSubmit"], "prompt_id": str(turn), "prompt": prompt})]
        found.append(list(parts))
        parts.append(f"Answer {turn}.")
        assert hook({**events["Stop"], "prompt_id": str(turn), "last_assistant_message": parts[-1]}) == ""
    return found


@pytest.fixture
def twin(garden: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fill the book; the returned function puts a copy of it, as it is now, in the place of the book."""
    with commonbook.open(home) as book:
        for topic in TOPICS:
            for number in range(3):
                text = f"Rule {number} about {topic} in our garden: ask the gardener about {topic} first"
                book.remember(text, kind="decision", space="projects/garden")
    shutil.copytree(home, tmp_path / "kept")

    def put_back() -> None:
        shutil.rmtree(home)
        shutil.copytree(tmp_path / "kept", home)

    return put_back


def ids_in(parts: list[str]) -> list[str]:
    return re.findall(r"decision ([0-9a-f-]{36})", "\n".join(parts))


@pytest.mark.promise("hooks.cacheable")
def test_unchanged_memory_gives_unchanged_bytes_over_twenty_turns(twin):
    first = requests()
    twin()

    def resume(turn: int) -> None:
        # An agent that is started again goes on with the same conversation.
        if turn in (5, 12):
            assert hook({**recorded_events()["SessionStart"], "source": "resume"}) == ""

    assert requests(resume) == first
    # The start has memories, and what is in the conversation already is not added to it again.
    assert len(ids_in(first[0][:1])) >= len(TOPICS)
    assert len(set(ids_in(first[-1]))) == len(ids_in(first[-1]))
    assert first[-1].count("") > TURNS // 2


@pytest.mark.promise("hooks.cacheable")
def test_news_is_appended_at_the_turn_and_nothing_before_it_changes(twin, home):
    unchanged = requests()
    twin()

    def remember(turn: int) -> None:
        if turn == QUESTION_ABOUT_NEWS - 2:
            with commonbook.open(home) as book:
                book.remember(NEWS, kind="decision", space="projects/garden")

    changed = requests(remember)
    assert changed[QUESTION_ABOUT_NEWS - 1] == unchanged[QUESTION_ABOUT_NEWS - 1]
    asking = changed[QUESTION_ABOUT_NEWS]
    assert asking[:-1] == unchanged[QUESTION_ABOUT_NEWS][:-1]
    assert NEWS in asking[-1]
    assert sum(NEWS in part for part in changed[-1]) == 1
    for earlier, later in pairwise(changed):
        assert later[: len(earlier)] == earlier
