"""The embedded index: a few segments in mapped files, and a manifest that says which of them count.

Whoever holds `index.lock` may write: new segments first, made durable, then the manifest, exchanged in one step.
Readers never wait; a segment that is no longer named stays readable for those who have it open. Small segments are
merged as they gather, and what no longer counts is dropped then.
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
from commonbook.engines.index.overlay import NOBODY, OverlaidIndex, extended, merged, without
from commonbook.engines.index.search import Part, search
from commonbook.engines.index.segments import Segment, widened
from commonbook.engines.process.fair_lock import FairLock
from commonbook.errors import DiskFull, HomeReadOnly
from commonbook.model.ids import new_id
from commonbook.ports.database import Reading
from commonbook.ports.index import Delta, IndexQuery, IndexResult, IndexState, PendingDeltas, SpacePosition

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_Stamp: TypeAlias = tuple[int, int, int]

_FEW: Final = 8
"""So many segments of one size are merged into one of the next."""

_SMALLEST: Final = 256
_WORN: Final = 0.3
"""A segment of which so much no longer counts is written anew."""


class MappedIndex:
    """The Index port on files in one folder."""

    def __init__(self, folder: str) -> None:
        """Remember the folder; nothing is opened or made before it is needed."""
        self._folder = folder
        self._lock = FairLock(os.path.join(os.path.dirname(folder), "index.lock"))
        self._guard = threading.Lock()
        self._nothing = _View(None, None, (), ())
        self._view = self._nothing

    def known(self) -> _View:
        """Look: that is one look at one file."""
        return self.view()

    def nothing(self) -> _View:
        """Return a view of no index at all."""
        return self._nothing

    def view(self) -> _View:
        """Look at the manifest, and map what it names if it is another one than before."""
        with self._guard:
            stamp = self._stamp()
            if stamp is None or stamp != self._view.stamp:
                self._view = self._load(stamp)
            return self._view

    @contextmanager
    def writing(self, *, wait: float) -> Iterator[_Writer]:
        """Hold the index's lock."""
        with _typed(self._folder), self._lock.hold(wait):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            yield _Writer(self._folder, self.view())

    def damage(self) -> list[str]:
        """Read every segment and return what is wrong with them."""
        try:
            _, names = _read_manifest(self._folder)
        except FileNotFoundError:
            return []
        except (Damaged, OSError) as error:
            return [str(error)]
        paths = [os.path.join(self._folder, name) for name in names]
        return [found for path in paths if (found := array_files.damage(path))]

    def close(self) -> None:
        """Let go of the files."""
        with self._guard:
            self._view = self._nothing
        self._lock.close()

    def _stamp(self) -> _Stamp | None:
        try:
            found = os.stat(os.path.join(self._folder, MANIFEST))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _load(self, stamp: _Stamp | None) -> _View:
        """Map what the manifest names; a segment that was merged away just now means that there is a newer manifest."""
        known = dict(zip(self._view.names, (part.segment for part in self._view.parts), strict=True))
        for _ in range(3):
            try:
                marker, names = _read_manifest(self._folder)
                segments = [known.get(name) or self._open(name, marker.dimensions) for name in names]
                return _View(stamp, marker, names, _counting(segments))
            except (Damaged, OSError) as error:
                newer = self._stamp()
                if newer == stamp and isinstance(error, Damaged):
                    return _View(stamp, None, (), ())
                stamp = newer
        # Somebody commits all the time, or too many files are open: the next look may see more.
        return self._nothing

    def _open(self, name: str, dimensions: int) -> Segment:
        segment = Segment(array_files.read(os.path.join(self._folder, name)))
        if segment.dimensions not in (0, dimensions):
            raise Damaged(f"{name} has vectors of another length")
        return widened(segment, dimensions)


class _View:
    """What the index held at one moment."""

    def __init__(
        self,
        stamp: _Stamp | None,
        marker: IndexState | None,
        names: tuple[str, ...],
        parts: tuple[Part, ...],
    ) -> None:
        self.stamp: Final = stamp
        self.marker: Final = marker
        self.names: Final = names
        self.parts: Final = parts
        self._layers: Final = OverlaidIndex(parts)

    def search(self, sought: IndexQuery, tail: PendingDeltas, tx: Reading | None = None) -> IndexResult:  # noqa: ARG002 - the port's
        """Search the segments, and the tail as one more."""
        return search(self._layers.under(tail), sought)


