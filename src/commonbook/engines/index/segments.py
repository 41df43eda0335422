"""Segments: some passages laid out as arrays, for search and for scoring, in memory or in a mapped file.

A segment never changes. Its rows stand in the order of their threads and positions, so that neighbours lie side by
side. It holds the terms of each row (`entry_*`), the rows of each term (`posting_*`), a vector for each row with a
sketch of one bit for each dimension, and what filters ask for. Terms are kept as hashes of 64 bits: nothing here says a
word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from commonbook.engines.index.array_files import Array, ArrayFile
from commonbook.model.ids import UUID_PATTERN
from commonbook.model.memory import KINDS
from commonbook.ports.index import FOREVER, IndexedPassage

Bools: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.intp]
Floats: TypeAlias = npt.NDArray[np.float32]
Hashes: TypeAlias = npt.NDArray[np.uint64]

SPREAD: Final = 24
"""Bits of a row's key that tell its position; the others tell its thread."""

_MOST: Final = (1 << SPREAD) - 1
_OURS: Final = re.compile(rf"{UUID_PATTERN}(?:#|\Z)")
_NOWHERE: Final = 128
"""The flag of a passage that is in no memory."""

_CACHED: Final = 200_000
_HASHES: dict[str, int] = {}

# Row by row, but for terms and vectors: name, type, how to get it from an entry.
_COLUMNS: Final[tuple[tuple[str, type, Callable[[IndexedPassage], object]], ...]] = (
    ("thread", np.uint64, lambda entry: hashed(entry.thread)),
    ("position", np.int64, lambda entry: entry.position),
    ("owner", np.uint64, lambda entry: hashed(entry.owner)),
    ("order", np.uint64, lambda entry: order_of(entry.passage)),
    ("kind", np.uint8, lambda entry: KINDS.index(entry.kind)),
    ("flags", np.uint8, lambda entry: entry.flags | _NOWHERE * (not entry.memory)),
    ("length", np.int32, lambda entry: entry.length),
    ("start", np.int32, lambda entry: entry.start),
    ("end", np.int32, lambda entry: entry.end),
    ("seq", np.int64, lambda entry: entry.seq),
    ("time", np.int64, lambda entry: entry.time),
    ("valid_from", np.int64, lambda entry: entry.valid_from),
    ("valid_until", np.int64, lambda entry: entry.valid_until),
    ("superseded", np.int64, lambda entry: entry.superseded),
    ("expires", np.int64, lambda entry: entry.expires),
)
_TABLES: Final = ("space", "speaker")


def hashed(text: str) -> int:
    """Return the 64 bits that stand for a text."""
    found = _HASHES.get(text)
    if found is None:
        if len(_HASHES) >= _CACHED:
            _HASHES.clear()
        found = _HASHES[text] = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return found


def hashes(texts: Sequence[str]) -> Hashes:
    """Return the 64 bits that stand for each text."""
    return np.fromiter(map(hashed, texts), np.uint64, len(texts))


def tag_term(tag: str) -> str:
    """Return the term under which a tag is kept: one that no word gives."""
    return "\0" + tag


def order_of(passage: str) -> int:
    """Return what orders passages of one score: for an id of ours, the time in it."""
    if _OURS.match(passage) is None:
        return hashed(passage)
    return int(passage[:8] + passage[9:13] + passage[14:18], 16)


