"""Layout of reports about the whole book for people: status, findings, imports, backups, the plan of `init`, the log.

In a pipe, entries of the log are shown exactly as they are stored.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from commonbook.interfaces.cli.output import Cell, Output, counted
from commonbook.interfaces.cli.output.memories import masked_note
from commonbook.values.ids import UUID_PATTERN

if TYPE_CHECKING:
    from commonbook.values.reports import (
        BackupReport,
        Finding,
        HomePlan,
        LogEntry,
        LogReport,
        MigrationReport,
        RestoreReport,
        Status,
        SyncReport,
        TransferReport,
    )

_MAX_NAMED_PATHS: Final = 10


def show_status(out: Output, status: Status, *, server: str | None) -> None:
    """Show the state of the home in numbers, and what is wrong."""
    out.facts(
        [
            *((("book", server),) if server else ()),
            ("home", status.home),
            ("program", status.program),
            ("schema", str(status.schema)),
            ("spaces", str(status.spaces)),
            ("memories", str(status.memories)),
            *((f"  {kind}", str(count)) for kind, count in sorted(status.kinds.items())),
            ("deleted", str(status.deleted)),
            ("links", str(status.links)),
            ("copies", str(status.copies)),
            ("sessions", str(status.sessions)),
            (
                "messages",
                f"{status.messages} ({status.unsettled} not in an episode yet)"
                if status.unsettled
                else str(status.messages),
            ),
            ("log entries", str(status.log_entries)),
            *_sizes(status),
            ("waiting jobs", str(status.waiting_jobs)),
            ("failed jobs", str(status.failed_jobs)),
            *(
                (("outbox", f"{status.unsent} to be sent, {status.refused} refused"),)
                if status.unsent or status.refused
                else ()
            ),
            *(("copy before migration", path) for path in status.schema_copies),
        ]
    )
    show_findings(out, status.findings, fine="nothing is wrong")


def _sizes(status: Status) -> Iterator[tuple[str, str]]:
    """Yield the sizes of database and files: a server has no files, and not everybody may know the sizes."""
    if status.database_bytes is not None:
        yield "database", _size(status.database_bytes)
    if status.markdown_bytes is not None:
        yield "markdown", _size(status.markdown_bytes)
        yield "pending files", str(status.pending_files)
        yield "pending deletions", str(status.pending_deletions)


def show_findings(out: Output, findings: Sequence[Finding], *, fine: str) -> None:
    """Show problems, each with its fix, or the text `fine` if there are none."""
    if not findings:
        out.line(fine, "green")
    for finding in findings:
        out.line(f"{finding.what}: {finding.where}", "red")
        out.line(f"  {finding.why}")
        out.line(f"  fix: {finding.fix}")


def show_log_report(out: Output, report: LogReport) -> None:
    """Show the result of a verification of the log."""
    read = f"{counted(report.entries, 'entry')} of {counted(report.spaces, 'space')}"
    show_findings(out, report.findings, fine=f"the log is intact: {read}")


def show_transfer_report(out: Output, verb: str, report: TransferReport) -> None:
    """Show what an import or export did."""
    out.line(
        f"{verb} {report.done}, updated {report.updated}, unchanged {report.unchanged}, links {report.links}"
        f"{f', sessions {report.sessions} (messages {report.messages})' if report.sessions else ''}",
        "green",
    )
    if report.attachments:
        out.line(_counted_paths("attachments", report.attachments))
    if report.new_ids:
        out.line(_counted_paths("new ids, since those in the files are of memories elsewhere", report.new_ids))
    if report.masked:
        out.note(masked_note(report.masked))
    if report.spaces:
        out.line(f"new spaces: {', '.join(report.spaces)}")
    show_findings(out, report.skipped, fine="nothing was skipped")
    if report.left_out:
        out.note(f"note: an export has no place for {', '.join(report.left_out)}; `commonbook backup` copies all")


def _counted_paths(what: str, paths: Sequence[str]) -> str:
    """Return a line about files, which names them if they are few."""
    count = f"{what} {len(paths)}"
    return f"{count}: {', '.join(paths)}" if len(paths) <= _MAX_NAMED_PATHS else count


def show_sync_report(out: Output, report: SyncReport) -> None:
    """Show how many changes a scan of the folder applied."""
    out.facts(
        [
            ("files read", str(report.read)),
            ("new", str(report.new)),
            ("edited", str(report.edited)),
            ("moved", str(report.moved)),
            ("deleted", str(report.deleted)),
            ("restored", str(report.restored)),
            ("malformed", str(report.malformed)),
            ("held back", str(report.held_back)),
        ]
    )


def show_reindexed(out: Output, count: int) -> None:
    """Show how many memories were indexed."""
    out.line(f"Indexed {counted(count, 'memory')}" if count else "The index was up to date", "green")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def show_migration_report(out: Output, report: MigrationReport) -> None:
    """Show where the book is after a migration."""
    out.line(
        f"The book is now in {report.to}: {report.rows:,} rows, {report.files:,} files. "
        "The old one is read-only from now on."
    )
    out.line(f"Its keys are in {report.keys} (signing key {report.key_id}).")
    if "://" in report.to:
        address, keys = shlex.quote(report.to), shlex.quote(report.keys)
        out.line("Every server of the book needs a copy of that folder and these settings, with user and password:")
        out.command(f"export COMMONBOOK_DATABASE={address} COMMONBOOK_KEYS={keys}")
    if not report.indexed:
        out.line("The index is not complete: `commonbook reindex` completes it, and so does the first recall.")


def show_backup_report(out: Output, report: BackupReport) -> None:
    """Show where a backup is, and what it left out."""
    out.line(
        f"The backup is {report.target}: {report.files:,} files, {report.size:,} bytes, read again and whole.", "green"
    )
    for path, why in report.left_out.items():
        out.line(f"left out: {path} ({why})")
    out.note("note: it has the keys of the book, so keep it where nobody else reads it")
    out.command(f"commonbook restore {shlex.quote(report.target)} DIR")


def show_restore_report(out: Output, report: RestoreReport) -> None:
    """Show what was restored, and what is wrong with it."""
    memories = "1 memory" if report.memories == 1 else f"{report.memories:,} memories"
    out.line(f"The home {report.home} is as it was at {report.made}: {memories}, {report.files:,} files.")
    show_findings(out, report.findings, fine="nothing is wrong")


# --- the plan of `init`


def show_home_plan(out: Output, plan: HomePlan) -> None:
    """Show which notes become memories, what is written into them, and which are left out."""
    out.facts(_facts(plan))
    if plan.skipped:
        show_findings(out, plan.skipped, fine="")


def _facts(plan: HomePlan) -> Iterator[tuple[str, str]]:
    yield "home", plan.home
    yield "notes", f"{plan.notes}"
    if plan.notes:
        yield "spaces", _counted(plan.spaces)
        yield "changed files", f"{plan.changed_files}"
    if plan.changed_files:
        yield "added fields", _counted(plan.added)
        yield "replaced lines", f"{plan.replaced_lines}" if plan.replaced_lines else "none: every line stays"
    if plan.new_files:
        yield "new files", ", ".join(plan.new_files)
    if plan.trusts:
        yield "trusted", "the database, keys and settings that .commonbook/ brings"
    if plan.secrets:
        yield "secrets", f"{plan.secrets} in the texts, which stay as they are (`commonbook import` masks them)"
    if plan.skipped:
        yield "left out", f"{len(plan.skipped)}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


# --- entries of the log

_MEMORY_DETAILS: Final = ("memory", "superseded")
"""The details that are the id of another memory."""

_SUCCESSOR: Final = "by"
"""The detail that is the id of the memory which supersedes the others."""

_DETAILS: Final = (
    "seq", "to", "parent", "principal", "role", "expires", "key", "name", "old", "new", "folder", "depth", "review",
    "what", "per_minute", "verb", "how", "reason", "verdict", "fields", "refresh", "rule", "request", "kinds", "tags",
    "approval", "proposed_by", "messages",
)  # fmt: skip
"""The details that a person wants to know. Hashes and version numbers are for programs: `--json` has all."""

_MAX_MEMORIES: Final = 5
"""The number of memories that are named in one entry."""


def show_stored_entries(out: Output, entries: Sequence[LogEntry]) -> None:
    """Show entries as they are stored, for programs."""
    headers = ("seq", "time", "actor", "action", "subjects", "hash")
    out.table(
        headers,
        [(str(entry.seq), entry.time, entry.actor, entry.action, entry.subjects, entry.hash[:16]) for entry in entries],
    )


def show_entries(out: Output, entries: Sequence[LogEntry], titles: Mapping[str, str]) -> None:
    """Show who did what, when, to which memory; `titles` has those that the reader may read."""
    headers = ("no.", "when", "who", "action", "what")
    rows = [
        (str(entry.seq), _moment(out, entry.time), entry.actor, entry.action, _subject(out, entry, titles))
        for entry in entries
    ]
    out.table(headers, rows)


def memory_ids(entries: Iterable[LogEntry]) -> set[str]:
    """Return the ids of the memories that entries name."""
    return {id_ for entry in entries for id_ in (*_memory_ids(entry), *_successors(entry))}


def _memory_ids(entry: LogEntry) -> list[str]:
    """Return the ids of the memories that an entry names, each once, its subjects first."""
    payload = _payload(entry)
    named = (*_parsed(entry.subjects, list), *(payload.get(name) for name in _MEMORY_DETAILS))
    return list(dict.fromkeys(id_ for id_ in named if _is_id(id_)))[:_MAX_MEMORIES]


def _successors(entry: LogEntry) -> list[str]:
    successor = _payload(entry).get(_SUCCESSOR)
    return [successor] if isinstance(successor, str) and _is_id(successor) else []


def _is_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(UUID_PATTERN, value, re.ASCII) is not None


def _subject(out: Output, entry: LogEntry, titles: Mapping[str, str]) -> Cell:
    """Return the memories that an entry names, by id and title, and its details."""
    memories = ", ".join(_named(out, _memory_ids(entry), titles))
    if successor := ", ".join(_named(out, _successors(entry), titles)):
        memories = f"{memories} by {successor}".lstrip()
    details = ", ".join(_details(out, entry))
    return f"{memories} ({details})" if memories and details else memories or details


def _named(out: Output, ids: Iterable[str], titles: Mapping[str, str]) -> Iterator[str]:
    """Yield ids with their titles; a copy and its source have the same title, which is given once."""
    before = ""
    for id_ in ids:
        title = titles.get(id_, "")
        yield f"{out.name(id_)} {title}" if title and title != before else out.name(id_)
        before = title


def _details(out: Output, entry: LogEntry) -> Iterator[str]:
    payload = _payload(entry)
    if session := payload.get("session"):
        yield f"session {session}"
    if first := payload.get("first"):
        last = payload.get("last")
        yield f"message {first}" if first == last else f"messages {first} to {last}"
    for name in _DETAILS:
        value = payload.get(name)
        if value not in (None, "", [], False, entry.action):
            label = name.replace("_", " ")
            yield label if value is True else f"{label} {_detail(out, value)}"


def _detail(out: Output, value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return out.name(str(value)) if _is_id(value) else str(value)


def _payload(entry: LogEntry) -> dict[str, Any]:
    return dict(_parsed(entry.payload, dict))


def _parsed(text: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:  # noqa: ANN401 - a list or a mapping
    """Return JSON of this kind; an empty value for anything else, since a forged entry is listed too."""
    try:
        value = json.loads(text)
    except ValueError:
        return kind()
    return value if isinstance(value, kind) else kind()


def _moment(out: Output, time: str) -> str:
    """Format the time of an entry; a text that is not a time stays as it is."""
    try:
        return out.moment(datetime.fromisoformat(time))
    except (ValueError, TypeError):
        return time
