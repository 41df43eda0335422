"""The signed log: one chain of entries for each space, and a signed head that says where it ends.

The format never changes. A part is the length of its UTF-8 bytes (8 bytes, big endian) and these bytes.
Numbers are decimal text.

    hash            SHA-256 of the parts: ENTRY_TAG, space, seq, time, actor, action, subjects, payload, previous,
                    key_id
    signature       Ed25519 of the part SIGNATURE_TAG and the 32 raw bytes of the hash
    head signature  Ed25519 of the parts: HEAD_TAG, space, seq, hash, key_id

Hashes, signatures and key ids are lower-case hexadecimal, and nothing else is accepted: every stored byte counts.
The head has a tag of its own, so that an older entry's signature cannot pass for the head of a log whose tail was cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from json.encoder import encode_basestring
from math import isfinite
from typing import Final, NamedTuple

from commonbook.errors import BadInput, HomeDamaged
from commonbook.model import Change, Finding, LogEntry, LogReport, Progress, stamp
from commonbook.ports import Keys, Reading, Transaction

ENTRY_TAG: Final = "commonbook log entry v1"
SIGNATURE_TAG: Final = "commonbook log entry signature v1"
HEAD_TAG: Final = "commonbook log head v1"
NO_PREVIOUS: Final = "0" * 64
BEGINNING: Final = (0, NO_PREVIOUS)
"""The end of a chain that has no entry yet."""


class _HeadRow(NamedTuple):
    """A row of the table `log_head`: the fields are the columns, in the order of the SELECT."""

    space: str
    seq: int
    hash: str
    signature: str
    key_id: str


# An entry is read as it is stored: its fields are the columns of the table `log_entry`.
FIELDS: Final = LogEntry._fields
_ENTRY: Final = ", ".join(FIELDS)
_HEAD: Final = ", ".join(_HeadRow._fields)
_PAGE: Final = 500
_BELOW_ALL: Final = -(2**63)
_NEIGHBOURS: Final = 1000
_LARGEST_INT: Final = 2**53 - 1
_WORD: Final = re.compile(r"[!-~]+")
_HEX_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")

_quoted: Final = encode_basestring


# Canonical JSON (RFC 8785)


def canonical(value: object) -> str:
    """Write a value as canonical JSON, one text for one value; BadInput for what JSON cannot hold."""
    try:
        text = _json(value)
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput("a lone surrogate cannot be written as JSON", fix="send valid Unicode text") from error
    except RecursionError as error:
        raise BadInput("a value nested this deep cannot be written as JSON", fix="send a flatter value") from error
    return text


def _json(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dict | Mapping):
        return _object(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_json, value))}]"
    raise BadInput(f"a {type(value).__name__} cannot be written as JSON", fix="use text, numbers, lists and objects")


def _object(value: Mapping[object, object]) -> str:
    names = [name for name in value if isinstance(name, str)]
    if len(names) != len(value):
        raise BadInput("a JSON object has names that are not text", fix="use text for every name")
    # The order is that of UTF-16 code units; for ASCII, plain order is the same and much faster.
    names.sort(key=None if all(map(str.isascii, names)) else lambda name: name.encode("utf-16-be"))
    return "{" + ",".join([f"{_quoted(name)}:{_json(value[name])}" for name in names]) + "}"


def _integer(value: int) -> str:
    if abs(value) > _LARGEST_INT:
        raise BadInput(f"the integer {value:#x} is too large for JSON", fix="send it as text")
    return int.__repr__(value)


def _float(value: float) -> str:
    """Write the shortest digits that read back as the same number, laid out as ECMAScript does."""
    if not isfinite(value):
        raise BadInput(f"{value} cannot be written as JSON", fix="send a finite number")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"


# Writing and reading


def hold(tx: Transaction, spaces: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Let nobody else add to the chains of these spaces until the transaction ends; return where each ends.

    Whoever changes something of a space adds to its chain, so that nothing is committed there meanwhile.
    """
    return holding(tx, spaces)()


def holding(
    tx: Transaction, spaces: Sequence[str], *, if_free: bool = False
) -> Callable[[], dict[str, tuple[int, str]]]:
    """Ask to `hold` these spaces, and return what waits for it: what is asked behind it is asked when they are held.

    `if_free` leaves out those that another holds, in place of waiting for them.
    """
    if not spaces:
        return dict
    how = tx.claiming if if_free else tx.locking
    rows = tx.ask(
        f"SELECT space, seq, hash FROM log_head WHERE space IN :spaces ORDER BY space{how}",
        spaces=sorted(spaces),
    )
    return lambda: {space: _checked_end(space, seq, digest) for space, seq, digest in rows()}


