"""Verbs of a remote book: maintenance. Made by `tools/make_client.py`; a test compares it."""

from __future__ import annotations

from collections.abc import Callable

from commonbook.client.verbs.base import VerbCaller
from commonbook.model.reports import (
    ChangePage,
    Finding,
    LogEntry,
    LogReport,
    Metrics,
    Progress,
    SchemaMigration,
    Status,
    SyncReport,
    no_progress,
)
from commonbook.model.session import WorkReport


class MaintenanceVerbs(VerbCaller):
    """Verbs of a remote book: maintenance."""

    @property
    def home(self) -> str:
        """The folder of the Markdown files, or the place of a database server; empty for all but the owner."""
        value: str = self._call("home", {})
        return value

    @property
    def moved_to(self) -> str | None:
        """The place to which the book was moved, or None: this one is read-only then. Only the owner sees it."""
        value: str | None = self._call("moved_to", {})
        return value

    @property
    def schema_migration(self) -> SchemaMigration | None:
        """The migration of the schema that was done when this book was opened, or None; only the owner sees it."""
        value: SchemaMigration | None = self._call("schema_migration", {})
        return value

    def status(self) -> Status:
        """Return counts, pending work, and known problems. It is fast; `doctor` looks closer."""
        result: Status = self._call("status", {})
        return result

    def doctor(self, *, progress: Progress = no_progress) -> tuple[Finding, ...]:
        """Check the whole book and return the problems, each with its fix. Only the owner may.

        If there are none, the copies of the database that were made before migrations of its schema are removed.
        """
        result: tuple[Finding, ...] = self._call("doctor", {})
        return result

    def verify_log(self, *, space: str | None = None, progress: Progress = no_progress) -> LogReport:
        """Verify the signed log, a hash chain for each space; report the first bad entry of each."""
        result: LogReport = self._call("verify_log", {"space": space})
        return result

    def log(self, *, space: str, after: int = 0, limit: int = 100) -> tuple[LogEntry, ...]:
        """Return the entries of the log of a space after a number, in order."""
        result: tuple[LogEntry, ...] = self._call("log", {"space": space, "after": after, "limit": limit})
        return result

    def changes(self, *, after: str | None = None, space: str | None = None, limit: int = 100) -> ChangePage:
        """Return the changes after a position in the spaces that you may read, oldest first, and the next position.

        Give the `next` of a page as `after` to get the following changes. Without `after` there are none: `next` is the
        present position. The position "0" is before all changes. `space` chooses spaces as for a recall. Of a space
        that becomes readable later, the changes come from its beginning.
        """
        result: ChangePage = self._call("changes", {"after": after, "space": space, "limit": limit})
        return result

    def log_size(self) -> int:
        """Return the number of entries in the logs of all spaces: while it stays the same, nothing has changed.

        Only the owner may call it.
        """
        result: int = self._call("log_size", {})
        return result

    def metrics(self) -> Metrics:
        """Return figures about pending work, for a monitoring system. Only the owner may call it."""
        result: Metrics = self._call("metrics", {})
        return result

    def sync(self, *, progress: Progress = no_progress) -> SyncReport:
        """Write out pending files and apply changes that people made to the Markdown files.

        Opening a book does this too. Only the owner may call it.
        """
        result: SyncReport = self._call("sync", {})
        return result

    def rebuild(self, *, progress: Progress = no_progress) -> SyncReport:
        """Derive all derived data again, including the search index, from the files and the database."""
        result: SyncReport = self._call("rebuild", {})
        return result

    def reindex(self, *, anew: bool = False, progress: Progress = no_progress) -> int:
        """Update vectors and index now, also after a change of the embedder; with `anew`, build them from nothing.

        Return how many memories were indexed. Only the owner may call it.
        """
        result: int = self._call("reindex", {"anew": anew})
        return result

    def accept_deletions(self) -> int:
        """Delete the memories whose files are missing; return the number of deleted memories.

        When many files vanish at once, `sync` does not delete their memories until a person agrees by this call.
        """
        result: int = self._call("accept_deletions", {})
        return result

    def work(
        self,
        *,
        seconds: float | None = None,
        retry: bool = False,
        index: bool = False,
        noticed: Callable[[WorkReport], None] | None = None,
    ) -> int:
        """Run the background jobs that are due, such as settling, for at most so many seconds; return how many ran.

        With `retry`, jobs that have failed for good are tried again too. With `index`, many changes that wait for the
        index are written into it afterwards, so that no recall has to; each slice counts as a job. `noticed` is called
        with a report of each session that was settled, or could not be.
        """
        result: int = self._call("work", {"seconds": seconds, "retry": retry, "index": index})
        return result
