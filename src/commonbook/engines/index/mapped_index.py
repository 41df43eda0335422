"""The embedded index: immutable segments in memory-mapped files, and a manifest that names the current ones.

A writer holds `index.lock`. It writes and syncs new segments first, and then replaces the manifest by an atomic
rename. Readers never wait: a segment that the manifest no longer names stays readable for processes that have it
mapped. A tiered merge policy joins small segments, and merging drops deleted rows.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

import numpy as np

from commonbook.engines.index import array_files
from commonbook.engines.index.array_files import Damaged
from commonbook.engines.index.search import NO_OWNERS, OverlaidIndex, Part, add_delta, mask_rows, merge_from, search
from commonbook.engines.index.segments import PoolSquares, Segment, with_squares, with_zero_vectors
from commonbook.engines.process import FairLock
from commonbook.errors import DiskFull, HomeReadOnly
from commonbook.ports.database import Reading
from commonbook.ports.index import Delta, IndexQuery, IndexResult, IndexState, PendingDeltas, SpacePosition
from commonbook.values.ids import new_id

MANIFEST: Final = "manifest.json"
FORMAT: Final = 4
_ManifestStamp: TypeAlias = tuple[int, int, int]

_MERGE_FACTOR: Final = 8
"""The number of segments of one tier that are merged into one of the next tier."""

_SMALLEST_TIER_ROWS: Final = 256
_QUICK_MERGE_ROWS: Final = 20_000
"""A merge of at most this number of rows takes tenths of a second. A recall does no longer merge unless it must."""

_PATIENCE: Final = 2
"""A hurried writer puts a long merge off until it is this many times overdue: a worker mostly comes before."""

_MAX_DELETED_FRACTION: Final = 0.3
"""A segment is rewritten when this fraction of its rows is deleted."""


class MappedIndex:
    """The Index port on the files of one folder."""

    def __init__(self, folder: str, *, pool_squares: PoolSquares | None = None) -> None:
        """Remember the folder; nothing is opened or created before it is needed.

        `pool_squares` computes the norms of pooled vectors, which are stored with the segments.
        """
        self._folder = folder
        self._pool_squares = pool_squares
        self._lock = FairLock(os.path.join(os.path.dirname(folder), "index.lock"))
        self._view_lock = threading.Lock()
        self._empty = _View(None, None, (), ())
        self._view = self._empty

    def last_view(self) -> _View:
        """Return the current view: opening it costs one `stat` of the manifest, so there is nothing to save."""
        return self.view()

    def empty_view(self) -> _View:
        """Return a view of an empty index."""
        return self._empty

    def view(self) -> _View:
        """Return the current view; map new segments if the manifest has changed."""
        with self._view_lock:
            stamp = self._stamp()
            if stamp is None or stamp != self._view.stamp:
                self._view = self._load(stamp)
            return self._view

    @contextmanager
    def writing(self, *, wait: float, hurried: bool = False, thorough: bool = False) -> Iterator[_Writer]:
        """Hold the lock of the index and yield a writer."""
        with _translate_errors(self._folder), self._lock.hold(wait):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            yield _Writer(
                self._folder, self.view(), pool_squares=self._pool_squares, hurried=hurried, thorough=thorough
            )

    def damage(self) -> list[str]:
        """Verify every segment and return a description of each damage."""
        try:
            _, names = _read_manifest(self._folder)
        except FileNotFoundError:
            return []
        except (Damaged, OSError) as error:
            return [str(error)]
        paths = [os.path.join(self._folder, name) for name in names]
        return [problem for path in paths if (problem := array_files.damage(path))]

    def close(self) -> None:
        """Close the files."""
        with self._view_lock:
            self._view = self._empty
        self._lock.close()

    def _stamp(self) -> _ManifestStamp | None:
        try:
            status = os.stat(os.path.join(self._folder, MANIFEST))
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _load(self, stamp: _ManifestStamp | None) -> _View:
        """Map the segments of the manifest; a missing one means that a merge may have written a newer manifest."""
        known = dict(zip(self._view.names, (part.segment for part in self._view.parts), strict=True))
        for _ in range(3):
            try:
                state, names = _read_manifest(self._folder)
                segments = [known.get(name) or self._open(name, state.dimensions) for name in names]
                return _View(stamp, state, names, _with_live_rows(segments))
            except (Damaged, OSError) as error:
                newer = self._stamp()
                if newer == stamp and isinstance(error, Damaged):
                    return _View(stamp, None, (), ())
                stamp = newer
        # Writers commit all the time, or too many files are open: the next call may succeed.
        return self._empty

    def _open(self, name: str, dimensions: int) -> Segment:
        segment = Segment(array_files.read(os.path.join(self._folder, name)))
        if segment.dimensions not in (0, dimensions):
            raise Damaged(f"{name} has vectors of another length")
        return with_zero_vectors(segment, dimensions)


class _View:
    """A snapshot of the index: the segments of one manifest."""

    def __init__(
        self,
        stamp: _ManifestStamp | None,
        state: IndexState | None,
        names: tuple[str, ...],
        parts: tuple[Part, ...],
    ) -> None:
        self.stamp: Final = stamp
        self.state: Final = state
        self.names: Final = names
        self.parts: Final = parts
        self._overlay: Final = OverlaidIndex(parts)

    def search(self, sought: IndexQuery, tail: PendingDeltas, tx: Reading | None = None) -> IndexResult:  # noqa: ARG002 - the port's
        """Search the segments, with the pending deltas as further segments."""
        return search(self._overlay.under(tail), sought)


class _Writer:
    """Adds segments to an index, under its lock."""

    def __init__(
        self,
        folder: str,
        view: _View,
        *,
        pool_squares: PoolSquares | None,
        hurried: bool = False,
        thorough: bool = False,
    ) -> None:
        """Start from this view; if somebody waits for it (`hurried`), long merges are put off.

        A `thorough` writer leaves one segment, or a large and a small one.
        """
        self._folder = folder
        self._pool_squares = pool_squares
        self._hurried = hurried
        self._thorough = thorough
        self._state = view.state
        self._names: list[str | None] = list(view.names)
        self._parts = view.parts

    @property
    def state(self) -> IndexState | None:
        """The state of the index before this commit."""
        return self._state

    def clear(self) -> None:
        """Start from an empty index."""
        self._state, self._names, self._parts = None, [], ()

    def add(self, layer: Delta) -> None:
        """Build a segment from a delta, and merge if the policy asks for it."""
        self._parts = add_delta(self._parts, layer)
        self._names.append(None)
        self._merge()

    def commit(self, state: IndexState) -> None:
        """Write new segments, then the manifest; delete files that the manifest no longer names."""
        if self._names.count(None) > 1:
            # One commit adds one segment, since every query searches each segment separately.
            since = self._names.index(None)
            self._parts, self._names[since:] = merge_from(self._parts, since), [None]
        if self._thorough:
            self._merge_all()
        sizes = [part.segment.rows or len(part.segment.killed) for part in self._parts]
        self._names = [name for name, size in zip(self._names, sizes, strict=True) if size]
        self._parts = tuple(part for part, size in zip(self._parts, sizes, strict=True) if size)
        names = [name or self._write(part.segment) for name, part in zip(self._names, self._parts, strict=True)]
        unembedded = sum(int((part.segment.scales[part.alive] == 0).sum()) for part in self._parts)
        dimensions = max((part.segment.dimensions for part in self._parts), default=0)
        state = state._replace(unembedded=unembedded, dimensions=dimensions)
        _write_manifest(self._folder, state, names)
        self._names, self._state = list(names), state
        for other in os.listdir(self._folder):
            if other not in (MANIFEST, *names):
                with suppress(OSError):
                    os.unlink(os.path.join(self._folder, other))

    def _write(self, segment: Segment) -> str:
        name = f"{new_id()}.segment"
        if self._pool_squares is not None:
            segment = with_squares(segment, self._pool_squares)
        array_files.write(os.path.join(self._folder, name), segment.bundle)
        return name

    def _merge(self) -> None:
        """Merge the newest segments while a tier is full, and rewrite segments with too many deleted rows."""
        while (since := self._merge_start()) is not None:
            self._parts = merge_from(self._parts, since)
            self._names[since:] = [None]

    def _merge_all(self) -> None:
        """Merge all segments into one; if the first has nearly all rows, only the others."""
        sizes = [int(part.alive.sum()) for part in self._parts]
        since = 1 if sum(sizes[1:]) * _MERGE_FACTOR < sum(sizes) else 0
        if len(self._parts) > since + 1:
            self._parts = merge_from(self._parts, since)
            self._names[since:] = [None]

    def _merge_start(self) -> int | None:
        sizes = [int(part.alive.sum()) for part in self._parts]
        for at, part in enumerate(self._parts):
            least_alive = 1 - _MAX_DELETED_FRACTION * self._patience(sum(sizes[at:]))
            if part.segment.rows > _SMALLEST_TIER_ROWS and sizes[at] < least_alive * part.segment.rows:
                return at
        tiers = [_tier(size) for size in sizes]
        for tier in sorted(set(tiers)):
            # The newest segments up to this tier are merged together when enough of them are of this tier.
            since = max((at + 1 for at, other in enumerate(tiers) if other > tier), default=0)
            if tiers[since:].count(tier) >= _MERGE_FACTOR * self._patience(sum(sizes[since:])):
                return since
        return None

    def _patience(self, rows: int) -> int:
        """Return the factor of segments or deleted rows that a merge of this size waits for."""
        return _PATIENCE if self._hurried and rows > _QUICK_MERGE_ROWS else 1


def _tier(size: int) -> int:
    """Return the tier of a segment with this number of rows: each tier is larger by the merge factor."""
    tier, capacity = 0, _SMALLEST_TIER_ROWS
    while size > capacity:
        tier, capacity = tier + 1, capacity * _MERGE_FACTOR
    return tier


def _with_live_rows(segments: Sequence[Segment]) -> tuple[Part, ...]:
    """Return the segments with their live rows: those whose owners no later segment replaces or deletes."""
    parts: list[Part] = []
    killed = NO_OWNERS
    for segment in reversed(segments):
        parts.append(Part(segment, mask_rows(np.ones(segment.rows, np.bool_), segment.owned_by(killed))))
        killed = np.concatenate([killed, segment.killed])
    return tuple(reversed(parts))


def _read_manifest(folder: str) -> tuple[IndexState, tuple[str, ...]]:
    """Return the state of the index and the names of its segments."""
    with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
        try:
            manifest = json.load(file)
        except ValueError as error:
            raise Damaged(f"{MANIFEST} is not whole") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Damaged(f"{MANIFEST} is of another format")
    if manifest.pop("check", None) != _checksum(manifest):
        raise Damaged(f"{MANIFEST} says something else than was written")
    try:
        state, names = _state(manifest), manifest["segments"]
    except (KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{MANIFEST} lacks what it should say") from error
    if not isinstance(names, list) or not _is_typed(state, names):
        raise Damaged(f"{MANIFEST} says what makes no sense")
    return state, tuple(names)


def _checksum(manifest: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def _write_manifest(folder: str, state: IndexState, names: Sequence[str]) -> None:
    path = os.path.join(folder, MANIFEST)
    manifest = {**state._asdict(), "format": FORMAT, "segments": names}
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump({**manifest, "check": _checksum(manifest)}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _state(manifest: Mapping[str, Any]) -> IndexState:
    applied = {space: SpacePosition(*position) for space, position in manifest["applied"].items()}
    return IndexState(**{**{name: manifest[name] for name in IndexState._fields}, "applied": applied})


def _is_typed(state: IndexState, names: Sequence[object]) -> bool:
    positions = state.applied.values()
    texts = (state.home, state.rules, state.embedder, *(position.hash for position in positions), *names)
    counters = (number for position in positions for number in (position.number, position.seq))
    numbers = (state.unembedded, state.dimensions, *counters)
    return all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)


@contextmanager
def _translate_errors(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"there is no room for the index in {folder}", fix="free some space and try again"
            ) from error
        raise HomeReadOnly(
            f"{folder} cannot be written: {error}", fix="give this user write access to the home"
        ) from error
