"""Propagates a change of a source to its live copies: up to a limit in the same transaction, the rest by a job.

A refresh runs on behalf of the sharer, whose right to read the source is checked each time. It never overwrites a copy
that was edited, and takes the source's text that is current when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from commonbook.errors import FileInTheWay, TooLarge
from commonbook.files import hand_edits
from commonbook.markdown.memory_conversion import render_memory
from commonbook.model.memory import LIVE, MAX_FRONT_BYTES, Memory
from commonbook.model.spaces import FILESYSTEM_ACTOR, Actor
from commonbook.sharing import freshness, make_copy
from commonbook.tables import copies, jobs, memories
from commonbook.write import revise
from commonbook.write.context import WriteContext

PROPAGATE_JOB: Final = "refresh"
"""Refreshes the copies that exceeded the limit of one transaction; its subject is the source."""

REFRESH_JOB: Final = "renew"
"""Refreshes one copy: a lazy one that was served stale, or a live one that failed; its subject is the copy."""

MAX_PER_WRITE: Final = 100
"""Maximum number of copies that are refreshed in the transaction of their source."""

_BATCH: Final = 200
_MAX_LINK_BYTES: Final = 64

CopyOperation: TypeAlias = Callable[[WriteContext, Memory], Memory]
"""An operation on a copy within a write."""


def propagate_to_copies(ctx: WriteContext) -> list[Memory]:
    """Refresh the live copies of every memory revised in this transaction, and their copies; return those refreshed."""
    refreshed: list[Memory] = []
    seen: set[tuple[str, int]] = set()
    while level := _sources_with_copies(ctx):
        for revised in level:
            # Use the latest revision, and once per revision: in a cycle made by hand, a source may change again here.
            source = ctx.pending.take_latest(revised)
            if (source.id, source.revision) in seen:
                continue
            seen.add((source.id, source.revision))
            room = MAX_PER_WRITE - len(refreshed)
            ids = copies.outdated_copies(ctx.tx, source.id, revision=source.revision, modes=(LIVE,), limit=room + 1)
            refreshed += _refresh_copies(ctx, ids[:room], source)
            if len(ids) > room:
                jobs.enqueue(ctx.tx, space=source.space.id, kind=PROPAGATE_JOB, subject=source.id, due=ctx.tx.now)
    return list({copy.id: copy for copy in refreshed}.values())


def _sources_with_copies(ctx: WriteContext) -> list[Memory]:
    """Take the changed texts; return the memories that may have live copies, with one query for all of them."""
    level = ctx.pending.take_changed_texts()
    if len(level) < 2:
        return list(level.values())
    with_copies = copies.with_copies(ctx.tx, list(level), modes=(LIVE,))
    return [memory for memory in level.values() if memory.id in with_copies]


def _refresh_copies(ctx: WriteContext, ids: Sequence[str], source: Memory) -> list[Memory]:
    """Refresh these copies from their source; return those that changed.

    A copy whose file has no room must not prevent the edit of its source. It stays stale, and the job that tries again
    records the error.
    """
    refreshed: list[Memory | None] = []
    for copy in make_copy.locked_memories(ctx, ids):
        try:
            refreshed.append(refresh_copy(ctx, copy, source))
        except TooLarge:
            jobs.enqueue(ctx.tx, space=copy.space.id, kind=REFRESH_JOB, subject=copy.id, due=ctx.tx.now)
    return [copy for copy in refreshed if copy is not None]


def refresh_copy(ctx: WriteContext, copy: Memory, source: Memory) -> Memory | None:
    """Refresh a copy from its source; return it, or None if it is current already or may not follow.

    Raises TooLarge, with nothing changed, if the copy's file has no room for it.
    """
    if copy.shared is None or not copies.is_bound(copy) or copy.shared.claimed or source.deleted is not None:
        return None
    sharer = Actor(copy.shared.by)
    if not freshness.is_stale(copy, source) or not ctx.permissions_of(sharer).may_read(source.space, ctx.spaces):
        return None
    try:
        ctx.engines.folder.require_place(copy.path)
        copy = hand_edits.with_file_changes(ctx.acting_as(FILESYSTEM_ACTOR), copy, scanned=False)
    except (FileInTheWay, hand_edits.FileNotInPlace):
        # The file is malformed, moved or removed: the copy is refreshed once a scan has resolved that.
        return None
    if not copies.is_bound(copy) or freshness.has_diverged(copy):
        return None
    return overwrite_copy(ctx, copy, source)


def overwrite_copy(ctx: WriteContext, copy: Memory, source: Memory) -> Memory:
    """Store the source's title and text as a new revision of a copy, by its sharer, even if the copy has diverged.

    A claimed copy becomes an ordinary one, shared by the actor.
    """
    shared, link = copies.require_copy(copy)
    if shared.claimed:
        shared = shared._replace(by=ctx.actor.principal, at=ctx.tx.now, claimed=False)
    changed = [name for name in ("title", "text") if getattr(copy, name) != getattr(source, name)]
    overwritten = copy._replace(
        title=source.title,
        text=source.text,
        links=tuple(other._replace(revision=source.revision) if other == link else other for other in copy.links),
        shared=shared._replace(own=copy.revision + bool(changed)),
    )
    _require_room(ctx, overwritten)
    return revise.store_revision(ctx.acting_as(Actor(shared.by)), copy, overwritten, [*changed, "links"], how="refresh")


def _require_room(ctx: WriteContext, copy: Memory) -> None:
    """Raise TooLarge if the front matter of a copy's file has no room, beside the fields that people added."""
    hand_written_bytes = 4 * len(copy.layout) + _MAX_LINK_BYTES * len(copy.links)
    # Our own fields take less than half of the limit, so that most copies need not be rendered to find out.
    if ctx.engines.folder.keeps_files and hand_written_bytes > MAX_FRONT_BYTES // 2:
        render_memory(
            copy._replace(revision=copy.revision + 1, version=copy.version + 1, updated=ctx.tx.now), ctx.engines
        )


class PropagationProgress(NamedTuple):
    """Progress of the job after a batch: the last copy's id, and whether any copy of the batch changed."""

    last: str
    changed: bool


def propagate_batch(ctx: WriteContext, *, source_id: str, after: str) -> PropagationProgress | None:
    """Refresh a batch of a source's copies, in the order of their ids; return the progress, or None at the end."""
    ctx.lock([source_id])
    source = memories.find(ctx.tx, ctx.spaces, source_id)
    if source is None or source.deleted is not None:
        return None
    ids = copies.outdated_copies(ctx.tx, source_id, revision=source.revision, modes=(LIVE,), after=after, limit=_BATCH)
    return PropagationProgress(ids[-1], bool(_refresh_copies(ctx, ids, source))) if ids else None