def worded(changes: Sequence[Change]) -> list[tuple[str, str]]:
    """Write down subjects and payload of each change: what can be done before the chain is held."""
    return [(canonical(change.subjects), canonical(change.payload)) for change in changes]


def append(
    tx: Transaction,
    keys: Keys,
    space: str,
    changes: Sequence[Change],
    *,
    wording: Sequence[tuple[str, str]] | None = None,
    end: tuple[int, str] | None = None,
) -> tuple[int, str]:
    """Add the changes of one space to its chain behind its end, and sign its new head; return where it ends then.

    `wording` and `end` are what `worded` and `hold` have told, if they were asked before.
    """
    seq, previous = end or _end(tx, space)
    if not changes:
        return seq, previous
    time, key_id = _time(tx.now), keys.key_id
    rows: list[dict[str, object]] = []
    for change, (subjects, payload) in zip(changes, wording or worded(changes), strict=True):
        if change.space != space:
            raise ValueError(f"a change of space {change.space} was handed to the chain of space {space}")
        seq += 1
        said = (space, str(seq), time, change.actor, change.action, subjects, payload, previous, key_id)
        try:
            digest = hash_of_entry(said)
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
    """Tell whether an entry was committed, when whoever adds to this chain has ended."""
    hold(tx, [space])
    return _hash_at(tx, space, seq) == digest


def was_called(tx: Reading, space: str, name: str) -> bool:
    """Tell whether a space had this name before it was renamed."""
    rows = tx.rows("SELECT payload FROM log_entry WHERE space = :space AND action = 'space.rename'", space=space)
    return any(json.loads(payload).get("old") == name for (payload,) in rows)


def entries(tx: Reading, space: str, *, after: int = 0, limit: int = 500) -> list[LogEntry]:
    """Return the entries of a space that follow number `after`, oldest first, as stored."""
    return read_page(tx, space, after, limit)


def count(tx: Reading, spaces: Collection[str]) -> int:
    """Return how many entries there are, in these spaces together."""
    rows = tx.rows("SELECT space, count(*) FROM log_entry GROUP BY space")
    return sum(count for space, count in rows if space in spaces)


def heads(tx: Reading) -> dict[str, tuple[int, str]]:
    """Return (number, hash) of the last entry of every space, as the heads say it."""
    return {space: (seq, digest) for space, seq, digest in tx.rows("SELECT space, seq, hash FROM log_head")}


def has(tx: Reading, entries: Mapping[str, tuple[int, str]]) -> bool:
    """Tell whether the log of each space has this hash at this number: what nobody else's log has there."""
    # Mostly an entry is the last of its space still; only where others came behind it, it is looked for.
    rest = dict(entries.items() - heads(tx).items())
    return all(_hash_at(tx, space, seq) == digest for space, (seq, digest) in rest.items())


def _hash_at(tx: Reading, space: str, seq: int) -> str | None:
    row = tx.row("SELECT hash FROM log_entry WHERE space = :space AND seq = :seq", space=space, seq=seq)
    (digest,) = row or (None,)
    return str(digest) if row else None


def _end(tx: Transaction, space: str) -> tuple[int, str]:
    head = tx.row(f"SELECT seq, hash FROM log_head WHERE space = :space{tx.locking}", space=space)
    return _checked_end(space, *head) if head else BEGINNING


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
    return stamp(now)


def _parts(*texts: str) -> bytes:
    encoded = [text.encode() for text in texts]
    return b"".join([len(part).to_bytes(8, "big") + part for part in encoded])


def hash_of_entry(said: Sequence[str]) -> str:
    """Hash (space, seq, time, actor, action, subjects, payload, previous, key_id)."""
    return sha256(_parts(ENTRY_TAG, *said)).hexdigest()


def entry_message(digest: str) -> bytes:
    """Return the bytes that the signature of an entry covers."""
    return _parts(SIGNATURE_TAG) + bytes.fromhex(digest)


def head_message(space: str, seq: int, digest: str, key_id: str) -> bytes:
    """Return the bytes that the signature of a chain's head covers."""
    return _parts(HEAD_TAG, space, str(seq), digest, key_id)


