"""Fixtures: a user of the real Hermes, and the check of what is stored, which records the calls of Hermes.

COMMONBOOK_RECORDINGS   a folder into which the calls of Hermes are written, which tests/adapters/hermes replays
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests_hermes.real_hermes import RealHermes

KEPT = (
    "initialize",
    "on_turn_start",
    "sync_turn",
    "on_session_end",
    "on_pre_compress",
    "on_session_switch",
    "shutdown",
)


@pytest.fixture
def hermes(tmp_path):
    made: list[RealHermes] = []

    def make(*steps):
        made.append(RealHermes(tmp_path, list(steps)))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def assert_stored(request, tmp_path):
    """Check what is stored, and record the calls if that is wanted; the replay checks it after the same calls."""
    checks: list[dict[str, Any]] = []

    def check(hermes: RealHermes, *expected: tuple[str, str]) -> None:
        assert hermes.stored() == list(expected)
        calls = [call for call in outermost(hermes.calls()) if call["call"] in KEPT]
        checks.append({"after": len(calls), "stored": expected})
        if folder := os.environ.get("COMMONBOOK_RECORDINGS"):
            name = request.node.name.removeprefix("test_")
            *earlier, last = checks
            recording = {"calls": calls, "earlier": earlier, "stored": last["stored"], "spaces": hermes.spaces()}
            text = json.dumps(recording, ensure_ascii=False, indent=1)
            Path(folder, f"{name}.json").write_text(text.replace(str(tmp_path), "/home/user") + "\n", encoding="utf-8")

    return check


def outermost(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls without those that `initialize` makes itself, and with the providers numbered."""
    within: set[str] = set()
    numbers: dict[str, str] = {}
    found = []
    for call in calls:
        if call.get("returned") == "initialize":
            within.discard(call["provider"])
        elif "call" in call and call["provider"] not in within:
            found.append(call | {"provider": numbers.setdefault(call["provider"], str(len(numbers) + 1))})
            within |= {call["provider"]} if call["call"] == "initialize" else set()
    return found
