"""The outbox keeps sessions by space and name, and takes over the file of an older version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from commonbook import KeyConflict
from commonbook.client.outbox_client import Client
from commonbook.engines.sqlite import outbox as sqlite_outbox
from commonbook.ports.outbox import OutboxMessage, SessionContext
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


OLD_ROWS = [
    # session, client id, space, state, text
    ("a", "1", None, "waiting", "one"),
    ("a", "2", "team", "waiting", "two"),
    ("b", "1", None, "refused", "three"),
    ("a", "3", None, "waiting", "four"),
]


def test_the_outbox_of_an_older_version_is_sent_in_order(tmp_path, transport, monkeypatch):
    path = tmp_path / "box" / "outbox.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as old:
        old.executescript(sqlite_outbox._VERSION_1)
        for session, client_id, space, state, text in OLD_ROWS:
            old.execute(
                "INSERT INTO message (session, client_id, space, tags, role, text, time, masked, size, state)"
                " VALUES (?, ?, ?, '[]', 'user', ?, '2026-01-02T03:04:05.000000Z', 0, 4, ?)",
                (session, client_id, space, text, state),
            )
        old.execute("INSERT INTO lane (session, since, due) VALUES ('a', 0, 0)")
        old.execute("DELETE FROM message WHERE text = 'nothing'")
        old.execute("PRAGMA user_version=1")
        old.commit()
    with outbox_child.client(tmp_path, transport=transport, background=False, space="crew") as here:
        assert [(one.id, one.context.space, one.session, one.entry.text) for one in here.pending()] == [
            (1, "crew", "a", "one"),
            (2, "team", "a", "two"),
            (4, "crew", "a", "four"),
        ]
        assert [(one.context.space, one.session) for one in here.refused()] == [("crew", "b")]
        # The same client id again is known.
        assert not here.append("a", [OutboxMessage("one", client_id="1")]).messages[0].new
        assert here.append("a", [OutboxMessage("five")]).messages[0].id == 5
        assert here.flush(60)
    assert [row for row in transport.sent if row[0] == "crew"] == [
        ("crew", "a", "one"),
        ("crew", "a", "four"),
        ("crew", "a", "five"),
    ]
    assert [row for row in transport.sent if row[0] == "team"] == [("team", "a", "two")]
