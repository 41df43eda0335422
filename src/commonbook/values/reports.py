"""Reports that operations return: findings, status, log entries, transfers and synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple, TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""A callback of long work, called with (name of the work, number of items done, number of items in all)."""


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Show no progress."""


class MigrationReport(NamedTuple):
    """The result of a move of the whole book: the rows of each table, and the number of written files.

    `keys` is the folder of the keys that the new book uses, and `key_id` the id of its signing key. `indexed` tells
    whether the index of the new book is complete; if not, the first recall completes it.
    """

    to: str
    rows: int
    tables: Mapping[str, int]
    files: int = 0
    keys: str = ""
    key_id: str = ""
    indexed: bool = False


class BackupReport(NamedTuple):
    """The result of a backup of a home: what is where, and what was left out, each with the reason.

    `size` is the size of the archive, or of all files in the folder, in bytes.
    """

    home: str
    target: str
    made: str
    files: int
    size: int
    left_out: Mapping[str, str]


class RestoreReport(NamedTuple):
    """The result of restoring a backup into a new home; `made` is when the backup was made."""

    home: str
    backup: str
    made: str
    files: int
    memories: int
    findings: tuple[Finding, ...]


class SchemaMigration(NamedTuple):
    """A migration of the schema that was done when the book was opened.

    `copy` is the path of the copy that was made of the database before; None on a database server.
    """

    before: int
    after: int
    copy: str | None


class Change(NamedTuple):
    """A change that an operation records, to be numbered and logged by `finalize`.

    The first of the subjects is the one that is numbered.
    """

    space: str
    actor: str
    action: str
    subjects: tuple[str, ...]
    payload: Mapping[str, object]


class LogEntry(NamedTuple):
    """A signed entry of the log of a space, exactly as stored."""

    space: str
    seq: int
    time: str
    actor: str
    action: str
    subjects: str
    payload: str
    previous: str
    hash: str
    signature: str
    key_id: str


class ChangeEvent(NamedTuple):
    """A change in a space: an entry of its log, without the hashes and signatures.

    `number` counts the changes of the space. The first of the `subjects` is the id of the memory or message.
    """

    space: str
    number: int
    time: datetime
    actor: str
    action: str
    subjects: tuple[str, ...]


class ChangePage(NamedTuple):
    """A page of changes, and the position after them.

    `lost_spaces` is the number of spaces in the position before that the caller cannot read any longer.
    """

    items: tuple[ChangeEvent, ...]
    next: str
    lost_spaces: int = 0


class Metrics(NamedTuple):
    """Figures about the pending work of a book, for a monitoring system."""

    unsettled_messages: int
    waiting_jobs: int
    failed_jobs: int
    queue_age_seconds: float
    """How long the oldest job that is due has waited."""
    stale_copies: int
    """Copies that took over other words than their source has now."""
    open_notices: int
    index_lag: int
    """Changed memories and messages that are not in the index yet; a recall searches them directly."""
    pending_files: int


class Finding(NamedTuple):
    """A fault: its kind, its place, the explanation, and how to correct it."""

    what: str
    where: str
    why: str
    fix: str


class OutboxStatus(NamedTuple):
    """The messages in the outboxes of remote clients: how many wait, how many were refused, and the findings."""

    waiting: int = 0
    refused: int = 0
    findings: tuple[Finding, ...] = ()


class LogReport(NamedTuple):
    """The result of a verification of the log: how much was read, and the first fault of each space."""

    spaces: int
    entries: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


class SyncReport(NamedTuple):
    """The result of a scan of the folder, in numbers of files; `held_back` are deletions that wait for a person."""

    new: int = 0
    edited: int = 0
    moved: int = 0
    deleted: int = 0
    restored: int = 0
    malformed: int = 0
    held_back: int = 0
    read: int = 0


class HomePlan(NamedTuple):
    """The changes that making a folder a home will cause: memories in each space, and lines in files.

    `added` counts the files that get a field, by the name of the field. `replaced_lines` counts the lines of a person
    that go or change. A finding tells why a file becomes no memory.
    """

    home: str
    notes: int = 0
    spaces: Mapping[str, int] = {}
    changed_files: int = 0
    added: Mapping[str, int] = {}
    replaced_lines: int = 0
    new_files: tuple[str, ...] = ()
    """The paths of the files that make folders spaces, which are added."""
    skipped: tuple[Finding, ...] = ()
    trusts: bool = False
    """Whether the database, the keys and the settings that the folder brings are used."""
    secrets: int = 0
    """The number of passwords and other secrets in the texts, which stay as they are."""


class TransferReport(NamedTuple):
    """The result of an import or export in numbers of files, and a finding for each file that was skipped.

    `sessions` are those that an export has files for, or that an import made. `messages` are the messages that an
    export wrote outside of episodes, or that an import stored in these sessions. `left_out` names what is in the
    database and in no file of an export, such as `3 grants`. `attachments` are the paths of the
    files beside notes that were copied.
    """

    done: int = 0
    unchanged: int = 0
    updated: int = 0
    links: int = 0
    skipped: tuple[Finding, ...] = ()
    ids: tuple[str, ...] = ()
    sessions: int = 0
    messages: int = 0
    left_out: tuple[str, ...] = ()
    masked: int = 0
    """The number of secrets that an import masked."""
    spaces: tuple[str, ...] = ()
    """The names of the spaces that an import makes."""
    attachments: tuple[str, ...] = ()
    new_ids: tuple[str, ...] = ()
    """The paths of the files whose memories got new ids: those in the files are of memories outside of the space."""


def not_exported(path: str) -> Finding:
    """Return the finding about a file that an export did not overwrite."""
    return Finding(
        what="not exported",
        where=path,
        why="the file there was changed by others since the last export",
        fix="import it, or move it away, then export again",
    )


class Status(NamedTuple):
    """The state of a book in numbers: its contents, pending work, and findings."""

    home: str
    program: str
    schema: int
    spaces: int
    memories: int
    kinds: Mapping[str, int]
    deleted: int
    links: int
    log_entries: int
    database_bytes: int | None
    """None if the caller may not know it."""
    markdown_bytes: int | None
    """None if the caller may not know it, and for a book on a database server, which has no files."""
    pending_files: int
    pending_deletions: int
    findings: tuple[Finding, ...]
    sessions: int = 0
    messages: int = 0
    unsettled: int = 0
    waiting_jobs: int = 0
    failed_jobs: int = 0
    unsent: int = 0
    refused: int = 0
    copies: int = 0
    schema_copies: tuple[str, ...] = ()
    """The copies that were made of the database before its schema was migrated; the owner alone sees them."""
