"""Immutable segments: passages as columns of arrays, for search and for scoring, in memory or in a mapped file.

Rows are sorted by thread and position, so that neighbours lie side by side. A segment holds the rows of each term
(inverted index, `posting_*`), a quantised vector for each row with a sketch of one bit for each dimension, and the
columns of filters. Terms are stored as hashes of 64 bits, so that a segment contains no words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from commonbook.engines.index.array_files import Array, ArrayFile
from commonbook.engines.index.postings import (
    PostingLists,
    Rows,
    TermEntries,
    TermRows,
    add_postings,
    entries_of,
    in_order_of_rows,
    narrow,
    ranges,
    starts_of,
)
from commonbook.ports.index import FOREVER, IndexedPassage
from commonbook.values.ids import UUID_PATTERN, id_bytes, id_of_bytes
from commonbook.values.memory import KINDS

Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float32]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Numbers: TypeAlias = npt.NDArray[np.float64]
PoolSquares: TypeAlias = Callable[[npt.NDArray[np.int8], Floats, Hashes, Array], Numbers]
"""Returns the squared norms of pooled vectors: of vectors with their scales, by the threads and positions of rows."""

POSITION_BITS: Final = 24
"""The bits of a row's key that hold its position; the others hold its thread."""

_MAX_POSITION: Final = (1 << POSITION_BITS) - 1
_OWN_ID: Final = re.compile(rf"{UUID_PATTERN}(?:#|\Z)")
_ID_BYTES: Final = 16
_NO_MEMORY_FLAG: Final = 1 << 14
"""The flag of a passage that belongs to no memory."""

_COPY_ORDERS: Final = 1 << 16
"""The number of places below a root over which its copies are spread, so that they have an order of their own."""

_NARROWED: Final = ("position", "length", "start", "end", "doubted")
"""Columns that get the narrowest unsigned type which holds them: they are widened before they are subtracted."""

_MAX_UINT32: Final = (1 << 32) - 1
_MAX_CACHED_HASHES: Final = 30_000
"""About 0.2 KB each. The words of texts come again and again."""


@lru_cache(maxsize=_MAX_CACHED_HASHES)
def hash_text(text: str) -> int:
    """Return the hash of 64 bits of a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


# The columns with one value for each row: name, type, and how to compute it from a passage.
_COLUMNS: Final[tuple[tuple[str, type, Callable[[IndexedPassage], object]], ...]] = (
    ("thread", np.uint64, lambda entry: hash_text(entry.thread)),
    ("position", np.int64, lambda entry: entry.position),
    ("owner", np.uint64, lambda entry: hash_text(entry.owner)),
    ("order", np.uint64, lambda entry: _order_of(entry)),
    ("wording", np.uint64, lambda entry: hash_text(entry.wording)),
    ("kind", np.uint8, lambda entry: KINDS.index(entry.kind)),
    ("flags", np.uint16, lambda entry: entry.flags | _NO_MEMORY_FLAG * (not entry.memory)),
    ("length", np.int32, lambda entry: entry.length),
    ("start", np.int32, lambda entry: entry.start),
    ("end", np.int32, lambda entry: entry.end),
    ("seq", np.int64, lambda entry: entry.seq),
    ("time", np.int64, lambda entry: entry.time),
    ("valid_from", np.int64, lambda entry: entry.valid_from),
    ("valid_until", np.int64, lambda entry: entry.valid_until),
    ("superseded", np.int64, lambda entry: entry.superseded),
    ("superseded_until", np.int64, lambda entry: entry.superseded_until),
    ("expires", np.int64, lambda entry: entry.expires),
    ("doubted", np.uint64, lambda entry: hash_text(entry.doubted) if entry.doubted else 0),
)
_TABLES: Final = ("space", "speaker")


def hash_texts(texts: Sequence[str]) -> Hashes:
    """Return the hash of 64 bits of each text."""
    return np.fromiter(map(hash_text, texts), np.uint64, len(texts))


def tag_term(tag: str) -> str:
    """Return the term that stores a tag; it differs from every word."""
    return "\0" + tag


def tie_break_of(passage: str) -> int:
    """Return the number that breaks ties of one score: the time in a UUID of ours, else a hash."""
    if _OWN_ID.match(passage) is None:
        return hash_text(passage)
    return int(passage[:8] + passage[9:13] + passage[14:18], 16)


def _order_of(entry: IndexedPassage) -> int:
    """Return the tie break of a passage; a copy is as new as its root, and comes right after it."""
    if not entry.root:
        return tie_break_of(entry.passage)
    return max(tie_break_of(entry.root) - 1 - hash_text(entry.owner) % _COPY_ORDERS, 0)


def quantise(vectors: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Return vectors as signed bytes, and the scale that restores each row; 0 for no vector."""
    largest = np.abs(vectors).max(axis=1, initial=0)
    scales = (largest / 127).astype(np.float32)
    return np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8), scales


