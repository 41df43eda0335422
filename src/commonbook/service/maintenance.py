"""Verbs that maintain a whole book: files, import, export, rebuild, status, doctor, the signed log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from commonbook.core.access import permissions
from commonbook.core.tables import file_journal, spaces
from commonbook.errors import CommonbookError, HomeError
from commonbook.ports.database import retry_read
from commonbook.runtime import LazyModule
from commonbook.service.recall import RecallVerbs
from commonbook.values.reports import Finding, SyncReport, no_progress

if TYPE_CHECKING:
    from commonbook.core.files import scan
    from commonbook.core.tables import home as home_facts
    from commonbook.ports.engines import Engines
    from commonbook.subjects import transfer
    from commonbook.subjects.maintenance import audit, health
    from commonbook.subjects.maintenance import doctor as checkup
    from commonbook.values import path_filter
    from commonbook.values.reports import (
        ChangePage,
        LogEntry,
        LogReport,
        Metrics,
        Progress,
        SchemaMigration,
        Status,
        TransferReport,
    )
else:
    # A verb loads the module that it needs, so that a command loads no more than its own subject.
    audit = LazyModule("commonbook.subjects.maintenance.audit")
    checkup = LazyModule("commonbook.subjects.maintenance.doctor")
    health = LazyModule("commonbook.subjects.maintenance.health")
    path_filter = LazyModule("commonbook.values.path_filter")
    scan = LazyModule("commonbook.core.files.scan")
    home_facts = LazyModule("commonbook.core.tables.home")
    transfer = LazyModule("commonbook.subjects.transfer")


class MaintenanceVerbs(RecallVerbs):
    """Maintain the files, the log and the derived data of a book."""

    def sync(self, *, progress: Progress = no_progress) -> SyncReport:
        self._require_owner("look at the files of the home")
        return SyncReport() if _is_in_step(self._engines) else scan.scan(self._engines, progress=progress)

    @contextmanager
    def watching(
        self,
        noticed: Callable[[SyncReport], None] | None = None,
        *,
        failed: Callable[[CommonbookError], None] | None = None,
    ) -> Iterator[None]:
        """Apply changes that people make to the files as they happen, while the `with` block runs.

        `noticed` is called with a report of each scan. If the watch ends by an error, `failed` is called at once,
        `status` and `doctor` name it, the folder is scanned every minute instead, and the error is raised at the end of
        the block. Only the owner may call it.
        """
        self._require_owner("look at the files of the home")
        stop = threading.Event()
        errors: list[CommonbookError] = []

        def watch() -> None:
            try:
                scan.watch(self._engines, stop, noticed or (lambda _report: None))
            except Exception as error:  # noqa: BLE001 - whatever ends the watch must be seen
                errors.append(_watch_error(error, self.home))
                self._watch_errors.append(errors[0])
                if failed is not None:
                    failed(errors[0])
                scan.scan_at_intervals(self._engines, stop, noticed or (lambda _report: None))

        watcher = threading.Thread(target=watch, name="commonbook-watch")
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
            self._watch_errors.clear()
        if errors:
            raise errors[0]

    def import_folder(
        self,
        folder: str,
        *,
        space: str | None = None,
        folders_as_spaces: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        okf: bool = False,
        dry_run: bool = False,
        mask: bool = True,
        progress: Progress = no_progress,
    ) -> TransferReport:
        files = path_filter.PathFilter.of(include, exclude)
        return transfer.import_folder(
            self._engines,
            self._actor,
            folder,
            space=space,
            folders_as_spaces=folders_as_spaces,
            files=files,
            okf=okf,
            dry_run=dry_run,
            mask=mask,
            progress=progress,
        )

    def export(
        self,
        target: str,
        *,
        space: str | None = None,
        okf: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        progress: Progress = no_progress,
    ) -> TransferReport:
        files = path_filter.PathFilter.of(include, exclude)
        return transfer.export(
            self._engines, self._actor, target, space=space, files=files, as_okf=okf, progress=progress
        )

    def rebuild(self, *, progress: Progress = no_progress) -> SyncReport:
        self._require_owner("rebuild the home")
        report = checkup.rebuild(self._engines, progress=progress)
        self.reindex(anew=True, progress=progress)
        return report

    def accept_deletions(self) -> int:
        self._require_owner("agree to deletions")
        return scan.accept_deletions(self._engines)

    @property
    def schema_migration(self) -> SchemaMigration | None:
        return self._engines.db.migration if permissions.is_owner(self._actor) else None

    @property
    @retry_read
    def moved_to(self) -> str | None:
        if not permissions.is_owner(self._actor):
            return None
        with self._engines.db.reading() as tx:
            return home_facts.facts(tx).get("moved_to")

    @retry_read
    def status(self) -> Status:
        found = health.status(self._engines, self._actor, self.home, self._outbox_status())
        return found._replace(findings=(*found.findings, *self._watch_findings()))

    @retry_read
    def doctor(self, *, progress: Progress = no_progress) -> tuple[Finding, ...]:
        self._require_owner("look at everything")
        findings = checkup.doctor(self._engines, self._actor, progress=progress)
        findings = (*findings, *self._recall_service.findings(), *self._outbox_status().findings)
        if not findings:
            health.remove_schema_copies(self._engines)
        return (*findings, *self._watch_findings())

    def _watch_findings(self) -> tuple[Finding, ...]:
        return tuple(
            Finding("files are not watched", self.home, error.message, error.fix) for error in self._watch_errors
        )

    @retry_read
    def verify_log(self, *, space: str | None = None, progress: Progress = no_progress) -> LogReport:
        return audit.verify_log(self._engines, self._actor, space, progress=progress)

    @retry_read
    def changes(self, *, after: str | None = None, space: str | None = None, limit: int = 100) -> ChangePage:
        return audit.list_changes(self._engines, self._actor, after=after, space=space, limit=limit)

    @retry_read
    def log_size(self) -> int:
        self._require_owner("look at everything")
        return audit.log_size(self._engines)

    @retry_read
    def metrics(self) -> Metrics:
        self._require_owner("look at everything")
        return health.read_metrics(self._engines, self._recall_service)

    @retry_read
    def log(self, *, space: str, after: int = 0, limit: int = 100) -> tuple[LogEntry, ...]:
        return audit.list_entries(self._engines, self._actor, space, after=after, limit=limit)


def _is_in_step(engines: Engines) -> bool:
    """Return whether files and book agree and nothing waits to be written: most openings load nothing that writes."""
    if not engines.folder.is_present():
        return True
    present = engines.folder.walk()
    with engines.db.reading() as tx:
        waiting = spaces.without_file(tx) or file_journal.pending(tx)
        return engines.folder.has_no_leftovers() and not waiting and file_journal.expected_stats(tx) == present


def _watch_error(error: Exception, home: str) -> CommonbookError:
    """Return the error of a watch as one of ours; those of the operating system have no memory in their texts."""
    if isinstance(error, CommonbookError):
        return error
    return HomeError(
        f"changes of files in {home} are not noticed at once: {type(error).__name__}: {error}",
        fix="start the program again; Linux may need a higher fs.inotify.max_user_watches",
    )
