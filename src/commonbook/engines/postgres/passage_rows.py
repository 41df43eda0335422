"""Encoding of passages as PostgreSQL rows: a segment is packed for binary COPY, and fetched rows are unpacked again.

The id of a passage in the index sorts in the order in which passages of equal score are chosen: the newest first, then
by thread and position. So an index of the database has them in that order. The other data for scoring is stored in the
layout of a segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from commonbook.engines.index.array_files import Array
from commonbook.engines.index.postings import TermEntries
from commonbook.engines.index.segments import (
    Segment,
    StoredRows,
    build,
    build_from_rows,
    hash_text,
    hash_texts,
    row_type,
)
from commonbook.ports.index import IndexedPassage

PASSAGE_COLUMNS: Final = (
    "space, id, owner, thread, position, kind, flags, wording, time, valid_from, valid_until, superseded,"
    " superseded_until, expires,"
    " terms, columns, entries, name, speaker, vector, v, w"
)
MAX_INDEXED_DIMENSIONS: Final = 1024
"""Vectors of up to so many dimensions fit into an index row, where they are scanned several times as fast."""

POSTING_COLUMNS: Final = "space, term, id"
FETCHED: Final = ", ".join(
    f"string_agg(p.{column}, '')" for column in ("columns", "entries", "name", "speaker", "vector")
)
"""Aggregates many rows into one; the fixed-size columns tell how many bytes of the others belong to each row."""

ID_TYPE: Final = np.dtype([("newest", ">u8"), ("rest", ">u8")])
"""An id as two numbers that sort in the order of its bytes."""

_SEGMENT_COLUMNS: Final = row_type()
_COLUMNS: Final = np.dtype(
    [
        *((name, _SEGMENT_COLUMNS[name]) for name in _SEGMENT_COLUMNS.names or ()),
        ("space", "<i8"),
        ("speaker", "<u8"),
        ("entries", "<u4"),
        ("name_size", "<u4"),
        ("speaker_size", "<u4"),
    ]
)
_ENTRY: Final = np.dtype([("term", "<u8"), ("count", "<u2")])
_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_COPY_TRAILER: Final = struct.pack("!h", -1)
_FIXED_FIELDS: Final = struct.Struct("!hiqi16siqiqiqihihiqiqiqiqiqiqiq")
_FIELD_COUNT: Final = 22
_NULL_FIELD: Final = struct.pack("!i", -1)
_ARRAY_HEADER: Final = struct.Struct("!5i")
_INT8_OID: Final = 20
_ITEM: Final = np.dtype([("size", ">i4"), ("value", ">i8")])
_UUID: Final = np.dtype([("size", ">i4"), ("value", ID_TYPE)])
_POSTING: Final = np.dtype(
    [
        ("fields", ">i2"),
        ("space_size", ">i4"),
        ("space", ">i8"),
        ("term_size", ">i4"),
        ("term", ">i8"),
        ("id_size", ">i4"),
        ("id", "V16"),
    ]
)
_MAX_POSITION: Final = (1 << 16) - 1
_DIGEST_BYTES: Final = 4


def signed_hash(text: str) -> int:
    """Return the hash of a space, owner, thread or term as a signed 64-bit integer: the same bits as in segments."""
    number = hash_text(text)
    return number - (1 << 64) if number >= 1 << 63 else number


class PackedPassages(NamedTuple):
    """Passages packed for COPY."""

    rows: bytes
    postings: bytes
    spaces: Mapping[str, tuple[int, int]]
    """For each space, the number of its passages here, and how many of them have no vector."""


def pack_passages(entries: Sequence[IndexedPassage], *, dimensions: int) -> PackedPassages:
    """Pack passages into rows and postings."""
    segment = build(entries, killed=np.zeros(0, np.uint64), dimensions=dimensions)
    ids, entries_of_rows = _ids(segment), segment.entries()
    return PackedPassages(
        b"".join([_COPY_HEADER, *_row_fields(segment, ids, entries_of_rows), _COPY_TRAILER]),
        _COPY_HEADER + _posting_rows(segment, ids, entries_of_rows) + _COPY_TRAILER,
        _space_sizes(segment),
    )


def _space_sizes(segment: Segment) -> dict[str, tuple[int, int]]:
    space_numbers = segment.column("space")
    passages = np.bincount(space_numbers, minlength=len(segment.table("space")))
    unembedded = np.bincount(space_numbers[segment.scales == 0], minlength=len(passages))
    sizes = zip(passages.tolist(), unembedded.tolist(), strict=True)
    return dict(zip(segment.table("space"), sizes, strict=True))


def _ids(segment: Segment) -> list[bytes]:
    """Return a unique id for each row."""
    newest = (~segment.order).tolist()
    threads = (segment.thread >> np.uint64(48)).tolist()
    positions = np.minimum(segment.position.astype(np.int64), _MAX_POSITION).tolist()
    ids: list[bytes] = []
    used: set[bytes] = set()
    for row, sort_key in enumerate(zip(newest, threads, positions, strict=True)):
        content = struct.pack("<QQq", segment.column("owner")[row], segment.thread[row], segment.position[row])
        content += segment.passage(row).encode()
        ids.append(_unique_id(used, struct.pack("!QHH", *sort_key), content))
    return ids


def _unique_id(used: set[bytes], prefix: bytes, content: bytes) -> bytes:
    """Return an id that no other row has, even if its whole content is the same."""
    while (id_ := prefix + blake2b(content, digest_size=_DIGEST_BYTES).digest()) in used:
        content += b"again"
    used.add(id_)
    return id_


def _row_fields(segment: Segment, ids: Sequence[bytes], entries_of_rows: TermEntries) -> Iterator[bytes]:
    names = [segment.passage(row).encode() for row in range(segment.rows)]
    speakers = [speaker.encode() for speaker in segment.table("speaker")]
    sizes = np.bincount(entries_of_rows.rows, minlength=segment.rows)
    columns = _packed_columns(segment, [len(name) for name in names], sizes)
    packed, width = columns.tobytes(), columns.itemsize
    starts = [0, *np.cumsum(sizes).tolist()]
    entries = np.zeros(starts[-1], _ENTRY)
    entries["term"] = segment.column("term")[entries_of_rows.terms]
    entries["count"] = entries_of_rows.counts
    terms = np.zeros(starts[-1], _ITEM)
    terms["size"], terms["value"] = 8, entries["term"].astype(np.int64)
    halves = segment.vectors.astype(">f2")
    filters = zip(*(columns[name].astype(np.int64).tolist() for name in _FILTERS), strict=True)
    for row, (space, owner, thread, position, kind, flags, *numbers) in enumerate(filters):
        span = slice(starts[row], starts[row + 1])
        number_fields = [part for number in numbers for part in (8, number)]
        yield _FIXED_FIELDS.pack(
            _FIELD_COUNT, 8, space, 16, ids[row], 8, owner, 8, thread, 8, position, 2, kind, 2, flags, *number_fields
        )
        yield _field(_array_header(span.stop - span.start) + terms[span].tobytes())
        yield _field(packed[row * width : (row + 1) * width])
        yield _field(entries[span].tobytes())
        yield _field(names[row])
        yield _field(speakers[segment.column("speaker")[row]])
        if segment.scales[row]:
            yield _field(segment.vectors[row].tobytes())
            yield from _vector_fields(halves[row].tobytes())
        else:
            yield _NULL_FIELD * 3


def _field(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


def _vector_fields(halves: bytes) -> tuple[bytes, bytes]:
    """Return the fields of the columns for indexed and for longer vectors."""
    length = len(halves) // 2
    field = _field(struct.pack("!HH", length, 0) + halves)
    return (field, _NULL_FIELD) if length <= MAX_INDEXED_DIMENSIONS else (_NULL_FIELD, field)


def _array_header(items: int) -> bytes:
    """Return the header of an array of integers; an empty array has no dimension."""
    return _ARRAY_HEADER.pack(1, 0, _INT8_OID, items, 1) if items else struct.pack("!3i", 0, 0, _INT8_OID)


_FILTERS: Final = (
    "space", "owner", "thread", "position", "kind", "flags", "wording",
    "time", "valid_from", "valid_until", "superseded", "superseded_until", "expires",
)  # fmt: skip


def _packed_columns(segment: Segment, name_sizes: Sequence[int], sizes: Array) -> npt.NDArray[np.void]:
    columns = np.zeros(segment.rows, _COLUMNS)
    for name in _SEGMENT_COLUMNS.names or ():
        columns[name] = segment.column(name)
    columns["space"] = np.array([signed_hash(space) for space in segment.table("space")], np.int64)[
        segment.column("space")
    ]
    speakers = segment.table("speaker")
    columns["speaker"] = np.array([hash_text(speaker) for speaker in speakers], np.uint64)[segment.column("speaker")]
    columns["speaker_size"] = np.array([len(speaker.encode()) for speaker in speakers])[segment.column("speaker")]
    columns["entries"] = sizes
    columns["name_size"] = name_sizes
    return columns


def _posting_rows(segment: Segment, ids: Sequence[bytes], entries: TermEntries) -> bytes:
    rows = entries.rows
    spaces = np.array([signed_hash(space) for space in segment.table("space")], np.int64)
    postings = np.zeros(len(rows), _POSTING)
    postings["fields"], postings["space_size"], postings["term_size"], postings["id_size"] = 3, 8, 8, 16
    postings["space"] = spaces[segment.column("space")[rows]] if len(rows) else 0
    postings["term"] = segment.column("term")[entries.terms].astype(np.int64)
    postings["id"] = np.array(ids, "V16")[rows] if len(rows) else b""
    return postings.tobytes()


# --- unpacking


def decode_ids(array: bytes | None) -> Any:  # noqa: ANN401 - a structured array
    """Decode an array of UUIDs in the server's binary format."""
    return np.frombuffer(
        array or b"",
        _UUID,
        offset=_ARRAY_HEADER.size if array and len(array) > _ARRAY_HEADER.size else len(array or b""),
    )["value"]