def sketch(vectors: npt.NDArray[Any]) -> Hashes:
    """Return the signs of vectors as bits, 1 for positive, in planes of 64 dimensions."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(bits), -(-bits.shape[1] // 8) * 8), np.uint8)
    padded[:, : bits.shape[1]] = bits
    # One row for each plane of 64 bits, since a search goes through the planes one after the other.
    return np.ascontiguousarray(padded.view(np.uint64).T)


class Segment:
    """Passages as arrays. The mask of live rows is not part of it, since it depends on later segments."""

    def __init__(self, bundle: ArrayFile) -> None:
        """Use arrays that were built, merged, or mapped from a file."""
        self.bundle: Final = bundle
        arrays = bundle.arrays
        self.thread: Final[Hashes] = arrays["thread"]
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
    def key(self) -> Hashes:
        """The thread and the position of each row as one number, which ascends."""
        return _keys(self.thread, self.position)

    @cached_property
    def lengths(self) -> Floats:
        """The norm of each row's vector."""
        wide = self.vectors.astype(np.float32)
        lengths: Floats = np.sqrt(np.vecdot(wide, wide))
        return lengths

    @property
    def squares(self) -> Numbers | None:
        """The squared norm of each row's vector, pooled with its neighbours' here; None in a segment without it."""
        return self.bundle.arrays.get("squares")

    def column(self, name: str) -> Array:
        """Return the column of this name."""
        return self.bundle.arrays[name]

    def table(self, name: str) -> Sequence[str]:
        """Return the texts that the numbers of a column refer to."""
        texts: Sequence[str] = self.bundle.about[name]
        return texts

    def owned_by(self, owners: Hashes) -> Rows:
        """Return the rows of these owners."""
        by_owner = self.bundle.arrays["by_owner"]
        owned = self.bundle.arrays["owner_sorted"]
        return by_owner[ranges(np.searchsorted(owned, owners), np.searchsorted(owned, owners, "right"))].astype(np.intp)

    @cached_property
    def _notices(self) -> tuple[Rows, Hashes]:
        """The rows of open notices, and the owners that they are about, sorted by these."""
        doubted = self.bundle.arrays["doubted"]
        rows = np.flatnonzero(doubted)
        rows = rows[np.argsort(doubted[rows])]
        return rows, doubted[rows].astype(np.uint64)

    @property
    def has_notices(self) -> bool:
        """Whether any row is of an open notice."""
        return len(self._notices[0]) > 0

    def doubts(self, owners: Hashes, alive: Bools) -> Bools:
        """Tell about which of these owners the segment has open notices, among its live rows."""
        rows, doubted = self._notices
        live_before = np.concatenate([[0], np.cumsum(alive[rows])])
        first, last = np.searchsorted(doubted, owners), np.searchsorted(doubted, owners, "right")
        return live_before[last] > live_before[first]

    @cached_property
    def _id_bytes(self) -> tuple[memoryview, memoryview]:
        """The ids of passages and of memories: parts of a memoryview are read faster than parts of an array."""
        arrays = self.bundle.arrays
        return np.ascontiguousarray(arrays["ids"]).data, np.ascontiguousarray(arrays["memory"]).reshape(-1).data

    @cached_property
    def _lists(self) -> PostingLists:
        return PostingLists(self.bundle.arrays, hash_texts)

    def with_terms(self, terms: Sequence[str]) -> TermRows:
        """Return the rows that have each of these terms."""
        return self._lists.rows_of(terms)

    def terms_of(self, rows: Rows, terms: Sequence[str]) -> TermEntries:
        """Return index in `rows`, index in `terms` and count for each of these terms in each of these rows."""
        return self._lists.find(rows, terms)

    def entries(self) -> TermEntries:
        """Return the terms of all rows, in the order of the rows."""
        return entries_of(self.bundle.arrays)

    def around(self, keys: Hashes, threads: Hashes, positions: Array, reach: int) -> tuple[Rows, Bools]:
        """Return the rows within twice `reach` of these positions in these threads, and which are within `reach`."""
        span = np.uint64(2 * reach)
        lowest = np.where(keys & np.uint64(_MAX_POSITION) > span, keys - span, keys & ~np.uint64(_MAX_POSITION))
        first = np.searchsorted(self.key, lowest)
        last = np.searchsorted(self.key, keys + span, "right")
        rows = ranges(first, last)
        sizes = np.maximum(last - first, 0)
        distance = np.abs(self.position[rows].astype(np.int64) - np.repeat(positions, sizes))
        same = (self.thread[rows] == np.repeat(threads, sizes)) & (distance <= 2 * reach)
        # Each row once, in order; it is near if it is near to any of the positions.
        packed = np.sort(rows[same] << 1 | (distance[same] > reach))
        near_rows = packed >> 1
        is_first = np.ones(len(near_rows), np.bool_)
        is_first[1:] = near_rows[1:] != near_rows[:-1]
        return near_rows[is_first], (packed[is_first] & 1) == 0

    def id_reader(self, rows: Rows) -> Callable[[int], tuple[str, str]]:
        """Return a function from an index in `rows` to the ids of the passage and of its memory.

        Only a few of many rows are read: hits and their neighbours.
        """
        start, ids, memories = self.bundle.arrays["id_start"], *self._id_bytes

        def ids_at(at: int) -> tuple[str, str]:
            row = rows.item(at)
            place = _ID_BYTES * row
            memory = "" if self.flags.item(row) & _NO_MEMORY_FLAG else id_of_bytes(memories[place : place + _ID_BYTES])
            passage = str(ids[start.item(row) : start.item(row + 1)], "utf-8")
            return passage or f"{memory}#{self.position.item(row)}", memory

        return ids_at

    def passage(self, row: int) -> str:
        """Return the id of the passage in a row."""
        start = self.bundle.arrays["id_start"]
        own_id = bytes(self.bundle.arrays["ids"][start[row] : start[row + 1]]).decode()
        return own_id or f"{self.memory(row)}#{self.position[row]}"

    def memory(self, row: int) -> str:
        """Return the id of the memory of a row's passage, or an empty text."""
        if self.flags[row] & _NO_MEMORY_FLAG:
            return ""
        return id_of_bytes(self.bundle.arrays["memory"][row].tobytes())