class _Writer:
    """Adds to an index, under its lock."""

    def __init__(self, folder: str, view: _View) -> None:
        """Begin with what is there."""
        self._folder = folder
        self._marker = view.marker
        self._names: list[str | None] = list(view.names)
        self._parts = view.parts

    @property
    def marker(self) -> IndexState | None:
        """What the index holds before this commit."""
        return self._marker

    def clear(self) -> None:
        """Begin with nothing."""
        self._marker, self._names, self._parts = None, [], ()

    def add(self, layer: Delta) -> None:
        """Lay out what is new as one more segment."""
        self._parts = extended(self._parts, layer)
        self._names.append(None)
        self._merge()

    def commit(self, marker: IndexState) -> None:
        """Write the segments that are not written yet, then the manifest; take away what is not needed any more."""
        if self._names.count(None) > 1:
            # What one commit adds is one segment: every further one is searched on its own, question by question.
            since = self._names.index(None)
            self._parts, self._names[since:] = merged(self._parts, since), [None]
        full = [part.segment.rows or len(part.segment.killed) for part in self._parts]
        self._names = [name for name, some in zip(self._names, full, strict=True) if some]
        self._parts = tuple(part for part, some in zip(self._parts, full, strict=True) if some)
        names = [name or self._write(part.segment) for name, part in zip(self._names, self._parts, strict=True)]
        unembedded = sum(int((part.segment.scales[part.alive] == 0).sum()) for part in self._parts)
        dimensions = max((part.segment.dimensions for part in self._parts), default=0)
        marker = marker._replace(unembedded=unembedded, dimensions=dimensions)
        _write_manifest(self._folder, marker, names)
        self._names, self._marker = list(names), marker
        for other in os.listdir(self._folder):
            if other not in (MANIFEST, *names):
                with suppress(OSError):
                    os.unlink(os.path.join(self._folder, other))

    def _write(self, segment: Segment) -> str:
        name = f"{new_id()}.segment"
        array_files.write(os.path.join(self._folder, name), segment.bundle)
        return name

    def _merge(self) -> None:
        """Merge the newest segments while too many are of one size, and write anew what is worn."""
        while (since := self._too_many()) is not None:
            self._parts = merged(self._parts, since)
            self._names[since:] = [None]

    def _too_many(self) -> int | None:
        sizes = [int(part.alive.sum()) for part in self._parts]
        for at, part in enumerate(self._parts):
            if part.segment.rows > _SMALLEST and sizes[at] < (1 - _WORN) * part.segment.rows:
                return at
        tiers = [_tier(size) for size in sizes]
        for tier in sorted(set(tiers)):
            # The newest segments that are not of a higher tier: when enough of this one are among them, all are merged.
            since = max((at + 1 for at, other in enumerate(tiers) if other > tier), default=0)
            if tiers[since:].count(tier) >= _FEW:
                return since
        return None


def _tier(size: int) -> int:
    """Return how often the smallest size must be multiplied to hold so much."""
    tier, room = 0, _SMALLEST
    while size > room:
        tier, room = tier + 1, room * _FEW
    return tier


def _counting(segments: Sequence[Segment]) -> tuple[Part, ...]:
    """Return the segments with which of their rows still count: those that no later segment kills."""
    parts: list[Part] = []
    killed = NOBODY
    for segment in reversed(segments):
        parts.append(Part(segment, without(np.ones(segment.rows, np.bool_), segment.owned_by(killed))))
        killed = np.concatenate([killed, segment.killed])
    return tuple(reversed(parts))


def _read_manifest(folder: str) -> tuple[IndexState, tuple[str, ...]]:
    """Return what the index holds, and in which segments."""
    with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
        try:
            manifest = json.load(file)
        except ValueError as error:
            raise Damaged(f"{MANIFEST} is not whole") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Damaged(f"{MANIFEST} is of another format")
    if manifest.pop("check", None) != _check(manifest):
        raise Damaged(f"{MANIFEST} says something else than was written")
    try:
        marker, names = _marker(manifest), manifest["segments"]
    except (KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{MANIFEST} lacks what it should say") from error
    if not isinstance(names, list) or not _is_typed(marker, names):
        raise Damaged(f"{MANIFEST} says what makes no sense")
    return marker, tuple(names)


def _check(manifest: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def _write_manifest(folder: str, marker: IndexState, names: Sequence[str]) -> None:
    path = os.path.join(folder, MANIFEST)
    said = {**marker._asdict(), "format": FORMAT, "segments": names}
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump({**said, "check": _check(said)}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _marker(manifest: Mapping[str, Any]) -> IndexState:
    applied = {space: SpacePosition(*one) for space, one in manifest["applied"].items()}
    return IndexState(**{**{name: manifest[name] for name in IndexState._fields}, "applied": applied})


def _is_typed(marker: IndexState, names: Sequence[object]) -> bool:
    applied = marker.applied.values()
    texts = (marker.home, marker.rules, marker.embedder, *(one.hash for one in applied), *names)
    numbers = (marker.unembedded, marker.dimensions, *(number for one in applied for number in (one.number, one.seq)))
    return all(isinstance(one, str) for one in texts) and all(type(one) is int for one in numbers)


@contextmanager
def _typed(folder: str) -> Iterator[None]:
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
