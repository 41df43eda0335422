"""Propagates a change of a source to its live copies: up to a limit in the same transaction, the rest by a job.

A refresh runs on behalf of the sharer, whose rights to read the source and to write to the space of the copy are
checked each time. It never overwrites a copy that was edited, and takes the source's text that is current when it runs.
When a whole episode was rewound, the copies that follow it are deleted by the same rules. Copies of any other source
that is deleted note when it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from commonbook.errors import TooLarge
from commonbook.model.memory import MODES
from commonbook.model.stored_memory import StoredMemory
from commonbook.sharing import make_copy, refresh
from commonbook.sharing.make_copy import GivenWords
from commonbook.tables import copies, jobs, memories
from commonbook.write.context import WriteContext

MAX_PER_WRITE: Final = 100
"""Maximum number of copies that are refreshed in the transaction of their source."""

_BATCH: Final = 200
_NO_WORDS: Final = "-"
"""The hash of no text: every copy is outdated."""
CopyOperation: TypeAlias = Callable[[WriteContext, StoredMemory], StoredMemory]
"""An operation on a copy within a write."""


def propagate_to_copies(ctx: WriteContext) -> list[StoredMemory]:
    """Refresh the live copies of every memory revised in this transaction, and their copies; return those refreshed."""
    refreshed: list[StoredMemory] = []
    seen: set[tuple[str, str]] = set()
    while level := _sources_with_copies(ctx):
        for revised in level:
            # Use the latest text, and once per text: in a cycle made by hand, a source may change again here.
            source = ctx.pending.take_latest(revised)
            if (source.id, source.content_hash) in seen:
                continue
            seen.add((source.id, source.content_hash))
            room = MAX_PER_WRITE - len(refreshed)
            given = make_copy.of_source(ctx, source)
            ids = _copies_to_check(ctx, source, given, limit=room + 1)
            refreshed += _update_copies(ctx, ids[:room], source, given)
            if len(ids) > room:
                jobs.enqueue(ctx.tx, space=source.space.id, kind=jobs.PROPAGATE_JOB, subject=source.id, due=ctx.tx.now)
    return list({copy.id: copy for copy in refreshed}.values())


def _sources_with_copies(ctx: WriteContext) -> list[StoredMemory]:
    """Take the changed texts; return the memories that may have copies, with one query for all of them."""
    level = ctx.pending.take_changed_texts()
    if len(level) < 2:
        return list(level.values())
    with_copies = copies.with_copies(ctx.tx, list(level), modes=MODES)
    return [memory for memory in level.values() if memory.id in with_copies]


def _copies_to_check(
    ctx: WriteContext, source: StoredMemory, given: GivenWords, *, after: str = "", limit: int
) -> list[str]:
    """Return the copies that may have to change: those that follow and are outdated, or all of a deleted source.

    Of a source that was deleted before, those are among them that still note its end.
    """
    if source.deleted is not None and given.source is not None:
        return copies.tied_copies(ctx.tx, source.id, after=after, limit=limit)
    hash_ = given.source.content_hash if given.source else _NO_WORDS
    return copies.outdated_copies(ctx.tx, source.id, content_hash=hash_, modes=given.modes, after=after, limit=limit)


def _update_copies(
    ctx: WriteContext, ids: Sequence[str], source: StoredMemory, given: GivenWords
) -> list[StoredMemory]:
    """Refresh these copies from their source, or delete them if nothing of it is left; return those that changed.

    If the source was deleted, they note when it ended.
    """
    if given.source is not None:
        return _refresh_copies(ctx, ids, given.source, given.modes)
    removed = [refresh.remove_copy(ctx, copy, source) for copy in make_copy.locked_memories(ctx, ids)]
    return [copy for copy in removed if copy is not None]


def _refresh_copies(
    ctx: WriteContext, ids: Sequence[str], source: StoredMemory, modes: Sequence[str]
) -> list[StoredMemory]:
    """Refresh these copies from their source, or note when it ended; return those that changed.

    A copy whose file has no room must not prevent the edit of its source. It stays stale, and the job that tries again
    records the error.
    """
    refreshed: list[StoredMemory | None] = []
    for copy in make_copy.locked_memories(ctx, ids):
        try:
            refreshed.append(_updated(ctx, copy, source, modes))
        except TooLarge:
            jobs.enqueue(ctx.tx, space=copy.space.id, kind=jobs.REFRESH_JOB, subject=copy.id, due=ctx.tx.now)
    return [copy for copy in refreshed if copy is not None]


def _updated(ctx: WriteContext, copy: StoredMemory, source: StoredMemory, modes: Sequence[str]) -> StoredMemory | None:
    """Update a copy: the end of its source that it notes and, in these modes, its words; None if nothing changed."""
    noted = refresh.note_source_end(ctx, copy, source)
    follows = source.deleted is None and copy.shared is not None and copy.shared.mode in modes
    return (refresh.refresh_copy(ctx, noted or copy, source) if follows else None) or noted


class PropagationProgress(NamedTuple):
    """Progress of the job after a batch: the last copy's id, and whether any copy of the batch changed."""

    last: str
    changed: bool


def propagate_batch(ctx: WriteContext, *, source_id: str, after: str) -> PropagationProgress | None:
    """Refresh a batch of a source's copies, in the order of their ids; return the progress, or None at the end."""
    ctx.lock([source_id])
    source = memories.find(ctx.tx, ctx.spaces, source_id)
    if source is None:
        return None
    given = make_copy.of_source(ctx, source)
    ids = _copies_to_check(ctx, source, given, after=after, limit=_BATCH)
    return PropagationProgress(ids[-1], bool(_update_copies(ctx, ids, source, given))) if ids else None
