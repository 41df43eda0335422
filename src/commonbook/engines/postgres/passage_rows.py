"""Encoding of passages as PostgreSQL rows: a segment becomes lines for COPY, and fetched rows are unpacked again.

The id of a passage in the index sorts in the order in which passages of equal score are chosen: the newest first, then
by thread and position. So an index of the database has them in that order. The other data for scoring is stored in the
layout of a segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""Vectors of up to this many dimensions fit into an index row, where they are scanned several times as fast."""

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
_NULL: Final = r"\N"
_ARRAY_HEADER: Final = struct.Struct("!5i")
_ITEM: Final = np.dtype([("size", ">i4"), ("value", ">i8")])
_UUID: Final = np.dtype([("size", ">i4"), ("value", ID_TYPE)])
_MAX_POSITION: Final = (1 << 16) - 1
_DIGEST_BYTES: Final = 4


def signed_hash(text: str) -> int:
    """Return the hash of a space, owner, thread or term as a signed 64-bit integer: the same bits as in segments."""
    number = hash_text(text)
    return number - (1 << 64) if number >= 1 << 63 else number


class PassageLines(NamedTuple):
    """Passages and their postings as lines for COPY, in the format of text."""

    rows: str
    postings: str
    spaces: Mapping[str, tuple[int, int]]
    """For each space, the number of its passages here, and how many of them have no vector."""


def passage_lines(entries: Sequence[IndexedPassage], *, dimensions: int) -> PassageLines:
    """Return passages as lines for COPY."""
    segment = build(entries, killed=np.zeros(0, np.uint64), dimensions=dimensions)
    ids, entries_of_rows = _ids(segment), segment.entries()
    spaces = np.array([signed_hash(space) for space in segment.table("space")], np.int64)[segment.column("space")]
    return PassageLines(
        "".join(_row_lines(segment, ids, spaces, entries_of_rows)),
        "".join(_posting_lines(segment, ids, spaces, entries_of_rows)),
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


def _row_lines(segment: Segment, ids: Sequence[bytes], spaces: Array, entries_of_rows: TermEntries) -> Iterator[str]:
    names = [segment.passage(row).encode() for row in range(segment.rows)]
    speakers = [speaker.encode() for speaker in segment.table("speaker")]
    sizes = np.bincount(entries_of_rows.rows, minlength=segment.rows)
    columns = _packed_columns(segment, spaces, [len(name) for name in names], sizes)
    starts = [0, *np.cumsum(sizes).tolist()]
    entries = np.zeros(starts[-1], _ENTRY)
    entries["term"] = segment.column("term")[entries_of_rows.terms]
    entries["count"] = entries_of_rows.counts
    terms = entries["term"].astype(np.int64).tolist()
    numbers = zip(*(columns[name].astype(np.int64).tolist() for name in _FILTERS), strict=True)
    for row, (space, *filters) in enumerate(numbers):
        span = slice(starts[row], starts[row + 1])
        fields = (
            space,
            ids[row].hex(),
            *filters,
            array_literal(terms[span]),
            _bytea(columns[row].tobytes()),
            _bytea(entries[span].tobytes()),
            _bytea(names[row]),
            _bytea(speakers[segment.column("speaker")[row]]),
            *(_vector_fields(segment.vectors[row]) if segment.scales[row] else (_NULL, _NULL, _NULL)),
        )
        yield "\t".join(map(str, fields)) + "\n"


def _bytea(data: bytes) -> str:
    return rf"\\x{data.hex()}"


def _vector_fields(vector: npt.NDArray[np.int8]) -> tuple[str, str, str]:
    """Return the fields of a vector: its bytes, and the columns for indexed and for longer vectors."""
    halves = vector_literal(vector)
    columns = (halves, _NULL) if len(vector) <= MAX_INDEXED_DIMENSIONS else (_NULL, halves)
    return (_bytea(vector.tobytes()), *columns)


def array_literal(items: Iterable[object]) -> str:
    """Return numbers or ids as an array literal, which is many times as fast as adaptation by the driver."""
    return "{" + ",".join(map(str, items)) + "}"


def vector_literal(vector: npt.NDArray[Any]) -> str:
    """Return a vector as pgvector writes it."""
    return "[" + ",".join(map(str, vector.tolist())) + "]"


_FILTERS: Final = (
    "space", "owner", "thread", "position", "kind", "flags", "wording",
    "time", "valid_from", "valid_until", "superseded", "superseded_until", "expires",
)  # fmt: skip


def _packed_columns(segment: Segment, spaces: Array, name_sizes: Sequence[int], sizes: Array) -> npt.NDArray[np.void]:
    columns = np.zeros(segment.rows, _COLUMNS)
    for name in _SEGMENT_COLUMNS.names or ():
        columns[name] = segment.column(name)
    columns["space"] = spaces
    speakers = segment.table("speaker")
    columns["speaker"] = np.array([hash_text(speaker) for speaker in speakers], np.uint64)[segment.column("speaker")]
    columns["speaker_size"] = np.array([len(speaker.encode()) for speaker in speakers])[segment.column("speaker")]
    columns["entries"] = sizes
    columns["name_size"] = name_sizes
    return columns


def _posting_lines(segment: Segment, ids: Sequence[bytes], spaces: Array, entries: TermEntries) -> Iterator[str]:
    names = [id_.hex() for id_ in ids]
    rows = entries.rows
    terms = segment.column("term")[entries.terms].astype(np.int64)
    for space, term, row in zip(spaces[rows].tolist(), terms.tolist(), rows.tolist(), strict=True):
        yield f"{space}\t{term}\t{names[row]}\n"


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