# Verifying

RESTORE_FIX: Final = "restore the home from a back-up whose log verifies, and find out who changed the database"
_FIXES: Final = {
    "no chain": "restore the home from a back-up that has this space's log",
    "unknown space": "remove these rows, or restore the home from a back-up that has the space",
    "unknown key": "put the `.pub` file of that key back into the keys folder; without it the entry counts as forged",
}


class _Fault(NamedTuple):
    what: str
    why: str
    place: str


def verify(
    tx: Reading, keys: Keys, spaces: Sequence[str], progress: Progress, *, every: Collection[str] | None = None
) -> LogReport:
    """Walk the chains of these spaces, and name the first thing that is wrong with each.

    `every` names all the spaces there are, if these are only some: rows of any other space are strays.
    """
    found: list[Finding] = []
    sizes, strays = _census(tx, frozenset(spaces if every is None else every))
    total, done = sum(sizes.get(space, 0) for space in set(spaces)), 0
    for space in dict.fromkeys(spaces):
        chain = _Chain(tx, keys, space)
        for read in chain.walk():
            progress("checking the log", done + read, max(total, done + read))
        done += chain.read
        fault = chain.fault or chain.leftover(sizes.get(space))
        if fault:
            found.append(_finding(space, fault))
    return LogReport(spaces=len(set(spaces)), entries=done, findings=(*found, *strays))


def _census(tx: Reading, known: frozenset[str]) -> tuple[dict[object, int], list[Finding]]:
    """Count the entries of every space id that occurs, and find the ids that no space has."""
    try:
        sizes: dict[object, int] = dict(tx.rows("SELECT space, count(*) FROM log_entry GROUP BY space"))
        headed = [space for (space,) in tx.rows("SELECT space FROM log_head")]
    except HomeDamaged as error:
        why = f"the space ids of the log cannot be read: {error.message}"
        return {}, [Finding(what="unreadable log", where="the log", why=why, fix=RESTORE_FIX)]
    strays = [
        _finding(space, _Fault("unknown space", "the log has rows of a space that does not exist", "entry 1"))
        for space in dict.fromkeys([*sizes, *headed])
        if space not in known
    ]
    return sizes, strays


