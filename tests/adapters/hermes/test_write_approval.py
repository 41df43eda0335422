"""Hermes' write approval (`memory.write_approval`) decides about the memories that the model stores.

`tests_hermes/test_approval.py` does the same with the real Hermes.
"""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import commonbook
from commonbook.adapters.hermes.provider import CommonbookMemoryProvider

WAITS = SimpleNamespace(allow=False, blocked=False, stage=True, message="Not yet saved")


@pytest.fixture
def provider(home, tmp_path, monkeypatch):
    monkeypatch.setenv("COMMONBOOK_HOME", str(home))
    made = CommonbookMemoryProvider(hermes_home=str(tmp_path / "hermes"))
    made.save_config({"write_seconds": 60, "space": "personal"}, str(tmp_path / "hermes"))
    made.initialize("s1", platform="cli")
    yield made
    made.shutdown()


@pytest.fixture
def gate(monkeypatch):
    """The write approval of Hermes, with the calls that it got."""
    module: Any = ModuleType("tools.write_approval")
    module.MEMORY, module.calls = "memory", []
    module.decision = SimpleNamespace(allow=True, blocked=False, stage=False, message="")

    def evaluate_gate(subsystem, *, inline_summary, inline_detail):
        module.calls.append((subsystem, inline_summary, inline_detail))
        return module.decision

    module.evaluate_gate = evaluate_gate
    monkeypatch.setitem(sys.modules, "tools", ModuleType("tools"))
    monkeypatch.setitem(sys.modules, "tools.write_approval", module)
    return module


def remember(provider, text, **more):
    return json.loads(provider.handle_tool_call("commonbook_remember", {"text": text, **more}))


def stored(home):
    with commonbook.open(home) as book:
        return [memory.text.strip() for memory in book.list().items]


def test_what_was_approved_is_stored(provider, gate, home):
    assert remember(provider, "Tea without sugar")["stored"] is True
    assert gate.calls == [("memory", "remember in Commonbook", "Tea without sugar")]
    assert stored(home) == ["Tea without sugar"]


@pytest.mark.promise("hermes.approval")
def test_what_waits_for_approval_is_proposed_and_the_model_is_told(provider, gate, home):
    gate.decision = WAITS
    answer = remember(provider, "Tea without sugar", kind="preference", tags=["tea"])
    assert (answer["stored"], answer["proposed"]) == (False, True)
    assert f"hermes commonbook approve {answer['id']}" in answer["message"]
    # The same text again is the same proposal.
    assert remember(provider, "Tea without sugar", kind="preference", tags=["tea"])["id"] == answer["id"]
    assert stored(home) == []
    with commonbook.open(home) as book:
        (waiting,) = book.pending()
        assert (waiting.id, waiting.space) == (answer["id"], "personal")
        assert not book.recall("tea without sugar", spaces=["/"]).hits
        book.approve(answer["id"])
        memory = book.get(answer["id"])
    assert (memory.space, memory.kind, memory.tags, memory.author) == (
        "personal", "preference", ("hermes", "tea"), "agent:hermes",
    )  # fmt: skip
    assert stored(home) == ["Tea without sugar"]


def test_what_was_rejected_is_gone_and_other_agents_are_not_reviewed(provider, gate, home):
    gate.decision = WAITS
    answer = remember(provider, "Tea without sugar")
    with commonbook.open(home) as book:
        book.reject(answer["id"])
        assert not book.pending()
        book.grant("agent:other", "personal", "writer")
        assert not book.acting_as("agent:other").remember("Lunch is at noon", space="personal").proposed
    assert stored(home) == ["Lunch is at noon"]


@pytest.mark.promise("hermes.approval")
def test_what_was_denied_is_not_stored(provider, gate, home):
    gate.decision = SimpleNamespace(allow=False, blocked=True, stage=False, message="denied by user")
    assert "denied by user" in remember(provider, "Tea without sugar")["error"]
    assert stored(home) == []
    with commonbook.open(home) as book:
        assert not book.pending()


def test_a_secret_is_masked_before_it_waits(provider, gate, home):
    gate.decision = WAITS
    remember(provider, "The token is ghp_012345678901234567890123456789abcdef")
    with commonbook.open(home) as book:
        (waiting,) = book.pending()
    assert "ghp_0123" not in f"{waiting} {gate.calls}"
