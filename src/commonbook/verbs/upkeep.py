"""The verbs of a book: maintain the files, the log and the derived data of a book."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commonbook.values.reports import no_progress
from commonbook.verbs.declaration import Declarations, verb

if TYPE_CHECKING:
    from commonbook.values.reports import (
        ChangePage,
        Finding,
        LogEntry,
        LogReport,
        Metrics,
        Progress,
        SchemaMigration,
        Status,
        SyncReport,
        TransferReport,
    )
    from commonbook.values.session import WorkReport


class Upkeep(Declarations):
    """Maintain the files, the log and the derived data of a book."""

    @property
    @verb("GET", "/v1/home")
    def home(self) -> str:
        """The folder of the Markdown files, or the place of a database server; empty for all but the owner."""

    @property
    @verb("GET", "/v1/moved_to")
    def moved_to(self) -> str | None:
        """The place to which the book was moved, or None: this one is read-only then. Only the owner sees it."""

    @property
    @verb("GET", "/v1/schema_migration")
    def schema_migration(self) -> SchemaMigration | None:
        """The migration of the schema that was done when this book was opened, or None; only the owner sees it."""

    @verb("GET", "/v1/status")
    def status(self) -> Status:
        """Return counts, pending work, and known problems. It is fast; `doctor` looks closer."""

    @verb("POST", "/v1/doctor", slow=True)
    def doctor(self, *, progress: Progress = no_progress) -> tuple[Finding, ...]:
        """Check the whole book and return the problems, each with its fix. Only the owner may.

        If there are none, the copies of the database that were made before migrations of its schema are removed.
        """

    @verb("GET", "/v1/verify_log", slow=True)
    def verify_log(self, *, space: str | None = None, progress: Progress = no_progress) -> LogReport:
        """Verify the signed log, a hash chain for each space; report the first bad entry of each."""

    @verb("GET", "/v1/log")
    def log(self, *, space: str, after: int = 0, limit: int = 100) -> tuple[LogEntry, ...]:
        """Return the entries of the log of a space after a number, in order."""

    @verb("GET", "/v1/changes")
    def changes(self, *, after: str | None = None, space: str | None = None, limit: int = 100) -> ChangePage:
        """Return the changes after a position in the spaces that you may read, oldest first, and the next position.

        Give the `next` of a page as `after` to get the following changes. Without `after` there are none: `next` is the
        present position. The position "0" is before all changes. `space` chooses spaces as for a recall. Of a space
        that becomes readable later, the changes come from its beginning.
        """

    @verb("GET", "/v1/log_size")
    def log_size(self) -> int:
        """Return the number of entries in the logs of all spaces: while it stays the same, nothing has changed.

        Only the owner may call it.
        """

    @verb("GET", "/v1/metrics")
    def metrics(self) -> Metrics:
        """Return figures about pending work, for a monitoring system. Only the owner may call it."""

    @verb("POST", "/v1/sync", changes=True, in_parts=True, slow=True)
    def sync(self, *, progress: Progress = no_progress) -> SyncReport:
        """Write out pending files and apply changes that people made to the Markdown files.

        Opening a book does this too. Only the owner may call it.
        """

    @verb("POST", "/v1/rebuild", changes=True, in_parts=True, slow=True)
    def rebuild(self, *, progress: Progress = no_progress) -> SyncReport:
        """Derive all derived data again, including the search index, from the files and the database."""

    @verb("POST", "/v1/reindex", changes=True, in_parts=True, slow=True)
    def reindex(self, *, anew: bool = False, progress: Progress = no_progress) -> int:
        """Update vectors and index now, also after a change of the embedder; with `anew`, build them from nothing.

        Return how many memories were indexed. Only the owner may call it.
        """

    @verb("POST", "/v1/accept_deletions", changes=True, in_parts=True, slow=True)
    def accept_deletions(self) -> int:
        """Delete the memories whose files are missing; return the number of deleted memories.

        When many files vanish at once, `sync` does not delete their memories until a person agrees by this call.
        """

    @verb("POST", "/v1/work", changes=True, in_parts=True, slow=True)
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

    @verb("POST", "/v1/import", changes=True, in_parts=True, archive=True, slow=True)
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
        """Import a folder of Markdown (such as an Obsidian vault), one file, or an archive.

        All of it goes into one space: `space`, or `personal`. An export goes into the spaces that it was made from;
        with `folders_as_spaces`, each folder with the name of a space is one. Importing the same again changes nothing.
        Attachments of the notes, such as pictures, are copied with them. `include` and `exclude` are patterns of files
        and folders, such as `*.pdf` or `Work/*`.

        A folder whose `index.md` names a version of the Open Knowledge Format is read as a bundle, others with `okf`.
        With `dry_run`, only report. Secrets are masked in what is stored, unless `mask` is false.
        """

    @verb("GET", "/v1/export", archive=True, slow=True)
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
        """Export a space, or all of them, to a folder of Markdown or an archive (`.zip`, `.tar.gz`).

        Sessions have files too, with the messages that are in no episode. The report names what is left out. With
        `okf` the export is a bundle in the Open Knowledge Format v0.2, which other programs read. Attachments in the
        folders of the home are copied. `include` and `exclude` are patterns of files and folders, as for an import.
        """
