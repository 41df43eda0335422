"""The signed log: one hash chain of entries for each space, and a signed head that names its last entry.

The format never changes. Each text is encoded as a part: the length of its UTF-8 bytes (8 bytes, big endian) and these
bytes. Numbers are decimal text.

    hash            SHA-256 of the parts: ENTRY_TAG, space, seq, time, actor, action, subjects, payload, previous,
                    key_id
    signature       Ed25519 of the part SIGNATURE_TAG and the 32 raw bytes of the hash
    head signature  Ed25519 of the parts: HEAD_TAG, space, seq, hash, key_id

Hashes, signatures and key ids are lower-case hexadecimal, and nothing else is accepted: no stored byte can change
unnoticed. The head has a tag of its own, so that the signature of an older entry cannot pass for the head of a log
whose tail was cut off.

The row of the head is also the lock of its space: every change of a space appends to its log, so a transaction that
has locked the head is the only one that can commit there.

Positions in the change feed as opaque texts: the number of the last entry that was read in the log of each space.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import rfc8785

from commonbook.errors import BadInput, HomeDamaged
from commonbook.ports.database import Reading, Transaction
from commonbook.values.ids import format_time, id_bytes, id_of_bytes
from commonbook.values.reports import Change, LogEntry

if TYPE_CHECKING:
    from commonbook.ports.keys import Keys

ENTRY_TAG: Final = "commonbook log entry v1"
SIGNATURE_TAG: Final = "commonbook log entry signature v1"
HEAD_TAG: Final = "commonbook log head v1"
NO_PREVIOUS: Final = "0" * 64
BEGINNING: Final = (0, NO_PREVIOUS)
"""The end (number, hash) of a chain that has no entry yet."""

RESTORE_FIX: Final = "restore the home from a back-up whose log verifies, and find out who changed the database"
"""The advice for a log that cannot be read or does not verify."""


# An entry is read as it is stored: its fields are the columns of the table `log_entry`.
FIELDS: Final = LogEntry._fields
_ENTRY: Final = ", ".join(FIELDS)


def canonical(value: object) -> str:
    """Serialize a value as canonical JSON (RFC 8785), where equal values have one text; BadInput if it is not JSON."""
    json_value: Any = dict(value) if isinstance(value, Mapping) else value
    try:
        return rfc8785.dumps(json_value).decode()
    except (ValueError, RecursionError) as error:
        raise BadInput(
            "a value cannot be logged as JSON",
            fix="use valid Unicode text, finite numbers up to 2^53, and flat lists and objects",
        ) from error


# Appending and reading


def lock(tx: Transaction, spaces: Iterable[str], *, if_free: bool = False) -> dict[str, tuple[int, str]]:
    """Lock the chains of these spaces until the transaction ends, in the order of their ids; return the end of each.

    Every change of a space appends to its chain, so nothing else is committed there meanwhile. `if_free` leaves out
    chains that another transaction has locked, rather than wait for them.
    """
    wanted = sorted(spaces)
    if not wanted:
        return {}
    query = "SELECT space, seq, hash FROM log_head WHERE space IN :spaces ORDER BY space"
    rows = tx.lock_rows(query, if_free=if_free, spaces=wanted)
    return {space: _checked_end(space, seq, digest) for space, seq, digest in rows}


def append(
    tx: Transaction, keys: Keys, space: str, changes: Sequence[Change], *, end: tuple[int, str] | None = None
) -> tuple[int, str]:
    """Append the changes of one space to its chain, and sign its new head; return the new end.

    `end` is the end of the chain, if it was locked before.
    """
    seq, previous = end or lock(tx, [space]).get(space, BEGINNING)
    if not changes:
        return seq, previous
    time, key_id = _time(tx.now), keys.key_id
    rows: list[dict[str, object]] = []
    for change in changes:
        subjects, payload = canonical(change.subjects), canonical(change.payload)
        if change.space != space:
            raise ValueError(f"a change of space {change.space} was handed to the chain of space {space}")
        seq += 1
        fields = (space, str(seq), time, change.actor, change.action, subjects, payload, previous, key_id)
        try:
            digest = hash_of_entry(fields)
        except UnicodeEncodeError as error:
            raise BadInput("a lone surrogate cannot be logged", fix="send valid Unicode text") from error
        signature = keys.sign(entry_message(digest)).hex()
        rows.append(
            {
                "space": space,
                "seq": seq,
                "time": time,
                "actor": change.actor,
                "action": change.action,
                "subjects": subjects,
                "payload": payload,
                "previous": previous,
                "hash": digest,
                "signature": signature,
                "key_id": key_id,
            }
        )
        previous = digest
    tx.run_many(
        """
        INSERT INTO log_entry
        (space, seq, time, actor, action, subjects, payload, previous, hash, signature, key_id) VALUES
        (:space, :seq, :time, :actor, :action, :subjects, :payload, :previous, :hash, :signature, :key_id)
        """,
        rows,
    )
    head = keys.sign(head_message(space, seq, previous, key_id)).hex()
    tx.run_many(
        """
        INSERT INTO log_head (space, seq, hash, signature, key_id) VALUES (:space, :seq, :hash, :signature, :key_id)
        ON CONFLICT (space) DO UPDATE
        SET seq = excluded.seq, hash = excluded.hash, signature = excluded.signature, key_id = excluded.key_id
        """,
        [{"space": space, "seq": seq, "hash": previous, "signature": head, "key_id": key_id}],
    )
    return seq, previous


def is_logged(tx: Transaction, *, space: str, seq: int, digest: str) -> bool:
    """Tell whether an entry was committed; wait first for a transaction that is still appending to the chain."""
    lock(tx, [space])
    return _hash_at(tx, space, seq) == digest


def entries(tx: Reading, space: str, *, after: int = 0, limit: int = 500) -> list[LogEntry]:
    """Return the entries of a space that follow number `after`, oldest first, as stored."""
    return read_page(tx, space, after, limit)


def deletions_of(tx: Reading, memory_id: str) -> list[LogEntry]:
    """Return the entries by which a memory was deleted or came back, of all spaces, oldest first."""
    rows = tx.rows(
        # The condition on the action is that of a partial index.
        f"SELECT {_ENTRY} FROM log_entry WHERE subjects = :subjects"
        " AND action IN ('delete', 'restore', 'undelete') ORDER BY time, space, seq",
        subjects=canonical([memory_id]),
    )
    return [LogEntry._make(row) for row in rows]


def appends_by(tx: Reading, space: str, actor: str) -> list[LogEntry]:
    """Return the appends of an actor to sessions of a space, and where sessions began or came there, oldest first."""
    rows = tx.rows(
        f"SELECT {_ENTRY} FROM log_entry WHERE space = :space AND (action IN ('session.begin', 'session.move.in')"
        " OR (action = 'append' AND actor = :actor)) ORDER BY seq",
        space=space,
        actor=actor,
    )
    return [LogEntry._make(row) for row in rows]


def count(tx: Reading, spaces: Collection[str]) -> int:
    """Return how many entries there are, in these spaces together."""
    rows = tx.rows("SELECT space, count(*) FROM log_entry GROUP BY space")
    return sum(count for space, count in rows if space in spaces)


def heads(tx: Reading) -> dict[str, tuple[int, str]]:
    """Return the end (number, hash) of the chain of every space, as recorded in the heads."""
    return {space: (seq, digest) for space, seq, digest in tx.rows("SELECT space, seq, hash FROM log_head")}


def has(tx: Reading, entries: Mapping[str, tuple[int, str]]) -> bool:
    """Tell whether the log of each space has this hash at this number; the log of another book never does."""
    # Mostly the entry is still the last of its space; only the others are looked up.
    not_last = dict(entries.items() - heads(tx).items())
    return all(_hash_at(tx, space, seq) == digest for space, (seq, digest) in not_last.items())


def _hash_at(tx: Reading, space: str, seq: int) -> str | None:
    row = tx.row("SELECT hash FROM log_entry WHERE space = :space AND seq = :seq", space=space, seq=seq)
    (digest,) = row or (None,)
    return str(digest) if row else None


def _checked_end(space: str, seq: object, digest: object) -> tuple[int, str]:
    if type(seq) is not int or type(digest) is not str:
        raise HomeDamaged(f"the head of the log of space {space} cannot be read", fix=RESTORE_FIX)
    return seq, digest


def read_page(tx: Reading, space: str, after: int, limit: int) -> list[LogEntry]:
    """Return entries of one space in order, after a sequence number."""
    rows = tx.rows(
        f"SELECT {_ENTRY} FROM log_entry WHERE space = :space AND seq > :after ORDER BY seq LIMIT :limit",
        space=space,
        after=after,
        limit=limit,
    )
    return [LogEntry._make(row) for row in rows]


def _time(now: datetime) -> str:
    return format_time(now)


def _parts(*texts: str) -> bytes:
    return b"".join([len(part).to_bytes(8, "big") + part for part in map(str.encode, texts)])


_SIGNATURE_PART: Final = _parts(SIGNATURE_TAG)


def hash_of_entry(fields: Sequence[str]) -> str:
    """Hash (space, seq, time, actor, action, subjects, payload, previous, key_id)."""
    return sha256(_parts(ENTRY_TAG, *fields)).hexdigest()


def entry_message(digest: str) -> bytes:
    """Return the bytes that the signature of an entry covers."""
    return _SIGNATURE_PART + bytes.fromhex(digest)


def head_message(space: str, seq: int, digest: str, key_id: str) -> bytes:
    """Return the bytes that the signature of a chain's head covers."""
    return _parts(HEAD_TAG, space, str(seq), digest, key_id)


