"""Cache of the passages of small spaces, kept in process memory and validated by the version of the space.

Most clients search the same few spaces all day. A cached space was read at one version, which the index changes
whenever it adds or removes a passage there. A search learns the version of its own snapshot, and ignores a cached space
of another one. So a cache entry is never stale, and it can be evicted at any time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from commonbook.engines.index.search import Part
from commonbook.engines.index.segments import Segment, hash_texts

MAX_SPACES: Final = 16
"""A search in more spaces than this bypasses the cache: each cached space is searched one by one."""

MAX_PASSAGES_PER_SPACE: Final = 5_000
"""A space of more passages is not cached: reading all of it at once would take too long."""

_MIN_THRESHOLD: Final = 2
_MIN_USES: Final = 4
"""An entry with fewer uses was not worth reading: its space needs more misses before it is admitted again."""

_MAX_THRESHOLD: Final = 256
_MAX_STATS: Final = 10_000


class SpaceVersion(NamedTuple):
    """The number of passages of a space and its version, in one snapshot of the index."""

    passages: int
    version: int


NO_PASSAGES: Final = SpaceVersion(0, 0)
"""The version of a space that never had a passage."""


class _CachedSpace:
    """The cached passages of one space."""

    def __init__(self, version: int, segment: Segment) -> None:
        self.version: Final = version
        self.segment: Final = segment
        self.size: Final = sum(array.nbytes for array in segment.bundle.arrays.values())
        self.uses = 0


class _AdmissionStats(NamedTuple):
    """Admission of one space: its misses, the misses that it needs to be admitted, and its size."""

    misses: int = 0
    threshold: int = _MIN_THRESHOLD
    passages: int = 0


class PassageCache:
    """Cache of whole spaces with least-recently-used eviction, limited in bytes; safe for threads."""

    def __init__(self, max_bytes: int) -> None:
        """Limit the cache to this number of bytes; 0 disables it."""
        self._max_bytes: Final = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _CachedSpace] = OrderedDict()
        self._stats: OrderedDict[int, _AdmissionStats] = OrderedDict()
        self._size = 0

    def has(self, spaces: Iterable[int]) -> frozenset[int]:
        """Return the spaces among these that are cached, in any version."""
        with self._lock:
            return frozenset(space for space in spaces if space in self._entries)

    def get(self, spaces: Iterable[int], versions: Mapping[int, SpaceVersion]) -> list[Segment]:
        """Return the cached segments of these spaces in exactly these versions; evict segments of other versions."""
        segments = []
        with self._lock:
            for space in spaces:
                entry = self._entries.get(space)
                if entry is None:
                    continue
                if versions.get(space, NO_PASSAGES).version == entry.version:
                    entry.uses += 1
                    segments.append(entry.segment)
                    self._entries.move_to_end(space)
                else:
                    self._evict(space)
        return segments

    def space_to_admit(self, spaces: Iterable[int]) -> int | None:
        """Return one of these spaces that should now be read as a whole and cached."""
        with self._lock:
            stats = ((space, self._stats[space]) for space in spaces if space in self._stats)
            admissible = (
                space
                for space, space_stats in stats
                if space_stats.misses >= space_stats.threshold - 1 and space_stats.passages <= MAX_PASSAGES_PER_SPACE
            )
            return next(admissible, None) if self._max_bytes else None

    def count_misses(self, spaces: Iterable[int], versions: Mapping[int, SpaceVersion]) -> None:
        """Count a miss for each of these spaces."""
        with self._lock:
            for space in spaces:
                before = self._stats.pop(space, _AdmissionStats())
                self._stats[space] = before._replace(
                    misses=before.misses + 1, passages=versions.get(space, NO_PASSAGES).passages
                )
            while len(self._stats) > _MAX_STATS:
                self._stats.popitem(last=False)

    def put(self, space: int, version: int, segment: Segment) -> None:
        """Cache the passages of a space, evicting the least recently used spaces for room."""
        entry = _CachedSpace(version, segment)
        with self._lock:
            self._evict(space)
            self._entries[space] = entry
            self._size += entry.size
            while self._size > self._max_bytes:
                self._evict(next(iter(self._entries)))

    def clear(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._entries.clear()
            self._stats.clear()
            self._size = 0

    def _evict(self, space: int) -> None:
        """Evict a space, and adapt its admission threshold to its use."""
        entry = self._entries.pop(space, None)
        if entry is not None:
            self._size -= entry.size
            before = self._stats.pop(space, _AdmissionStats())
            threshold = (
                min(before.threshold * 2, _MAX_THRESHOLD)
                if entry.uses < _MIN_USES
                else max(before.threshold // 2, _MIN_THRESHOLD)
            )
            self._stats[space] = before._replace(misses=0, threshold=threshold)


def live_part(segment: Segment, owners: Iterable[str]) -> Part:
    """Return the passages of a cached space, but no passage of an owner that a pending delta replaces."""
    replaced = hash_texts(tuple(owners))
    if not len(replaced):
        return Part(segment, np.ones(segment.rows, np.bool_))
    return Part(segment, ~np.isin(segment.column("owner"), replaced))
