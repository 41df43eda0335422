"""A passage as rows of PostgreSQL: how a segment is taken apart for COPY, and put together from what was fetched.

A passage's id in the index orders as passages of one score do, so that an index of the database has them in that order:
the newest first, then by place. All else that scoring reads is kept as a segment has it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from commonplace.catalogue import Entry
from commonplace.engines.segments import Loose, Segment, build, columns_of_a_row, hashed, restored

PASSAGE: Final = (
    "space, id, owner, thread, position, kind, flags, time, valid_from, valid_until, superseded, expires,"
    " columns, terms, counts, name, speaker, v, w"
)
SHORT: Final = 1024
"""A vector of so many numbers fits into an index, where it is scanned several times as fast."""

POSTING: Final = "space, term, id"
FETCHED: Final = (
    "p.space, p.columns, array_send(p.terms), p.counts, p.name, p.speaker, halfvec_send(coalesce(p.v, p.w))"
)

_FETCHED: Final = 7

ID: Final = np.dtype([("newest", ">u8"), ("place", ">u8")])
"""An id as two numbers that order as its bytes do."""

_COLUMNS: Final = columns_of_a_row()
_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END: Final = struct.pack("!h", -1)
_FIXED: Final = struct.Struct("!hiqi16siqiqiqihihiqiqiqiqiq")
_FIELDS: Final = 19
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
_PLACE_BITS: Final = 24
_REST_BITS: Final = 40
_FURTHEST: Final = (1 << _PLACE_BITS) - 1


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


def packed(entries: Sequence[Entry], *, dimensions: int) -> Passages:
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
    newest = ~segment.order
    places = np.minimum(segment.position, _FURTHEST)
    found: list[bytes] = []
    found_before: set[bytes] = set()
    for row, (first, place) in enumerate(zip(newest.tolist(), places.tolist(), strict=True)):
        said = struct.pack("<QQq", segment.column("owner")[row], segment.thread[row], segment.position[row])
        said += segment.passage(row).encode()
        begun = struct.pack("!Q", first) + place.to_bytes(_PLACE_BITS // 8, "big")
        found.append(_unlike(found_before, begun, said))
    return found


def _unlike(others: set[bytes], begun: bytes, said: bytes) -> bytes:
    """Return an id that no other row has, even if all that it says is the same."""
    while (found := begun + blake2b(said, digest_size=_REST_BITS // 8).digest()) in others:
        said += b"again"
    others.add(found)
    return found


def _rows(segment: Segment, ids: Sequence[bytes]) -> Iterator[bytes]:
    columns = _packed_columns(segment)
    width = columns.itemsize
    said = columns.tobytes()
    spaces = [signed(space) for space in segment.table("space")]
    speakers = [speaker.encode() for speaker in segment.table("speaker")]
    starts = segment.column("entry_start").tolist()
    terms = segment.column("term")[segment.column("entry_term")]
    items = np.zeros(len(terms), _ITEM)
    items["size"], items["value"] = 8, terms.astype(np.int64)
    terms_said, counts = items.tobytes(), segment.column("entry_count").astype("<u2").tobytes()
    halves = segment.vectors.astype(">f2")
    filters = zip(
        *(
            segment.column(name).astype(np.int64).tolist()
            for name in ("owner", "thread", "position", "kind", "flags", *_TIMES)
        ),
        strict=True,
    )
    for row, (owner, thread, position, kind, flags, *times) in enumerate(filters):
        first, last = starts[row], starts[row + 1]
        begun = (_FIELDS, 8, spaces[segment.column("space")[row]], 16, ids[row], 8, owner, 8, thread, 8, position)
        timed = [part for time in times for part in (8, time)]
        fields = (
            said[row * width : (row + 1) * width],
            _array(last - first) + terms_said[first * 12 : last * 12],
            counts[first * 2 : last * 2],
            segment.passage(row).encode(),
            speakers[segment.column("speaker")[row]],
        )
        yield _FIXED.pack(*begun, 2, kind, 2, flags, *timed)
        yield from (struct.pack("!i", len(field)) + field for field in fields)
        yield from _vector(halves[row].tobytes() if segment.scales[row] else None)


def _vector(halves: bytes | None) -> tuple[bytes, bytes]:
    """Return the column of short vectors and the one of long vectors."""
    if halves is None:
        return _NULL, _NULL
    length = len(halves) // 2
    field = struct.pack("!iHH", len(halves) + 4, length, 0) + halves
    return (field, _NULL) if length <= SHORT else (_NULL, field)


def _array(items: int) -> bytes:
    """Return how an array of whole numbers begins; one without any has no dimension either."""
    return _ARRAY.pack(1, 0, _INT8, items, 1) if items else struct.pack("!3i", 0, 0, _INT8)


_TIMES: Final = ("time", "valid_from", "valid_until", "superseded", "expires")


def _packed_columns(segment: Segment) -> npt.NDArray[np.void]:
    columns = np.zeros(segment.rows, _COLUMNS)
    for name in _COLUMNS.names or ():
        columns[name] = segment.column(name)
    return columns


def _postings(segment: Segment, ids: Sequence[bytes]) -> bytes:
    starts = segment.column("entry_start")
    rows = np.repeat(np.arange(segment.rows), np.diff(starts))
    spaces = np.array([signed(space) for space in segment.table("space")], np.int64)
    found = np.zeros(len(rows), _POSTING)
    found["fields"], found["space_size"], found["term_size"], found["id_size"] = 3, 8, 8, 16
    found["space"] = spaces[segment.column("space")][rows] if len(rows) else 0
    found["term"] = segment.column("term")[segment.column("entry_term")].astype(np.int64)
    found["id"] = np.array(ids, "V16")[rows] if len(rows) else b""
    return found.tobytes()


# --- and back


def ids_of(array: bytes | None) -> Any:  # noqa: ANN401 - a structured array
    """Return the ids in an array of UUIDs as the server sends it."""
    return np.frombuffer(array or b"", _UUID, offset=_INT8 if array and len(array) > _INT8 else len(array or b""))[
        "value"
    ]


def unpacked(
    rows: Sequence[Sequence[Any]], *, spaces: Mapping[int, str], terms: Sequence[str], dimensions: int
) -> Segment:
    """Put fetched passages together; `spaces` are the names of those that were asked, `terms` those that matter."""
    fetched = zip(*rows, strict=True) if rows else [()] * _FETCHED
    space, said, having, counts, names, speakers, vectors = fetched
    columns = np.frombuffer(b"".join(said), _COLUMNS)
    arrays: dict[str, Any] = {name: np.ascontiguousarray(columns[name]) for name in _COLUMNS.names or ()}
    arrays["space"], space_table = _numbered([spaces[one] for one in space])
    arrays["speaker"], speaker_table = _numbered([one.decode() for one in speakers])
    arrays["vectors"] = _vectors(vectors, dimensions)
    sizes, of_all, times = _entries(having, counts, terms)
    return restored(
        Loose(
            columns=arrays,
            tables={"space": space_table, "speaker": speaker_table},
            ids=names,
            sizes=sizes,
            terms=of_all,
            counts=times,
        )
    )


def _entries(having: Sequence[bytes], counts: Sequence[bytes], terms: Sequence[str]) -> tuple[Any, Any, Any]:
    """Return how many of these terms each row has, which, and how often."""
    wanted = np.array(sorted(map(hashed, terms)) or [0], np.uint64)
    sizes = [max(len(one) - _ARRAY.size, 0) // _ITEM.itemsize for one in having]
    items = np.frombuffer(b"".join([one[_ARRAY.size :] for one in having]), _ITEM)["value"]
    found = items.astype(np.int64).view(np.uint64)
    places = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
    kept = np.flatnonzero(wanted[places] == found)
    rows = np.repeat(np.arange(len(sizes)), sizes)[kept]
    times = np.frombuffer(b"".join(counts), "<u2").astype(np.uint16)
    return np.bincount(rows, minlength=len(sizes)), found[kept], times[kept]


def _numbered(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], list[str]]:
    table = sorted(set(texts))
    places = {text: at for at, text in enumerate(table)}
    return np.array([places[text] for text in texts], np.uint32), table


def _vectors(halves: Sequence[bytes | None], dimensions: int) -> npt.NDArray[np.int8]:
    nothing = bytes(2 * dimensions)
    said = b"".join([one[4:] if one and len(one) == 2 * dimensions + 4 else nothing for one in halves])
    return np.frombuffer(said, ">f2").astype(np.int8).reshape(len(halves), dimensions)
