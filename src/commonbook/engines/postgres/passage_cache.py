"""Passages of small spaces that this process has read, to be searched again without reading them again.

Whoever asks, asks in the same few spaces all day. What is kept of a space was read at one version of it, which the
index changes whenever it adds or withdraws something there; a search learns the version of its own moment, and leaves
aside what is of another. So nothing here is ever out of date, and nobody misses it when it is gone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from commonbook.engines.index.search import Part
from commonbook.engines.index.segments import Segment, hashes

FEW: Final = 16
"""In more spaces at a time the database searches by itself: here, each would be gone through one by one."""

SMALL: Final = 5_000
"""A space of more passages is read anew for each search: to read all of it at once would take too long."""

_TWICE: Final = 2
_REPAID: Final = 4
"""What was kept and used less often than this was not worth reading: next time it must be asked for more often."""

_MOST_OFTEN: Final = 256
_NOTED: Final = 10_000


class CachedVersion(NamedTuple):
    """What the index says of a space at one moment: how many passages it has, and in which version."""

    passages: int
    version: int


EMPTY: Final = CachedVersion(0, 0)
"""What is known of a space that never had a passage."""


class _CachedSpace:
    """What is kept of one space."""

    def __init__(self, version: int, segment: Segment) -> None:
        self.version: Final = version
        self.segment: Final = segment
        self.size: Final = sum(array.nbytes for array in segment.bundle.arrays.values())
        self.used = 0


class _AdmissionStats(NamedTuple):
    """How often a space was asked for and not kept, from how many times on it is worth it, and how large it was."""

    asked: int = 0
    worth: int = _TWICE
    passages: int = 0


class PassageCache:
    """What is kept of several spaces, up to so many bytes: those that were asked for last. For all threads."""

    def __init__(self, most: int) -> None:
        """Keep not more than so many bytes."""
        self._most: Final = most
        self._lock = threading.Lock()
        self._held: OrderedDict[int, _CachedSpace] = OrderedDict()
        self._noted: OrderedDict[int, _AdmissionStats] = OrderedDict()
        self._size = 0

    def has(self, spaces: Iterable[int]) -> frozenset[int]:
        """Return of which of these spaces something is kept, in whichever version."""
        with self._lock:
            return frozenset(space for space in spaces if space in self._held)

    def of(self, spaces: Iterable[int], known: Mapping[int, CachedVersion]) -> list[Segment]:
        """Return what is kept of these spaces in just these versions; what is of another is let go."""
        found = []
        with self._lock:
            for space in spaces:
                held = self._held.get(space)
                if held is None:
                    continue
                if known.get(space, EMPTY).version == held.version:
                    held.used += 1
                    found.append(held.segment)
                    self._held.move_to_end(space)
                else:
                    self._let_go(space)
        return found

    def worth_reading(self, spaces: Iterable[int]) -> int | None:
        """Return one of these spaces that is, by now, worth being read as a whole and kept."""
        with self._lock:
            noted = ((space, self._noted[space]) for space in spaces if space in self._noted)
            worth = (space for space, one in noted if one.asked >= one.worth - 1 and one.passages <= SMALL)
            return next(worth, None) if self._most else None

    def note(self, spaces: Iterable[int], known: Mapping[int, CachedVersion]) -> None:
        """Note that these spaces were asked for, and are not kept."""
        with self._lock:
            for space in spaces:
                before = self._noted.pop(space, _AdmissionStats())
                self._noted[space] = before._replace(asked=before.asked + 1, passages=known.get(space, EMPTY).passages)
            while len(self._noted) > _NOTED:
                self._noted.popitem(last=False)

    def keep(self, space: int, version: int, segment: Segment) -> None:
        """Keep the passages of a space; for want of room, without those that were not asked for the longest."""
        held = _CachedSpace(version, segment)
        with self._lock:
            self._let_go(space)
            self._held[space] = held
            self._size += held.size
            while self._size > self._most:
                self._let_go(next(iter(self._held)))

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._held.clear()
            self._noted.clear()
            self._size = 0

    def _let_go(self, space: int) -> None:
        """Let go of a space, and judge by its use how soon it is worth being kept again."""
        held = self._held.pop(space, None)
        if held is not None:
            self._size -= held.size
            before = self._noted.pop(space, _AdmissionStats())
            worth = min(before.worth * 2, _MOST_OFTEN) if held.used < _REPAID else max(before.worth // 2, _TWICE)
            self._noted[space] = before._replace(asked=0, worth=worth)


def part_of(segment: Segment, owners: Iterable[str]) -> Part:
    """Return the passages of a space, without those of owners that a tail replaces."""
    replaced = hashes(tuple(owners))
    if not len(replaced):
        return Part(segment, np.ones(segment.rows, np.bool_))
    return Part(segment, ~np.isin(segment.column("owner"), replaced))
