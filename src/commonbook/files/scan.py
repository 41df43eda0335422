"""Looking at the folder: the journal first, then every file that changed, then those that are gone."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from commonbook.errors import CommonbookError, HomeIsNewer
from commonbook.model.reports import Progress, SyncReport, no_progress
from commonbook.model.spaces import FILESYSTEM_ACTOR, Actor
from commonbook.ports.engines import Engines
from commonbook.runtime.batches import in_batches
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.tables import files
from commonbook.tables.files import MISSING
from commonbook.text.space_paths import INVALIDATIONS

if TYPE_CHECKING:
    from commonbook.files import hand_edits, journal
    from commonbook.write import transaction
    from commonbook.write.context import WriteContext
else:
    # A home in which nothing has changed is opened without the modules that write.
    hand_edits = LazyModule("commonbook.files.hand_edits")
    journal = LazyModule("commonbook.files.journal")
    transaction = LazyModule("commonbook.write.transaction")


Told_co = TypeVar("Told_co", covariant=True)

_BATCH: Final = 200
_BETWEEN_LOOKS: Final = 0.25
_BETWEEN_FULL_LOOKS: Final = 60.0
_FEW: Final = 10
_SHARE: Final = 10


def scan(engines: Engines, *, progress: Progress = no_progress) -> SyncReport:
    """Look at the whole folder and take in what people did to it."""
    if not engines.folder.present():
        return SyncReport()
    journal.work_off(engines)
    outcomes: Counter[str] = Counter()
    missing = _look_once(engines, outcomes, progress)
    if missing:
        # Editors save by removing and making anew, and a move has a moment with no file: look a second time.
        missing = _still_missing(engines, missing, outcomes)
    held_back = _remove(engines, missing, outcomes) if missing else 0
    return _report(outcomes, held_back)


def _still_missing(engines: Engines, missing: Sequence[str], outcomes: Counter[str]) -> list[str]:
    """Return the paths that are gone in a second look too."""
    time.sleep(_BETWEEN_LOOKS)
    before = frozenset(missing)
    return [path for path in _look_once(engines, outcomes, no_progress) if path in before]


def scan_paths(engines: Engines, paths: Collection[str]) -> SyncReport:
    """Look at some paths only; if one of them is gone, at everything, since it may have been moved."""
    outcomes: Counter[str] = Counter()
    if not engines.folder.present():
        return SyncReport()
    with engines.db.reading() as tx:
        bases = {path: files.synced_file(tx, path) for path in map(engines.folder.known_as, paths)}
    changed = []
    for path, base in bases.items():
        try:
            stat = engines.folder.stat(path)
        except OSError:
            continue
        if stat is None:
            if base is not None or not path.endswith(".md"):
                return scan(engines)
        elif engines.folder.is_ours(path) and not (base is not None and base.matches(stat)):
            changed.append(path)
    _take_in(engines, changed, outcomes, no_progress)
    return _report(outcomes, 0)


def watch(engines: Engines, stop: Event, noticed: Callable[[SyncReport], None]) -> None:
    """Take in what people do to the folder, as it happens, until told to stop."""
    looked = -math.inf
    for paths in engines.watcher.changes(stop):
        # A full look first, since the watch began only now, and then now and again: a watch can miss things.
        whole = time.monotonic() - looked > _BETWEEN_FULL_LOOKS
        if not whole and not paths:
            continue
        try:
            noticed(scan(engines) if whole else scan_paths(engines, paths))
        except HomeIsNewer:
            raise
        except (CommonbookError, OSError):
            # Somebody holds the lock, or the disk is away: look at everything as soon as it can be done.
            looked = -math.inf
            continue
        looked = time.monotonic() if whole else looked


class Operation(Protocol[Told_co]):
    """A story about memories whose files may have been moved by hand; `looked` once somebody has looked where."""

    def __call__(self, ctx: WriteContext, *, looked: bool) -> Told_co:
        """Let it happen at this desk."""
        ...


def write_with_scan(engines: Engines, actor: Actor, operation: Operation[Told_co]) -> Told_co:
    """Let the story happen; if a file that it changes is not where it was, look where it went first."""
    try:
        return transaction.write(engines, actor, partial(operation, looked=False))
    except hand_edits.FileGone:
        scan(engines)
    return transaction.write(engines, actor, partial(operation, looked=True))


def accept_deletions(engines: Engines) -> int:
    """Delete the memories whose files are gone, however many: a person agreed. Return how many."""
    outcomes: Counter[str] = Counter()
    missing: Sequence[str] = _look_once(engines, outcomes, no_progress)
    if missing:
        missing = _still_missing(engines, missing, outcomes)
    for some in in_batches(missing, _BATCH):
        transaction.write(engines, FILESYSTEM_ACTOR, partial(_delete, paths=some))
    return len(missing)


def _look_once(engines: Engines, outcomes: Counter[str], progress: Progress) -> list[str]:
    """Take in every file that changed; return the paths that are gone."""
    if not engines.folder.present():
        return []
    seen = engines.folder.walk()
    with engines.db.reading() as tx:
        known = files.expected_stats(tx)
    if seen == known:
        return []
    # In one order everywhere, since the first of several may decide: whose an id is, or where a session is.
    # Notices before what they are about, which would else have them made anew.
    changed = sorted(
        (path for path, look in seen.items() if known.get(path) != look),
        key=lambda path: (f"/{INVALIDATIONS}/" not in path, path),
    )
    if changed:
        _take_in(engines, changed, outcomes, progress)
        with engines.db.reading() as tx:
            known = files.expected_stats(tx)
    gone = [path for path in known if path not in seen and not engines.folder.exists(path)]
    return sorted(gone)


def _take_in(engines: Engines, paths: Sequence[str], outcomes: Counter[str], progress: Progress) -> None:
    for at, some in enumerate(in_batches(paths, _BATCH)):
        outcomes.update(transaction.write(engines, FILESYSTEM_ACTOR, partial(_take_in_some, paths=some)))
        outcomes["read"] += len(some)
        progress("reading files", min((at + 1) * _BATCH, len(paths)), len(paths))


def _take_in_some(ctx: WriteContext, paths: Sequence[str]) -> list[hand_edits.Outcome]:
    return [hand_edits.apply_file(ctx, path) for path in paths]


def _remove(engines: Engines, missing: Sequence[str], outcomes: Counter[str]) -> int:
    """Delete the memories of files that are gone; if very many are, ask a person first and return how many."""
    with engines.db.reading() as tx:
        total, _ = files.counts(tx)
        waiting = files.any_missing(tx)
    if waiting or (len(missing) > _FEW and len(missing) * _SHARE > total):
        transaction.write(engines, FILESYSTEM_ACTOR, lambda ctx: _mark_missing(ctx, missing))
        return len(missing)
    for some in in_batches(missing, _BATCH):
        outcomes["deleted"] += transaction.write(engines, FILESYSTEM_ACTOR, partial(_delete, paths=some))
    return 0


def _mark_missing(ctx: WriteContext, missing: Sequence[str]) -> None:
    for path in missing:
        files.set_trouble(ctx.tx, path, MISSING)


def _delete(ctx: WriteContext, paths: Sequence[str]) -> int:
    deleted = 0
    for path in paths:
        base = files.synced_file(ctx.tx, path)
        if base is None or ctx.engines.folder.exists(path):
            continue
        files.drop_synced(ctx.tx, path, base.memory)
        deleted += hand_edits.handle_missing_file(ctx, path, base.memory)
    return deleted


def _report(outcomes: Counter[str], held_back: int) -> SyncReport:
    return SyncReport(
        new=outcomes["new"] + outcomes["copied"],
        edited=outcomes["edited"],
        moved=outcomes["moved"],
        deleted=outcomes["deleted"],
        restored=outcomes["restored"],
        malformed=outcomes["malformed"],
        held_back=held_back,
        read=outcomes["read"],
    )
