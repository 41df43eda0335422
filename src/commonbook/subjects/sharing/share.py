"""Shares memories: into another space, several at once, or with one principal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from commonbook.core.access import authentication, permissions
from commonbook.core.files import hand_edits, scan
from commonbook.core.tables import copies, grants, memories, rate_counts, supersession
from commonbook.core.text import space_names, validation
from commonbook.core.write import store_version, supersession_cycles
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.transaction import logging_refusal
from commonbook.errors import BadInput, CommonbookError, NotAllowed, TooLarge
from commonbook.ports.engines import Engines
from commonbook.subjects.sharing import freshness, make_copy
from commonbook.subjects.sharing.freshness import REVOKED, SOURCE_DELETED
from commonbook.values.memory import DETACHED, LIVE, Refresh
from commonbook.values.request import RequestContext
from commonbook.values.sharing import ShareReceipt
from commonbook.values.spaces import LOCAL_OWNER, WRITER, Actor, Grant, Space, SpaceScope
from commonbook.values.stored_memory import UNKNOWN_HASH, StoredCopyInfo, StoredLink, StoredMemory

MAX_SHARED_AT_ONCE: Final = 100


def share(
    engines: Engines, caller: RequestContext, memory_id: str, to: str, *, refresh: Refresh = LIVE
) -> ShareReceipt:
    """Copy a memory into a space, bound to its source; if the space has its root already, return that.

    An existing copy stays as it is, unless it follows nothing any longer: then the actor ties it again.
    """
    memory_id = validation.validate_memory_id(memory_id)
    make_copy.require_mode(refresh)
    space_names.require_space_name(to)

    def operation(ctx: WriteContext, *, scanned: bool) -> ShareReceipt:
        space = ctx.require_writable_space(to)
        source = ctx.require_readable(memory_id)
        permissions.count_use(ctx.tx, ctx.actor, rate_counts.SHARE)
        return _copy_or_tie(ctx, source, space, refresh, scanned=scanned)

    return _write(engines, caller, operation)


def _write(engines: Engines, caller: RequestContext, operation: scan.ScanAwareOperation[ShareReceipt]) -> ShareReceipt:
    # A copy that is tied again may supersede again, which may be refused.
    with logging_refusal(engines, caller.actor, "supersede", ()):
        return scan.write_with_scan(engines, caller, operation)


def _copy_or_tie(
    ctx: WriteContext, source: StoredMemory, space: Space, refresh: Refresh, *, scanned: bool
) -> ShareReceipt:
    receipt = make_copy.make_copy(ctx, source, space, refresh)
    return receipt if receipt.new else tie_again(ctx, receipt, source, refresh, scanned=scanned)


def share_many(
    engines: Engines, actor: Actor, ids: Sequence[str], to: str, *, refresh: Refresh = LIVE
) -> tuple[ShareReceipt, ...]:
    """Share several memories into a space, each in a transaction of its own; return one receipt or error for each."""
    if len(ids) > MAX_SHARED_AT_ONCE:
        raise TooLarge(f"{len(ids)} memories are too many at once", fix=f"share at most {MAX_SHARED_AT_ONCE} at a time")
    make_copy.require_mode(refresh)
    space_names.require_space_name(to)
    return tuple(_share_or_error(engines, actor, memory_id, to, refresh) for memory_id in ids)


def _share_or_error(engines: Engines, actor: Actor, memory_id: str, to: str, refresh: Refresh) -> ShareReceipt:
    try:
        return share(engines, RequestContext(actor), memory_id, to, refresh=refresh)
    except CommonbookError as error:
        return ShareReceipt(id="", source=memory_id, space=to, new=False, error=f"{error.type}: {error.message}")


def share_with(
    engines: Engines, caller: RequestContext, memory_id: str, principal: str, *, refresh: Refresh = LIVE
) -> ShareReceipt:
    """Share a memory with one principal alone: into a space that only the two can read."""
    memory_id = validation.validate_memory_id(memory_id)
    make_copy.require_mode(refresh)
    principal = authentication.principal_name(principal)
    if principal == caller.actor.principal:
        raise BadInput(
            "a memory cannot be shared with oneself", fix="name another principal, or `share` it into a space"
        )

    def operation(ctx: WriteContext, *, scanned: bool) -> ShareReceipt:
        source = ctx.require_readable(memory_id)
        permissions.count_use(ctx.tx, ctx.actor, rate_counts.SHARE)
        return _copy_or_tie(ctx, source, _space_between(ctx, principal), refresh, scanned=scanned)

    return _write(engines, caller, operation)


def _space_between(ctx: WriteContext, principal: str) -> Space:
    """Return the space that only the actor and a principal can read; create it, with grants for both, if needed."""
    both = sorted({ctx.actor.principal, principal})
    name = space_names.shared_between(*both)
    exists = any(space.name == name for space in ctx.spaces.values())
    space = ctx.system_space(name)
    if not exists:
        system = ctx.because(ForeignWrite.SYSTEM_SPACE)
        for member in both:
            if member != LOCAL_OWNER:
                grants.put(ctx.tx, Grant(member, space, WRITER, ctx.actor.principal, ctx.tx.now))
                system.log(space, "grant", (), principal=member, role=WRITER, expires=None)
    for member, scope in ((ctx.actor.principal, ctx.writable), (principal, _readable_for(ctx, principal, space))):
        if space.id not in scope:
            raise NotAllowed(
                f"{member} has lost the right on {name!r}, which the two share",
                fix=f"let the owner of the home give it back: `commonbook grant add {member} {name} writer`",
            )
    return space


def _readable_for(ctx: WriteContext, principal: str, space: Space) -> SpaceScope:
    return permissions.readable(ctx.tx, Actor(principal), {space.id: space})


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
    given = make_copy.require_given(ctx, source)
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
