"""Layout of memories, spaces and reports for people, on a terminal or elsewhere."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from commonbook.interfaces.cli.output.plain import Cell, Output, styled_freshness, words

if TYPE_CHECKING:
    from commonbook.model.memory import Deleted, Link, Memory, Page, Receipt, Revision
    from commonbook.model.reports import (
        BackupReport,
        Finding,
        LogReport,
        MigrationReport,
        RestoreReport,
        Status,
        SyncReport,
        TransferReport,
    )
    from commonbook.model.spaces import Space

_MAX_NAMED_ATTACHMENTS: Final = 10


def show_receipt(out: Output, verb: str, receipt: Receipt, *, preposition: str = "in") -> None:
    """Show the receipt of a write; changed copies and similar memories become notes."""
    out.receipt(
        verb,
        memory_id=receipt.id,
        space=receipt.space,
        path=receipt.path,
        version=receipt.version,
        preposition=preposition,
    )
    if receipt.proposed:
        out.note("note: it is proposed, and not recalled until a person approves it: commonbook inbox")
    if receipt.masked:
        out.note(_masked_note(receipt.masked))
    if receipt.tags_in_text:
        names = ", ".join(f"#{tag}" for tag in receipt.tags_in_text)
        out.note(f"note: {names} stands in the text, so the memory keeps the tag until you edit the text")
    if receipt.copies:
        out.note(f"note: {receipt.copies} {'copy has' if receipt.copies == 1 else 'copies have'} changed with it")
    if receipt.duplicate_of:
        out.note(f"note: {out.name(receipt.duplicate_of)} says the same")


def _masked_note(count: int) -> str:
    return f"note: {count} {'secret was' if count == 1 else 'secrets were'} masked (--no-mask stores them as they are)"


def show_repeated(out: Output, receipt: Receipt) -> None:
    """Show the receipt of a repeated write, which stored nothing new."""
    out.receipt(
        "Remembered before:", memory_id=receipt.id, space=receipt.space, path=receipt.path, version=receipt.version
    )


def show_memory(out: Output, memory: Memory, links: Sequence[Link], titles: Mapping[str, str]) -> None:
    """Show one memory: its title, its fields and its text; `titles` names the other memories that it mentions."""
    out.line(memory.title, "bold")
    out.facts((name, value) for name, value in _fields(out, memory, links, titles) if words(value))
    out.line("")
    out.body(memory.text)


def _fields(
    out: Output, memory: Memory, links: Sequence[Link], titles: Mapping[str, str]
) -> Iterable[tuple[str, Cell]]:
    yield "id", memory.id
    yield "space", memory.space
    yield "kind", memory.kind
    yield "tags", ", ".join(memory.tags)
    yield "marks", (", ".join(memory.marks), _colour(memory))
    if "reverted" in memory.marks:
        command = f"commonbook edit {out.name(memory.id)} --to-revision"
        yield "reverted", "a save brought older words back"
        yield "to take the others", f"{command} {memory.revision - 1}"
        yield "to keep these", f"{command} {memory.revision}"
    yield "superseded by", memory.superseded_by or ""
    if memory.invalidations or memory.decisions:
        from commonbook.interfaces.cli.output import reasoning

        yield from reasoning.suspicion_fields(out, memory, titles)
    yield from _copy_fields(out, memory)
    yield "importance", "" if memory.importance is None else f"{memory.importance:g}"
    yield "metadata", ", ".join(f"{name}={value}" for name, value in memory.metadata.items())
    yield "author", memory.author
    yield "created", out.moment(memory.created)
    yield "updated", out.moment(memory.updated) if memory.version > 1 else ""
    for name in ("occurred", "valid_from", "valid_until", "expires", "deleted"):
        time = getattr(memory, name)
        yield name.replace("_", " "), out.moment(time) if time else ""
    yield "revision", str(memory.revision)
    yield "version", f"{memory.version} (for --expected-version)"
    yield "file", memory.path
    for link in links:
        yield _link_field(memory.id, link, titles)


def _link_field(memory_id: str, link: Link, titles: Mapping[str, str]) -> tuple[str, Cell]:
    """Return a link as a field of one of its ends: the relation, and the other end with its title."""
    label, other = (link.relation, link.target) if link.source == memory_id else (f"{link.relation} from", link.source)
    return label, f"{other}  {titles[other]}" if other in titles else other


def show_links(out: Output, memory_id: str, links: Sequence[Link], titles: Mapping[str, str]) -> None:
    """Show the links of a memory in both directions, with the titles of the other ends."""
    if links:
        out.facts([_link_field(memory_id, link, titles) for link in links])
    else:
        out.note("no links")


def _copy_fields(out: Output, memory: Memory) -> Iterable[tuple[str, Cell]]:
    """Yield the freshness of a copy, who shared it, and its root."""
    if memory.shared is None:
        return
    yield "freshness", styled_freshness(memory.freshness)
    yield "source superseded by", memory.successor or ""
    yield "shared by", f"{memory.shared.by}, {out.moment(memory.shared.at)}, {memory.shared.mode}"
    yield "approved by", memory.shared.approved_by or ""
    yield "root", memory.shared.root
    yield "claimed", "by an import: the share itself is not in this log" if memory.shared.claimed else ""


def show_page(out: Output, page: Page, *, notes: Iterable[str] = ()) -> None:
    """Show a page of memories, and notes; one of them gives the cursor of the next page."""
    headers = ("id", "space", "kind", "created", "title", "tags", "marks")
    rows = [
        (
            out.name(memory.id),
            memory.space,
            memory.kind,
            out.moment(memory.created),
            memory.title,
            ", ".join(memory.tags),
            _marks(memory),
        )
        for memory in page.items
    ]
    if rows:
        out.table(headers, rows)
    else:
        out.note("no memories")
    if page.next:
        out.note(f"there are more: --after {page.next}")
    for note in notes:
        out.note(note)


def _marks(memory: Memory) -> Cell:
    """Return the marks and the freshness of a memory, in the colour of the worst mark."""
    text, style = styled_freshness(memory.freshness)
    return ", ".join(filter(None, (*memory.marks, text))), _colour(memory) or style


def _colour(memory: Memory) -> str:
    if "suspect" in memory.marks:
        return "red"
    return "yellow" if "source_changed" in memory.marks else ""


def show_deletion(out: Output, deletion: Deleted) -> None:
    """Show the memories that were deleted, or would be in a dry run."""
    for memory_id, title in zip(deletion.ids, deletion.titles, strict=True):
        out.line(f"{memory_id}  {title}")
    count = f"{len(deletion.ids)} {'memory' if len(deletion.ids) == 1 else 'memories'}"
    undo = "; `commonbook undelete ID` brings one back" if deletion.ids else ""
    out.note(f"would delete {count}" if deletion.dry_run else f"deleted {count}{undo}")


def show_history(out: Output, revisions: Sequence[Revision], diffs: Sequence[str | None]) -> None:
    """Show every revision, oldest first, with its diff and its deletions."""
    for revision, diff in zip(revisions, diffs, strict=True):
        current = " (current)" if revision.current else ""
        out.line(
            f"revision {revision.revision}{current}  {out.moment(revision.at)}  {revision.author}  {revision.how}",
            "bold",
        )
        if not revision.readable:
            out.note("  of a space that you may not read")
        elif diff:
            out.diff(diff)
        else:
            out.line(f"  {revision.title}")
        for deletion in revision.deletions:
            out.line(f"deleted  {out.moment(deletion.at)}  {deletion.by}  {deletion.how}", "red")
            if deletion.restored_at is not None:
                back = f"{out.moment(deletion.restored_at)}  {deletion.restored_by}  {deletion.restored_how}"
                out.line(f"undeleted  {back}", "green")


def show_successor(out: Output, successor: Memory, why: str) -> None:
    """Show the memory that supersedes another, at the end of the history of that one."""
    reason = f": {why}" if why else ""
    out.line(f"superseded by {out.name(successor.id)}  {successor.title}{reason}", "yellow")


def show_spaces(out: Output, spaces: Sequence[Space]) -> None:
    """Show the spaces."""
    if spaces:
        rows = [(space.name, space.folder or ".", out.moment(space.created), out.name(space.id)) for space in spaces]
        out.table(("space", "folder", "created", "id"), rows)
    else:
        out.note("no spaces yet: the first memory makes one")


def show_status(out: Output, status: Status) -> None:
    """Show the state of the home in numbers, and what is wrong."""
    out.facts(
        [
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
    entries = "1 entry" if report.entries == 1 else f"{report.entries} entries"
    read = f"{entries} of {report.spaces} {'space' if report.spaces == 1 else 'spaces'}"
    show_findings(out, report.findings, fine=f"the log is intact: {read}")


def show_transfer_report(out: Output, verb: str, report: TransferReport) -> None:
    """Show what an import or export did."""
    out.line(
        f"{verb} {report.done}, updated {report.updated}, unchanged {report.unchanged}, links {report.links}"
        f"{f', sessions {report.sessions} (messages {report.messages})' if report.sessions else ''}",
        "green",
    )
    if report.attachments:
        out.line(_attachments(report.attachments))
    if report.masked:
        out.note(_masked_note(report.masked))
    if report.spaces:
        out.line(f"new spaces: {', '.join(report.spaces)}")
    show_findings(out, report.skipped, fine="nothing was skipped")
    if report.left_out:
        out.note(f"note: an export has no place for {', '.join(report.left_out)}; `commonbook backup` copies all")


def _attachments(paths: Sequence[str]) -> str:
    """Return a line about attachments, which names them if they are few."""
    count = f"attachments {len(paths)}"
    return f"{count}: {', '.join(paths)}" if len(paths) <= _MAX_NAMED_ATTACHMENTS else count


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
    sentence = f"Indexed {count} {'memory' if count == 1 else 'memories'}" if count else "The index was up to date"
    out.line(sentence, "green")


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


def diffs_of(revisions: Sequence[Revision]) -> list[str | None]:
    """Return a unified diff for every revision against the one before; the first, and one after a gap, has none."""
    first: list[str | None] = [None] * len(revisions[:1])
    return first + [
        _diff(before, after) if before.readable and after.readable else None for before, after in pairwise(revisions)
    ]


def _diff(before: Revision, after: Revision) -> str:
    lines = difflib.unified_diff(_lines(before.text), _lines(after.text), _name(before), _name(after), lineterm="")
    # If only the title changed, the diff consists of the names of both sides.
    return "\n".join(lines) or f"--- {_name(before)}\n+++ {_name(after)}"


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _name(revision: Revision) -> str:
    return f"revision {revision.revision}: {revision.title}"
