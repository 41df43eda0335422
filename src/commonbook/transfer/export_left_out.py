"""Names what an export leaves out.

Some of it is in the database alone, and `migrate` moves it. The rest are files of the home that are neither a memory
nor an attachment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from commonbook.files import refused_files
from commonbook.model.reports import Finding
from commonbook.model.spaces import SpaceScope, is_space_file
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.files import HomeEntry
from commonbook.tables import (
    api_keys,
    file_journal,
    grants,
    memories,
    rate_counts,
    revisions,
    sharing_requests,
    sharing_rules,
)

_MARKDOWN: Final = (".md", ".markdown")
_COPY_IT: Final = "copy it yourself if it belongs to the export"
_UNKNOWN_ENDING: Final = Finding(
    what="not exported",
    where="",
    why="it is neither Markdown nor of a kind that is known as an attachment",
    fix="`--include '*'` exports files of every kind",
)


def left_out(
    tx: Reading, chosen: SpaceScope, *, edited_messages: int, empty_spaces: int, whole: bool
) -> tuple[str, ...]:
    """Return what an export of these spaces leaves out, with numbers; `whole` is an export of all spaces.

    Of messages that were edited in their episodes, the words that they had before are left out.
    """
    if not chosen:
        return ()
    _, deleted, _ = memories.counts(tx, chosen)
    requests = [sharing_requests.into_spaces(tx, chosen, decided=decided) for decided in (False, True)]
    counts = [
        (revisions.count(tx, chosen), "past revision", "past revisions"),
        (edited_messages, "earlier text of a message", "earlier texts of messages"),
        (deleted, "deleted memory", "deleted memories"),
        (empty_spaces, "empty space", "empty spaces"),
        (len(grants.on_spaces(tx, chosen)), "grant", "grants"),
        (sum(sharing_rules.count(tx, space) for space in chosen), "sharing rule", "sharing rules"),
        (len({request.id for page in requests for request in page}), "share request", "share requests"),
    ]
    if whole:
        limits = [limit for limit in rate_counts.get_limits(tx) if limit.set_by]
        counts += [
            (len(api_keys.get_all(tx)), "API key", "API keys"),
            (len(limits), "rate limit", "rate limits"),
        ]
    named = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    return (*named, "the signed log")


# --- files


def with_unexported_files(
    engines: Engines,
    tx: Reading,
    findings: Sequence[Finding],
    wanted: Callable[[str], bool],
    *,
    exported: Collection[str],
) -> tuple[Finding, ...]:
    """Return these findings, and one for each other wanted file of the home that is not as it is in the export.

    `exported` are the paths in the home of everything that the export has.
    """
    known = {*exported, *(finding.where for finding in findings)}
    return (*findings, *_unexported_files(engines, tx, wanted, known))


def _unexported_files(
    engines: Engines, tx: Reading, wanted: Callable[[str], bool], exported: Collection[str]
) -> Iterator[Finding]:
    troubles = {file.path: file.trouble or "" for file in file_journal.troubles(tx)}
    for entry in engines.external_files.home_entries():
        if is_space_file(entry.path) or not wanted(entry.path):
            continue
        if entry.path in exported:
            if entry.path in troubles:
                yield _older_state(entry.path, troubles[entry.path])
        else:
            yield _finding(engines, entry, troubles.get(entry.path))


def _finding(engines: Engines, entry: HomeEntry, trouble: str | None) -> Finding:
    if entry.skipped is not None:
        return Finding("not exported", entry.path, entry.skipped, _COPY_IT)
    if trouble is not None:
        return Finding("not exported", entry.path, trouble, refused_files.fix_of(entry.path, trouble, is_memory=False))
    if entry.path.lower().endswith(_MARKDOWN) and not entry.path.endswith(".md"):
        return Finding("not exported", entry.path, "a memory's file ends with `.md`, in small letters", "rename it")
    if not entry.path.endswith(".md"):
        return _UNKNOWN_ENDING._replace(where=entry.path)
    if refused_files.is_blank(engines.folder.read(entry.path) or b""):
        return Finding("not exported", entry.path, "the note is empty: it is no memory yet", "write something into it")
    return Finding(
        "not exported", entry.path, "the file was not read yet", "run `commonbook status`, which reads it, then export"
    )


def _older_state(path: str, trouble: str) -> Finding:
    return Finding(
        what="older state exported",
        where=path,
        why=f"{trouble}; the export has the memory as it was before",
        fix=refused_files.fix_of(path, trouble, is_memory=True),
    )
