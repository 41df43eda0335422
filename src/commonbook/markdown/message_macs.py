"""The lines in the file of an episode that prove its messages: one for each, with a MAC under the key of the home.

A line has the number of the message, the MAC, and for a message with a client id also a keyed hash of what was sent,
and that id. The MAC covers the heading of the message in the transcript too, and the session. So the messages come back
into the log of a session that an older database has, together with their client ids.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from commonbook.markdown import keyed_hashes, transcript
from commonbook.markdown.keyed_hashes import HASH_DIGITS
from commonbook.model.ids import format_time

if TYPE_CHECKING:
    from commonbook.markdown.transcript import TranscriptMessage
    from commonbook.model.stored_memory import StoredMemory
    from commonbook.ports.keys import Keys

_LINE: Final = re.compile(
    r"(?P<seq>\d{1,15}) mac:(?P<mac>[0-9a-f]{16})(?: (?P<sent>[0-9a-f]{16}|[?-]) (?P<client_id>\S+))?"
)
_TO_ENCODE: Final = re.compile(r"[%\s\x00-\x1f\x7f-\x9f]")
_ENCODED: Final = re.compile(r"%([0-9A-F]{2,6});")
_NOT_SENT: Final = "-"


class ClientIds(NamedTuple):
    """The client id of a message, and the beginning of the hash of what was sent under it; None for what is unknown."""

    client_id: str | None = None
    sent: str | None = None


def line_of(keys: Keys, space_id: str, session: str, message: TranscriptMessage, ids: ClientIds) -> str:
    """Return the line of a message in the file of its episode."""
    ids = ids._replace(sent=ids.sent[:HASH_DIGITS] if ids.sent else None)
    words = [str(message.seq), f"mac:{_mac(keys, space_id, session, message, ids)}"]
    if ids.client_id is not None:
        words += [ids.sent or _NOT_SENT, _TO_ENCODE.sub(lambda match: f"%{ord(match[0]):02X};", ids.client_id)]
    return " ".join(words)


def proven(keys: Keys, memory: StoredMemory) -> dict[str, ClientIds]:
    """Return the messages of an episode that this home wrote into its file, by id, with their client ids."""
    if not memory.message_lines or memory.session is None:
        return {}
    by_seq = {message.seq: message for message in transcript.parse(memory.text).messages}
    found: dict[str, ClientIds] = {}
    for match in filter(None, map(_LINE.fullmatch, memory.message_lines)):
        message = by_seq.get(int(match["seq"]))
        ids = _ids_in(match)
        if message is not None and keyed_hashes.is_valid(
            match["mac"], _mac(keys, memory.space.id, memory.session, message, ids)
        ):
            found[message.id] = ids
    return found


def _ids_in(match: re.Match[str]) -> ClientIds:
    if match["client_id"] is None:
        return ClientIds()
    client_id = _ENCODED.sub(lambda code: chr(int(code[1], 16)), match["client_id"])
    return ClientIds(client_id, None if match["sent"] == _NOT_SENT else match["sent"])


def _mac(keys: Keys, space_id: str, session: str, message: TranscriptMessage, ids: ClientIds) -> str:
    """Return the MAC of a message, over everything but its words, which a person may edit."""
    return keys.keyed_hash(
        "message",
        space_id,
        session,
        str(message.seq),
        message.id,
        message.author,
        message.role,
        format_time(message.time),
        "" if ids.client_id is None else f"+{ids.client_id}",
        ids.sent or "",
    )[:HASH_DIGITS]
