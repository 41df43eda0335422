"""The health of a home: `status` reports its numbers and known problems, and metrics about pending work.

Monitoring systems watch the metrics. `subjects.maintenance.doctor` checks everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from commonbook.core.access import permissions
from commonbook.core.log import chain
from commonbook.core.tables import copies, file_journal, jobs, memories, sessions, spaces
from commonbook.core.tables import home as home_facts
from commonbook.core.text import space_names
from commonbook.errors import KeyMissing
from commonbook.values.reports import Finding, Metrics, OutboxStatus, Status
from commonbook.values.spaces import SPACE_FILE
from commonbook.version import __version__

if TYPE_CHECKING:
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines, RecallService
    from commonbook.values.spaces import Actor, Space, SpaceScope

_FIX_SPACE_FILE: Final = (
    "remove or correct it; `commonbook space list` shows each space with its folder, and `space create` or"
    " `space rename` do what a file may not"
)
_UNKNOWN_KIND: Final = ("subject", "the work on it could not be done")


def status(engines: Engines, actor: Actor, home: str, unsent: OutboxStatus) -> Status:
    """Return the state of the home in numbers, with pending work and findings."""
    with engines.db.reading() as tx:
        allowed = permissions.select(tx, actor)
        kinds, deleted, link_count = memories.counts(tx, allowed)
        session_count, messages, unsettled = sessions.counts(tx, allowed)
        waiting, failed = jobs.counts(tx, allowed, kinds=_shown_jobs(actor))
        # The files of all spaces together are shown to the owner only.
        owner = permissions.is_owner(actor)
        return Status(
            home=home if owner else "",
            program=__version__,
            schema=engines.db.schema,
            spaces=len(allowed),
            memories=sum(kinds.values()),
            kinds=kinds,
            deleted=deleted,
            links=link_count,
            log_entries=chain.count(tx, allowed),
            database_bytes=engines.folder.bytes_used() if owner else None,
            markdown_bytes=file_journal.counts(tx)[1] if owner and engines.folder.keeps_files else None,
            pending_files=len(file_journal.pending(tx)) if owner else 0,
            pending_deletions=sum(file.trouble == file_journal.MISSING for file in file_journal.troubles(tx))
            if owner
            else 0,
            findings=(
                *((*moved_findings(tx), *key_findings(engines)) if owner else ()),
                *(file_findings(tx, engines) if owner else ()),
                *reverted_findings(tx, engines, allowed),
                *job_findings(tx, actor, allowed),
                *unsent.findings,
            ),
            sessions=session_count,
            messages=messages,
            unsettled=unsettled,
            waiting_jobs=waiting,
            failed_jobs=failed,
            unsent=unsent.waiting,
            refused=unsent.refused,
            copies=copies.count(tx, allowed),
            schema_copies=tuple(engines.db.schema_copies()) if owner else (),
        )


def remove_schema_copies(engines: Engines) -> None:
    """Remove the copies of the database that were made before migrations: the migrated one is known to be good."""
    # A copy that cannot be removed does no harm: `status` still names it.
    with suppress(OSError):
        engines.db.remove_schema_copies()


def moved_findings(tx: Reading) -> tuple[Finding, ...]:
    """Return the finding for a book that was moved to another database, if it was."""
    moved = home_facts.moved_error(home_facts.facts(tx))
    why = "it is read-only, and no edit of its files counts: what it says is that of the day of the move"
    return () if moved is None else (Finding(what="moved book", where=str(moved), why=why, fix=moved.fix),)


def key_findings(engines: Engines) -> tuple[Finding, ...]:
    """Return the finding for keys that are missing, or are not those of the book."""
    try:
        engines.keys.require_expected()
    except KeyMissing as error:
        why = "the book can be read, but nothing can be written to it, and hand edits wait"
        return (Finding(what="wrong keys", where=error.message, why=why, fix=error.fix),)
    return ()


def file_findings(tx: Reading, engines: Engines) -> tuple[Finding, ...]:
    """Name the files with a trouble, but for those that are no memory and are ignored by now."""
    is_ours = engines.folder.our_paths()
    return tuple(
        Finding(
            what="missing file",
            where=file.path,
            why="many files vanished at once, so their memories are kept until a person agrees",
            fix="bring the files back (mount the folder, check out the commit), or run `commonbook doctor --accept`",
        )
        if file.trouble == file_journal.MISSING
        else _space_file_finding(file)
        if file.path.endswith(SPACE_FILE)
        else _trouble_finding(file, file.trouble or "")
        for file in file_journal.troubles(tx)
        if file.memory or is_ours(file.path)
    )


def _trouble_finding(file: file_journal.SyncedFile, trouble: str) -> Finding:
    from commonbook.core.files import refused_files

    fix = refused_files.fix_of(file.path, trouble, is_memory=file.memory is not None)
    return Finding(what=refused_files.kind_of(trouble), where=file.path, why=trouble, fix=fix)


def reverted_findings(tx: Reading, engines: Engines, allowed: SpaceScope) -> tuple[Finding, ...]:
    """Return a finding for each memory whose last save brought back older words."""
    reverted = file_journal.reverted(tx) if engines.folder.keeps_files else {}
    headers = memories.get_headers(tx, allowed, sorted(reverted)) if reverted else {}
    return tuple(
        Finding(
            what="reverted save",
            where=memory.path,
            why=f"a save of the file brought older words back; revision {memory.revision - 1} has the others",
            fix=f"`commonbook edit {memory.id} --to-revision {memory.revision - 1}` takes the others,"
            f" `commonbook edit {memory.id} --to-revision {memory.revision}` keeps these",
        )
        for memory in headers.values()
        if memory.deleted is None and memory.revision == reverted[memory.id]
    )


def _space_file_finding(file: file_journal.SyncedFile) -> Finding:
    return Finding(what="space file", where=file.path, why=f"it {file.trouble}", fix=_FIX_SPACE_FILE)


def _shown_jobs(actor: Actor) -> frozenset[str]:
    """Return the kinds of jobs of which an actor may learn in a space that it may read."""
    return jobs.ALL_JOBS if permissions.is_owner(actor) else jobs.OWN_SPACE_JOBS


def job_findings(tx: Reading, actor: Actor, allowed: SpaceScope) -> tuple[Finding, ...]:
    """Return a finding for each failed job that the actor may see."""
    shown = _shown_jobs(actor)
    failed = [job for job in jobs.in_state(tx, state="failed") if job.space in allowed and job.kind in shown]
    kinds = _job_kinds() if failed else {}
    return tuple(
        Finding(
            what="failed work",
            where=f"{kinds.get(job.kind, _UNKNOWN_KIND)[0]} {job.subject}{_space_of_session(job, allowed)}",
            why=f"{kinds.get(job.kind, _UNKNOWN_KIND)[1]} in {job.attempts} attempts: {job.error}",
            fix="correct what the error names, then run `commonbook worker --once --retry`",
        )
        for job in failed
    )


def _space_of_session(job: jobs.Job, spaces: SpaceScope) -> str:
    """Return the space of a job's session, whose name alone does not tell which session it is."""
    return f" in {spaces[job.space].name}" if job.kind == jobs.SETTLE_JOB else ""


