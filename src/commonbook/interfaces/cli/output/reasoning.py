"""How doubt is laid out for people: what rests on what, why a memory is suspect, and what was decided about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from commonbook.errors import NotFound
from commonbook.interfaces.cli.output.plain import Branch, Cell, Output, one_line
from commonbook.model.invalidation import DELETED, DISMISS, KEEP, RETRACT, SUPERSEDE, Decision, Invalidation
from commonbook.model.reasoning import Dependent, Inbox, InboxItem, MemoryReference, SupersedeReport, TriageReport

if TYPE_CHECKING:
    from commonbook.book.book import Book
    from commonbook.model.memory import Memory
    from commonbook.model.sharing import Lineage


_UNREADABLE: Final = "not yours to read"
_LONG: Final = 1200
"""Characters of what is in doubt: `show` shows all of it."""

_DONE: Final = {KEEP: "Kept", RETRACT: "Retracted", SUPERSEDE: "Superseded", DISMISS: "Dismissed what was said about"}


# --- what was done


def superseded(out: Output, said: SupersedeReport) -> None:
    """What became of superseding a memory."""
    if said.new:
        told = f"; {said.notified} in doubt now: commonbook inbox" if said.notified else ""
        sentence = f"{out.name(said.by)} supersedes {out.name(said.id)}{told}"
    else:
        sentence = f"{out.name(said.by)} superseded {out.name(said.id)} before"
    out.report(sentence, [(said.id, said.by, "new" if said.new else "there before", str(said.notified))])


def reinstated(out: Output, said: SupersedeReport) -> None:
    """What became of reinstating a memory."""
    by = f": {out.name(said.by)} no longer supersedes it" if said.by else ""
    out.report(f"{out.name(said.id)} holds again{by}", [(said.id, said.by)])


def triaged(out: Output, said: TriageReport) -> None:
    """What was decided."""
    doubts = f"{said.settled} {'doubt' if said.settled == 1 else 'doubts'} settled"
    out.report(
        f"{_DONE[said.verdict]} {out.name(said.id)}: {doubts}",
        [(said.id, said.verdict, str(said.settled), said.space, said.path, str(said.version))],
    )


# --- what rests on a memory


def dependents(out: Output, root: Lineage, said: Sequence[Dependent]) -> None:
    """Draw what rests on a memory below it, each where its path ends."""
    if not said:
        out.note("nothing rests on it")
        return
    out.tree(_branches(out, root, said))


def _branches(out: Output, root: Lineage, said: Sequence[Dependent]) -> Iterator[Branch]:
    known = {one.path: one for one in said}
    below: dict[tuple[str | None, ...], dict[tuple[str | None, ...], None]] = {}
    for one in said:
        for end in range(1, len(one.path)):
            below.setdefault(one.path[:end], {})[one.path[: end + 1]] = None
    tombstone = f"deleted {out.moment(root.deleted)}" if root.deleted else ""
    yield Branch(
        0, ((out.name(root.id), "bold cyan"), (root.title, "bold"), (root.space, "bold"), "", (tombstone, "red"))
    )
    left = [(1, path) for path in reversed(below.get((root.id,), {}))]
    while left:
        depth, path = left.pop()
        yield Branch(depth, _dependent(out, path[-1], known.get(path)))
        left += [(depth + 1, one) for one in reversed(below.get(path, {}))]


def _dependent(out: Output, id_: str | None, said: Dependent | None) -> tuple[Cell, ...]:
    if id_ is None:
        return ("", (_UNREADABLE, "dim"), "", "", "")
    if said is None:
        return ((out.name(id_), "dim"), ("by way of this", "dim"), "", "", "")
    marks = [*(["suspect"] if said.suspect else []), *(["source_changed"] if said.source_changed else [])]
    return (
        (out.name(id_), "cyan"),
        said.title,
        (said.space, "dim"),
        (said.kind, "dim"),
        (", ".join(marks), "red" if said.suspect else "yellow"),
    )


# --- why a memory is in doubt


def titles_in(book: Book, memory: Memory) -> dict[str, str]:
    """Return the titles of what a memory's doubts and decisions name, as far as one may read it."""
    reasons: tuple[Invalidation | Decision, ...] = (*memory.invalidations, *memory.decisions)
    return titles(book, {id_ for one in reasons for id_ in one.key})


