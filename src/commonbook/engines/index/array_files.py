"""A file of arrays, written once and then mapped: what several processes read, they share."""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

_MAGIC: Final = b"CPBNDL01"
_ALIGN: Final = 64
_HEAD: Final = 24
_CHECK_UP_TO: Final = 1 << 16
"""Arrays up to this size are checked whenever a file is opened; larger ones when somebody asks (`damage`)."""


class Damaged(Exception):
    """A file is not what was written: cut short, half copied or overwritten."""


class ArrayFile(NamedTuple):
    """What a file holds: arrays by name, and a few words about them."""

    arrays: Mapping[str, Array]
    about: Mapping[str, Any]


def write(path: str, bundle: ArrayFile) -> None:
    """Write a file and make it durable; it must not exist yet."""
    places: dict[str, Any] = {}
    offset = 0
    for name, array in bundle.arrays.items():
        data = np.ascontiguousarray(array)
        places[name] = [data.dtype.str, data.shape, offset, _sum(data)]
        offset += data.nbytes + -data.nbytes % _ALIGN
    header = json.dumps({"about": bundle.about, "arrays": places, "bytes": offset}).encode()
    begin = _HEAD + len(header) + -(_HEAD + len(header)) % _ALIGN
    with open(path, "xb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(8, "little") + header)
        for name, array in bundle.arrays.items():
            file.seek(begin + places[name][2])
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        file.truncate(begin + offset)
        file.flush()
        os.fsync(file.fileno())


def read(path: str) -> ArrayFile:
    """Map a file; raises Damaged when it is not there or not whole, OSError when it cannot be read just now."""
    header, begin, data = _opened(path)
    arrays: dict[str, Array] = {}
    for name, (kind, shape, offset, check) in header["arrays"].items():
        dtype = np.dtype(kind)
        count = int(np.prod(shape))
        arrays[name] = (
            np.frombuffer(data, dtype, count, begin + offset).reshape(shape) if count else np.zeros(shape, dtype)
        )
        if count * dtype.itemsize <= _CHECK_UP_TO:
            _check(path, name, arrays[name], check)
    return ArrayFile(arrays, header["about"])


def damage(path: str) -> str | None:
    """Read a whole file and say what is wrong with it, if anything is."""
    try:
        header, _, _ = _opened(path)
        for name, array in read(path).arrays.items():
            _check(path, name, array, header["arrays"][name][3])
    except Damaged as error:
        return str(error)
    except OSError as error:
        return f"{os.path.basename(path)} cannot be read: {error.strerror}"
    return None


def _opened(path: str) -> tuple[Any, int, mmap.mmap | bytes]:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except FileNotFoundError as error:
        raise Damaged(f"{os.path.basename(path)} is missing") from error
    length = int.from_bytes(data[8:16], "little")
    encoded = data[_HEAD : _HEAD + length]
    if data[:8] != _MAGIC or len(encoded) != length or zlib.crc32(encoded) != int.from_bytes(data[16:24], "little"):
        raise Damaged(f"{os.path.basename(path)} does not begin as it was written")
    header = json.loads(encoded)
    begin = _HEAD + length + -(_HEAD + length) % _ALIGN
    if size != begin + header["bytes"]:
        raise Damaged(f"{os.path.basename(path)} has {size:,} bytes in place of {begin + header['bytes']:,}")
    return header, begin, data


def _check(path: str, name: str, array: Array, check: int) -> None:
    if _sum(array) != check:
        raise Damaged(f"{os.path.basename(path)} holds other {name} than were written")


def _sum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
