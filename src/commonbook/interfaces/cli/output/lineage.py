"""How copies are laid out for people: what became of sharing, and the tree of a lineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from commonbook.interfaces.cli.output.plain import Branch, Cell, Output
from commonbook.model.sharing import Ancestor, CopyNode, Lineage, ShareReceipt

_UNREADABLE: Final = "not yours to read"
_UNKNOWN: Final = "not here, or not yours to read"
_STYLES: Final = {
    "fresh": "green",
    "stale": "yellow",
    "diverged": "magenta",
    "source_superseded": "yellow",
    "source_deleted": "red",
    "revoked": "red",
    "detached": "dim",
}


def standing(freshness: str | None) -> tuple[str, str]:
    """Return how a copy stands to its source, in the colour of that; nothing of what is no copy."""
    return freshness or "", _STYLES.get(freshness or "", "")


def sharings(out: Output, did: str, said: Iterable[ShareReceipt]) -> None:
    """Show what became of each memory that was to be shared."""
    for one in said:
        out.report(_sentence(out, did, one), [_row(one)], style="red" if one.error else "green")


def _sentence(out: Output, did: str, said: ShareReceipt) -> str:
    if said.error:
        return f"{out.name(said.source)}: {said.error}"
    if said.new:
        return f"{did} {out.name(said.source)} into {said.space} as {out.name(said.id)} ({said.refresh})"
    as_what = f", {said.refresh}" if said.refresh else ""
    return f"{said.space} has it already: {out.name(said.id)}{as_what}"


def _row(said: ShareReceipt) -> tuple[str, ...]:
    state = said.error or ("new" if said.new else "there before")
    return (said.id, said.source, said.space, said.refresh or "", state)


# --- lineage


def lineage(out: Output, said: Lineage) -> None:
    """Draw the chain from the root to a memory, and the tree of its copies below it."""
    out.tree(_branches(out, said))
    if said.cut:
        out.note("there is more: it was cut at this depth, at a circle, or at 10,000 copies")


def _branches(out: Output, said: Lineage) -> Iterator[Branch]:
    steps = len(said.ancestors)
    for at, one in enumerate(reversed(said.ancestors)):
        yield Branch(at - steps, _ancestor(out, one))
    tombstone = f"deleted {out.moment(said.deleted)}" if said.deleted else ""
    yield Branch(
        0,
        (
            (out.name(said.id), "bold cyan"),
            (said.title, "bold"),
            (said.space, "bold"),
            (said.refresh or "", "dim"),
            standing(said.freshness),
            (tombstone, "red"),
        ),
    )
    yield from _below(out, said.copies)


def _below(out: Output, copies: Sequence[CopyNode]) -> Iterator[Branch]:
    for one in copies:
        yield Branch(one.depth, _copy(out, one))
        yield from _below(out, one.copies)


def _ancestor(out: Output, said: Ancestor) -> tuple[Cell, ...]:
    known = [f"deleted {out.moment(said.deleted)}" if said.deleted else "", "" if said.readable else _UNKNOWN]
    if said.claimed:
        known.append("claimed by an import")
    return (
        (out.name(said.id), "cyan"),
        (said.title or "", ""),
        (said.space or "", "dim"),
        (said.refresh or "", "dim"),
        standing(said.freshness),
        (", ".join(filter(None, known)), "red" if said.deleted else "dim"),
    )


def _copy(out: Output, said: CopyNode) -> tuple[Cell, ...]:
    return (
        (out.name(said.id), "cyan"),
        (said.title or "", ""),
        (said.space or "", "dim"),
        (said.refresh or "", "dim"),
        standing(said.freshness),
        ("" if said.readable else _UNREADABLE, "dim"),
    )


def copies(out: Output, said: Sequence[CopyNode]) -> None:
    """Show every copy of a memory, and theirs, in a table."""
    if not said:
        out.note("no copies")
        return
    headers = ("id", "from", "space", "refresh", "freshness", "title")
    out.table(
        headers,
        [
            (
                out.name(one.id),
                out.name(one.source),
                one.space or "",
                one.refresh or "",
                standing(one.freshness),
                one.title or "" if one.readable else (_UNREADABLE, "dim"),
            )
            for one in said
        ],
    )
