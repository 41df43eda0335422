"""`doctor` checks the database, files, jobs, the log and the keys of a home; `rebuild` makes derived rows again.

`doctor` changes nothing. `rebuild` makes tags, marks, hashes, links and copies again, and reads every Markdown file.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from commonbook.core.access import permissions
from commonbook.core.files import refused_files, scan, space_files
from commonbook.core.log import chain
from commonbook.core.tables import copies, file_journal, links, memories, spaces
from commonbook.core.write.transaction import write
from commonbook.subjects.maintenance import audit, health
from commonbook.values.reports import Finding, Progress
from commonbook.values.request import FILESYSTEM_CONTEXT

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext
    from commonbook.ports.database import Reading
    from commonbook.ports.engines import Engines
    from commonbook.values.reports import SyncReport
    from commonbook.values.spaces import Actor


def doctor(engines: Engines, actor: Actor, *, progress: Progress) -> tuple[Finding, ...]:
    """Check the database, files, jobs, log and keys, and return the findings, each with its fix; nothing is changed."""
    damaged = _database_findings(engines)
    if damaged:
        return damaged
    with engines.db.reading() as tx:
        allowed = permissions.select(tx, actor)
        failures = (*health.reverted_findings(tx, engines, allowed), *health.job_findings(tx, actor, allowed))
        files = (*health.file_findings(tx, engines), *_check_files(tx, engines, progress))
        troubles = (*health.moved_findings(tx), *health.key_findings(engines), *files, *failures)
    log = audit.verify_log(engines, actor, None, progress=progress).findings
    return (*troubles, *_unreadable_files(engines), *log, *_key_findings(engines))


def _database_findings(engines: Engines) -> tuple[Finding, ...]:
    fix = "restore a back-up, or move state.db away and open the home again: the Markdown brings the memories back"
    return tuple(
        Finding(what="damaged database", where="state.db", why=damage, fix=fix) for damage in engines.db.damage()
    )


def _key_findings(engines: Engines) -> tuple[Finding, ...]:
    open_keys = (
        Finding(what="open key", where=path, why="others may read it", fix=f"chmod go-rwx {path}")
        for path in engines.keys.loose()
    )
    committed = (
        Finding(
            what="committed secret",
            where=path,
            why="it is in the git repository of this folder: who has a copy can sign and read as this home",
            fix="`git rm -r --cached .commonbook`, take it out of the history (`git filter-repo --path .commonbook"
            " --invert-paths`), and treat what others may have got as known to them",
        )
        for path in engines.folder.committed_secrets()
    )
    return (*open_keys, *committed)


def _check_files(tx: Reading, engines: Engines, progress: Progress) -> tuple[Finding, ...]:
    """Return what is wrong with names and contents of files."""
    names = (*_letter_findings(tx, engines), *_numbered_findings(tx, engines))
    return (*names, *_content_findings(tx, engines, progress))


def _unreadable_files(engines: Engines) -> tuple[Finding, ...]:
    """Name the files that are left out because they cannot be read."""
    fix = "give it a name and rights with which it can be read"
    return tuple(
        Finding(what="left out", where=path, why=why, fix=fix)
        for path, why in engines.folder.unreadable_paths().items()
    )


def _letter_findings(tx: Reading, engines: Engines) -> tuple[Finding, ...]:
    """Name folders that differ from the folder of a space by case alone: their notes are not in that space."""
    return tuple(
        Finding(
            what="second folder",
            where=folder,
            why=f"it differs from {space.folder}, the folder of the space {space.name}, by case alone",
            fix=f"move its notes to {space.folder}, or give it another name",
        )
        for folder, space in space_files.folders_by_case(engines.folder.walk(), spaces.get_all(tx).values())
    )


def _numbered_findings(tx: Reading, engines: Engines) -> tuple[Finding, ...]:
    """Name notes like `Plan 2.md` that say nearly the same as `Plan.md`: iCloud leaves such second versions."""
    paths = {path for path, file in file_journal.synced_files(tx).items() if file.memory and not file.trouble}
    return tuple(
        Finding(
            what="conflict copy",
            where=path,
            why=f"it may be a second version, made by a sync program, of {original}: both say nearly the same",
            fix=refused_files.fix_of_likely(path, original),
        )
        for path, original in refused_files.likely_conflicts(engines, paths)
    )


def _content_findings(tx: Reading, engines: Engines, progress: Progress) -> list[Finding]:
    """Compare the content of each file with the hash that was last synchronised."""
    findings = []
    synced = file_journal.synced_files(tx)
    waiting = set(file_journal.pending(tx))
    for done, (path, file) in enumerate(sorted(synced.items()), start=1):
        if done % 100 == 0 or done == len(synced):
            progress("comparing files", done, len(synced))
        if file.trouble or file.memory in waiting:
            continue
        why = _difference(engines, file)
        if why and engines.folder.is_ours(path):
            findings.append(
                Finding(
                    what="unread change",
                    where=path,
                    why=why,
                    fix="run `commonbook status`, which scans again; move away anything that is not a regular file",
                )
            )
    return findings


def _difference(engines: Engines, file: file_journal.SyncedFile) -> str | None:
    try:
        data = engines.folder.read(file.path)
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    if data is None:
        return "the file is gone"
    return None if file_journal.content_hash(data) == file.hash else "the file is not what its memory says"


_BATCH: Final = 500


def rebuild(engines: Engines, *, progress: Progress) -> SyncReport:
    """Make all derived rows again in batches, then scan all files; other processes may write meanwhile."""
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        kinds, deleted, _ = memories.counts(tx, all_spaces)
    total, done = sum(kinds.values()) + deleted, 0
    for space in all_spaces:
        after: str | None = ""
        while after is not None:
            after, count = write(engines, FILESYSTEM_CONTEXT, partial(_derive, space=space, after=after))
            done += count
            progress("deriving", done, max(done, total))
    write(engines, FILESYSTEM_CONTEXT, lambda ctx: file_journal.force_read(ctx.tx))
    return scan.scan(engines, progress=progress)


def _derive(ctx: WriteContext, space: str, after: str) -> tuple[str | None, int]:
    """Derive for a batch of memories; return the last id, or None at the end, and the size of the batch."""
    chain.lock(ctx.tx, [space])
    batch = memories.in_space(ctx.tx, ctx.spaces, space, after=after, limit=_BATCH)
    last = len(batch) < _BATCH
    memories.derive(ctx.tx, ctx.engines.keys, space, batch, after=after, last=last)
    links.derive(ctx.tx, space, batch, after=after, last=last)
    copies.derive(ctx.tx, space, batch, after=after, last=last)
    return (None if last else batch[-1].id), len(batch)
