"""Content hashes: rows and files carry them, to compare what memories say.

A content hash is an HMAC under the hashing key of the home, shortened to 16 hexadecimal digits. It covers the id, so
that nobody can confirm a guess about an unreadable memory by writing the guess into a memory of their own. Its first
four digits identify the key, so that a hash of another home is not mistaken for the hash of another text.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from commonbook.ports.keys import Keys
from commonbook.values.stored_memory import UNKNOWN_HASH, StoredMemory

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
