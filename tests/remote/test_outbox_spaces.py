"""The outbox keeps sessions by space and name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commonbook import KeyConflict
from commonbook.ports.outbox import OutboxMessage, SessionContext
from commonbook.remote.outbox_client import Client
from tests.support import outbox_child


class Recording:
    """A transport that accepts everything, and keeps what it was given in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str | None, str, str]] = []

    def append(self, session, messages, *, context: SessionContext, timeout):
        self.sent += [(context.space, session, entry.text) for entry in messages]
        return {entry.client_id: True for entry in messages}


@pytest.fixture
def transport() -> Recording:
    return Recording()


@pytest.fixture
def here(tmp_path: Path, transport: Recording) -> Iterator[Client]:
    with outbox_child.client(tmp_path, transport=transport, background=False, space="crew") as opened:
        yield opened


@pytest.mark.promise("sessions.default")
def test_the_space_of_a_message_is_fixed_when_the_outbox_takes_it(here, transport, tmp_path):
    assert here.append("s", [OutboxMessage("in crew")]).space == "crew"
    assert here.append("s", [OutboxMessage("in team")], space="team").space == "team"
    assert [(one.context.space, one.session) for one in here.pending()] == [("crew", "s"), ("team", "s")]
    here.close()
    with outbox_child.client(tmp_path, transport=transport, background=False, space="another") as again:
        assert again.flush(60)
    assert sorted(transport.sent) == [("crew", "s", "in crew"), ("team", "s", "in team")]


def test_a_client_id_means_a_message_of_one_session(here, transport):
    for space in ("crew", "team"):
        assert here.append("s", [OutboxMessage(f"in {space}", client_id="1")], space=space).messages[0].new
        assert not here.append("s", [OutboxMessage(f"in {space}", client_id="1")], space=space).messages[0].new
    with pytest.raises(KeyConflict):
        here.append("s", [OutboxMessage("another", client_id="1")], space="team")
    assert here.flush(60)
    assert len(transport.sent) == 2


def test_a_refused_session_of_one_space_does_not_hold_up_the_other(here, transport, monkeypatch):
    from commonbook import Refused

    append = transport.append

    def refusing(session, messages, *, context, timeout):
        if context.space == "team":
            raise Refused("not here", client_ids=[entry.client_id for entry in messages])
        return append(session, messages, context=context, timeout=timeout)

    monkeypatch.setattr(transport, "append", refusing)
    for space in ("team", "crew"):
        here.append("s", [OutboxMessage(f"in {space}")], space=space)
    assert here.flush(60)
    assert [one.context.space for one in here.refused()] == ["team"]
    assert transport.sent == [("crew", "s", "in crew")]
