"""Files of arrays: nothing is stored twice, and everything is read as it was given."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from commonbook.engines.index import array_files
from commonbook.engines.index.array_files import ArrayFile

ROWS = 1_000


def _columns() -> dict[str, np.ndarray]:
    numbers = np.arange(ROWS, dtype=np.int64)
    return {
        "numbers": numbers,
        "the_same": numbers.copy(),
        "as_unsigned": numbers.astype(np.uint64),
        "forever": np.full(ROWS, 1 << 62, np.int64),
        "also_forever": np.full(ROWS, 1 << 62, np.int64),
        "zeros": np.zeros(ROWS, np.uint8),
        "one": np.array([7], np.int64),
        "none": np.zeros(0, np.uint32),
        "none_of_another_type": np.zeros(0, np.int64),
        "table": np.zeros((ROWS, 4), np.int8),
        "last": numbers[::-1],
    }


def test_every_array_is_read_as_it_was_written_and_equal_values_are_stored_once(tmp_path):
    path = str(tmp_path / "file")
    array_files.write(path, ArrayFile(_columns(), {"about": ["it"]}))
    found = array_files.read(path)
    assert found.about == {"about": ["it"]}
    for name, array in _columns().items():
        assert found.arrays[name].dtype == array.dtype, name
        assert found.arrays[name].shape == array.shape, name
        assert found.arrays[name].tolist() == array.tolist(), name
        assert found.arrays[name][np.array([0] * len(array), np.intp)].shape == array.shape, name
    numbers, table, rest = 8 * ROWS, 4 * ROWS, 4_000
    assert (tmp_path / "file").stat().st_size < 3 * numbers + table + rest
    assert array_files.damage(path) is None


@pytest.mark.parametrize("name", ["numbers", "forever", "zeros", "table", "last"])
def test_damage_of_a_column_that_is_stored_once_is_found(tmp_path, name):
    path = tmp_path / "file"
    array_files.write(str(path), ArrayFile(_columns(), {}))
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[8:16], "little")
    offset = json.loads(data[24 : 24 + length])["arrays"][name][2]
    data[24 + length + -(24 + length) % 64 + offset] ^= 1
    path.write_bytes(data)
    assert name in str(array_files.damage(str(path)))
    with pytest.raises(array_files.Damaged):
        array_files.read(str(path))


def test_a_file_that_has_every_column_in_full_is_read_on(tmp_path):
    """Files were so before constant columns and equal arrays were stored once."""
    forever = np.full(3, 1 << 62, np.int64)
    entry = ["<i8", [3], 0, zlib.crc32(forever.tobytes())]
    header = json.dumps({"about": {}, "arrays": {"forever": entry, "again": [*entry[:2], 64, entry[3]]}, "bytes": 128})
    encoded = header.encode()
    begin = 24 + len(encoded) + -(24 + len(encoded)) % 64
    preamble = b"CPBNDL01" + len(encoded).to_bytes(8, "little") + zlib.crc32(encoded).to_bytes(8, "little")
    room = forever.tobytes().ljust(64, b"\0")
    path = tmp_path / "file"
    path.write_bytes((preamble + encoded).ljust(begin, b"\0") + room + room)
    assert {name: array.tolist() for name, array in array_files.read(str(path)).arrays.items()} == {
        "forever": [1 << 62] * 3,
        "again": [1 << 62] * 3,
    }
    assert array_files.damage(str(path)) is None
