"""How the home is: the numbers of `status`, and the findings of `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from commonbook.access import permissions, scope
from commonbook.log import chain
from commonbook.maintenance.audit import verify_log
from commonbook.model.reports import Finding, OutboxStatus, Progress, Status
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.runtime.lazy_modules import LazyModule
from commonbook.tables import copies, files, jobs, memories, sessions
from commonbook.version import __version__

if TYPE_CHECKING:
    from commonbook.reasoning import notices
    from commonbook.sessions import settle
    from commonbook.sharing import apply_rules, propagate
else:
    # Only a failed job has to be explained by the subject that it belongs to.
    apply_rules = LazyModule("commonbook.sharing.apply_rules")
    notices = LazyModule("commonbook.reasoning.notices")
    propagate = LazyModule("commonbook.sharing.propagate")
    settle = LazyModule("commonbook.sessions.settle")

_MEND: Final = "mend the front matter (docs/FRONT-MATTER.md), or take the file out of the home"
_OTHER: Final = ("subject", "what was to be done with it could not be done")


def status(engines: Engines, actor: Actor, home: str, unsent: OutboxStatus) -> Status:
    """Return the state of the home in numbers, with what is pending and what is wrong."""
    with engines.db.reading() as tx:
        allowed = scope.readable(tx, actor)
        kinds, deleted, named = memories.counts(tx, allowed)
        begun, messages, unsettled = sessions.counts(tx, allowed)
        waiting, failed = jobs.counts(tx, allowed)
        # What concerns the files of all spaces together is the owner's to know.
        owner = permissions.is_owner(actor)
        return Status(
            home=home if owner else "",
            program=__version__,
            schema=engines.db.schema,
            spaces=len(allowed),
            memories=sum(kinds.values()),
            kinds=kinds,
            deleted=deleted,
            links=named,
            log_entries=chain.count(tx, allowed),
            database_bytes=engines.folder.bytes_used() if owner else None,
            markdown_bytes=files.counts(tx)[1] if owner and engines.folder.keeps_files else None,
            pending_files=len(files.pending(tx)) if owner else 0,
            pending_deletions=sum(base.trouble == files.MISSING for base in files.troubles(tx)) if owner else 0,
            wrong=(*(_file_findings(tx) if owner else ()), *_job_findings(tx, allowed), *unsent.findings),
            sessions=begun,
            messages=messages,
            unsettled=unsettled,
            waiting_jobs=waiting,
            failed_jobs=failed,
            unsent=unsent.waiting,
            refused=unsent.refused,
            copies=copies.count(tx, allowed),
        )


def doctor(engines: Engines, actor: Actor, *, progress: Progress) -> tuple[Finding, ...]:
    """Look at everything and return what is wrong, each with its fix; nothing is changed."""
    damaged = _database_findings(engines)
    if damaged:
        return damaged
    with engines.db.reading() as tx:
        failures = _job_findings(tx, scope.readable(tx, actor))
        troubles = (*_file_findings(tx), *_content_findings(tx, engines, progress), *failures)
    log = verify_log(engines, actor, None, progress=progress).findings
    return (*troubles, *_odd_findings(engines), *log, *_key_findings(engines))


def _database_findings(engines: Engines) -> tuple[Finding, ...]:
    fix = "restore a back-up, or move state.db away and open the home again: the Markdown brings the memories back"
    return tuple(Finding(what="damaged database", where="state.db", why=one, fix=fix) for one in engines.db.damage())


def _odd_findings(engines: Engines) -> tuple[Finding, ...]:
    fix = "give it a name and rights with which it can be read"
    return tuple(Finding(what="left out", where=path, why=why, fix=fix) for path, why in engines.folder.odd().items())


def _file_findings(tx: Reading) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            what="missing file",
            where=base.path,
            why="many files vanished at once, so their memories are kept until a person agrees",
            fix="bring the files back (mount the folder, check out the commit), or run `commonbook doctor --accept`",
        )
        if base.trouble == files.MISSING
        else Finding(what="malformed file", where=base.path, why=base.trouble or "", fix=_MEND)
        for base in files.troubles(tx)
    )


def _job_findings(tx: Reading, allowed: SpaceScope) -> tuple[Finding, ...]:
    failed = [job for job in jobs.in_state(tx, state="failed") if job.space in allowed]
    kinds = _job_kinds() if failed else {}
    return tuple(
        Finding(
            what="failed work",
            where=f"{kinds.get(job.kind, _OTHER)[0]} {job.subject}",
            why=f"{kinds.get(job.kind, _OTHER)[1]} in {job.attempts} attempts: {job.error}",
            fix="mend what it names, then run `commonbook worker --once --retry`",
        )
        for job in failed
    )


def _job_kinds() -> Mapping[str, tuple[str, str]]:
    """Return for each kind of job what its subject is, and what went wrong if it failed."""
    return {
        settle.SETTLE_JOB: ("session", "its messages could not be settled"),
        propagate.PROPAGATE_JOB: ("memory", "its copies could not follow it"),
        propagate.REFRESH_JOB: ("memory", "this copy could not follow its source"),
        apply_rules.APPLY_RULES_JOB: ("space", "rules could not take in what was written there"),
        apply_rules.RETRY_RULE_JOB: ("memory", "a rule could not take it in"),
        notices.NOTIFY_JOB: ("memory", "those who rest on it could not be told that it no longer holds"),
    }


def _content_findings(tx: Reading, engines: Engines, progress: Progress) -> list[Finding]:
    """Compare every file with what its memory says."""
    findings = []
    bases = files.synced_files(tx)
    waiting = set(files.pending(tx))
    for done, (path, base) in enumerate(sorted(bases.items()), start=1):
        if done % 100 == 0 or done == len(bases):
            progress("comparing files", done, len(bases))
        if base.trouble or base.memory in waiting:
            continue
        why = _differs(engines, base)
        if why and engines.folder.is_ours(path):
            findings.append(
                Finding(
                    what="unread change",
                    where=path,
                    why=why,
                    fix="run `commonbook status`, which looks again; move away what is no file",
                )
            )
    return findings


def _differs(engines: Engines, base: files.SyncedFile) -> str | None:
    try:
        data = engines.folder.read(base.path)
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    if data is None:
        return "the file is gone"
    return None if files.content_hash(data) == base.hash else "the file is not what its memory says"


def _key_findings(engines: Engines) -> tuple[Finding, ...]:
    return tuple(
        Finding(what="open key", where=path, why="others may read it", fix=f"chmod go-rwx {path}")
        for path in engines.keys.loose()
    )
