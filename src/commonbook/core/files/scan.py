"""The scan of the home folder: writes out the journal, applies changed files, deletes the memories of missing ones.

A file has changed if its size or modification time differs from the last synchronised state. A path counts as missing
only if two scans a moment apart do not find it. If many files are missing at once, their memories are kept until a
person confirms the deletion (`accept_deletions`).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from commonbook.core.files import hand_edits, journal, space_files
from commonbook.core.tables import file_journal, spaces
from commonbook.core.tables.file_journal import MISSING
from commonbook.core.text import space_names
from commonbook.core.write import transaction
from commonbook.errors import CommonbookError, HomeOfAnotherBuild
from commonbook.ports.engines import Engines
from commonbook.runtime import in_batches
from commonbook.values.memory import MARKDOWN_ENDINGS
from commonbook.values.reports import Progress, SyncReport, no_progress
from commonbook.values.request import FILESYSTEM_CONTEXT, RequestContext
from commonbook.values.spaces import is_space_file

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext

Result_co = TypeVar("Result_co", covariant=True)

_BATCH: Final = 200
_RESCAN_SECONDS: Final = 0.25
_FULL_SCAN_SECONDS: Final = 60.0
_MAX_UNCONFIRMED_DELETIONS: Final = 10
_MAX_UNCONFIRMED_FRACTION: Final = 0.1
"""More deletions than `_MAX_UNCONFIRMED_DELETIONS` need a confirmation if they are over this fraction of all files."""


def scan(engines: Engines, *, progress: Progress = no_progress) -> SyncReport:
    """Scan the whole folder, and apply everything that people changed in it."""
    if not engines.folder.is_present():
        return SyncReport()
    _write_new_space_files(engines)
    journal.write_pending(engines)
    outcomes: Counter[str] = Counter()
    missing, waiting = _scan_once(engines, outcomes, progress)
    if missing:
        # Editors save by removing a file and creating it again, and a move has a moment with no file: scan twice.
        missing = _still_missing(engines, missing, outcomes)
    missing_spaces = list(filter(is_space_file, missing))
    if missing_spaces:
        space_files.handle_missing(engines, missing_spaces)
        missing = [path for path in missing if path not in missing_spaces]
    held_back = _delete_or_hold_back(engines, missing, outcomes) if missing else 0
    _apply_files(engines, waiting, outcomes, no_progress)
    return _report(outcomes, held_back)


def _write_new_space_files(engines: Engines) -> None:
    """Write the files of spaces that have none yet, since git was on no branch."""
    with engines.db.reading() as tx:
        waiting = spaces.without_file(tx)
    if waiting and not engines.folder.is_between_branches():
        space_files.write_new(engines, waiting)


def _still_missing(engines: Engines, missing: Sequence[str], outcomes: Counter[str]) -> list[str]:
    """Return the paths that are missing in a second scan too."""
    time.sleep(_RESCAN_SECONDS)
    before = frozenset(missing)
    still_missing, _ = _scan_once(engines, outcomes, no_progress)
    return [path for path in still_missing if path in before]


def scan_paths(engines: Engines, paths: Collection[str]) -> SyncReport:
    """Scan some paths only; if one of them is missing, scan everything, since the file may have been moved."""
    outcomes: Counter[str] = Counter()
    if not engines.folder.is_present():
        return SyncReport()
    if any(map(is_space_file, paths)):
        # It may belong to a folder that was moved, and decides about other files.
        return scan(engines)
    with engines.db.reading() as tx:
        synced_files = {path: file_journal.synced_file(tx, path) for path in map(engines.folder.canonical_path, paths)}
    changed = []
    for path, synced in synced_files.items():
        try:
            stat = engines.folder.stat(path)
        except OSError:
            continue
        if stat is None:
            if synced is not None or not path.endswith(MARKDOWN_ENDINGS):
                return scan(engines)
        elif engines.folder.is_ours(path) and not (synced is not None and synced.matches(stat)):
            changed.append(path)
    if _apply_files(engines, changed, outcomes, no_progress, may_wait=True):
        # The files of others come first.
        return scan(engines)
    return _report(outcomes, 0)


def watch(engines: Engines, stop: Event, noticed: Callable[[SyncReport], None]) -> None:
    """Apply changes of the folder as they happen, until `stop` is set; `noticed` is called with each report."""
    last_full_scan = -math.inf
    for paths in engines.watcher.changes(stop):
        # The first scan is full, since changes from before the watch began are not reported; later ones are full from
        # time to time, since a watch can miss changes.
        full = time.monotonic() - last_full_scan > _FULL_SCAN_SECONDS
        if not full and not paths:
            continue
        try:
            noticed(scan(engines) if full else scan_paths(engines, paths))
        except HomeOfAnotherBuild:
            raise
        except (CommonbookError, OSError):
            # The lock is held by another process, or the disk is not there: scan everything as soon as it works again.
            last_full_scan = -math.inf
            continue
        last_full_scan = time.monotonic() if full else last_full_scan


def scan_at_intervals(engines: Engines, stop: Event, noticed: Callable[[SyncReport], None]) -> None:
    """Scan the whole folder from time to time, until `stop` is set: for a folder that cannot be watched."""
    while not stop.wait(_FULL_SCAN_SECONDS):
        # A lock that is held by another process, or a disk that is not there: the next scan is near.
        with suppress(CommonbookError, OSError):
            noticed(scan(engines))


class ScanAwareOperation(Protocol[Result_co]):
    """An operation on memories whose files may have been moved by hand.

    `scanned` says that the folder was scanned since: a file that is still not in its place is then gone.
    """

    def __call__(self, ctx: WriteContext, *, scanned: bool) -> Result_co:
        """Run in this context."""
        ...


def write_with_scan(engines: Engines, caller: RequestContext, operation: ScanAwareOperation[Result_co]) -> Result_co:
    """Run an operation; if a file that it changes is not in its place, scan the folder and run it again."""
    try:
        return transaction.write(engines, caller, partial(operation, scanned=False))
    except hand_edits.FileNotInPlace:
        scan(engines)
    return transaction.write(engines, caller, partial(operation, scanned=True))


def accept_deletions(engines: Engines) -> int:
    """Delete the memories of all missing files, however many, as a person confirmed; return how many it deleted."""
    outcomes: Counter[str] = Counter()
    missing, waiting = _scan_once(engines, outcomes, no_progress)
    if missing:
        missing = _still_missing(engines, missing, outcomes)
    batches = in_batches([path for path in missing if not is_space_file(path)], _BATCH)
    deleted = sum(transaction.write(engines, FILESYSTEM_CONTEXT, partial(_delete, paths=batch)) for batch in batches)
    _apply_files(engines, waiting, outcomes, no_progress)
    return deleted


def _scan_once(engines: Engines, outcomes: Counter[str], progress: Progress) -> tuple[list[str], list[str]]:
    """Apply every file that changed; return the missing paths, and the paths of files that were not applied yet.

    These wait until the memories of missing files are deleted.
    """
    if not engines.folder.is_present():
        return [], []
    present = engines.folder.walk()
    with engines.db.reading() as tx:
        known = file_journal.expected_stats(tx)
    if present == known:
        return [], []
    # The order is the same everywhere, since the first of several files may decide to which memory an id belongs, or
    # in which space a session is. Notices come before the memories they are about, which would else create them again.
    changed = sorted(
        (path for path, stat in present.items() if known.get(path) != stat and not is_space_file(path)),
        key=lambda path: (f"/{space_names.INVALIDATIONS}/" not in path, path),
    )
    changed_spaces = _changed_space_files(engines, present, known)
    if changed_spaces:
        # These decide in which space the files are.
        space_files.apply_files(engines, changed_spaces, present)
    gone = _gone(engines, known.keys() - present.keys()) if changed else {}
    waiting = _apply_files(engines, changed, outcomes, progress, gone=gone, may_wait=True)
    if changed or changed_spaces:
        with engines.db.reading() as tx:
            known = file_journal.expected_stats(tx)
    missing = [path for path in known if path not in present and not engines.folder.exists(path)]
    return sorted(missing), waiting


def _gone(engines: Engines, paths: Collection[str]) -> Mapping[str, str]:
    """Return the memories of files that are not in their places, by content: a file without its id may have moved."""
    with engines.db.reading() as tx:
        files = [file for path in paths if (file := file_journal.synced_file(tx, path)) is not None]
    counted = Counter(file.hash for file in files)
    return {file.hash: file.memory for file in files if file.memory and counted[file.hash] == 1}


def _changed_space_files(
    engines: Engines, present: Mapping[str, tuple[int, int]], known: Mapping[str, tuple[int, int]]
) -> list[str]:
    """Return the space files that changed, and those with a trouble, which may have ended now."""
    with engines.db.reading() as tx:
        troubled = {file.path for file in file_journal.troubles(tx)}
    files = filter(is_space_file, present)
    return [path for path in files if known.get(path) != present[path] or path in troubled]


def _apply_files(
    engines: Engines,
    paths: Sequence[str],
    outcomes: Counter[str],
    progress: Progress,
    *,
    gone: Mapping[str, str] | None = None,
    may_wait: bool = False,
) -> list[str]:
    """Apply files in batches; return the paths of those that wait."""
    waiting: list[str] = []
    apply = partial(_apply_batch, gone=gone or {}, may_wait=may_wait)
    for number, batch in enumerate(in_batches(paths, _BATCH)):
        applied = transaction.write(engines, FILESYSTEM_CONTEXT, partial(apply, paths=batch))
        outcomes.update(applied)
        outcomes["read"] += len(batch)
        waiting += [path for path, outcome in zip(batch, applied, strict=True) if outcome == "waiting"]
        progress("reading files", min((number + 1) * _BATCH, len(paths)), len(paths))
    return waiting


def _apply_batch(
    ctx: WriteContext, *, paths: Sequence[str], gone: Mapping[str, str], may_wait: bool
) -> list[hand_edits.Outcome]:
    return [hand_edits.apply_file(ctx, path, gone=gone, may_wait=may_wait) for path in paths]


def _delete_or_hold_back(engines: Engines, missing: Sequence[str], outcomes: Counter[str]) -> int:
    """Delete the memories of missing files; if there are very many, mark the files and return how many were held back.

    Marked files wait for a person to confirm; while any waits, every further deletion waits too.
    """
    with engines.db.reading() as tx:
        total, _ = file_journal.counts(tx)
        waiting = file_journal.any_missing(tx)
    if waiting or (len(missing) > _MAX_UNCONFIRMED_DELETIONS and len(missing) > _MAX_UNCONFIRMED_FRACTION * total):
        transaction.write(engines, FILESYSTEM_CONTEXT, lambda ctx: _mark_missing(ctx, missing))
        return len(missing)
    for batch in in_batches(missing, _BATCH):
        outcomes["deleted"] += transaction.write(engines, FILESYSTEM_CONTEXT, partial(_delete, paths=batch))
    return 0


def _mark_missing(ctx: WriteContext, missing: Sequence[str]) -> None:
    for path in missing:
        file_journal.set_trouble(ctx.tx, path, MISSING)


def _delete(ctx: WriteContext, paths: Sequence[str]) -> int:
    deleted = 0
    for path in paths:
        synced = file_journal.synced_file(ctx.tx, path)
        if synced is None or ctx.engines.folder.exists(path):
            continue
        file_journal.drop_synced(ctx.tx, path, synced.memory)
        deleted += hand_edits.handle_missing_file(ctx, path, synced.memory)
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