class _Chain:
    """One space's chain while it is walked: `seq` and `hash` are those of the last sound entry."""

    def __init__(self, tx: Reading, keys: Keys, space: str) -> None:
        self.tx, self.keys, self.space = tx, keys, space
        self.seq, self.hash = 0, NO_PREVIOUS
        self.read = 0
        self.fault: _Fault | None = None

    def walk(self) -> Iterator[int]:
        """Walk to the head or the first fault, telling after each page how many entries were read."""
        for page in self._pages():
            self.fault = self._page_fault(page)
            yield self.read
            if self.fault:
                return
        self.fault = self.fault or self._head_fault()

    def _page_fault(self, page: list[LogEntry]) -> _Fault | None:
        for row in page:
            self.read += 1
            if fault := self._misplaced(row) or self._altered(row) or self._unsigned(row):
                return fault
            self.seq, self.hash = row.seq, row.hash
        return None

    def leftover(self, size: int | None) -> _Fault | None:
        """Find rows that no walk reaches: without a number, or with one that another row has as well."""
        if size is None or size == self.read:
            return None
        return self._next("entry without a place", f"the space has {size} entries, but {self.read} in the chain")

    def _pages(self) -> Iterator[list[LogEntry]]:
        after, limit = _BELOW_ALL, _PAGE
        while True:
            try:
                page = read_page(self.tx, self.space, after, limit)
            except HomeDamaged as error:
                if limit == 1:
                    self.fault = self._next("unreadable entry", f"the row cannot be read: {error.message}")
                    return
                # One row of the page cannot be read: go on one by one, to learn which.
                limit = 1
                continue
            if not page:
                return
            yield page
            after = self.seq

    def _misplaced(self, row: LogEntry) -> _Fault | None:
        seq = row.seq
        if type(seq) is not int:
            return self._next("altered entry", f"its number is not a whole number but {_shown(seq)}")
        if seq > self.seq + 1:
            return self._next("missing entry", f"the chain goes on at entry {seq}: what stood between was deleted")
        if seq <= self.seq or seq < 1:
            return _Fault("wrong order", f"it stands where entry {self.seq + 1} should", f"entry {seq}")
        return None

    def _altered(self, row: LogEntry) -> _Fault | None:
        for name, value in zip(FIELDS, row, strict=True):
            if name != "seq" and type(value) is not str:
                return self._next("altered entry", f"its {name} is not text but {_shown(value)}")
        if row.space != self.space:
            return self._next("altered entry", f"it names another space, {_shown(row.space)}")
        try:
            digest = _hash_of(row, row.seq)
        except UnicodeEncodeError:
            return self._next("altered entry", "one of its fields is not valid Unicode")
        if digest != row.hash:
            return self._moved(row) or self._next("altered entry", "its hash is not the hash of its fields")
        if row.previous != self.hash:
            return self._next("broken chain", "it does not follow from the entry before it")
        return None

    def _moved(self, row: LogEntry) -> _Fault | None:
        """Recognise an entry of another number, so that a swap or a renumbering is called by its name."""
        for seq in range(max(1, row.seq - _NEIGHBOURS), row.seq + _NEIGHBOURS):
            if _hash_of(row, seq) == row.hash:
                return self._next("wrong order", f"what stands here was written as entry {seq}")
        return None

    def _unsigned(self, row: LogEntry) -> _Fault | None:
        wrong = self._signature_fault(row.key_id, row.signature, entry_message(row.hash))
        return self._next(*wrong) if wrong else None

    def _signature_fault(self, key_id: str, signature: str, message: bytes) -> tuple[str, str] | None:
        if not _HEX_SIGNATURE.fullmatch(signature):
            return "bad signature", "its signature is missing or garbled"
        if self.keys.verify(key_id, bytes.fromhex(signature), message):
            return None
        if key_id == self.keys.key_id:
            return "bad signature", "its signature was not made for it with this home's key"
        return "unknown key", f"it is not signed with this home's key, and not with a known key {_shown(key_id)}"

    def _head_fault(self) -> _Fault | None:
        try:
            rows = self.tx.rows(f"SELECT {_HEAD} FROM log_head WHERE space = :space", space=self.space)
        except HomeDamaged as error:
            return _Fault("bad head", f"the head cannot be read: {error.message}", "head")
        if not rows and not self.seq:
            return self._next("no chain", "the space has no log at all")
        if len(rows) != 1:
            return _Fault("bad head" if rows else "missing head", f"there are {len(rows)} heads, not one", "head")
        (head,) = map(_HeadRow._make, rows)
        return self._bad_head(head) or self._other_end(head)

    def _bad_head(self, head: _HeadRow) -> _Fault | None:
        texts = (head.space, head.hash, head.signature, head.key_id)
        if type(head.seq) is not int or not all(type(text) is str for text in texts):
            return _Fault("bad head", "a field of the head has the wrong type", "head")
        try:
            message = head_message(self.space, head.seq, head.hash, head.key_id)
        except UnicodeEncodeError:
            return _Fault("bad head", "a field of the head is not valid Unicode", "head")
        wrong = self._signature_fault(head.key_id, head.signature, message)
        return _Fault("bad head", ": ".join(wrong), "head") if wrong else None

    def _other_end(self, head: _HeadRow) -> _Fault | None:
        seq = head.seq
        if seq > self.seq:
            return self._next("tail cut", f"the head says that the last entry is {seq}, but {self.seq} is the last")
        if seq < self.seq:
            why = f"the head says that the last entry is {seq}, but the chain goes on to {self.seq}"
            return _Fault("entry after the head", why, f"entry {seq + 1}")
        if head.hash != self.hash:
            return _Fault("bad head", "the head has another hash than the last entry", f"entry {seq}")
        return None

    def _next(self, what: str, why: str) -> _Fault:
        return _Fault(what, why, f"entry {self.seq + 1}")


def _hash_of(row: LogEntry, seq: int) -> str:
    return hash_of_entry(
        (
            row.space,
            str(seq),
            row.time,
            row.actor,
            row.action,
            row.subjects,
            row.payload,
            row.previous,
            row.key_id,
        )
    )


def _finding(space: object, fault: _Fault) -> Finding:
    fix = _FIXES.get(fault.what, RESTORE_FIX)
    return Finding(what=fault.what, where=f"{_shown(space)} {fault.place}", why=fault.why, fix=fix)


def _shown(value: object) -> str:
    """Show what stands in a row that somebody may have tampered with: in quotes unless it is one plain word."""
    text = value if isinstance(value, str) and _WORD.fullmatch(value) else ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
