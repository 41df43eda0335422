"""The export of memories as a folder of Markdown or an archive, with the same paths and bytes as in the home.

Sessions have files of their own (`export_sessions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from commonbook.access import permissions, scope
from commonbook.errors import NotFound
from commonbook.markdown import okf, space_file
from commonbook.markdown.memory_conversion import render_memory
from commonbook.model.path_filter import PathFilter
from commonbook.model.reports import Finding, Progress, TransferReport, not_exported
from commonbook.model.spaces import Actor, Space, SpaceScope
from commonbook.model.stored_memory import StoredMemory
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.ports.files import ExportTarget
from commonbook.tables import memories
from commonbook.text import file_paths, space_names
from commonbook.transfer import attachments, export_okf, export_sessions
from commonbook.transfer.export_left_out import left_out, with_unexported_files

_BATCH: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_Written: TypeAlias = tuple[str | None, str, str]
"""A file of an export: the id of its memory (None for others), its path, and how it compares with the one before."""


def export(
    engines: Engines,
    actor: Actor,
    target: str,
    *,
    space: str | None,
    files: PathFilter,
    as_okf: bool,
    progress: Progress,
) -> TransferReport:
    """Write the live memories and the sessions of a space (with a final '/', also of all spaces below it), or of all.

    With `as_okf` the export is a bundle in the Open Knowledge Format, without sessions: the report names what that
    leaves out.
    """
    permissions.require_owner(actor, "write folders of this machine")
    outcomes: Counter[str] = Counter()
    foreign: list[Finding] = []
    ids: list[str] = []
    with engines.db.reading() as tx:
        chosen = scope.select(tx, actor, space)
        if as_okf:
            # Other programs would take proposals for memories.
            chosen = scope.without_proposals(chosen, space)
        if space is not None and not chosen:
            raise NotFound(f"there is no space {space!r}", fix="`commonbook space list` shows the spaces")
        paths = [(path, memory_id) for path, memory_id in _paths(tx, chosen) if files.takes(path)]
        with engines.external_files.target(target) as out:
            written = (
                _write_okf(engines, tx, chosen, paths, out) if as_okf else _write_files(engines, tx, chosen, paths, out)
            )
            for memory_id, path, outcome in written:
                if outcome == "foreign":
                    foreign.append(not_exported(path))
                elif memory_id is not None:
                    ids.append(memory_id)
                if memory_id is not None:
                    outcomes[outcome] += 1
                progress("exporting", outcomes.total(), len(paths))
            sessions = () if as_okf else tuple(export_sessions.write(tx, chosen, out, takes=files.takes))
            in_export = _exported_spaces(chosen, paths, sessions)
            foreign += _put_space_files(out, in_export)
            is_attachment, lies_in = attachments.selects(files), attachments.lies_in(tx, chosen, whole=space is None)
            attached = attachments.export_attachments(engines, lambda path: is_attachment(path) and lies_in(path), out)
        foreign += attached.findings
        foreign += [not_exported(file.path) for file in sessions if file.outcome == "foreign"]
        foreign += export_sessions.left_out(tx, chosen) if as_okf else ()
        exported = {path for path, _ in paths} | attached.paths
        skipped = with_unexported_files(
            engines, tx, foreign, lambda path: files.takes(path) and lies_in(path), exported=exported
        )
        edited = sum(file.edited for file in sessions)
        not_in_files = left_out(
            tx, chosen, edited_messages=edited, empty_spaces=_count_empty(chosen, in_export), whole=space is None
        )
    written_sessions = [file for file in sessions if file.outcome != "foreign"]
    return TransferReport(
        done=outcomes["new"],
        updated=outcomes["changed"],
        unchanged=outcomes["same"],
        skipped=skipped,
        ids=tuple(ids),
        sessions=sum(file.part == 1 for file in written_sessions),
        messages=sum(file.words for file in written_sessions),
        left_out=not_in_files,
        attachments=attached.copied,
    )


def _write_files(
    engines: Engines, tx: Reading, chosen: SpaceScope, paths: Sequence[tuple[str, str]], out: ExportTarget
) -> Iterator[_Written]:
    """Write each memory as the home has it."""
    for batch in _by_path(tx, chosen, paths):
        for memory in batch:
            outcome = out.put(memory.path, render_memory(memory, engines), changed=memory.updated)
            yield memory.id, memory.path, outcome


def _write_okf(
    engines: Engines, tx: Reading, chosen: SpaceScope, paths: Sequence[tuple[str, str]], out: ExportTarget
) -> Iterator[_Written]:
    """Write each memory as a concept of a bundle, and then the listings of the folders."""
    targets = export_okf.targets_of(tx, chosen, paths)
    entries: list[okf.Entry] = []
    changed = _EPOCH
    for batch in _by_path(tx, chosen, paths):
        for memory, path, data in export_okf.bundle_files(engines, tx, batch, targets):
            entries.append(okf.Entry(path, memory.title, okf.describe(memory)))
            changed = max(changed, memory.updated)
            yield memory.id, path, out.put(path, data, changed=memory.updated)
    # The newest change of a memory, so that equal states of a book give equal archives.
    for path, outcome in export_okf.write_indexes(out, entries, changed=changed):
        yield None, path, outcome


def _paths(tx: Reading, chosen: SpaceScope) -> list[tuple[str, str]]:
    """Return (path, id) of each live memory, sorted, so that equal states of a book give equal archives."""
    paths: list[tuple[str, str]] = []
    for space in chosen:
        after = ""
        while batch := memories.in_space(tx, chosen, space, after=after):
            after = batch[-1].id
            paths += [(memory.path, memory.id) for memory in batch if memory.deleted is None]
    return sorted(paths)


def _by_path(tx: Reading, chosen: SpaceScope, paths: Sequence[tuple[str, str]]) -> Iterator[list[StoredMemory]]:
    for at in range(0, len(paths), _BATCH):
        ids = [memory_id for _, memory_id in paths[at : at + _BATCH]]
        by_id = memories.get_many(tx, chosen, ids)
        yield [by_id[memory_id] for memory_id in ids]


def _exported_spaces(
    chosen: SpaceScope, paths: Sequence[tuple[str, str]], sessions: Sequence[export_sessions.WrittenSession]
) -> list[Space]:
    """Return the spaces that have a file in the export, be it a proposal to them."""
    written = [*(path for path, _ in paths), *(file.path for file in sessions)]
    with_file = [space for space in chosen.values() if space_names.has_space_file(space.name)]
    found = (file_paths.space_at(path, with_file) for path in written)
    return list({space.id: space for space in found if space is not None}.values())


def _count_empty(chosen: SpaceScope, exported: Iterable[Space]) -> int:
    """Return how many of the chosen spaces are not in the export, since they have no file in it."""
    others = {space.name for space in chosen.values()} - {space.name for space in exported} - {space_names.PERSONAL}
    return sum(map(space_names.has_space_file, others))


def _put_space_files(out: ExportTarget, spaces: Iterable[Space]) -> list[Finding]:
    """Write the files that make the exported folders spaces; return findings for those that others changed."""
    foreign = []
    for space in sorted(spaces, key=lambda space: space.folder):
        path = file_paths.space_file(space.folder)
        if (
            space_names.has_space_file(space.name)
            and out.put(path, space_file.render(space), changed=space.created) == "foreign"
        ):
            foreign.append(not_exported(path))
    return foreign
