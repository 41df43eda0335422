"""Outbox first: a session is settled, closed, switched, rewound or moved after its waiting messages were sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from commonbook.client.lazy_outbox import LazyOutbox
from commonbook.errors import Unreachable

_SESSION_ARGUMENTS: Final = {
    "switch": "old",
    "rewind": "session",
    "settle": "session",
    "close_session": "session",
    "move_session": "session",
    "record_uses": "session",
}
"""The verbs that must find all messages of a session on the server, with the argument that names the session."""


def send_waiting(
    outbox: LazyOutbox, verb: str, arguments: Mapping[str, object], *, default_space: str | None, seconds: float
) -> None:
    """Send the messages of a verb's session that wait in the outbox, if the verb must find them on the server.

    Unreachable is raised if they cannot be sent in so many seconds: the verb is then not called.
    """
    if verb not in _SESSION_ARGUMENTS:
        return
    session, given_space = str(arguments[_SESSION_ARGUMENTS[verb]]), arguments.get("space")
    space = given_space if isinstance(given_space, str) else default_space
    if not outbox.is_waiting(session, space):
        return
    outbox.client().flush(seconds)
    if outbox.is_waiting(session, space):
        raise Unreachable(
            f"messages of the session {session!r} wait in the outbox of this machine",
            fix="try again when the server answers",
        )