def build(entries: Iterable[IndexedPassage], *, killed: Hashes, dimensions: int) -> Segment:
    """Build a segment of passages; `killed` are the owners whose rows in older segments are deleted."""
    entries = sorted(entries, key=lambda entry: (_key(entry), entry.passage))
    arrays: dict[str, Array] = {}
    for name, kind, value in _COLUMNS:
        arrays[name] = np.array([value(entry) for entry in entries], kind)
    about: dict[str, Any] = {}
    for name in _TABLES:
        texts = sorted({getattr(entry, name) for entry in entries})
        places = {text: at for at, text in enumerate(texts)}
        arrays[name] = np.array([places[getattr(entry, name)] for entry in entries], np.uint32)
        about[name] = texts
    memories = b"".join(id_bytes(entry.memory) or bytes(16) for entry in entries)
    arrays["memory"] = np.frombuffer(memories, np.uint8).reshape(-1, 16)
    ids = [b"" if entry.passage == f"{entry.memory}#{entry.position}" else entry.passage.encode() for entry in entries]
    arrays["ids"] = np.frombuffer(b"".join(ids), np.uint8)
    arrays["id_start"] = starts_of([len(encoded) for encoded in ids])
    terms_of_entries = [{**entry.terms, **{tag_term(tag): 1 for tag in entry.tags}} for entry in entries]
    hashes = hash_texts([term for terms in terms_of_entries for term in terms])
    arrays["term"], places_of = np.unique(hashes, return_inverse=True)
    counts = np.array([min(count, 65535) for terms in terms_of_entries for count in terms.values()], np.uint16)
    rows = np.repeat(np.arange(len(entries)), [len(terms) for terms in terms_of_entries])
    add_postings(arrays, TermEntries(rows, places_of, counts))
    vectors = np.zeros((len(entries), dimensions), np.float32)
    for row, entry in zip(vectors, entries, strict=True):
        if entry.vector is not None and len(entry.vector) == dimensions:
            row[:] = entry.vector
    arrays["vectors"], arrays["scales"] = quantise(vectors)
    return _finish(arrays, about, killed)


