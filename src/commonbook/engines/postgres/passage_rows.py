"""A passage as rows of PostgreSQL: how a segment is taken apart for COPY, and put together from what was fetched.

A passage's id in the index orders as passages of one score do, so that an index of the database has them in that order:
the newest first, then by thread and place. All else that scoring reads is kept as a segment has it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from commonbook.engines.index.segments import Loose, Segment, build, columns_of_a_row, hashed, hashes, restored
from commonbook.ports.index import IndexedPassage

PASSAGE: Final = (
    "space, id, owner, thread, position, kind, flags, time, valid_from, valid_until, superseded, expires,"
    " terms, columns, entries, name, speaker, vector, v, w"
)
SHORT: Final = 1024
"""A vector of so many numbers fits into an index, where it is scanned several times as fast."""

POSTING: Final = "space, term, id"
FETCHED: Final = ", ".join(
    f"string_agg(p.{column}, '')" for column in ("columns", "entries", "name", "speaker", "vector")
)
"""Everything of many rows in one: what is the same size in each says how much of the rest is whose."""

ID: Final = np.dtype([("newest", ">u8"), ("rest", ">u8")])
"""An id as two numbers that order as its bytes do."""

_OWN: Final = columns_of_a_row()
_COLUMNS: Final = np.dtype(
    [
        *((name, _OWN[name]) for name in _OWN.names or ()),
        ("space", "<i8"),
        ("speaker", "<u8"),
        ("entries", "<u4"),
        ("name_size", "<u4"),
        ("speaker_size", "<u4"),
    ]
)
_ENTRY: Final = np.dtype([("term", "<u8"), ("count", "<u2")])
_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END: Final = struct.pack("!h", -1)
_FIXED: Final = struct.Struct("!hiqi16siqiqiqihihiqiqiqiqiq")
_FIELDS: Final = 20
_NULL: Final = struct.pack("!i", -1)
_ARRAY: Final = struct.Struct("!5i")
_INT8: Final = 20
_ITEM: Final = np.dtype([("size", ">i4"), ("value", ">i8")])
_UUID: Final = np.dtype([("size", ">i4"), ("value", ID)])
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
_FURTHEST: Final = (1 << 16) - 1
_REST_BYTES: Final = 4


def signed(text: str) -> int:
    """Return the number by which a space, an owner, a thread or a term is known: the bits that segments have."""
    number = hashed(text)
    return number - (1 << 64) if number >= 1 << 63 else number


class Passages(NamedTuple):
    """Passages ready to be copied."""

    rows: bytes
    postings: bytes
    spaces: Mapping[str, tuple[int, int]]
    """How many passages each space has here, and how many of them have no vector."""


def packed(entries: Sequence[IndexedPassage], *, dimensions: int) -> Passages:
    """Take passages apart."""
    segment = build(entries, killed=np.zeros(0, np.uint64), dimensions=dimensions)
    ids = _ids(segment)
    return Passages(
        b"".join([_HEADER, *_rows(segment, ids), _END]), _HEADER + _postings(segment, ids) + _END, _sizes(segment)
    )


def _sizes(segment: Segment) -> dict[str, tuple[int, int]]:
    places = segment.column("space")
    having = np.bincount(places, minlength=len(segment.table("space")))
    without = np.bincount(places[segment.scales == 0], minlength=len(having))
    sizes = zip(having.tolist(), without.tolist(), strict=True)
    return dict(zip(segment.table("space"), sizes, strict=True))


def _ids(segment: Segment) -> list[bytes]:
    """Return an id for each row, which is another for every owner."""
    newest = (~segment.order).tolist()
    threads = (segment.thread >> np.uint64(48)).tolist()
    places = np.minimum(segment.position, _FURTHEST).tolist()
    found: list[bytes] = []
    found_before: set[bytes] = set()
    for row, begun in enumerate(zip(newest, threads, places, strict=True)):
        said = struct.pack("<QQq", segment.column("owner")[row], segment.thread[row], segment.position[row])
        said += segment.passage(row).encode()
        found.append(_unlike(found_before, struct.pack("!QHH", *begun), said))
    return found


def _unlike(others: set[bytes], begun: bytes, said: bytes) -> bytes:
    """Return an id that no other row has, even if all that it says is the same."""
    while (found := begun + blake2b(said, digest_size=_REST_BYTES).digest()) in others:
        said += b"again"
    others.add(found)
    return found


def _rows(segment: Segment, ids: Sequence[bytes]) -> Iterator[bytes]:
    names = [segment.passage(row).encode() for row in range(segment.rows)]
    speakers = [speaker.encode() for speaker in segment.table("speaker")]
    columns = _packed_columns(segment, [len(name) for name in names])
    said, width = columns.tobytes(), columns.itemsize
    starts = segment.column("entry_start").tolist()
    entries = np.zeros(starts[-1], _ENTRY)
    entries["term"] = segment.column("term")[segment.column("entry_term")]
    entries["count"] = segment.column("entry_count")
    terms = np.zeros(starts[-1], _ITEM)
    terms["size"], terms["value"] = 8, entries["term"].astype(np.int64)
    halves = segment.vectors.astype(">f2")
    filters = zip(*(columns[name].astype(np.int64).tolist() for name in _FILTERS), strict=True)
    for row, (space, owner, thread, position, kind, flags, *times) in enumerate(filters):
        own = slice(starts[row], starts[row + 1])
        timed = [part for time in times for part in (8, time)]
        yield _FIXED.pack(_FIELDS, 8, space, 16, ids[row], 8, owner, 8, thread, 8, position, 2, kind, 2, flags, *timed)
        yield _field(_array(own.stop - own.start) + terms[own].tobytes())
        yield _field(said[row * width : (row + 1) * width])
        yield _field(entries[own].tobytes())
        yield _field(names[row])
        yield _field(speakers[segment.column("speaker")[row]])
        if segment.scales[row]:
            yield _field(segment.vectors[row].tobytes())
            yield from _vector(halves[row].tobytes())
        else:
            yield _NULL * 3


def _field(said: bytes) -> bytes:
    return struct.pack("!i", len(said)) + said


def _vector(halves: bytes) -> tuple[bytes, bytes]:
    """Return the column of short vectors and the one of long vectors."""
    length = len(halves) // 2
    field = _field(struct.pack("!HH", length, 0) + halves)
    return (field, _NULL) if length <= SHORT else (_NULL, field)


def _array(items: int) -> bytes:
    """Return how an array of whole numbers begins; one without any has no dimension either."""
    return _ARRAY.pack(1, 0, _INT8, items, 1) if items else struct.pack("!3i", 0, 0, _INT8)


_FILTERS: Final = (
    "space", "owner", "thread", "position", "kind", "flags",
    "time", "valid_from", "valid_until", "superseded", "expires",
)  # fmt: skip


def _packed_columns(segment: Segment, name_sizes: Sequence[int]) -> npt.NDArray[np.void]:
    columns = np.zeros(segment.rows, _COLUMNS)
    for name in _OWN.names or ():
        columns[name] = segment.column(name)
    columns["space"] = np.array([signed(space) for space in segment.table("space")], np.int64)[segment.column("space")]
    speakers = segment.table("speaker")
    columns["speaker"] = np.array([hashed(one) for one in speakers], np.uint64)[segment.column("speaker")]
    columns["speaker_size"] = np.array([len(one.encode()) for one in speakers])[segment.column("speaker")]
    columns["entries"] = np.diff(segment.column("entry_start"))
    columns["name_size"] = name_sizes
    return columns


def _postings(segment: Segment, ids: Sequence[bytes]) -> bytes:
    starts = segment.column("entry_start")
    rows = np.repeat(np.arange(segment.rows), np.diff(starts))
    spaces = np.array([signed(space) for space in segment.table("space")], np.int64)
    found = np.zeros(len(rows), _POSTING)
    found["fields"], found["space_size"], found["term_size"], found["id_size"] = 3, 8, 8, 16
    found["space"] = spaces[segment.column("space")[rows]] if len(rows) else 0
    found["term"] = segment.column("term")[segment.column("entry_term")].astype(np.int64)
    found["id"] = np.array(ids, "V16")[rows] if len(rows) else b""
    return found.tobytes()


# --- and back


def ids_of(array: bytes | None) -> Any:  # noqa: ANN401 - a structured array
    """Return the ids in an array of UUIDs as the server sends it."""
    return np.frombuffer(array or b"", _UUID, offset=_INT8 if array and len(array) > _INT8 else len(array or b""))[
        "value"
    ]


def numbers_of(array: bytes | None) -> list[int]:
    """Return the numbers in an array of whole numbers as the server sends it."""
    items: list[int] = np.frombuffer(array or b"", _ITEM, offset=_INT8 if array else 0)["value"].tolist()
    return items


def unpacked(
    fetched: Sequence[Sequence[bytes | None]],
    *,
    spaces: Mapping[int, str],
    terms: Sequence[str] | None,
    dimensions: int,
) -> Segment:
    """Put fetched passages together; `spaces` are the names of those that were asked, `terms` those that matter."""
    parts = [[one or b"" for one in some] for some in zip(*fetched, strict=True)] or [[]] * 5
    said, entries, names, speakers, vectors = map(b"".join, parts)
    columns = np.frombuffer(said, _COLUMNS)
    arrays: dict[str, Any] = {}
    numbers, arrays["space"] = np.unique(columns["space"], return_inverse=True)
    arrays["speaker"], speaker_table = _speakers(columns, speakers)
    arrays["vectors"] = _vectors(vectors, columns["scales"] > 0, dimensions)
    sizes = columns["entries"].astype(np.int64)
    own = np.frombuffer(entries, _ENTRY)
    if terms is not None:
        kept, own = _among(entries, np.sort(hashes(terms)))
        rows = np.searchsorted(np.cumsum(sizes), kept, "right")
        sizes = np.bincount(rows, minlength=len(columns))
    return restored(
        Loose(
            records=columns,
            columns=arrays,
            tables={"space": [spaces[number] for number in numbers.tolist()], "speaker": speaker_table},
            ids=np.frombuffer(names, np.uint8),
            id_sizes=columns["name_size"].astype(np.int64),
            terms=own["term"],
            counts=own["count"],
            sizes=sizes,
        )
    )


def _among(entries: bytes, wanted: Any) -> tuple[Any, Any]:  # noqa: ANN401 - arrays
    """Return the entries whose terms are among some, which are sorted, and their places among all."""
    # By two bytes of a term first: of thousands, a few hundred are left to be looked for.
    likely = np.zeros(1 << 16, np.bool_)
    likely[(wanted & np.uint64(0xFFFF)).astype(np.intp)] = True
    places = np.flatnonzero(likely[np.frombuffer(entries, "<u2")[:: _ENTRY.itemsize // 2]])
    found = np.frombuffer(entries, _ENTRY)[places]
    if not len(found):
        return places, found
    there = wanted[np.minimum(np.searchsorted(wanted, found["term"]), len(wanted) - 1)] == found["term"]
    return places[there], found[there]


def _speakers(columns: Any, said: bytes) -> tuple[Any, list[str]]:  # noqa: ANN401 - an array
    """Return for each row a number, and the names that the numbers stand for."""
    _, first, places = np.unique(columns["speaker"], return_index=True, return_inverse=True)
    ends = np.cumsum(columns["speaker_size"], dtype=np.int64)[first].tolist()
    sizes = columns["speaker_size"][first].tolist()
    return places, [said[end - size : end].decode() for end, size in zip(ends, sizes, strict=True)]


def _vectors(said: bytes, having: Any, dimensions: int) -> npt.NDArray[np.int8]:  # noqa: ANN401 - an array
    if having.all() and len(said) == len(having) * dimensions:
        return np.frombuffer(said, np.int8).reshape(-1, dimensions)
    vectors = np.zeros((len(having), dimensions), np.int8)
    # Of another length they are another embedder's, and not compared.
    if said and len(said) == np.count_nonzero(having) * dimensions:
        vectors[having] = np.frombuffer(said, np.int8).reshape(-1, dimensions)
    return vectors