def decode_ints(array: bytes | None) -> list[int]:
    """Decode an array of integers in the server's binary format."""
    items: list[int] = np.frombuffer(array or b"", _ITEM, offset=_ARRAY_HEADER.size if array else 0)["value"].tolist()
    return items


def unpack_rows(
    fetched: Sequence[Sequence[bytes | None]],
    *,
    spaces: Mapping[int, str],
    terms: Sequence[str] | None,
    dimensions: int,
) -> Segment:
    """Build a segment from fetched rows; `spaces` names the queried spaces, `terms` limits the entries to those."""
    parts = [[value or b"" for value in column] for column in zip(*fetched, strict=True)] or [[]] * 5
    records, entries, names, speakers, vectors = map(b"".join, parts)
    columns = np.frombuffer(records, _COLUMNS)
    arrays: dict[str, Any] = {}
    numbers, arrays["space"] = np.unique(columns["space"], return_inverse=True)
    arrays["speaker"], speaker_table = _speakers(columns, speakers)
    arrays["vectors"] = _vectors(vectors, columns["scales"] > 0, dimensions)
    sizes = columns["entries"].astype(np.int64)
    selected = np.frombuffer(entries, _ENTRY)
    if terms is not None:
        indexes, selected = _filter_entries(entries, np.sort(hash_texts(terms)))
        rows = np.searchsorted(np.cumsum(sizes), indexes, "right")
        sizes = np.bincount(rows, minlength=len(columns))
    return build_from_rows(
        StoredRows(
            records=columns,
            columns=arrays,
            tables={"space": [spaces[number] for number in numbers.tolist()], "speaker": speaker_table},
            ids=np.frombuffer(names, np.uint8),
            id_sizes=columns["name_size"].astype(np.int64),
            terms=selected["term"],
            counts=selected["count"],
            sizes=sizes,
        )
    )