def titles(book: Book, ids: Iterable[str]) -> dict[str, str]:
    """Return the titles of some memories; what is gone, or may not be read, has none."""
    found = {}
    for id_ in sorted(set(ids) - {DELETED}):
        with suppress(NotFound):
            found[id_] = book.get(id_).title
    return found


def reasons(out: Output, said: Memory, known: Mapping[str, str]) -> Iterator[tuple[str, Cell]]:
    """Yield why a memory is suspect, and what was decided about it before."""
    for cause in said.invalidations:
        yield "suspect, since", (_what_happened(out, cause.invalidated, cause.invalidating, known), "red")
        yield "by the path", " <- ".join(out.name(id_) if id_ else "…" for id_ in cause.path)
    for one in said.decisions:
        note = f": {one.note}" if one.note else ""
        about = _what_happened(out, one.invalidated, one.invalidating, known)
        yield "decided", f"{one.verdict}, by {one.by}, {out.moment(one.at)}, since {about}{note}"


def _what_happened(out: Output, invalidated: str, invalidating: str, known: Mapping[str, str]) -> str:
    became = "was deleted" if invalidating == DELETED else f"was superseded by {_called(out, invalidating, known)}"
    return f"{_called(out, invalidated, known)} {became}"


def _called(out: Output, id_: str, known: Mapping[str, str]) -> str:
    return f"{one_line(known[id_])!r} ({out.name(id_)})" if id_ in known else out.name(id_)


# --- what waits


def inbox(out: Output, said: Inbox, *, expired: bool) -> None:
    """Some notices in a table; where it goes on, or that others have expired, is said beside it."""
    if said.items:
        headers = ("id", "space", "in doubt", "rests on", "which was", "by", "when", "why")
        out.table(headers, [_row(out, one) for one in said.items])
    elif not said.next:
        nothing(out, expired=expired)
    if said.next:
        out.note(f"there are more: --after {said.next}")


def nothing(out: Output, *, expired: bool) -> None:
    """Say that no notice waits; what an expired one was about may still be in doubt."""
    out.note("no new notices, but some that have expired: --expired" if expired else "nothing is in doubt")


def _row(out: Output, said: InboxItem) -> tuple[Cell, ...]:
    became = f"superseded by {_mentioned(out, said.invalidating)}" if said.invalidating else "deleted"
    return (
        out.name(said.id),
        said.space,
        _mentioned(out, said.dependent),
        _mentioned(out, said.invalidated),
        became,
        said.by,
        (out.moment(said.at), "dim" if said.expired else ""),
        said.reason,
    )


def _mentioned(out: Output, said: MemoryReference) -> str:
    return out.name(said.id) if said.title is None else f"{one_line(said.title)} ({out.name(said.id)})"


def notice(out: Output, said: InboxItem, known: Mapping[str, str]) -> None:
    """One notice with everything that is needed to decide about it."""
    out.styled(
        [
            (one_line(said.dependent.title or ""), "bold"),
            (f"  {out.name(said.dependent.id)}", "cyan"),
            (f"  {said.space}", "dim"),
            ("  expired" if said.expired else "", "yellow"),
        ]
    )
    out.styled([(_beginning(said.text), "")], indent=2)
    became = f"was superseded by {_mentioned(out, said.invalidating)}" if said.invalidating else "was deleted"
    facts: list[tuple[str, Cell]] = [
        ("rests on", (_mentioned(out, said.invalidated), "bold")),
        ("which", (became, "red")),
        ("why", said.reason),
        ("by", f"{said.by}, {out.moment(said.at)}"),
        ("steps", str(said.depth) if said.depth else ""),
    ]
    out.facts((name, value) for name, value in facts if value)
    out.tree(_path(out, said, known))


def _path(out: Output, said: InboxItem, known: Mapping[str, str]) -> Iterator[Branch]:
    """Yield the steps from what no longer holds to what is in doubt."""
    named = {**known, said.invalidated.id: said.invalidated.title or "", said.dependent.id: said.dependent.title or ""}
    for depth, id_ in enumerate(said.path):
        told = ((out.name(id_), "cyan"), named.get(id_) or ("", "dim")) if id_ else ("", (_UNREADABLE, "dim"))
        yield Branch(depth, told)


def _beginning(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONG else f"{text[:_LONG].rstrip()} …"
