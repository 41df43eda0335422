"""Positions in the change feed as opaque texts: the number of the last entry that was read in the log of each space."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from commonbook.errors import BadInput

BEGINNING: Final = "0"
"""The position before the first change of every space."""

_FORMAT: Final = b"\x01"
_ID_BYTES: Final = 16
_MAX_NUMBER: Final = 1 << 62


def format_position(numbers: Mapping[str, int]) -> str:
    """Return the position with these numbers of spaces, by their ids; 16 bytes and a short number for each space."""
    packed = b"".join(UUID(space).bytes + _pack(number) for space, number in sorted(numbers.items()))
    return base64.urlsafe_b64encode(_FORMAT + packed).decode().rstrip("=")


def parse_position(position: str) -> dict[str, int]:
    """Return the numbers in a position that `format_position` made; BadInput if it is none."""
    if position == BEGINNING:
        return {}
    try:
        packed = base64.b64decode(position + "=" * (-len(position) % 4), altchars=b"-_", validate=True)
        if packed[:1] != _FORMAT:
            raise ValueError(position)
        return _unpack(packed[1:])
    except (binascii.Error, ValueError, IndexError) as error:
        raise BadInput(
            "this is not a position in the changes", fix="pass on the `next` of a page or the id of an event, as it is"
        ) from error


def _pack(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first; the high bit says that more follow."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _unpack(packed: bytes) -> dict[str, int]:
    numbers: dict[str, int] = {}
    at = 0
    while at < len(packed):
        space = str(UUID(bytes=packed[at : at + _ID_BYTES]))
        at += _ID_BYTES
        number = shift = 0
        while packed[at] & 0x80:
            number |= (packed[at] & 0x7F) << shift
            shift += 7
            at += 1
        numbers[space] = number | packed[at] << shift
        at += 1
        if numbers[space] > _MAX_NUMBER:
            raise ValueError(space)
    return numbers