def _job_kinds() -> Mapping[str, tuple[str, str]]:
    """Return for each kind of job what its subject is, and how a failure is described."""
    return {
        jobs.SETTLE_JOB: ("session", "its messages could not be settled"),
        jobs.PROPAGATE_JOB: ("memory", "its copies could not be brought up to date with it"),
        jobs.REFRESH_JOB: ("memory", "this copy could not follow its source"),
        jobs.APPLY_RULES_JOB: ("space", "sharing rules could not be applied to what was written there"),
        jobs.RETRY_RULE_JOB: ("memory", "a sharing rule could not be applied to it"),
        jobs.NOTIFY_JOB: ("memory", "the memories that depend on it could not be notified that it no longer holds"),
        jobs.ENDING_JOB: ("memory", "the memories that it superseded could not be notified that it has expired"),
    }


def read_metrics(engines: Engines, recall_service: RecallService) -> Metrics:
    """Return the figures of the whole book."""
    index_lag = recall_service.pending_changes(engines)
    with engines.db.reading() as tx:
        every = spaces.get_all(tx)
        notice_spaces = {id_: space for id_, space in every.items() if _holds_notices(space)}
        waiting, failed = jobs.counts(tx, every)
        due_since = jobs.due_since(tx, engines.clock.now())
        return Metrics(
            unsettled_messages=sessions.counts(tx, every)[2],
            waiting_jobs=waiting,
            failed_jobs=failed,
            queue_age_seconds=max(0.0, (engines.clock.now() - due_since).total_seconds()) if due_since else 0.0,
            stale_copies=copies.count_outdated(tx),
            open_notices=memories.counts(tx, notice_spaces)[0].get("notice", 0),
            index_lag=index_lag,
            pending_files=len(file_journal.pending(tx)),
        )


def _holds_notices(space: Space) -> bool:
    return space.name.rpartition("/")[2] == space_names.INVALIDATIONS
