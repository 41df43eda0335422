"""Keyed hashes that rows and files carry: content hashes of memories, and MACs of the messages of episodes.

A content hash is an HMAC under the hashing key of the home, shortened to 16 hexadecimal digits. It covers the id, so
that nobody can confirm a guess about an unreadable memory by writing the guess into a memory of their own. Its first
four digits identify the key, so that a hash of another home is not mistaken for the hash of another text.
"""

from __future__ import annotations

import hmac
import re
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from commonbook.markdown import transcript
from commonbook.markdown.transcript import TranscriptMessage
from commonbook.model.ids import format_time
from commonbook.model.stored_memory import UNKNOWN_HASH, StoredMemory
from commonbook.ports.keys import Keys

HASH_DIGITS: Final = 16
_KEY_DIGITS: Final = 4


def content_hash(keys: Keys, memory_id: str, title: str, text: str) -> str:
    """Return the content hash that a memory of this id has with this title and text."""
    return _key_digits(keys) + keys.keyed_hash("content", memory_id, title, text)[: HASH_DIGITS - _KEY_DIGITS]


def with_hashes(keys: Keys, memory: StoredMemory) -> StoredMemory:
    """Return a memory with the hashes of what it says now; every row is stored with these."""
    source = memory.source
    return memory._replace(
        content_hash=content_hash(keys, memory.id, memory.title, memory.text),
        copy_hash=content_hash(keys, source.target, memory.title, memory.text) if source else None,
    )


def is_foreign(keys: Keys, hash_: str) -> bool:
    """Return whether another home made a content hash, so that it can be compared with nothing here."""
    return len(hash_) == HASH_DIGITS and hash_ != UNKNOWN_HASH and not hash_.startswith(_key_digits(keys))


def _key_digits(keys: Keys) -> str:
    # Every hash of a text begins with them: they are worked out once.
    digits = _known_digits.get(keys)
    if digits is None:
        digits = _known_digits[keys] = keys.keyed_hash("key of content hashes")[:_KEY_DIGITS]
    return digits


_known_digits: WeakKeyDictionary[Keys, str] = WeakKeyDictionary()


def is_valid(mac: str | None, expected: str) -> bool:
    """Compare a MAC that a file has with the expected one, in constant time."""
    return mac is not None and hmac.compare_digest(mac, expected)


# --- the lines that prove the messages of an episode

# Each message has a line in the file of its episode: its number, the MAC under the key of the home, and for a message
# with a client id also a keyed hash of what was sent, and that id. The MAC covers the heading of the message in the
# transcript too, and the session. So the messages come back into the log of a session that an older database has,
# together with their client ids.

_MESSAGE_LINE: Final = re.compile(
    r"(?P<seq>\d{1,15}) mac:(?P<mac>[0-9a-f]{16})(?: (?P<sent>[0-9a-f]{16}|[?-]) (?P<client_id>\S+))?"
)
_TO_ENCODE: Final = re.compile(r"[%\s\x00-\x1f\x7f-\x9f]")
_ENCODED: Final = re.compile(r"%([0-9A-F]{2,6});")
_NOT_SENT: Final = "-"


class ClientIds(NamedTuple):
    """The client id of a message, and the beginning of the hash of what was sent under it; None for what is unknown."""

    client_id: str | None = None
    sent: str | None = None


def message_line(keys: Keys, space_id: str, session: str, message: TranscriptMessage, ids: ClientIds) -> str:
    """Return the line of a message in the file of its episode."""
    ids = ids._replace(sent=ids.sent[:HASH_DIGITS] if ids.sent else None)
    words = [str(message.seq), f"mac:{_message_mac(keys, space_id, session, message, ids)}"]
    if ids.client_id is not None:
        words += [ids.sent or _NOT_SENT, _TO_ENCODE.sub(lambda match: f"%{ord(match[0]):02X};", ids.client_id)]
    return " ".join(words)


def proven_messages(keys: Keys, memory: StoredMemory) -> dict[str, ClientIds]:
    """Return the messages of an episode that this home wrote into its file, by id, with their client ids."""
    if not memory.message_lines or memory.session is None:
        return {}
    by_seq = {message.seq: message for message in transcript.parse(memory.text).messages}
    found: dict[str, ClientIds] = {}
    for match in filter(None, map(_MESSAGE_LINE.fullmatch, memory.message_lines)):
        message = by_seq.get(int(match["seq"]))
        ids = _client_ids_in(match)
        if message is not None and is_valid(
            match["mac"], _message_mac(keys, memory.space.id, memory.session, message, ids)
        ):
            found[message.id] = ids
    return found


def _client_ids_in(match: re.Match[str]) -> ClientIds:
    if match["client_id"] is None:
        return ClientIds()
    client_id = _ENCODED.sub(lambda code: chr(int(code[1], 16)), match["client_id"])
    return ClientIds(client_id, None if match["sent"] == _NOT_SENT else match["sent"])


def _message_mac(keys: Keys, space_id: str, session: str, message: TranscriptMessage, ids: ClientIds) -> str:
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
