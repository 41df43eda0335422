"""Layout of memories and spaces for people, on a terminal or elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from commonbook.core.text.metadata import words_of
from commonbook.interfaces.cli.output import Cell, Output, counted, styled_freshness, words

if TYPE_CHECKING:
    from commonbook.values.memory import Deleted, Link, Memory, Page, Receipt, Revision
    from commonbook.values.spaces import Space


def show_receipt(out: Output, verb: str, receipt: Receipt, *, preposition: str = "in") -> None:
    """Show the receipt of a write; changed copies and similar memories become notes."""
    out.receipt(verb, receipt, preposition=preposition)
    if receipt.proposed:
        out.note("note: it is proposed, and not recalled until a person approves it: commonbook inbox")
    if receipt.masked:
        out.note(masked_note(receipt.masked))
    if receipt.tags_in_text:
        names = ", ".join(f"#{tag}" for tag in receipt.tags_in_text)
        out.note(f"note: {names} stands in the text, so the memory keeps the tag until you edit the text")
    if receipt.copies:
        out.note(f"note: {counted(receipt.copies, 'copy')} {'has' if receipt.copies == 1 else 'have'} changed with it")
    if receipt.unfollowed:
        command = f"commonbook adopt {out.name(receipt.id)}"
        out.note(f"note: it follows {out.name(receipt.unfollowed)} no longer; `{command}` gives your words up for its")
    if receipt.duplicate_of:
        out.note(f"note: {out.name(receipt.duplicate_of)} says the same")


def masked_note(count: int) -> str:
    """Return the note that secrets were masked."""
    return (
        f"note: {counted(count, 'secret')} {'was' if count == 1 else 'were'} masked (--no-mask stores them as they are)"
    )


def show_new(out: Output, verb: str, receipt: Receipt) -> None:
    """Show the receipt of a new memory; a repeated write has stored nothing new."""
    if receipt.new:
        show_receipt(out, verb, receipt)
    else:
        out.receipt("Remembered before:", receipt)


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
    yield from (("metadata", f"{name}={words_of(value)}") for name, value in memory.metadata.items())
    yield "author", memory.author
    # The words of a copy that follows its source are those of the source, and not of the sharer.
    has_own_words = memory.shared is None or memory.freshness == "diverged"
    yield "last edited by", memory.revised_by if has_own_words and memory.revised_by != memory.author else ""
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
    out.table_or_note(headers, rows, note="no memories")
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
    count = counted(len(deletion.ids), "memory")
    undo = "; `commonbook undelete ID` brings one back" if deletion.ids else ""
    out.note(f"would delete {count}" if deletion.dry_run else f"deleted {count}{undo}")


def show_history(out: Output, revisions: Sequence[Revision], *, with_diffs: bool) -> None:
    """Show every revision, oldest first, with its diff and its deletions."""
    diffs = _diffs(revisions) if with_diffs else [None] * len(revisions)
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
    rows = [(space.name, space.folder or ".", out.moment(space.created), out.name(space.id)) for space in spaces]
    out.table_or_note(("space", "folder", "created", "id"), rows, note="no spaces yet: the first memory makes one")


def _diffs(revisions: Sequence[Revision]) -> list[str | None]:
    """Return a unified diff for every revision against the one before; the first, and one after a gap, has none."""
    first: list[str | None] = [None] * len(revisions[:1])
    return first + [
        _diff(before, after) if before.readable and after.readable else None for before, after in pairwise(revisions)
    ]


def _diff(before: Revision, after: Revision) -> str:
    import difflib

    lines = difflib.unified_diff(_lines(before.text), _lines(after.text), _name(before), _name(after), lineterm="")
    # If only the title changed, the diff consists of the names of both sides.
    return "\n".join(lines) or f"--- {_name(before)}\n+++ {_name(after)}"


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _name(revision: Revision) -> str:
    return f"revision {revision.revision}: {revision.title}"