def with_zero_vectors(segment: Segment, dimensions: int) -> Segment:
    """Give a segment without vectors zero vectors of the same length as in the other segments."""
    if segment.dimensions:
        return segment
    vectors = np.zeros((segment.rows, dimensions), np.int8)
    arrays = {**segment.bundle.arrays, "vectors": vectors, "sketches": sketch(vectors)}
    return Segment(segment.bundle._replace(arrays=arrays))


def with_squares(segment: Segment, pool_squares: PoolSquares) -> Segment:
    """Return a segment with the squared norms of its pooled vectors, which no query needs to compute again."""
    if not segment.dimensions:
        return segment
    squares = pool_squares(segment.vectors, segment.scales, segment.thread, segment.position)
    return Segment(segment.bundle._replace(arrays={**segment.bundle.arrays, "squares": squares}))


def copy_columns(segment: Segment) -> Segment:
    """Copy the columns of a segment that is searched often: contiguous, and without references to larger arrays."""
    arrays = {name: np.array(array, order="C") for name, array in segment.bundle.arrays.items()}
    return Segment(segment.bundle._replace(arrays=arrays))


def merge(segments: Sequence[tuple[Segment, Bools]], *, killed: Hashes) -> Segment:
    """Merge the live rows of several segments; `killed` are the owners whose rows in older segments are deleted."""
    parts = [(segment, np.flatnonzero(alive)) for segment, alive in segments]
    keys = np.concatenate([segment.key[rows] for segment, rows in parts])
    orders = np.concatenate([segment.position[rows] for segment, rows in parts])
    sorting = np.lexsort((orders, keys))
    arrays: dict[str, Array] = {}
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
    arrays["ids"], arrays["id_start"] = _join_ragged(parts, sorting, "ids", "id_start")
    arrays["term"], entries = _merge_terms(parts, sorting)
    add_postings(arrays, entries)
    return _finish(arrays, about, killed)


def _merge_terms(parts: Sequence[tuple[Segment, Rows]], sorting: Rows) -> tuple[Hashes, TermEntries]:
    """Return the terms of these rows, and their entries in the new order of rows."""
    all_terms = np.unique(np.concatenate([segment.column("term") for segment, _ in parts]))
    new_place = np.empty_like(sorting)
    new_place[sorting] = np.arange(len(sorting))
    joined, done = [], 0
    for segment, rows in parts:
        place = np.full(segment.rows, -1, np.int64)
        place[rows] = new_place[done : done + len(rows)]
        done += len(rows)
        entries = segment.entries()
        kept = np.flatnonzero(place[entries.rows] >= 0)
        term = np.searchsorted(all_terms, segment.column("term"))
        joined.append((place[entries.rows[kept]], term[entries.terms[kept]], entries.counts[kept]))
    rows_, terms, counts = (np.concatenate(column) for column in zip(*joined, strict=True))
    used, places = np.unique(terms, return_inverse=True)
    entries = TermEntries(narrow(rows_, len(sorting)), places, counts)
    return all_terms[used], in_order_of_rows(entries)


def _finish(arrays: dict[str, Array], about: dict[str, Any], killed: Hashes) -> Segment:
    """Add the derived arrays: the index by owner, sketches and the summary."""
    for name in _NARROWED:
        if len(arrays[name]) and arrays[name].min() >= 0 and arrays[name].max() <= _MAX_UINT32:
            arrays[name] = narrow(arrays[name], int(arrays[name].max()))
    by_owner = np.argsort(arrays["owner"], kind="stable")
    arrays["by_owner"] = narrow(by_owner, len(by_owner))
    arrays["owner_sorted"] = arrays["owner"][by_owner]
    arrays["sketches"] = sketch(arrays["vectors"])
    arrays["killed"] = killed
    return Segment(ArrayFile(arrays, {**about, **_summary(arrays)}))


