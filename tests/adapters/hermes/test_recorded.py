"""Calls that the real Hermes made, as `make check-hermes` recorded them, stored as the same messages on each engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commonbook.adapters.hermes.provider import CommonbookMemoryProvider
from commonbook.values.session import Message, Session
from tests.support.hermes import everything, reading

RECORDINGS = sorted((Path(__file__).parent / "recorded").glob("*.json"))


def sessions_of(place) -> list[tuple[str, tuple[Session, list[Message]]]]:
    """Return every session with its messages, in the order of their ids."""
    with reading(place) as book:
        return sorted(everything(book).items())


def stored(sessions) -> list[list[str]]:
    """Return role and text of every message, session after session."""
    return [[one.role, one.text] for _, (_, messages) in sessions for one in messages]


@pytest.mark.promise("hermes.typed")
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_what_the_real_hermes_hands_over_is_stored_as_it_was_typed(place, path, tmp_path):
    recording = json.loads(path.read_text(encoding="utf-8"))
    hermes_home = str(tmp_path / "hermes")
    providers: dict[str, CommonbookMemoryProvider] = {}
    earlier = {check["after"]: check["stored"] for check in recording.get("earlier", ())}
    for number, call in enumerate(recording["calls"], 1):
        if call["call"] == "initialize":
            # Another process, also if the one before was killed; or another request of a gateway.
            made = providers[call["provider"]] = CommonbookMemoryProvider(hermes_home=hermes_home)
            made.save_config({"write_seconds": 60}, hermes_home)
            call["kwargs"]["hermes_home"] = hermes_home
        getattr(providers[call["provider"]], call["call"])(*call["args"], **call["kwargs"])
        if number in earlier:
            assert stored(sessions_of(place)) == earlier.pop(number)
    assert not earlier
    sessions = sessions_of(place)
    assert stored(sessions) == recording["stored"]
    assert {name: session.space.name for name, (session, _) in sessions} == recording["spaces"]
    for provider in providers.values():
        provider.shutdown()


def test_there_are_recordings():
    assert len(RECORDINGS) >= 21
