"""Copies that follow their sources: at once with the change itself, as far as there are not too many, else by a job.

A refresh happens in the name of the one who shared, whose right to read the source is looked at each time. It never
writes over what was edited in the copy, and takes the text that is current when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from commonbook.errors import FileInTheWay, TooLarge
from commonbook.files import hand_edits
from commonbook.markdown.memory_file import render_memory
from commonbook.model.memory import LIVE, MAX_FRONT_BYTES, Memory
from commonbook.model.spaces import FILESYSTEM_ACTOR, Actor
from commonbook.sharing import freshness, make_copy
from commonbook.tables import copies, jobs, memories
from commonbook.write import revise
from commonbook.write.context import WriteContext

PROPAGATE_JOB: Final = "refresh"
"""Goes on where a change had too many copies; its subject is the source."""

REFRESH_JOB: Final = "renew"
"""Lets one copy follow: a recall has served a lazy one stale, or a live one could not; its subject is the copy."""

MAX_PER_WRITE: Final = 100
"""So many copies change in the transaction of their source."""

_BATCH: Final = 200
_LONGEST_LINK: Final = 64

Change: TypeAlias = Callable[[WriteContext, Memory], Memory]
"""What is done to a copy, at a desk."""


def propagate_to_copies(ctx: WriteContext) -> list[Memory]:
    """Let the live copies of everything that the story revised follow, and theirs; return those that did."""
    done: list[Memory] = []
    seen: set[tuple[str, int]] = set()
    while level := _followed(ctx):
        for revised in level:
            # Each as it is by then, and as often as it changed: in a circle made by hand it may follow what follows it.
            source = ctx.pending.take_latest(revised)
            if (source.id, source.revision) in seen:
                continue
            seen.add((source.id, source.revision))
            room = MAX_PER_WRITE - len(done)
            ids = copies.outdated_copies(ctx.tx, source.id, revision=source.revision, modes=(LIVE,), limit=room + 1)
            done += _all_refreshed(ctx, ids[:room], source)
            if len(ids) > room:
                jobs.enqueue(ctx.tx, space=source.space.id, kind=PROPAGATE_JOB, subject=source.id, due=ctx.tx.now)
    return list({copy.id: copy for copy in done}.values())


def _followed(ctx: WriteContext) -> list[Memory]:
    """Take the changed texts; return the memories that may have live copies, looked up once for all of them."""
    level = ctx.pending.take_changed_texts()
    if len(level) < 2:
        return list(level.values())
    found = copies.with_copies(ctx.tx, list(level), modes=(LIVE,))
    return [memory for memory in level.values() if memory.id in found]


def _all_refreshed(ctx: WriteContext, ids: Sequence[str], source: Memory) -> list[Memory]:
    """Let these copies say what their source says; return those that had to and could.

    One whose file has no room for it is no reason why the source cannot be edited: it stays stale, and the job that
    tries again tells why.
    """
    done: list[Memory | None] = []
    for copy in make_copy.locked_memories(ctx, ids):
        try:
            done.append(refresh_copy(ctx, copy, source))
        except TooLarge:
            jobs.enqueue(ctx.tx, space=copy.space.id, kind=REFRESH_JOB, subject=copy.id, due=ctx.tx.now)
    return [copy for copy in done if copy is not None]


def refresh_copy(ctx: WriteContext, copy: Memory, source: Memory) -> Memory | None:
    """Let a copy say what its source says, if it may and does not yet; return it then.

    Raises TooLarge, with nothing changed, if the copy's file has no room for it.
    """
    if copy.shared is None or not copies.is_bound(copy) or copy.shared.claimed or source.deleted is not None:
        return None
    sharer = Actor(copy.shared.by)
    if not freshness.is_stale(copy, source) or not ctx.permissions_of(sharer).may_read(source.space, ctx.spaces):
        return None
    try:
        ctx.engines.folder.require_place(copy.path)
        copy = hand_edits.with_file_changes(ctx.acting_as(FILESYSTEM_ACTOR), copy, looked=False)
    except (FileInTheWay, hand_edits.FileGone):
        # Its file is somebody's to mend, was moved, or is removed: when it is looked at, the copy follows again.
        return None
    if not copies.is_bound(copy) or freshness.has_diverged(copy):
        return None
    return overwrite_copy(ctx, copy, source)


def overwrite_copy(ctx: WriteContext, copy: Memory, source: Memory) -> Memory:
    """Let a copy say what its source says, whatever it said: a revision of its own, by the one who shared it.

    What was only claimed to be a copy is one from now on, shared by whoever lets it take over.
    """
    shared, link = copies.require(copy)
    if shared.claimed:
        shared = shared._replace(by=ctx.actor.principal, at=ctx.tx.now, claimed=False)
    changed = [name for name in ("title", "text") if getattr(copy, name) != getattr(source, name)]
    said = copy._replace(
        title=source.title,
        text=source.text,
        links=tuple(one._replace(revision=source.revision) if one == link else one for one in copy.links),
        shared=shared._replace(own=copy.revision + bool(changed)),
    )
    _require_room(ctx, said)
    return revise.store_revision(ctx.acting_as(Actor(shared.by)), copy, said, [*changed, "links"], how="refresh")


def _require_room(ctx: WriteContext, said: Memory) -> None:
    """Raise TooLarge if what a copy is to say finds no room in its front matter, beside what people put there."""
    by_hand = 4 * len(said.layout) + _LONGEST_LINK * len(said.links)
    # Our own fields take less than half of what there is, so that most copies need not be written to know.
    if ctx.engines.folder.keeps_files and by_hand > MAX_FRONT_BYTES // 2:
        render_memory(
            said._replace(revision=said.revision + 1, version=said.version + 1, updated=ctx.tx.now), ctx.engines
        )


class Step(NamedTuple):
    """Some copies that a job has looked at: where it goes on, and whether any of them changed."""

    last: str
    changed: bool


def propagate_some(ctx: WriteContext, *, source_id: str, after: str) -> Step | None:
    """Refresh some copies of a source, in the order of their ids; return how far that went, or nothing at the end."""
    ctx.lock([source_id])
    source = memories.find(ctx.tx, ctx.spaces, source_id)
    if source is None or source.deleted is not None:
        return None
    ids = copies.outdated_copies(ctx.tx, source_id, revision=source.revision, modes=(LIVE,), after=after, limit=_BATCH)
    return Step(ids[-1], bool(_all_refreshed(ctx, ids, source))) if ids else None
