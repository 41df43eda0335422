"""JSON values of reports about the whole book: status, findings, the signed log, imports, exports, migrations.

The keys are a stable interface for programs that read the output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from commonbook.model.reports import (
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


def status_json(status: Status) -> dict[str, Any]:
    """Return the state of the home in numbers."""
    return {
        "home": status.home,
        "versions": {"program": status.program, "schema": status.schema},
        "counts": {
            "spaces": status.spaces,
            "memories": status.memories,
            "kinds": dict(status.kinds),
            "deleted": status.deleted,
            "links": status.links,
            "copies": status.copies,
            "log_entries": status.log_entries,
            "sessions": status.sessions,
            "messages": status.messages,
        },
        "sizes": {"database_bytes": status.database_bytes, "markdown_bytes": status.markdown_bytes},
        "pending": {
            "files": status.pending_files,
            "deletions": status.pending_deletions,
            "messages": status.unsettled,
            "jobs": status.waiting_jobs,
            "failed_jobs": status.failed_jobs,
            "unsent": status.unsent,
            "refused": status.refused,
        },
        "schema_copies": list(status.schema_copies),
        "findings": findings_json(status.findings),
    }


def findings_json(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Return problems, each with its place, its cause and its fix."""
    return [
        {"what": finding.what, "where": finding.where, "why": finding.why, "fix": finding.fix} for finding in findings
    ]


def doctor_json(findings: tuple[Finding, ...], accepted: int | None) -> dict[str, Any]:
    """Return what `doctor` found; it has `accepted` only if deletions were to be accepted."""
    data = {"ok": not findings, "findings": findings_json(findings)}
    return data if accepted is None else {**data, "accepted": accepted}


def log_report_json(report: LogReport) -> dict[str, Any]:
    """Return the result of a verification of the log."""
    return {
        "ok": report.ok,
        "spaces": report.spaces,
        "entries": report.entries,
        "findings": findings_json(report.findings),
    }


def log_json(space_name: str, entries: Iterable[LogEntry]) -> dict[str, Any]:
    """Return entries of a log, each field exactly as it was hashed and signed."""
    names = tuple(LogEntry._fields)
    return {"space": space_name, "entries": [{name: getattr(entry, name) for name in names} for entry in entries]}


def transfer_report_json(report: TransferReport) -> dict[str, Any]:
    """Return what an import or export did."""
    lists = {name: list(getattr(report, name)) for name in ("ids", "left_out", "attachments", "spaces")}
    return {**report._asdict(), "skipped": findings_json(report.skipped), **lists}


def sync_report_json(report: SyncReport) -> dict[str, Any]:
    """Return how many changes a scan of the folder applied."""
    return {name: getattr(report, name) for name in SyncReport._fields}


def migration_report_json(report: MigrationReport) -> dict[str, Any]:
    """Return what a migration of the book copied."""
    return {**report._asdict(), "tables": dict(report.tables)}


def backup_report_json(report: BackupReport) -> dict[str, Any]:
    """Return where a backup is, and what it left out."""
    left_out = [{"path": path, "why": why} for path, why in report.left_out.items()]
    return {**report._asdict(), "left_out": left_out}


def restore_report_json(report: RestoreReport) -> dict[str, Any]:
    """Return what was restored, and what is wrong with it."""
    return {**report._asdict(), "ok": not report.findings, "findings": findings_json(report.findings)}


def home_plan_json(plan: HomePlan, *, made: bool) -> dict[str, Any]:
    """Return what `init` does or would do to a folder; `made` tells whether it was done."""
    return {
        "home": plan.home,
        "made": made,
        "notes": plan.notes,
        "spaces": [{"name": name, "notes": count} for name, count in plan.spaces.items()],
        "changed_files": plan.changed_files,
        "added": dict(plan.added),
        "replaced_lines": plan.replaced_lines,
        "new_files": list(plan.new_files),
        "skipped": findings_json(plan.skipped),
        "trusts": plan.trusts,
        "secrets": plan.secrets,
    }
