"""Ties a copy again that had lost its source, or whose sharer may no longer share it."""

from __future__ import annotations

from typing import Final

from commonbook.files import hand_edits
from commonbook.model.memory import DETACHED, Refresh
from commonbook.model.sharing import ShareReceipt
from commonbook.model.stored_memory import UNKNOWN_HASH, StoredCopyInfo, StoredLink, StoredMemory
from commonbook.sharing import freshness, words_for_copies
from commonbook.sharing.freshness import REVOKED, SOURCE_DELETED
from commonbook.tables import copies, memories, supersession
from commonbook.write import store_version, supersession_cycles
from commonbook.write.context import WriteContext

DEAD: Final = frozenset((REVOKED, SOURCE_DELETED))
"""The states of a copy that no longer follows anything, although nobody detached it."""


def tie_again(
    ctx: WriteContext, receipt: ShareReceipt, source: StoredMemory, refresh: Refresh, *, scanned: bool
) -> ShareReceipt:
    """Tie the existing copy of a receipt to a source in the name of the actor, if it is dead; tell its freshness.

    The actor may read the source and write to the space of the copy. A source that is itself a copy of the dead one
    ties nothing.
    """
    ctx.lock([source.id])
    copy = ctx.require_writable(receipt.id)
    if copy.shared is None:
        # The root itself is in this space.
        return receipt
    state = _state(ctx, copy)
    if state.tie not in DEAD or _descends_from(ctx, source, copy.id):
        return receipt._replace(freshness=state.freshness)
    given = words_for_copies.require_given(ctx, source)
    copy = _tied(ctx, hand_edits.with_file_changes(ctx, copy, scanned=scanned), given, refresh)
    return receipt._replace(refresh=refresh, revision=copy.revision, retied=True, freshness=_state(ctx, copy).freshness)


def _descends_from(ctx: WriteContext, memory: StoredMemory, ancestor: str) -> bool:
    """Tell whether a memory is a copy, directly or through others, of an ancestor, or is that itself.

    A tie to such a memory would close a cycle, in which every copy is fresh and none follows the root.
    """
    seen: set[str] = set()
    current: StoredMemory | None = memory
    while current is not None and current.id not in seen:
        if current.id == ancestor:
            return True
        seen.add(current.id)
        source = copies.copied_from(current)
        current = memories.find(ctx.tx, ctx.spaces, source) if source else None
    return False


def _state(ctx: WriteContext, copy: StoredMemory) -> freshness.CopyState:
    states = freshness.states_of(ctx.tx, ctx.spaces, [copy], readable=ctx.readable)
    return states.get(copy.id, freshness.CopyState(DETACHED, DETACHED))


def _tied(ctx: WriteContext, copy: StoredMemory, source: StoredMemory, refresh: Refresh) -> StoredMemory:
    """Store a copy with a new tie: with the words of the source, or with its own if it was edited here.

    Conflict if the copy supersedes a memory that supersedes the source: it would be superseded in turn.
    """
    old = copy.source
    is_edited = freshness.was_edited(copy)
    kept_hash = old.target_hash if old is not None and old.target == source.id else UNKNOWN_HASH
    link = StoredLink(copy.id, "shared_from", source.id, kept_hash if is_edited else source.content_hash)
    words = copy if is_edited else source
    tied = copy._replace(
        title=words.title,
        text=words.text,
        shared=StoredCopyInfo(refresh, source.root, ctx.actor.principal, ctx.tx.now),
        links=(link, *(other for other in copy.links if other != old)),
    )
    for target in supersession.targets_of(tied):
        supersession_cycles.require_none(ctx, tied, target)
    changed = [name for name in ("title", "text", "links", "shared") if getattr(tied, name) != getattr(copy, name)]
    stored = store_version.store_version(ctx, copy, tied, changed, how="share", source=source.id)
    return memories.find(ctx.tx, ctx.spaces, copy.id) or stored
