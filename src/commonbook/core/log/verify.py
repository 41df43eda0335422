"""Verification of the signed log: walks the hash chain of each space, and locates its first bad entry."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from commonbook.core.log.chain import (
    FIELDS,
    NO_PREVIOUS,
    RESTORE_FIX,
    entry_message,
    hash_of_entry,
    head_message,
    read_page,
)
from commonbook.errors import HomeDamaged
from commonbook.ports.database import Reading
from commonbook.ports.keys import Keys
from commonbook.values.reports import Finding, LogEntry, LogReport, Progress


class _HeadRow(NamedTuple):
    """A row of the table `log_head`: the fields are the columns, in the order of the SELECT."""

    space: str
    seq: int
    hash: str
    signature: str
    key_id: str


_HEAD: Final = ", ".join(_HeadRow._fields)
_PAGE_ENTRIES: Final = 500
_MIN_SEQ: Final = -(2**63)
_MAX_DISTANCE: Final = 1000
"""How far from its number a swapped entry is looked for."""
_PLAIN_WORD: Final = re.compile(r"[!-~]+")
_HEX_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_FIXES: Final = {
    "no chain": "restore the home from a back-up that has this space's log",
    "unknown space": "remove these rows, or restore the home from a back-up that has the space",
    "unknown key": "put the `.pub` file of that key back into the keys folder; without it the entry counts as forged",
}


class _Fault(NamedTuple):
    """A fault of a chain: its kind, the explanation, and the place."""

    what: str
    why: str
    place: str


def verify(
    tx: Reading, keys: Keys, spaces: Sequence[str], progress: Progress, *, every: Collection[str] | None = None
) -> LogReport:
    """Walk the chains of these spaces, and report the first fault of each.

    `every` names all spaces of the book, if these are only some: rows of a space outside of it are findings too.
    """
    findings: list[Finding] = []
    sizes, strays = _count_entries(tx, frozenset(spaces if every is None else every))
    total, done = sum(sizes.get(space, 0) for space in set(spaces)), 0
    for space in dict.fromkeys(spaces):
        chain = _Chain(tx, keys, space)
        for read in chain.walk():
            progress("checking the log", done + read, max(total, done + read))
        done += chain.read
        fault = chain.fault or chain.leftover(sizes.get(space))
        if fault:
            findings.append(_finding(space, fault))
    return LogReport(spaces=len(set(spaces)), entries=done, findings=(*findings, *strays))


def _count_entries(tx: Reading, known: frozenset[str]) -> tuple[dict[object, int], list[Finding]]:
    """Count the entries of every space id in the log, and report the ids that no space has."""
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
    """The chain of one space during its walk: `seq` and `hash` are those of the last good entry."""

    def __init__(self, tx: Reading, keys: Keys, space: str) -> None:
        self.tx, self.keys, self.space = tx, keys, space
        self.seq, self.hash = 0, NO_PREVIOUS
        self.read = 0
        self.fault: _Fault | None = None

    def walk(self) -> Iterator[int]:
        """Walk to the head or the first fault; yield after each page how many entries were read."""
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
        """Find rows that the walk does not reach: without a number, or with the number of another row."""
        if size is None or size == self.read:
            return None
        return self._next("entry without a place", f"the space has {size} entries, but {self.read} in the chain")

    def _pages(self) -> Iterator[list[LogEntry]]:
        after, limit = _MIN_SEQ, _PAGE_ENTRIES
        while True:
            try:
                page = read_page(self.tx, self.space, after, limit)
            except HomeDamaged as error:
                if limit == 1:
                    self.fault = self._next("unreadable entry", f"the row cannot be read: {error.message}")
                    return
                # A row of the page cannot be read: continue row by row, to find out which.
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
        """Recognise an entry that was written under another number: it was swapped or renumbered."""
        for seq in range(max(1, row.seq - _MAX_DISTANCE), row.seq + _MAX_DISTANCE):
            if _hash_of(row, seq) == row.hash:
                return self._next("wrong order", f"what stands here was written as entry {seq}")
        return None

    def _unsigned(self, row: LogEntry) -> _Fault | None:
        fault = self._signature_fault(row.key_id, row.signature, entry_message(row.hash))
        return self._next(*fault) if fault else None

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
        fault = self._signature_fault(head.key_id, head.signature, message)
        return _Fault("bad head", ": ".join(fault), "head") if fault else None

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
    """Format a value of a row that may be forged: quoted and in ASCII, unless it is one plain word."""
    text = value if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) else ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
