"""Forks of a conversation: a session of its own, which goes on from the one that it was made of where events tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

import commonbook
from tests.interfaces.agents.test_hooks import RECORDED, SESSION, answer, event, garden, hook, prompt

__all__ = ["garden"]

FORK = "5d0c1f6e-0000-4000-8000-000000000002"
QUESTION = "With what does the phone number of the gardener end?"


def branch(turn: str = "branch", *, of: str = SESSION, to: str = FORK) -> None:
    """Send the events with which Claude Code goes from a conversation into a fork of it."""
    hook(event("SessionEnd", of, reason="resume", prompt_id=turn))
    assert hook(event("SessionStart", to, source="fork", prompt_id=turn)) == ""


def parents(home: Any) -> dict[str, str | None]:
    with commonbook.open(home) as book:
        return {session.id: session.parent for session in book.sessions()}


@pytest.mark.promise("hooks.branches")
def test_the_recorded_branch_of_claude_code_goes_on_from_its_session(garden, home):
    events = [json.loads(line) for line in (RECORDED / "claude-code-branch.jsonl").read_text().splitlines()]
    for each in [*events, *events]:
        hook(each)
    first, fork, cleared = dict.fromkeys(each["session_id"] for each in events)
    assert parents(home) == {first: None, fork: first, cleared: None}
    with commonbook.open(home) as book:
        assert [message.text for message in book.messages(fork).items] == ["second words", "Answer 1."]
        assert book.messages(fork).session.space.name == "projects/garden"


@pytest.mark.promise("hooks.branches")
def test_a_fork_gets_nothing_again_that_is_in_its_prompt(garden, home):
    with commonbook.open(home) as book:
        book.remember("Tulips need sandy soil", space="projects/garden")
    assert "sandy" in hook(event("SessionStart", source="startup"))
    hook(prompt("The gardener's phone number ends with seventeen", "1"))
    branch()
    assert hook(prompt("Which soil do tulips need here?", "2", session=FORK)) == ""
    assert "seventeen" not in hook(prompt(QUESTION, "3", session=FORK))
    second = "5d0c1f6e-0000-4000-8000-000000000003"
    branch("again", of=FORK, to=second)
    assert "ends with seventeen" not in hook(prompt(QUESTION, "4", session=second))
    assert parents(home) == {SESSION: None, FORK: SESSION, second: FORK}
    hook(event("PreCompact", second, trigger="auto"))
    assert "ends with seventeen" in hook(prompt(QUESTION, "5", session=second))


@pytest.mark.promise("hooks.branches")
def test_words_that_came_after_the_fork_are_recalled_in_it(garden, home):
    hook(prompt("The roses by the wall are red", "1"))
    branch()
    hook(event("SessionStart", source="resume"))
    hook(prompt("The gardener's phone number ends with seventeen", "2"))
    assert "ends with seventeen" in hook(prompt(QUESTION, "3", session=FORK))


def test_a_fork_that_is_compacted_or_ends_without_a_word_does_not_disturb(garden, home):
    hook(prompt("The gardener's phone number ends with seventeen", "1"))
    branch()
    hook(event("PreCompact", FORK, trigger="manual"))
    assert "ends with seventeen" in hook(prompt(QUESTION, "2", session=FORK))
    branch("empty", to="empty")
    hook(event("SessionEnd", "empty", reason="other"))
    report = json.loads((home / ".commonbook" / "hooks" / "claude-code.json").read_text())
    assert report["failed"] == 0


def test_a_fork_whose_events_do_not_tell_is_a_session_of_its_own(garden, home):
    hook(prompt("The roses by the wall are red", "1"))
    hook(answer("Yes.", "1"))
    hook(event("SessionEnd", reason="other", prompt_id="1"))
    hook(event("SessionStart", FORK, source="fork"))
    hook(event("SessionStart", "startup", source="startup", prompt_id="1"))
    for session in (FORK, "startup"):
        hook(prompt("The tulips by the pond are white", "2", session=session))
    assert parents(home) == {SESSION: None, FORK: None, "startup": None}


def test_a_fork_is_delivered_with_its_parent_also_if_the_book_was_locked(garden, home, monkeypatch):
    hook(prompt("The roses by the wall are red", "1"))
    branch()

    def refuse(*_: Any, **__: Any) -> None:
        raise commonbook.Busy("another process writes", fix="try again")

    with monkeypatch.context() as patched:
        patched.setattr(commonbook.Book, "append", refuse)
        hook(prompt("The tulips by the pond are white", "2", session=FORK))
    hook(prompt("And the ivy is green", "3", session=FORK))
    assert parents(home) == {SESSION: None, FORK: SESSION}
