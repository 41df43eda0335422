"""What can be done with a copy: refresh, detach, adopt, unshare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from commonbook.errors import CommonbookError, Conflict, NotAllowed, NotFound
from commonbook.files import hand_edits, scan
from commonbook.model.memory import DETACHED, Memory, Receipt, receipt_of
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.sharing import freshness, propagate
from commonbook.sharing import refresh as sharing_refresh
from commonbook.sharing.freshness import DIVERGED, REVOKED, SOURCE_DELETED
from commonbook.tables import copies, memories
from commonbook.text import validation
from commonbook.write import revise
from commonbook.write.context import WriteContext, no_memory

# --- what becomes of a copy


def unshare(engines: Engines, actor: Actor, copy_id: str) -> Receipt:
    """Remove a copy; copies that were made from it stay, and say that their source is deleted."""

    def operation(ctx: WriteContext, copy: Memory) -> Memory:
        revise.delete(ctx, copy, how="unshare")
        return copy

    return _with_copy(engines, actor, copy_id, operation)


def refresh(engines: Engines, actor: Actor, copy_id: str) -> Receipt:
    """Let a copy take over what its source says now, in the name of the one who shared it."""

    def operation(ctx: WriteContext, copy: Memory) -> Memory:
        _require_source(ctx, copy, unless=(DETACHED, REVOKED, SOURCE_DELETED, DIVERGED))
        if copies.require(copy)[0].claimed:
            raise Conflict(
                f"the copy {copy.id} came by import: nobody here saw it being shared",
                fix="`adopt` ties it to its source in your name, `detach` ends the tie",
            )
        sharing_refresh.refresh_chain(ctx, copy.id)
        return memories.find(ctx.tx, ctx.spaces, copy.id) or copy

    return _with_copy(engines, actor, copy_id, operation, first=sharing_refresh.lock_chain)


def detach(engines: Engines, actor: Actor, copy_id: str) -> Receipt:
    """End the tie between a copy and its source; where it came from stays known."""

    def operation(ctx: WriteContext, copy: Memory) -> Memory:
        if copy.shared is None or copy.shared.mode == DETACHED:
            return copy
        said = copy._replace(shared=copy.shared._replace(mode=DETACHED))
        return revise.store_revision(ctx, copy, said, ["shared"], how="detach")

    return _with_copy(engines, actor, copy_id, operation)


def adopt(engines: Engines, actor: Actor, copy_id: str) -> Receipt:
    """Let a copy that was edited here say what its source says again; what it said stays in its history.

    One that came by import follows its source from then on, in the name of the one who adopts it.
    """

    def operation(ctx: WriteContext, copy: Memory) -> Memory:
        source = _require_source(ctx, copy, unless=(DETACHED, REVOKED, SOURCE_DELETED))
        claimed = copies.require(copy)[0].claimed
        if not claimed and not freshness.has_diverged(copy) and not freshness.is_stale(copy, source):
            return copy
        return propagate.overwrite_copy(ctx, copy, source)

    return _with_copy(engines, actor, copy_id, operation, first=sharing_refresh.lock_chain)


def _nothing(_ctx: WriteContext, _copy_id: str) -> object:
    """Hold nothing but the copy itself."""


def _with_copy(
    engines: Engines,
    actor: Actor,
    copy_id: str,
    operation: propagate.Change,
    *,
    first: Callable[[WriteContext, str], object] = _nothing,
) -> Receipt:
    copy_id = validation.validate_memory_id(copy_id)

    def whole(ctx: WriteContext, *, looked: bool) -> Receipt:
        first(ctx, copy_id)
        copy = hand_edits.with_file_changes(ctx, ctx.require(copy_id), looked=looked)
        copies.require(copy)
        return receipt_of(operation(ctx, copy), new=False)

    return scan.write_with_scan(engines, actor, whole)


def _require_source(ctx: WriteContext, copy: Memory, *, unless: Sequence[str]) -> Memory:
    """Return the source of a copy, or raise why it cannot be taken over."""
    shared, link = copies.require(copy)
    stands = freshness.states_of(ctx.tx, ctx.spaces, [copy])[copy.id].freshness
    if stands in unless:
        raise _WHY_NOT[stands](copy.id)
    # Of what came by import nobody here knows who shared it: whoever lets it follow does, and has to have the right.
    source = memories.find(ctx.tx, ctx.readable if shared.claimed else ctx.spaces, link.target)
    if source is None:
        raise no_memory(link.target)
    return source


def _detached(copy_id: str) -> CommonbookError:
    return Conflict(f"the copy {copy_id} was detached from its source", fix="share the source again for a new copy")


def _revoked(copy_id: str) -> CommonbookError:
    return NotAllowed(
        f"whoever shared the copy {copy_id} may no longer read its source", fix="ask for a grant, or detach the copy"
    )


def _source_deleted(copy_id: str) -> CommonbookError:
    return NotFound(f"the source of the copy {copy_id} is deleted", fix="detach the copy, or unshare it")


def _diverged(copy_id: str) -> CommonbookError:
    return Conflict(
        f"the copy {copy_id} was edited here", fix="`adopt` takes the source's text, `detach` keeps this one"
    )


_WHY_NOT: Final = {
    DETACHED: _detached,
    REVOKED: _revoked,
    SOURCE_DELETED: _source_deleted,
    DIVERGED: _diverged,
}