def _summary(arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return facts about all rows, with which filters can be skipped."""
    about: dict[str, Any] = {}
    about["soonest_expiry"] = int(arrays["expires"].min(initial=FOREVER))
    about["has_superseded"] = bool((arrays["superseded"] < FOREVER).any())
    about["unembedded"] = int((arrays["scales"] == 0).sum())
    about["kinds"] = np.flatnonzero(np.bincount(arrays["kind"])).tolist()
    return about


def _join_ragged(parts: Sequence[tuple[Segment, Rows]], sorting: Rows, name: str, starts: str) -> tuple[Array, Array]:
    """Join a column of variable length in the new order of rows; return it and where each row begins."""
    values, lengths = [], []
    for segment, rows in parts:
        start = segment.column(starts)
        values.append(segment.column(name)[ranges(start[rows], start[rows + 1])])
        lengths.append(start[rows + 1] - start[rows])
    return _reorder_ragged(np.concatenate(values), np.concatenate(lengths), sorting)


def _key(entry: IndexedPassage) -> int:
    return hash_text(entry.thread) >> POSITION_BITS << POSITION_BITS | min(entry.position, _MAX_POSITION)


# --- rows stored outside a segment

_ROW_TYPE: Final = np.dtype(
    [
        *((name, np.dtype(kind).newbyteorder("<")) for name, kind, _ in _COLUMNS),
        ("memory", np.uint8, 16),
        ("scales", "<f4"),
    ]
)


def row_type() -> np.dtype[np.void]:
    """Return the record type of the columns of a row, without terms, vector and texts."""
    return _ROW_TYPE


class StoredRows(NamedTuple):
    """Rows in any order, as read from another store: columns, tables of texts, ids, and terms.

    `records` has a field for each column of a row; `columns` are further columns. The bytes of ids, the terms and the
    counts of all rows are concatenated; the sizes give how many of them each row has.
    """

    records: Array
    columns: Mapping[str, Array]
    tables: Mapping[str, Sequence[str]]
    ids: Array
    id_sizes: Array
    terms: Hashes
    counts: Array
    sizes: Array


def build_from_rows(loose: StoredRows) -> Segment:
    """Build a segment from rows of another store, for exact comparison: without sketches and the index by owner."""
    keys = _keys(loose.records["thread"], loose.records["position"])
    sorting = np.lexsort((loose.records["position"], keys))
    records = loose.records[sorting]
    arrays = {name: records[name] for name in _ROW_TYPE.names or ()}
    arrays |= {name: array[sorting] for name, array in loose.columns.items()}
    arrays["ids"], arrays["id_start"] = _reorder_ragged(loose.ids, loose.id_sizes, sorting)
    terms, starts = _reorder_ragged(loose.terms, loose.sizes, sorting)
    counts, _ = _reorder_ragged(loose.counts, loose.sizes, sorting)
    arrays["term"], places = np.unique(terms, return_inverse=True)
    rows = np.repeat(np.arange(len(sorting)), np.diff(starts))
    add_postings(arrays, TermEntries(rows, places, counts))
    nothing = np.zeros(0, np.uint64)
    arrays |= {"by_owner": nothing, "owner_sorted": nothing, "killed": nothing, "sketches": nothing[None, :]}
    return Segment(ArrayFile(arrays, {**loose.tables, **_summary(arrays)}))


def _reorder_ragged(values: Array, sizes: Array, sorting: Rows) -> tuple[Array, Array]:
    """Reorder concatenated values of variable length; return them and where each row begins."""
    first = starts_of(sizes)[:-1][sorting]
    return values[ranges(first, first + sizes[sorting])], starts_of(sizes[sorting])


def _keys(threads: Hashes, positions: Array) -> Hashes:
    low = np.minimum(positions.astype(np.uint64), np.uint64(_MAX_POSITION))
    return threads >> np.uint64(POSITION_BITS) << np.uint64(POSITION_BITS) | low