def quantise(vectors: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Return vectors as signed bytes, and what each row is to be multiplied with to have it back; 0 for no vector."""
    largest = np.abs(vectors).max(axis=1, initial=0)
    scales = (largest / 127).astype(np.float32)
    return np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8), scales


def sketch(vectors: npt.NDArray[Any]) -> Hashes:
    """Return one bit for each dimension: whether it is positive."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    # One row for each word of 64 bits: a search goes through them one after the other.
    return np.ascontiguousarray(padded.view(np.uint64).T)


class Segment:
    """Passages as arrays. `alive` is not part of it: which rows still count depends on what came later."""

    def __init__(self, bundle: ArrayFile) -> None:
        """Take what was built, merged, or mapped from a file."""
        self.bundle: Final = bundle
        arrays = bundle.arrays
        self.thread: Final[Hashes] = arrays["thread"]
        self.key: Final[Hashes] = arrays["key"]
        self.position: Final[Array] = arrays["position"]
        self.flags: Final[Array] = arrays["flags"]
        self.order: Final[Hashes] = arrays["order"]
        self.scales: Final[Floats] = arrays["scales"]
        self.vectors: Final[npt.NDArray[np.int8]] = arrays["vectors"]
        self.sketches: Final[Hashes] = arrays["sketches"]
        self.killed: Final[Hashes] = arrays["killed"]
        self.rows: Final = len(self.thread)
        self.dimensions: Final = int(self.vectors.shape[1])

    @cached_property
    def lengths(self) -> Floats:
        """How long each row's vector is."""
        wide = self.vectors.astype(np.float32)
        lengths: Floats = np.sqrt(np.vecdot(wide, wide))
        return lengths

    def column(self, name: str) -> Array:
        """Return one column."""
        return self.bundle.arrays[name]

    def table(self, name: str) -> Sequence[str]:
        """Return the texts that the numbers in a column stand for."""
        texts: Sequence[str] = self.bundle.about[name]
        return texts

    def owned_by(self, owners: Hashes) -> Rows:
        """Return the rows of these owners."""
        by_owner = self.bundle.arrays["by_owner"]
        owned = self.bundle.arrays["owner_sorted"]
        return by_owner[_between(np.searchsorted(owned, owners), np.searchsorted(owned, owners, "right"))].astype(
            np.intp
        )

    def with_terms(self, terms: Sequence[str]) -> list[Rows]:
        """Return the rows that have each of these terms."""
        places, there = self._places(hashes(terms))
        start, rows = self.bundle.arrays["posting_start"], self.bundle.arrays["posting_row"]
        first, last = start[places].tolist(), start[places + there].tolist()
        return [rows[begin:end].astype(np.intp) for begin, end in zip(first, last, strict=True)]

    def terms_of(self, rows: Rows, terms: Hashes) -> tuple[Array, Array, Array]:
        """Return (place in `rows`, place in `terms`, how often) for each of these terms that these rows have."""
        places, known = self._places(terms)
        column = np.full(len(self.bundle.arrays["term"]) + 1, -1, np.int32)
        there = np.flatnonzero(known)
        column[places[there]] = there
        start = self.bundle.arrays["entry_start"]
        first, last = start[rows], start[rows + 1]
        entries = _between(first, last)
        asked = column.take(self.bundle.arrays["entry_term"].take(entries))
        kept = np.flatnonzero(asked >= 0)
        # Few are kept: their rows are looked up, instead of being told of all.
        owners = np.searchsorted(np.cumsum(last - first), kept, "right")
        return owners, asked[kept], self.bundle.arrays["entry_count"][entries[kept]]

    def around(self, keys: Hashes, threads: Hashes, positions: Array, reach: int) -> tuple[Rows, Bools]:
        """Return the rows of these threads at most twice so far from these places, and which are at most so far."""
        wide = np.uint64(2 * reach)
        low = np.where(keys & np.uint64(_MOST) > wide, keys - wide, keys & ~np.uint64(_MOST))
        first = np.searchsorted(self.key, low)
        last = np.searchsorted(self.key, keys + wide, "right")
        rows = _between(first, last)
        sizes = np.maximum(last - first, 0)
        apart = np.abs(self.position[rows] - np.repeat(positions, sizes))
        same = (self.thread[rows] == np.repeat(threads, sizes)) & (apart <= 2 * reach)
        # Each row once, in order; near to one of the places is near.
        packed = np.sort(rows[same] << 1 | (apart[same] > reach))
        found = packed >> 1
        once = np.ones(len(found), np.bool_)
        once[1:] = found[1:] != found[:-1]
        return found[once], (packed[once] & 1) == 0

    def names(self, rows: Rows) -> Callable[[int], tuple[str, str]]:
        """Return what tells, of each of these rows, the id of its passage and of the memory that it is in."""
        # Read at once: single numbers are slow to get out of an array.
        start = self.bundle.arrays["id_start"]
        first, last = start[rows], start[rows + 1]
        said, ends = self.bundle.arrays["ids"][_between(first, last)].tobytes(), np.cumsum(last - first).tolist()
        digits = self.bundle.arrays["memory"][rows].tobytes().hex()
        nowhere = (self.flags[rows] & _NOWHERE).tolist()
        positions = self.position[rows].tolist()

        def named(at: int) -> tuple[str, str]:
            own = digits[32 * at : 32 * at + 32]
            memory = "" if nowhere[at] else f"{own[:8]}-{own[8:12]}-{own[12:16]}-{own[16:20]}-{own[20:]}"
            passage = said[ends[at - 1] if at else 0 : ends[at]].decode()
            return passage or f"{memory}#{positions[at]}", memory

        return named

    def passage(self, row: int) -> str:
        """Return the id of a passage."""
        start = self.bundle.arrays["id_start"]
        said = bytes(self.bundle.arrays["ids"][start[row] : start[row + 1]]).decode()
        return said or f"{self.memory(row)}#{self.position[row]}"

    def memory(self, row: int) -> str:
        """Return the id of the memory that a passage is in, or nothing."""
        if self.flags[row] & _NOWHERE:
            return ""
        digits = self.bundle.arrays["memory"][row].tobytes().hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _places(self, terms: Hashes) -> tuple[Rows, Bools]:
        """Return where each of these terms is among those that there are, and whether it is there at all."""
        known: Hashes = self.bundle.arrays["term"]
        if not len(known):
            return np.zeros(len(terms), np.intp), np.zeros(len(terms), np.bool_)
        places = np.minimum(np.searchsorted(known, terms), len(known) - 1)
        return places, known[places] == terms


def build(entries: Iterable[IndexedPassage], *, killed: Hashes, dimensions: int) -> Segment:
    """Lay out passages; `killed` are the owners whose rows in older segments no longer count."""
    entries = sorted(entries, key=lambda entry: (_key(entry), entry.passage))
    arrays: dict[str, Array] = {"key": np.array([_key(entry) for entry in entries], np.uint64)}
    for name, kind, value in _COLUMNS:
        arrays[name] = np.array([value(entry) for entry in entries], kind)
    about: dict[str, Any] = {}
    for name in _TABLES:
        texts = sorted({getattr(entry, name) for entry in entries})
        places = {text: at for at, text in enumerate(texts)}
        arrays[name] = np.array([places[getattr(entry, name)] for entry in entries], np.uint32)
        about[name] = texts
    memories = b"".join(bytes.fromhex(entry.memory.replace("-", "")) or bytes(16) for entry in entries)
    arrays["memory"] = np.frombuffer(memories, np.uint8).reshape(-1, 16)
    ids = [b"" if entry.passage == f"{entry.memory}#{entry.position}" else entry.passage.encode() for entry in entries]
    arrays["ids"] = np.frombuffer(b"".join(ids), np.uint8)
    arrays["id_start"] = _starts([len(one) for one in ids])
    bags = [{**entry.terms, **{tag_term(tag): 1 for tag in entry.tags}} for entry in entries]
    arrays["entry_start"] = _starts([len(word_weights) for word_weights in bags])
    hashes = np.array([hashed(term) for word_weights in bags for term in word_weights], np.uint64)
    arrays["term"], places_of = np.unique(hashes, return_inverse=True)
    arrays["entry_term"] = places_of.astype(np.uint32)
    arrays["entry_count"] = np.array(
        [min(count, 65535) for word_weights in bags for count in word_weights.values()], np.uint16
    )
    vectors = np.zeros((len(entries), dimensions), np.float32)
    for row, entry in zip(vectors, entries, strict=True):
        if entry.vector is not None and len(entry.vector) == dimensions:
            row[:] = entry.vector
    arrays["vectors"], arrays["scales"] = quantise(vectors)
    return _finished(arrays, about, killed)


def widened(segment: Segment, dimensions: int) -> Segment:
    """Return a segment whose rows have no vectors beside others whose rows have: with nothing, of the same length."""
    if segment.dimensions:
        return segment
    vectors = np.zeros((segment.rows, dimensions), np.int8)
    arrays = {**segment.bundle.arrays, "vectors": vectors, "sketches": sketch(vectors)}
    return Segment(segment.bundle._replace(arrays=arrays))


def compact(segment: Segment) -> Segment:
    """Return a segment that is searched many times: each column by itself, and nothing of what it was cut out of."""
    arrays = {name: np.array(array, order="C") for name, array in segment.bundle.arrays.items()}
    return Segment(segment.bundle._replace(arrays=arrays))


def merge(segments: Sequence[tuple[Segment, Bools]], *, killed: Hashes) -> Segment:
    """Lay out what still counts of several segments as one; `killed` are the owners that it kills in older ones."""
    parts = [(segment, np.flatnonzero(alive)) for segment, alive in segments]
    keys = np.concatenate([segment.key[rows] for segment, rows in parts])
    orders = np.concatenate([segment.position[rows] for segment, rows in parts])
    sorting = np.lexsort((orders, keys))
    arrays: dict[str, Array] = {"key": keys[sorting]}
    for name in (*(name for name, _, _ in _COLUMNS), "memory", "vectors", "scales"):
        arrays[name] = np.concatenate([segment.column(name)[rows] for segment, rows in parts])[sorting]
    about: dict[str, Any] = {}
    for name in _TABLES:
        used = [(segment, np.unique(segment.column(name)[rows]).tolist()) for segment, rows in parts]
        texts = sorted({segment.table(name)[at] for segment, places in used for at in places})
        places = {text: at for at, text in enumerate(texts)}
        numbers = [np.array([places.get(text, 0) for text in segment.table(name)], np.uint32) for segment, _ in parts]
        joined = [map_[segment.column(name)[rows]] for map_, (segment, rows) in zip(numbers, parts, strict=True)]
        arrays[name] = np.concatenate(joined)[sorting]
        about[name] = texts
    arrays["ids"], arrays["id_start"] = _joined(parts, sorting, "ids", "id_start")
    arrays["term"] = np.unique(np.concatenate([segment.column("term") for segment, _ in parts]))
    terms, arrays["entry_start"] = _joined(parts, sorting, "entry_term", "entry_start", into=arrays["term"])
    arrays["entry_term"] = terms.astype(np.uint32)
    arrays["entry_count"], _ = _joined(parts, sorting, "entry_count", "entry_start")
    return _finished(_without_unused_terms(arrays), about, killed)


def _finished(arrays: dict[str, Array], about: dict[str, Any], killed: Hashes) -> Segment:
    """Add what follows from the rest."""
    _post(arrays)
    by_owner = np.argsort(arrays["owner"], kind="stable")
    arrays["by_owner"] = by_owner.astype(np.uint32)
    arrays["owner_sorted"] = arrays["owner"][by_owner]
    arrays["sketches"] = sketch(arrays["vectors"])
    arrays["killed"] = killed
    return Segment(ArrayFile(arrays, {**about, **_summary(arrays)}))


def _summary(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return what holds of all rows, so that nobody has to look at each."""
    about: dict[str, Any] = {}
    about["soonest_expiry"] = int(arrays["expires"].min(initial=FOREVER))
    about["has_superseded"] = bool((arrays["superseded"] < FOREVER).any())
    about["unembedded"] = int((arrays["scales"] == 0).sum())
    about["kinds"] = np.flatnonzero(np.bincount(arrays["kind"])).tolist()
    return about


def _post(arrays: dict[str, Array]) -> None:
    """Add the rows of each term."""
    starts = arrays["entry_start"]
    rows = np.repeat(np.arange(len(starts) - 1, dtype=np.uint32), np.diff(starts))
    sorting = np.argsort(arrays["entry_term"], kind="stable")
    arrays["posting_row"] = rows[sorting]
    arrays["posting_start"] = _starts(np.bincount(arrays["entry_term"], minlength=len(arrays["term"])))


def _without_unused_terms(arrays: dict[str, Array]) -> dict[str, Array]:
    used, places = np.unique(arrays["entry_term"], return_inverse=True)
    return {**arrays, "term": arrays["term"][used], "entry_term": places.astype(np.uint32)}


def _joined(
    parts: Sequence[tuple[Segment, Rows]], sorting: Rows, name: str, starts: str, *, into: Hashes | None = None
) -> tuple[Array, Array]:
    """Return what several segments' rows hold, row after row in the new order, and where each begins.

    `into`: the entries are places among a segment's terms, and shall be places among these.
    """
    held, lengths = [], []
    for segment, rows in parts:
        start = segment.column(starts)
        found = segment.column(name)[_between(start[rows], start[rows + 1])]
        held.append(found if into is None else np.searchsorted(into, segment.column("term"))[found])
        lengths.append(start[rows + 1] - start[rows])
    sizes = np.concatenate(lengths)
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    chosen = _between(begins[sorting], begins[sorting] + sizes[sorting])
    return np.concatenate(held)[chosen], _starts(sizes[sorting])


def _key(entry: IndexedPassage) -> int:
    return hashed(entry.thread) >> SPREAD << SPREAD | min(entry.position, _MOST)


def _starts(lengths: Sequence[int] | Array) -> Array:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(lengths, np.int64))])


def _between(first: Array, last: Array) -> Rows:
    """Return all numbers from each first up to its last, one run after the other."""
    lengths = np.maximum(last - first, 0)
    ends = np.cumsum(lengths)
    if not len(ends) or not ends[-1]:
        return np.zeros(0, np.intp)
    numbers: Rows = np.arange(ends[-1], dtype=np.intp) + np.repeat(first - (ends - lengths), lengths)
    return numbers


# --- rows that are kept elsewhere

_OF_A_ROW: Final = np.dtype(
    [
        *((name, np.dtype(kind).newbyteorder("<")) for name, kind, _ in _COLUMNS),
        ("memory", np.uint8, 16),
        ("scales", "<f4"),
    ]
)


def columns_of_a_row() -> np.dtype[np.void]:
    """Return what a row has in each column, without terms, vector and texts."""
    return _OF_A_ROW


class Loose(NamedTuple):
    """Rows in any order: their columns, the texts that the numbers in some stand for, their ids, and their terms.

    `records` has a field for each column of a row, `columns` are others. Bytes of ids, terms and counts run on from row
    to row; the sizes say how many of them each row has.
    """

    records: Array
    columns: Mapping[str, Array]
    tables: Mapping[str, Sequence[str]]
    ids: Array
    id_sizes: Array
    terms: Hashes
    counts: Array
    sizes: Array


def restored(loose: Loose) -> Segment:
    """Lay out rows that were kept elsewhere, to be compared exactly: no sketches, and not by their owners."""
    keys = _keys(loose.records["thread"], loose.records["position"])
    sorting = np.lexsort((loose.records["position"], keys))
    records = loose.records[sorting]
    arrays = {name: records[name] for name in _OF_A_ROW.names or ()}
    arrays |= {name: array[sorting] for name, array in loose.columns.items()}
    arrays["key"] = keys[sorting]
    arrays["ids"], arrays["id_start"] = _runs(loose.ids, loose.id_sizes, sorting)
    terms, arrays["entry_start"] = _runs(loose.terms, loose.sizes, sorting)
    arrays["entry_count"], _ = _runs(loose.counts, loose.sizes, sorting)
    arrays["term"], places = np.unique(terms, return_inverse=True)
    arrays["entry_term"] = places.astype(np.uint32)
    _post(arrays)
    nothing = np.zeros(0, np.uint64)
    arrays |= {"by_owner": nothing, "owner_sorted": nothing, "killed": nothing, "sketches": nothing[None, :]}
    return Segment(ArrayFile(arrays, {**loose.tables, **_summary(arrays)}))


def _runs(held: Array, sizes: Array, sorting: Rows) -> tuple[Array, Array]:
    """Return what runs on from row to row in another order, and where each row begins."""
    first = _starts(sizes)[:-1][sorting]
    return held[_between(first, first + sizes[sorting])], _starts(sizes[sorting])


def _keys(threads: Hashes, positions: Array) -> Hashes:
    low = np.minimum(positions, _MOST).astype(np.uint64)
    return threads >> np.uint64(SPREAD) << np.uint64(SPREAD) | low
