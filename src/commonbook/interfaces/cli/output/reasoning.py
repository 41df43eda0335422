"""Layout of reasoning for people: dependents of a memory, causes of the mark `suspect`, notices and decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from commonbook.errors import NotFound
from commonbook.interfaces.cli.output import Branch, Cell, Output, counted, one_line
from commonbook.values.invalidation import (
    CAUSES_WITHOUT_ID,
    DELETED,
    DISMISS,
    ENDED,
    KEEP,
    RETRACT,
    SUPERSEDE,
    Decision,
    Invalidation,
)

if TYPE_CHECKING:
    from commonbook.service.book import Book
    from commonbook.values.memory import Link, Memory
    from commonbook.values.reasoning import Dependent, Inbox, InboxItem, MemoryReference, SupersedeReport, TriageReport
    from commonbook.values.sharing import Lineage, ShareRequest


_UNREADABLE: Final = "not readable for you"
_MAX_TEXT_CHARS: Final = 1200
"""Length of the text of a suspect memory in the inbox; `show` shows all of it."""

_VERDICT_VERBS: Final = {
    KEEP: "Kept",
    RETRACT: "Retracted",
    SUPERSEDE: "Superseded",
    DISMISS: "Dismissed the notice about",
}


# --- reports


def show_superseded(out: Output, report: SupersedeReport) -> None:
    """Show the result of superseding a memory."""
    if report.new:
        sentence = f"{out.name(report.by)} supersedes {out.name(report.id)}{_suspect_now(report.notified)}"
    else:
        sentence = f"{out.name(report.by)} superseded {out.name(report.id)} already"
    out.report(sentence, [(report.id, report.by, "new" if report.new else "existing", str(report.notified))])


def _suspect_now(count: int) -> str:
    if not count:
        return ""
    return f"; {counted(count, 'memory')} {'is' if count == 1 else 'are'} suspect now: commonbook inbox"


def show_reinstated(out: Output, report: SupersedeReport) -> None:
    """Show the result of reinstating a memory."""
    by = f": {out.name(report.by)} no longer supersedes it" if report.by else ""
    out.report(f"{out.name(report.id)} is valid again{by}", [(report.id, report.by)])


def show_triage_report(out: Output, report: TriageReport) -> None:
    """Show a decision about a suspect memory."""
    resolved = f"{counted(report.resolved, 'broken dependency')} resolved"
    out.report(
        f"{_VERDICT_VERBS[report.verdict]} {out.name(report.id)}: {resolved}",
        [(report.id, report.verdict, str(report.resolved), report.space, report.path, str(report.version))],
    )


# --- dependents


def show_dependents(out: Output, root: Lineage, dependents: Sequence[Dependent]) -> None:
    """Draw the tree of the memories that depend on a memory, each at the end of its path."""
    if not dependents:
        out.note("nothing depends on it")
        return
    out.tree(_branches(out, root, dependents))


def _branches(out: Output, root: Lineage, dependents: Sequence[Dependent]) -> Iterator[Branch]:
    by_path = {dependent.path: dependent for dependent in dependents}
    children: dict[tuple[str | None, ...], dict[tuple[str | None, ...], None]] = {}
    for dependent in dependents:
        path = dependent.path
        for end in range(1, len(path)):
            children.setdefault(path[:end], {})[path[: end + 1]] = None
    tombstone = f"deleted {out.moment(root.deleted)}" if root.deleted else ""
    yield Branch(
        0, ((out.name(root.id), "bold cyan"), (root.title, "bold"), (root.space, "bold"), "", (tombstone, "red"))
    )
    left = [(1, path) for path in reversed(children.get((root.id,), {}))]
    while left:
        depth, path = left.pop()
        yield Branch(depth, _dependent(out, path[-1], by_path.get(path)))
        left += [(depth + 1, child) for child in reversed(children.get(path, {}))]


def _dependent(out: Output, id_: str | None, dependent: Dependent | None) -> tuple[Cell, ...]:
    if id_ is None:
        return ("", (_UNREADABLE, "dim"), "", "", "")
    if dependent is None:
        return ((out.name(id_), "dim"), ("an intermediate step", "dim"), "", "", "")
    marks = [*(["suspect"] if dependent.suspect else []), *(["source_changed"] if dependent.source_changed else [])]
    return (
        (out.name(id_), "cyan"),
        dependent.title,
        (dependent.space, "dim"),
        (dependent.kind, "dim"),
        (", ".join(marks), "red" if dependent.suspect else "yellow"),
    )


# --- causes and decisions


def titles_in(book: Book, memory: Memory, links: Sequence[Link]) -> dict[str, str]:
    """Return the titles of the readable memories that the invalidations, decisions and links of a memory name."""
    reasons: tuple[Invalidation | Decision, ...] = (*memory.invalidations, *memory.decisions)
    named = {id_ for reason in reasons for id_ in reason.key}
    return titles(book, named | {id_ for link in links for id_ in (link.source, link.target)} - {memory.id})


def titles(book: Book, ids: Iterable[str]) -> dict[str, str]:
    """Return the titles of memories by id, without those that are gone or may not be read."""
    titles_by_id = {}
    for id_ in sorted(set(ids) - CAUSES_WITHOUT_ID):
        with suppress(NotFound):
            titles_by_id[id_] = book.get(id_).title
    return titles_by_id


def suspicion_fields(out: Output, memory: Memory, titles: Mapping[str, str]) -> Iterator[tuple[str, Cell]]:
    """Yield the causes why a memory is suspect, and earlier decisions about it."""
    for invalidation in memory.invalidations:
        label = "to decide, since" if invalidation.invalidating == ENDED else "suspect because"
        yield label, (_cause(out, invalidation.invalidated, invalidation.invalidating, titles), "red")
        yield "path", " <- ".join(out.name(id_) if id_ else "…" for id_ in invalidation.path)
    for decision in memory.decisions:
        note = f": {decision.note}" if decision.note else ""
        cause = _cause(out, decision.invalidated, decision.invalidating, titles)
        yield "decided", f"{decision.verdict}, by {decision.by}, {out.moment(decision.at)}, after {cause}{note}"


def _cause(out: Output, invalidated: str, invalidating: str, titles: Mapping[str, str]) -> str:
    name = _id_with_title(out, invalidated, titles)
    if invalidating == ENDED:
        return f"its successor {name} has ended"
    event = (
        "was deleted" if invalidating == DELETED else f"was superseded by {_id_with_title(out, invalidating, titles)}"
    )
    return f"{name} {event}"


def _id_with_title(out: Output, id_: str, titles: Mapping[str, str]) -> str:
    return f"{one_line(titles[id_])!r} ({out.name(id_)})" if id_ in titles else out.name(id_)


# --- the inbox


def show_inbox(out: Output, page: Inbox, *, expired: bool) -> None:
    """Show notices in a table; notes give the cursor of the next page, or say that others have expired."""
    if page.items:
        headers = ("id", "space", "suspect", "depends on", "which was", "by", "when", "reason")
        out.table(headers, [_row(out, item) for item in page.items])
    elif not page.next:
        show_empty_inbox(out, expired=expired)
    if page.next:
        out.note(f"there are more: --after {page.next}")


def show_empty_inbox(out: Output, *, expired: bool) -> None:
    """Say that no notice waits; the memory of an expired notice may still be suspect."""
    out.note("no new notices, but some have expired: --expired" if expired else "no memory is suspect")


def _row(out: Output, item: InboxItem) -> tuple[Cell, ...]:
    event = f"superseded by {_reference(out, item.invalidating)}" if item.invalidating else "deleted"
    event = "its successor, and has ended" if item.successor_ended else event
    return (
        out.name(item.id),
        item.space,
        _reference(out, item.dependent),
        _reference(out, item.invalidated),
        event,
        item.by,
        (out.moment(item.at), "dim" if item.expired else ""),
        item.reason,
    )


def _reference(out: Output, memory: MemoryReference) -> str:
    return out.name(memory.id) if memory.title is None else f"{one_line(memory.title)} ({out.name(memory.id)})"


def show_proposal(out: Output, proposal: ShareRequest) -> None:
    """Show a proposed memory with everything that is needed to decide about it."""
    out.styled(
        [
            (one_line(proposal.title or ""), "bold"),
            (f"  {out.name(proposal.memory)}", "cyan"),
            (f"  {proposal.space}", "dim"),
            ("  proposed", "yellow"),
        ]
    )
    out.styled([(_beginning(proposal.text or ""), "")], indent=2)
    out.facts([("by", f"{proposal.requested_by}, {out.moment(proposal.requested_at)}")])


def show_notice(out: Output, item: InboxItem, titles: Mapping[str, str]) -> None:
    """Show one notice with everything that is needed to decide about it."""
    out.styled(
        [
            (one_line(item.dependent.title or ""), "bold"),
            (f"  {out.name(item.dependent.id)}", "cyan"),
            (f"  {item.space}", "dim"),
            ("  expired" if item.expired else "", "yellow"),
        ]
    )
    out.styled([(_beginning(item.text), "")], indent=2)
    event = f"was superseded by {_reference(out, item.invalidating)}" if item.invalidating else "was deleted"
    event = "has expired or was deleted" if item.successor_ended else event
    facts: list[tuple[str, Cell]] = [
        ("was superseded by" if item.successor_ended else "depends on", (_reference(out, item.invalidated), "bold")),
        ("which", (event, "red")),
        ("reason", item.reason),
        ("by", f"{item.by}, {out.moment(item.at)}"),
        ("steps", str(item.depth) if item.depth else ""),
    ]
    out.facts((name, value) for name, value in facts if value)
    out.tree(_path(out, item, titles))


def _path(out: Output, item: InboxItem, titles: Mapping[str, str]) -> Iterator[Branch]:
    """Yield the path from the invalidated memory to the suspect one."""
    all_titles = {
        **titles,
        item.invalidated.id: item.invalidated.title or "",
        item.dependent.id: item.dependent.title or "",
    }
    for depth, id_ in enumerate(item.path):
        cells = ((out.name(id_), "cyan"), all_titles.get(id_) or ("", "dim")) if id_ else ("", (_UNREADABLE, "dim"))
        yield Branch(depth, cells)


def _beginning(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS].rstrip()} …"