def _filter_entries(entries: bytes, wanted: Any) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
    """Return the entries whose terms are in a sorted array, and their indexes among all."""
    # Filter by two bytes of the term first: of thousands of entries, a few hundred remain for the search.
    possible = np.zeros(1 << 16, np.bool_)
    possible[(wanted & np.uint64(0xFFFF)).astype(np.intp)] = True
    indexes = np.flatnonzero(possible[np.frombuffer(entries, "<u2")[:: _ENTRY.itemsize // 2]])
    candidates = np.frombuffer(entries, _ENTRY)[indexes]
    if not len(candidates):
        return indexes, candidates
    matches = wanted[np.minimum(np.searchsorted(wanted, candidates["term"]), len(wanted) - 1)] == candidates["term"]
    return indexes[matches], candidates[matches]


def _speakers(columns: Any, names: bytes) -> tuple[Any, list[str]]:  # noqa: ANN401 - an array
    """Return a number for each row, and the names that the numbers stand for."""
    _, first, numbers = np.unique(columns["speaker"], return_index=True, return_inverse=True)
    ends = np.cumsum(columns["speaker_size"], dtype=np.int64)[first].tolist()
    sizes = columns["speaker_size"][first].tolist()
    return numbers, [names[end - size : end].decode() for end, size in zip(ends, sizes, strict=True)]


def _vectors(data: bytes, has_vector: Any, dimensions: int) -> npt.NDArray[np.int8]:  # noqa: ANN401 - an array
    if has_vector.all() and len(data) == len(has_vector) * dimensions:
        return np.frombuffer(data, np.int8).reshape(-1, dimensions)
    vectors = np.zeros((len(has_vector), dimensions), np.int8)
    # Vectors of another length are from another embedder, and are not compared.
    if data and len(data) == np.count_nonzero(has_vector) * dimensions:
        vectors[has_vector] = np.frombuffer(data, np.int8).reshape(-1, dimensions)
    return vectors