FIRST_POSITION: Final = "0"
"""The position before the first change of every space."""

_FORMAT: Final = b"\x01"
_ID_BYTES: Final = 16
_MAX_NUMBER: Final = 1 << 62


def format_position(numbers: Mapping[str, int]) -> str:
    """Return the position with these numbers of spaces, by their ids; 16 bytes and a short number for each space."""
    packed = b"".join(id_bytes(space) + _pack(number) for space, number in sorted(numbers.items()))
    return base64.urlsafe_b64encode(_FORMAT + packed).decode().rstrip("=")


def parse_position(position: str) -> dict[str, int]:
    """Return the numbers in a position that `format_position` made; BadInput if it is none."""
    if position == FIRST_POSITION:
        return {}
    try:
        packed = base64.b64decode(position + "=" * (-len(position) % 4), altchars=b"-_", validate=True)
        if packed[:1] != _FORMAT:
            raise ValueError(position)
        return _unpack(packed[1:])
    except (binascii.Error, ValueError, IndexError) as error:
        raise BadInput(
            "this is not a position in the changes", fix="pass on the `next` of a page or the id of an event, as it is"
        ) from error


def _pack(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; the high bit says that more follow."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _unpack(packed: bytes) -> dict[str, int]:
    numbers: dict[str, int] = {}
    at = 0
    while at < len(packed):
        space = id_of_bytes(packed[at : at + _ID_BYTES])
        at += _ID_BYTES
        number = shift = 0
        while packed[at] & 0x80:
            number |= (packed[at] & 0x7F) << shift
            shift += 7
            at += 1
        numbers[space] = number | packed[at] << shift
        at += 1
        if numbers[space] > _MAX_NUMBER:
            raise ValueError(space)
    return numbers
