"""Verbs of a book on the whole of it: files, import, export, rebuild, status, doctor, the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from commonbook.access import permissions
from commonbook.book.recall import RecallVerbs
from commonbook.errors import CommonbookError
from commonbook.model.reports import (
    Finding,
    LogEntry,
    LogReport,
    Progress,
    Status,
    SyncReport,
    TransferReport,
    no_progress,
)
from commonbook.ports.database import retry_read
from commonbook.runtime.lazy_modules import LazyModule

if TYPE_CHECKING:
    from commonbook.files import scan
    from commonbook.maintenance import audit, health
    from commonbook.maintenance import rebuild as rebuilding
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    audit = LazyModule("commonbook.maintenance.audit")
    health = LazyModule("commonbook.maintenance.health")
    rebuilding = LazyModule("commonbook.maintenance.rebuild")
    scan = LazyModule("commonbook.files.scan")


class MaintenanceVerbs(RecallVerbs):
    """Look after the files, the log and the derived data of a book."""

    def sync(self, *, progress: Progress = no_progress) -> SyncReport:
        """Carry out what is pending and take in what people did to the files."""
        permissions.require_owner(self._actor, "look at the files of the home")
        return scan.scan(self._engines, progress=progress)

    @contextmanager
    def watching(self, noticed: Callable[[SyncReport], None] | None = None) -> Iterator[None]:
        """Take in what people do to the files, as it happens, for as long as the block lasts."""
        permissions.require_owner(self._actor, "look at the files of the home")
        stop = threading.Event()
        ended: list[CommonbookError] = []

        def watch() -> None:
            try:
                scan.watch(self._engines, stop, noticed or (lambda _report: None))
            except CommonbookError as error:
                ended.append(error)

        watcher = threading.Thread(target=watch, name="commonbook-watch")
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
        if ended:
            raise ended[0]

    def import_folder(
        self, folder: str, *, space: str | None = None, dry_run: bool = False, progress: Progress = no_progress
    ) -> TransferReport:
        """Take in a folder of Markdown, as if it lay in the home or in a space's folder; again changes nothing."""
        return self._transfers.import_folder(
            self._engines, self._actor, folder, space=space, dry_run=dry_run, progress=progress
        )

    def export(self, target: str, *, space: str | None = None, progress: Progress = no_progress) -> TransferReport:
        """Write a space or all of them as a folder of Markdown, or as an archive (.zip, .tar.gz)."""
        return self._transfers.export(self._engines, self._actor, target, space=space, progress=progress)

    def rebuild(self, *, progress: Progress = no_progress) -> SyncReport:
        """Make anew everything that only serves search, from files and rows."""
        permissions.require_owner(self._actor, "rebuild the home")
        report = rebuilding.rebuild(self._engines, progress=progress)
        self.reindex(anew=True, progress=progress)
        return report

    def accept_deletions(self) -> int:
        """Delete the memories whose files are gone and were kept back for a person to agree; return how many."""
        permissions.require_owner(self._actor, "agree to deletions")
        return scan.accept_deletions(self._engines)

    @retry_read
    def status(self) -> Status:
        """Return numbers, what is pending and what is wrong."""
        return health.status(self._engines, self._actor, self.home, self._unsent())

    @retry_read
    def doctor(self, *, progress: Progress = no_progress) -> tuple[Finding, ...]:
        """Look at everything and return what is wrong, each with its fix."""
        permissions.require_owner(self._actor, "look at everything")
        found = health.doctor(self._engines, self._actor, progress=progress)
        return (*found, *self._recalls.findings(), *self._unsent().findings)

    @retry_read
    def verify_log(self, *, space: str | None = None, progress: Progress = no_progress) -> LogReport:
        """Walk the signed log and name the first bad entry of each space."""
        return audit.verify_log(self._engines, self._actor, space, progress=progress)

    @retry_read
    def log(self, *, space: str, after: int = 0, limit: int = 100) -> tuple[LogEntry, ...]:
        """Return entries of a space's log, in order."""
        return audit.list_entries(self._engines, self._actor, space, after=after, limit=limit)
