"""Propagates a change of a source to its live copies: up to a limit in the same transaction, the rest by a job.

A refresh runs on behalf of the sharer, whose rights to read the source and to write to the space of the copy are
checked each time. It never overwrites a copy that was edited, and takes the source's text that is current when it runs.
When a whole episode was rewound, the copies that follow it are deleted by the same rules. Copies of any other source
that is deleted note when it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from commonbook.core.files import hand_edits
from commonbook.core.markdown.memory_conversion import render_memory
from commonbook.core.tables import copies, jobs, memories, spaces
from commonbook.core.write import store_version
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.transaction import write
from commonbook.errors import FileInTheWay, TooLarge
from commonbook.ports.database import Transaction
from commonbook.ports.engines import Engines
from commonbook.subjects.sharing import freshness, make_copy
from commonbook.subjects.sharing.make_copy import GivenWords
from commonbook.values.memory import LAZY, LIVE, MAX_FRONT_BYTES, MODES
from commonbook.values.request import OWNER_CONTEXT
from commonbook.values.spaces import Actor, SpaceScope
from commonbook.values.stored_memory import StoredCopyInfo, StoredMemory

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
    removed = [remove_copy(ctx, copy, source) for copy in make_copy.locked_memories(ctx, ids)]
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
    noted = note_source_end(ctx, copy, source)
    follows = source.deleted is None and copy.shared is not None and copy.shared.mode in modes
    return (refresh_copy(ctx, noted or copy, source) if follows else None) or noted


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


_MAX_LINK_BYTES: Final = 64


def refresh_now(engines: Engines, copy_id: str) -> None:
    """Refresh a copy and the copies between it and its root, each in the name of the principal that shared it."""
    write(engines, OWNER_CONTEXT, partial(refresh_chain, copy_id=copy_id, readable={}))


def enqueue_refresh(engines: Engines, stale: Sequence[StoredMemory]) -> None:
    """Request a refresh job for each of these copies; nothing is written if all of them are queued already."""
    with engines.db.reading() as tx:
        queued = jobs.already_queued(tx, jobs.REFRESH_JOB, [copy.id for copy in stale])
        stale = freshness.needing_refresh(tx, spaces.get_all(tx), [copy for copy in stale if copy.id not in queued])
    # Always in the order of ids, so that two concurrent requests cannot deadlock.
    missing = sorted((copy.id, copy.space.id) for copy in stale)

    def enqueue(tx: Transaction) -> None:
        for copy_id, space in missing:
            jobs.enqueue(tx, space=space, kind=jobs.REFRESH_JOB, subject=copy_id, due=tx.now)

    if missing:
        engines.db.write(enqueue, durable=False)


def refresh_chain(ctx: WriteContext, copy_id: str, *, readable: SpaceScope) -> None:
    """Refresh the copies along the chain from the furthest source to this copy, in that order.

    A copy that was edited to the words of its source is confirmed only if the source is in the spaces `readable`.
    """
    for source_id, id_ in pairwise(lock_chain(ctx, copy_id)):
        source, copy = (memories.find(ctx.tx, ctx.spaces, memory_id) for memory_id in (source_id, id_))
        if source is None or copy is None:
            continue
        given = make_copy.of_source(ctx, source).source
        if given is not None:
            refresh_copy(ctx, copy, given, readable=readable)


def lock_chain(ctx: WriteContext, copy_id: str) -> list[str]:
    """Lock a copy and the sources that its text comes from; return their ids, the furthest source first.

    Lock order: a change of that source locks its copies in the same order.
    """
    ids = [copy_id]
    while len(ids) <= freshness.MAX_CHAIN_LENGTH:
        memory = memories.find(ctx.tx, ctx.spaces, ids[-1])
        link = memory.source if memory else None
        if memory is None or link is None or not copies.is_bound(memory) or link.target in ids:
            break
        if memory.id != copy_id and memory.shared is not None and memory.shared.mode not in (LIVE, LAZY):
            break
        ids.append(link.target)
    ids.reverse()
    for id_ in ids:
        ctx.lock([id_])
    return ids


def refresh_copy(
    ctx: WriteContext, copy: StoredMemory, source: StoredMemory, *, readable: SpaceScope | None = None
) -> StoredMemory | None:
    """Refresh a copy from its source; return it, or None if it is current already or may not follow.

    A copy that was edited to the words of its source is confirmed only if the source is in the spaces `readable`, or
    may be read by the principal that edited the copy.

    Raises TooLarge, with nothing changed, if the copy's file has no room for it.
    """
    if source.deleted is not None or _is_current(copy, source):
        return None
    following = _following(ctx, copy, source, readable=readable)
    return None if following is None or _is_current(following, source) else overwrite_copy(ctx, following, source)


def remove_copy(ctx: WriteContext, copy: StoredMemory, source: StoredMemory) -> StoredMemory | None:
    """Delete a copy of an episode all of whose messages were rewound; return it, or None if it does not follow."""
    following = _following(ctx, copy, source, readable={})
    if following is None or following.shared is None:
        return None
    store_version.delete(ctx.acting_as(Actor(following.shared.writer), ForeignWrite.SHARER), following, how="rewind")
    ctx.pending.note_changed_text(following)
    return following


def note_source_end(ctx: WriteContext, copy: StoredMemory, source: StoredMemory) -> StoredMemory | None:
    """Note in a copy when its source ended, if that is deleted, and nothing if it is not; None if it says so already.

    Raises TooLarge, with nothing changed, if the copy's file has no room for it.
    """
    ends = None if source.deleted is None else copies.end_of(source)
    if copy.shared is None or copy.shared.source_ends == ends:
        return None
    tied = _tied(ctx, copy, source)
    if tied is None or tied.shared is None or tied.shared.source_ends == ends:
        return None
    noted = tied._replace(shared=tied.shared._replace(source_ends=ends))
    _require_room(ctx, noted)
    as_sharer = ctx.acting_as(Actor(tied.shared.writer), ForeignWrite.SHARER)
    return store_version.store_version(as_sharer, tied, noted, ["shared"], how="refresh")


def _following(
    ctx: WriteContext, copy: StoredMemory, source: StoredMemory, *, readable: SpaceScope | None
) -> StoredMemory | None:
    """Return a copy, with what a person did to its file; None if it may not follow its source, or has diverged."""
    tied = _tied(ctx, copy, source)
    if tied is None or freshness.has_diverged(tied, source):
        return None
    return tied if not freshness.was_edited(tied) or _may_confirm(ctx, tied, source, readable) else None


def _may_confirm(ctx: WriteContext, copy: StoredMemory, source: StoredMemory, readable: SpaceScope | None) -> bool:
    """Tell whether an edited copy that says what its source says may follow it again.

    By that, somebody who may not read the source would learn that an edit of theirs guessed its words.
    """
    if readable is not None:
        return source.space.id in readable
    return ctx.permissions_of(Actor(copy.revised_by)).may_read(source.space, ctx.spaces)


def _tied(ctx: WriteContext, copy: StoredMemory, source: StoredMemory) -> StoredMemory | None:
    """Return a copy, with what a person did to its file; None if its sharer may not share it any more."""
    if copy.shared is None or not copies.is_bound(copy) or copy.shared.claimed:
        return None
    if not _sharer_may_share(ctx, copy, copy.shared, source):
        return None
    try:
        ctx.engines.folder.require_place(copy.path)
        copy = hand_edits.with_file_changes(ctx.as_filesystem(), copy, scanned=False)
    except (FileInTheWay, hand_edits.FileNotInPlace):
        # The file is malformed, moved or removed: the copy is refreshed once a scan has resolved that.
        return None
    return copy if copies.is_bound(copy) else None


def _sharer_may_share(ctx: WriteContext, copy: StoredMemory, shared: StoredCopyInfo, source: StoredMemory) -> bool:
    """Tell whether the sharer of a copy may read its source and write to its space, as `freshness` tells a reader."""
    may_read = ctx.permissions_of(Actor(shared.by)).may_read(source.space, ctx.spaces)
    return may_read and ctx.permissions_of(Actor(shared.writer)).may_write(copy.space, ctx.spaces)


def _is_current(copy: StoredMemory, source: StoredMemory) -> bool:
    """Tell whether a copy says what its source says, and its link says so too."""
    is_confirmed = copy.source is not None and copy.source.target_hash == source.content_hash
    return is_confirmed and not freshness.is_stale(copy, source)


def overwrite_copy(
    ctx: WriteContext, copy: StoredMemory, source: StoredMemory, *, take_over: bool = False
) -> StoredMemory:
    """Store the source's title and text as a new revision of a copy, by its sharer, even if the copy has diverged.

    With `take_over` the actor becomes the sharer. A claimed copy becomes an ordinary one, shared by the actor.
    """
    shared, link = copies.require_copy(copy)
    if shared.claimed or take_over:
        shared = shared._replace(by=ctx.actor.principal, at=ctx.tx.now, claimed=False, approved_by=None)
    changed = [name for name in ("title", "text") if getattr(copy, name) != getattr(source, name)]
    overwritten = copy._replace(
        title=source.title,
        text=source.text,
        links=tuple(
            other._replace(target_hash=source.content_hash) if other == link else other for other in copy.links
        ),
        shared=shared,
    )
    _require_room(ctx, overwritten)
    as_sharer = ctx.acting_as(Actor(shared.writer), ForeignWrite.SHARER)
    return store_version.store_version(as_sharer, copy, overwritten, [*changed, "links"], how="refresh")


def _require_room(ctx: WriteContext, copy: StoredMemory) -> None:
    """Raise TooLarge if the front matter of a copy's file has no room, beside the fields that people added."""
    hand_written_bytes = 4 * len(copy.layout) + _MAX_LINK_BYTES * len(copy.links)
    # Our own fields take less than half of the limit, so that most copies need not be rendered to find out.
    if ctx.engines.folder.keeps_files and hand_written_bytes > MAX_FRONT_BYTES // 2:
        render_memory(copy, ctx.engines)
