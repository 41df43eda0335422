"""How each answer is laid out for people, on a terminal or elsewhere."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from commonbook.interfaces.cli.output.lineage import standing
from commonbook.interfaces.cli.output.plain import Cell, Output, words
from commonbook.model.memory import Deleted, Link, Memory, Page, Receipt, Revision
from commonbook.model.reports import Finding, LogEntry, LogReport, MigrationReport, Status, SyncReport, TransferReport
from commonbook.model.spaces import Space


def receipt(out: Output, did: str, said: Receipt) -> None:
    """What a write did; whatever was not as expected goes beside it."""
    out.receipt(did, memory_id=said.id, space=said.space, path=said.path, version=said.version)
    if said.copies:
        out.note(f"note: {said.copies} {'copy has' if said.copies == 1 else 'copies have'} changed with it")
    if said.duplicate_of:
        out.note(f"note: {out.name(said.duplicate_of)} says the same")
    for other in said.near:
        if other != said.duplicate_of:
            out.note(f"note: much like {out.name(other)}: commonbook show {out.name(other)}")


def repeated(out: Output, said: Receipt) -> None:
    """What was remembered, once, at an earlier time."""
    out.receipt("Remembered before:", memory_id=said.id, space=said.space, path=said.path, version=said.version)


def memory(out: Output, said: Memory, incoming: Sequence[Link], titles: Mapping[str, str]) -> None:
    """One memory: its title, what is known about it, its text; other memories are called by these titles."""
    out.line(said.title, "bold")
    out.facts((name, value) for name, value in _about(out, said, incoming, titles) if words(value))
    out.line("")
    out.body(said.text)


def _about(
    out: Output, said: Memory, incoming: Sequence[Link], titles: Mapping[str, str]
) -> Iterable[tuple[str, Cell]]:
    yield "id", said.id
    yield "space", said.space.name
    yield "kind", said.kind
    yield "tags", ", ".join(said.tags)
    yield "marks", (", ".join(said.marks), _colour(said))
    yield "superseded by", said.superseded_by or ""
    if said.invalidations or said.decisions:
        from commonbook.interfaces.cli.output import reasoning

        yield from reasoning.reasons(out, said, titles)
    yield from _copied(out, said)
    yield "importance", "" if said.importance is None else f"{said.importance:g}"
    yield "author", said.author
    yield "created", out.moment(said.created)
    yield "updated", out.moment(said.updated) if said.version > 1 else ""
    for name in ("occurred", "valid_from", "valid_until", "expires", "deleted"):
        time = getattr(said, name)
        yield name.replace("_", " "), out.moment(time) if time else ""
    yield "revision", f"{said.revision} (version {said.version})"
    yield "file", said.path
    for link in said.links:
        yield link.relation, link.target
    for link in incoming:
        yield f"{link.relation} from", link.source


def _copied(out: Output, said: Memory) -> Iterable[tuple[str, Cell]]:
    """Yield how a copy stands to its source, and who shared it from where."""
    if said.shared is None or said.source is None:
        return
    yield "freshness", standing(said.freshness)
    yield "source superseded by", said.successor or ""
    yield "shared by", f"{said.shared.by}, {out.moment(said.shared.at)}, {said.shared.mode}"
    yield "root", said.shared.root
    yield "claimed", "by an import: nobody here saw it being shared" if said.shared.claimed else ""


def page(out: Output, said: Page, *, whole_ids: bool) -> None:
    """A page of a list; where it goes on is said beside it."""
    headers = ("id", "space", "kind", "created", "title", "tags", "marks")
    columns = [
        (
            one.id if whole_ids else out.name(one.id),
            one.space.name,
            one.kind,
            out.moment(one.created),
            one.title,
            ", ".join(one.tags),
            _marks(one),
        )
        for one in said.items
    ]
    if columns:
        out.table(headers, columns)
    else:
        out.note("no memories")
    if said.next:
        out.note(f"there are more: --after {said.next}")


def _marks(said: Memory) -> Cell:
    """Return what is to be said of a memory; what is in doubt stands out, else how a copy stands to its source."""
    text, style = standing(said.freshness)
    return ", ".join(filter(None, (*said.marks, text))), _colour(said) or style


def _colour(said: Memory) -> str:
    if "suspect" in said.marks:
        return "red"
    return "yellow" if "source_changed" in said.marks else ""


def deleted(out: Output, said: Deleted) -> None:
    """Which memories were deleted, or would be."""
    for memory_id in said.ids:
        out.line(memory_id)
    many = f"{len(said.ids)} {'memory' if len(said.ids) == 1 else 'memories'}"
    out.note(f"would delete {many}" if said.dry_run else f"deleted {many}")


def history(out: Output, revisions: Sequence[Revision], diffs: Sequence[str | None]) -> None:
    """Every revision, oldest first, with what it changed."""
    for one, diff in zip(revisions, diffs, strict=True):
        current = " (current)" if one.current else ""
        out.line(f"revision {one.revision}{current}  {out.moment(one.at)}  {one.author}  {one.how}", "bold")
        if diff:
            out.diff(diff)
        else:
            out.line(f"  {one.title}")


def spaces(out: Output, said: Sequence[Space]) -> None:
    """The spaces."""
    if said:
        out.table(("space", "created", "id"), [(one.name, out.moment(one.created), one.id) for one in said])
    else:
        out.note("no spaces yet: the first memory makes one")


def status(out: Output, said: Status) -> None:
    """How the home is."""
    out.facts(
        [
            ("home", said.home),
            ("program", said.program),
            ("schema", str(said.schema)),
            ("spaces", str(said.spaces)),
            ("memories", str(said.memories)),
            *((f"  {kind}", str(count)) for kind, count in sorted(said.kinds.items())),
            ("deleted", str(said.deleted)),
            ("links", str(said.links)),
            ("copies", str(said.copies)),
            ("sessions", str(said.sessions)),
            (
                "messages",
                f"{said.messages} ({said.unsettled} not in an episode yet)" if said.unsettled else str(said.messages),
            ),
            ("log entries", str(said.log_entries)),
            *_sizes(said),
            ("waiting jobs", str(said.waiting_jobs)),
            ("failed jobs", str(said.failed_jobs)),
            *(
                (("outbox", f"{said.unsent} to be sent, {said.refused} refused"),)
                if said.unsent or said.refused
                else ()
            ),
        ]
    )
    findings(out, said.wrong, fine="nothing is wrong")


def _sizes(said: Status) -> Iterator[tuple[str, str]]:
    """What there is to say of database and files: a server has no files, and not everybody is told."""
    if said.database_bytes is not None:
        yield "database", _size(said.database_bytes)
    if said.markdown_bytes is not None:
        yield "markdown", _size(said.markdown_bytes)
        yield "pending files", str(said.pending_files)
        yield "pending deletions", str(said.pending_deletions)


def findings(out: Output, said: Sequence[Finding], *, fine: str) -> None:
    """What is wrong, each with its fix."""
    if not said:
        out.line(fine, "green")
    for one in said:
        out.line(f"{one.what}: {one.where}", "red")
        out.line(f"  {one.why}")
        out.line(f"  fix: {one.fix}")


def log_report(out: Output, said: LogReport) -> None:
    """What a walk over the log found."""
    read = f"{said.entries} entries of {said.spaces} {'space' if said.spaces == 1 else 'spaces'}"
    findings(out, said.findings, fine=f"the log is whole: {read}")


def log(out: Output, entries: Sequence[LogEntry]) -> None:
    """Entries of a log."""
    headers = ("seq", "time", "actor", "action", "subjects", "hash")
    out.table(headers, [(str(e.seq), e.time, e.actor, e.action, e.subjects, e.hash[:16]) for e in entries])


def transfer(out: Output, did: str, said: TransferReport) -> None:
    """What an import or export did."""
    out.line(f"{did} {said.done}, updated {said.updated}, unchanged {said.unchanged}, links {said.links}", "green")
    findings(out, said.skipped, fine="nothing was left out")


def sync(out: Output, said: SyncReport) -> None:
    """What a look at the folder took in."""
    out.facts(
        [
            ("files read", str(said.read)),
            ("new", str(said.new)),
            ("edited", str(said.edited)),
            ("moved", str(said.moved)),
            ("deleted", str(said.deleted)),
            ("restored", str(said.restored)),
            ("malformed", str(said.malformed)),
            ("held back", str(said.held_back)),
        ]
    )


def reindexed(out: Output, count: int) -> None:
    """How many memories the index was told about."""
    said = f"Indexed {count} {'memory' if count == 1 else 'memories'}" if count else "The index was up to date"
    out.line(said, "green")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def moved(out: Output, said: MigrationReport) -> None:
    """Where the book is now."""
    out.line(
        f"The book is in {said.to} now: {said.rows:,} rows, {said.files:,} files. Here it is only read from now on."
    )


def diffs_of(revisions: Sequence[Revision]) -> list[str | None]:
    """Return a unified diff for every revision against the one before; the first has none."""
    first: list[str | None] = [None] * len(revisions[:1])
    return first + [_diff(before, after) for before, after in pairwise(revisions)]


def _diff(before: Revision, after: Revision) -> str:
    lines = difflib.unified_diff(_lines(before.text), _lines(after.text), _name(before), _name(after), lineterm="")
    # A new title alone leaves the text as it is: the names of both sides then are the whole diff.
    return "\n".join(lines) or f"--- {_name(before)}\n+++ {_name(after)}"


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _name(revision: Revision) -> str:
    return f"revision {revision.revision}: {revision.title}"
