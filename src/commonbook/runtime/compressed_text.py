"""Long texts as they are stored where the engine does not compress them itself: with zlib, as bytes.

A text that would not become shorter is stored as it is.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final

_MIN_BYTES: Final = 256
"""Shorter texts hardly shrink, and can be read in the database as they are."""

CACHED_TEXTS: Final = 32
"""The number of texts for which derived results are cached: a write uses them again under the lock."""

_MAX_KEPT_TEXTS: Final = 128
_MAX_KEPT_CHARS: Final = 32_768
"""The number and length of texts that are kept after they were read: mostly about a megabyte together."""

_SMALL_BYTES: Final = 4096
_SMALL_WINDOW_BITS: Final = 12
_SMALL_MEMORY_LEVEL: Final = 5


@lru_cache(maxsize=CACHED_TEXTS)
def compress(text: str) -> str | bytes:
    """Return a text as it is to be stored."""
    data = text.encode()
    if len(data) < _MIN_BYTES:
        return text
    compressed = zlib.compress(data) if len(data) > _SMALL_BYTES else _compress_small(data)
    return compressed if len(compressed) < len(data) else text


def _compress_small(data: bytes) -> bytes:
    """Compress with a window that has room for all data: to clear one of full size takes most of the time."""
    compressor = zlib.compressobj(wbits=_SMALL_WINDOW_BITS, memLevel=_SMALL_MEMORY_LEVEL)
    return compressor.compress(data) + compressor.flush()


def decompress(stored: str | bytes) -> str:
    """Return the text that was stored."""
    if isinstance(stored, str):
        return stored
    if len(stored) > _MAX_KEPT_CHARS:
        return zlib.decompress(stored).decode()
    text = _KEPT.get(stored)
    if text is None:
        text = zlib.decompress(stored).decode()
        # A short one may have become very long.
        if len(text) <= _MAX_KEPT_CHARS:
            if len(_KEPT) >= _MAX_KEPT_TEXTS:
                _KEPT.clear()
            _KEPT[stored] = text
    return text


_KEPT: Final[dict[bytes, str]] = {}
"""Texts that were read lately: in a small home, every recall reads the same few conversations.

They are kept by the bytes that they are stored as, so that none can be out of date.
"""
