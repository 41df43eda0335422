"""Copies that follow their sources: at once with the change itself, as far as there are not too many, else by a job.

A refresh happens in the name of the one who shared, whose right to read the source is looked at each time. It never
writes over what was edited in the copy, and takes the text that is current when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from commonplace import amend, copies, freshness, jobs, memories, rights, takein
from commonplace.desk import Desk
from commonplace.errors import FileInTheWay
from commonplace.model import FILESYSTEM, LIVE, Memory

JOB: Final = "refresh"
"""Goes on where a change had too many copies; its subject is the source."""

AT_ONCE: Final = 100
"""So many copies change in the transaction of their source."""

_BATCH: Final = 200

Change: TypeAlias = Callable[[Desk, Memory], Memory]
"""What is done to a copy, at a desk."""


def spread(desk: Desk) -> list[Memory]:
    """Let the live copies of everything that the story revised follow, and theirs; return those that did."""
    done: dict[str, Memory] = {}
    seen: set[str] = set()
    while waiting := [one for one in desk.revised.values() if one.id not in seen]:
        source = waiting[0]
        seen.add(source.id)
        room = AT_ONCE - len(done)
        ids = copies.following(desk.tx, source.id, modes=(LIVE,), limit=room + 1)
        for copy in _held(desk, [id_ for id_, _ in ids[:room]]):
            if copy.id not in seen and (fresh := refreshed(desk, copy, source)):
                done[fresh.id] = fresh
        if len(ids) > room:
            jobs.ask(desk.tx, space=source.space.id, kind=JOB, subject=source.id, due=desk.tx.now)
    desk.revised.clear()
    return list(done.values())


def refreshed(desk: Desk, copy: Memory, source: Memory) -> Memory | None:
    """Let a copy say what its source says, if it may and does not yet; return it then."""
    if copy.shared is None or copy.source is None or not copies.is_tied(copy) or source.deleted is not None:
        return None
    if copy.shared.claimed:
        # Who shared it is what a file said: nobody's right to read the source can be looked at.
        return None
    if source.space.id not in rights.readable(desk.tx, copy.shared.by, desk.spaces):
        return None
    try:
        copy = takein.fresh(desk._replace(actor=FILESYSTEM), copy, looked=True)
    except FileInTheWay:
        return None
    if not freshness.is_stale(copy, source) or freshness.has_diverged(copy):
        return None
    return taken_over(desk, copy, source)


def taken_over(desk: Desk, copy: Memory, source: Memory) -> Memory:
    """Let a copy say what its source says, whatever it said: a revision of its own, by the one who shared it."""
    shared, link = copies.require(copy)
    changed = [name for name in ("title", "text") if getattr(copy, name) != getattr(source, name)]
    said = copy._replace(
        title=source.title,
        text=source.text,
        links=tuple(one._replace(revision=source.revision) if one == link else one for one in copy.links),
        shared=shared._replace(own=copy.revision + bool(changed)),
    )
    return amend.amend(desk._replace(actor=shared.by), copy, said, [*changed, "links"], how="refresh")


def _held(desk: Desk, ids: Sequence[str]) -> list[Memory]:
    desk.hold(ids)
    found = memories.several(desk.tx, desk.spaces, ids)
    return [found[id_] for id_ in ids if id_ in found]


def some(desk: Desk, *, source_id: str, after: str) -> str | None:
    """Refresh some copies of a source, in the order of their ids; return where to go on, or nothing at the end."""
    desk.hold([source_id])
    source = memories.find(desk.tx, desk.spaces, source_id)
    ids = copies.following(desk.tx, source_id, modes=(LIVE,), after=after, limit=_BATCH)
    if source is None or source.deleted is not None or not ids:
        return None
    for copy in _held(desk, [id_ for id_, _ in ids]):
        refreshed(desk, copy, source)
    return ids[-1][0]
