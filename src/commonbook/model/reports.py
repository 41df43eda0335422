"""Reports that verbs return: findings, status, log entries, transfers and synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told (what is being done, how many are done, how many there are) while long work goes on."""


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Show no progress."""


class MigrationReport(NamedTuple):
    """What a move of the whole book took along: rows of each table, and files that were written."""

    to: str
    rows: int
    tables: Mapping[str, int]
    files: int = 0


class Change(NamedTuple):
    """One change to be numbered and logged when the transaction is sealed."""

    space: str
    actor: str
    action: str
    subjects: tuple[str, ...]
    payload: Mapping[str, object]


class LogEntry(NamedTuple):
    """One signed entry of a space's log, exactly as stored."""

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


class Finding(NamedTuple):
    """Something that is wrong, where, and what to do about it."""

    what: str
    where: str
    why: str
    fix: str


class OutboxStatus(NamedTuple):
    """What remote clients have appended and no server has taken: how much waits, how much was set aside, and why."""

    waiting: int = 0
    refused: int = 0
    findings: tuple[Finding, ...] = ()


class LogReport(NamedTuple):
    """What a walk over the log found: how much was read, and the first bad entry of each space."""

    spaces: int
    entries: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class SyncReport(NamedTuple):
    """What a look at the folder took in."""

    new: int = 0
    edited: int = 0
    moved: int = 0
    deleted: int = 0
    restored: int = 0
    malformed: int = 0
    held_back: int = 0
    read: int = 0


class TransferReport(NamedTuple):
    """What an import or export did, file by file in numbers, and what it could not take."""

    done: int = 0
    unchanged: int = 0
    updated: int = 0
    links: int = 0
    skipped: tuple[Finding, ...] = ()
    ids: tuple[str, ...] = ()


class Status(NamedTuple):
    """The state of a home in numbers, with what is pending and what is wrong."""

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
    """None if that is not the asker's to know."""
    markdown_bytes: int | None
    """The same; and None for a book on a server, which has no files."""
    pending_files: int
    pending_deletions: int
    wrong: tuple[Finding, ...]
    sessions: int = 0
    messages: int = 0
    unsettled: int = 0
    waiting_jobs: int = 0
    failed_jobs: int = 0
    unsent: int = 0
    refused: int = 0
    copies: int = 0
