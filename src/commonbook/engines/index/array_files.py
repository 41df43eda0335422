"""Files of named NumPy arrays, written once. Large ones are memory-mapped, so that processes share their pages.

A file has a checksummed JSON header, followed by the aligned arrays with a checksum (CRC-32) each. A column with only
one value is stored as this value, and arrays that are equal to each other are stored once.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

_MAGIC: Final = b"CPBNDL01"
_ALIGNMENT_BYTES: Final = 64
_PREAMBLE_BYTES: Final = 24
_FULL_ENTRY: Final = 4
"""The directory has type, shape, offset and checksum of an array; of a constant column also the shape in the file."""

_MAX_CHECKED_BYTES: Final = 1 << 16
"""Arrays of at most this size are verified whenever a file is opened; larger ones only by `damage`."""

_MAX_READ_BYTES: Final = 1 << 17
"""Files of at most this size, about 250 short messages, are read into memory instead of being mapped."""


class Damaged(Exception):
    """A file differs from what was written: cut short, partly copied or overwritten."""


class ArrayFile(NamedTuple):
    """The content of a file: arrays by name, and a small JSON object about them."""

    arrays: Mapping[str, Array]
    about: Mapping[str, Any]


def write(path: str, bundle: ArrayFile) -> None:
    """Write a new file and sync it; raises FileExistsError if it exists."""
    directory: dict[str, Any] = {}
    stored: dict[int, tuple[Array, int]] = {}
    size = 0
    for name, array in bundle.arrays.items():
        data = np.ascontiguousarray(array[:1] if _is_constant(array) else array)
        checksum = _checksum(data)
        equal = (at for at, (other, its) in stored.items() if its == checksum and _is_same(data, other))
        offset = next(equal, size)
        if offset == size:
            stored[offset] = data, checksum
            size += data.nbytes + -data.nbytes % _ALIGNMENT_BYTES
        directory[name] = [data.dtype.str, array.shape, offset, checksum]
        if data.shape != array.shape:
            directory[name].append(data.shape)
    header = json.dumps({"about": bundle.about, "arrays": directory, "bytes": size}, separators=(",", ":")).encode()
    begin = _PREAMBLE_BYTES + len(header) + -(_PREAMBLE_BYTES + len(header)) % _ALIGNMENT_BYTES
    with open(path, "xb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(8, "little") + header)
        for offset, (data, _) in stored.items():
            file.seek(begin + offset)
            file.write(data.reshape(-1).view(np.uint8).data)
        file.truncate(begin + size)
        file.flush()
        os.fsync(file.fileno())


def _is_constant(array: Array) -> bool:
    return array.ndim == 1 and len(array) > 1 and bool((array == array[0]).all())


def _is_same(array: Array, other: Array) -> bool:
    return array.dtype == other.dtype and array.shape == other.shape and array.tobytes() == other.tobytes()


def read(path: str) -> ArrayFile:
    """Open a file; raises Damaged when it is missing or not whole, OSError when it cannot be read at the moment."""
    header, begin, data = _open_data(path)
    arrays: dict[str, Array] = {}
    for name, entry in header["arrays"].items():
        array = _stored(entry, begin, data)
        if array.nbytes <= _MAX_CHECKED_BYTES:
            _verify(path, name, array, entry[3])
        # Every value of a constant column is the one in the file.
        arrays[name] = np.broadcast_to(array, entry[1]) if len(entry) > _FULL_ENTRY else array
    return ArrayFile(arrays, header["about"])


def _stored(entry: Sequence[Any], begin: int, data: mmap.mmap | bytes) -> Array:
    """Return an array as it stands in the file, where a constant column has one value."""
    kind, shape, offset, _, *stored_shape = entry
    dtype, shape = np.dtype(kind), (stored_shape or [shape])[0]
    count = int(np.prod(shape))
    return np.frombuffer(data, dtype, count, begin + offset).reshape(shape) if count else np.zeros(shape, dtype)


def damage(path: str) -> str | None:
    """Verify every checksum of a file; return a description of the damage, or None."""
    try:
        header, begin, data = _open_data(path)
        for name, entry in header["arrays"].items():
            _verify(path, name, _stored(entry, begin, data), entry[3])
    except Damaged as error:
        return str(error)
    except OSError as error:
        return f"{os.path.basename(path)} cannot be read: {error.strerror}"
    return None


def _open_data(path: str) -> tuple[Any, int, mmap.mmap | bytes]:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # A map keeps a descriptor of its file, and an index has many small files.
            is_small = size <= _MAX_READ_BYTES
            data = file.read() if is_small else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise Damaged(f"{os.path.basename(path)} is missing") from error
    length = int.from_bytes(data[8:16], "little")
    encoded = data[_PREAMBLE_BYTES : _PREAMBLE_BYTES + length]
    if data[:8] != _MAGIC or len(encoded) != length or zlib.crc32(encoded) != int.from_bytes(data[16:24], "little"):
        raise Damaged(f"{os.path.basename(path)} does not begin as it was written")
    header = json.loads(encoded)
    begin = _PREAMBLE_BYTES + length + -(_PREAMBLE_BYTES + length) % _ALIGNMENT_BYTES
    if size != begin + header["bytes"]:
        raise Damaged(f"{os.path.basename(path)} has {size:,} bytes in place of {begin + header['bytes']:,}")
    return header, begin, data


def _verify(path: str, name: str, array: Array, checksum: int) -> None:
    if _checksum(array) != checksum:
        raise Damaged(f"{os.path.basename(path)} holds other {name} than were written")


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
