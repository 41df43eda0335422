"""Layout of sharing for people: receipts, the tree of a lineage, rules, requests and proposals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from commonbook.interfaces.cli.output import Branch, Cell, Output, styled_freshness

if TYPE_CHECKING:
    from commonbook.values.sharing import Ancestor, CopyNode, Lineage, ShareReceipt, ShareRequest, SharingRule

_UNREADABLE: Final = "not readable for you"
_UNKNOWN: Final = "unknown, or not readable for you"


def show_share_receipts(out: Output, verb: str, receipts: Iterable[ShareReceipt]) -> None:
    """Show the receipt of each memory that was to be shared."""
    for receipt in receipts:
        out.report(_sentence(out, verb, receipt), [_row(receipt)], style="red" if receipt.error else "green")


def _sentence(out: Output, verb: str, receipt: ShareReceipt) -> str:
    if receipt.error:
        return f"{out.name(receipt.source)}: {receipt.error}"
    if receipt.new:
        return f"{verb} {out.name(receipt.source)} into {receipt.space} as {out.name(receipt.id)} ({receipt.refresh})"
    details = [word for word in (receipt.refresh, receipt.freshness) if word and word != "fresh"]
    copy = ", ".join((out.name(receipt.id), *details))
    return f"Tied again in {receipt.space}: {copy}" if receipt.retied else f"{receipt.space} has it already: {copy}"


def _row(receipt: ShareReceipt) -> tuple[str, ...]:
    state = receipt.error or ("new" if receipt.new else "retied" if receipt.retied else "existing")
    return (receipt.id, receipt.source, receipt.space, receipt.refresh or "", state)


# --- lineage


def show_lineage(out: Output, lineage: Lineage) -> None:
    """Draw the chain from the root to a memory, and below it the tree of its copies."""
    out.tree(_branches(out, lineage))
    if lineage.truncated:
        out.note("there is more: the lineage is truncated at this depth, at a cycle, or at 10,000 copies")


def _branches(out: Output, lineage: Lineage) -> Iterator[Branch]:
    steps = len(lineage.ancestors)
    for index, ancestor in enumerate(reversed(lineage.ancestors)):
        yield Branch(index - steps, _ancestor(out, ancestor))
    tombstone = f"deleted {out.moment(lineage.deleted)}" if lineage.deleted else ""
    yield Branch(
        0,
        (
            (out.name(lineage.id), "bold cyan"),
            (lineage.title, "bold"),
            (lineage.space, "bold"),
            (lineage.refresh or "", "dim"),
            styled_freshness(lineage.freshness),
            (tombstone, "red"),
        ),
    )
    yield from _copy_branches(out, lineage.copies)


def _copy_branches(out: Output, copies: Sequence[CopyNode]) -> Iterator[Branch]:
    for copy in copies:
        yield Branch(copy.depth, _copy(out, copy))
        yield from _copy_branches(out, copy.copies)


def _ancestor(out: Output, ancestor: Ancestor) -> tuple[Cell, ...]:
    remarks = [
        f"deleted {out.moment(ancestor.deleted)}" if ancestor.deleted else "",
        "" if ancestor.readable else _UNKNOWN,
    ]
    if ancestor.claimed:
        remarks.append("claimed by an import")
    return (
        (out.name(ancestor.id), "cyan"),
        (ancestor.title or "", ""),
        (ancestor.space or "", "dim"),
        (ancestor.refresh or "", "dim"),
        styled_freshness(ancestor.freshness),
        (", ".join(filter(None, remarks)), "red" if ancestor.deleted else "dim"),
    )


def _copy(out: Output, copy: CopyNode) -> tuple[Cell, ...]:
    return (
        (out.name(copy.id), "cyan"),
        (copy.title or "", ""),
        (copy.space or "", "dim"),
        (copy.refresh or "", "dim"),
        styled_freshness(copy.freshness),
        ("" if copy.readable else _UNREADABLE, "dim"),
    )


def show_copies(out: Output, copies: Sequence[CopyNode]) -> None:
    """Show all copies of a memory, and their copies, in a table."""
    rows = [
        (
            out.name(copy.id),
            out.name(copy.source),
            copy.space or "",
            copy.refresh or "",
            styled_freshness(copy.freshness),
            copy.title or "" if copy.readable else (_UNREADABLE, "dim"),
        )
        for copy in copies
    ]
    out.table_or_note(("id", "from", "space", "refresh", "freshness", "title"), rows, note="no copies")


# --- rules and requests


def show_rules(out: Output, rules: Sequence[SharingRule]) -> None:
    """Show sharing rules."""
    rows = [
        (
            out.name(rule.id),
            rule.space.name or "?",
            rule.source.name or "?",
            _filter_text(rule),
            rule.created_by,
            rule.idle or "active",
        )
        for rule in rules
    ]
    out.table_or_note(("id", "space", "takes from", "filter", "created by", "state"), rows, note="no rules")


def _filter_text(rule: SharingRule) -> str:
    parts = [*rule.kinds, *(f"#{tag}" for tag in rule.tags)]
    parts += [f"importance {rule.importance:g} or more"] if rule.importance is not None else []
    return ", ".join(parts or ["everything"]) + (", after approval" if rule.approval else "")


def show_requests(out: Output, requests: Sequence[ShareRequest]) -> None:
    """Show requests to share, and proposed memories."""
    rows = [
        (
            out.name(request.id),
            request.space,
            "a copy" if request.purpose == "share" else "approval",
            request.title or request.memory,
            request.requested_by,
            out.moment(request.requested_at),
            _state(request),
        )
        for request in requests
    ]
    out.table_or_note(("id", "space", "for", "memory", "requested by", "requested", "state"), rows, note="no requests")


def _state(request: ShareRequest) -> str:
    by = f" by {request.decided_by}" if request.decided_by else ""
    return f"{request.state}{by}{': ' + request.note if request.note else ''}"
