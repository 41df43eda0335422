"""Operations on a copy: refresh, change of the mode, detach, adopt, unshare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from commonbook.core.access import permissions
from commonbook.core.files import hand_edits, scan
from commonbook.core.tables import copies, memories, spaces
from commonbook.core.text import content_hashes, validation
from commonbook.core.write import store_version
from commonbook.core.write.context import WriteContext
from commonbook.errors import CommonbookError, Conflict, FileInTheWay, NotAllowed, NotFound
from commonbook.ports.engines import Engines
from commonbook.subjects.sharing import freshness, make_copy, propagate
from commonbook.subjects.sharing.freshness import DIVERGED, REVOKED, SOURCE_DELETED
from commonbook.values.memory import DETACHED, LIVE, SNAPSHOT, Receipt, Refresh
from commonbook.values.request import RequestContext
from commonbook.values.spaces import Actor
from commonbook.values.stored_memory import StoredMemory, receipt_of


def unshare(engines: Engines, caller: RequestContext, copy_id: str) -> Receipt:
    """Delete a copy; copies made from it stay, with the freshness `source_deleted`."""

    def operation(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
        store_version.delete(ctx, copy, how="unshare")
        return copy

    return _with_copy(engines, caller, copy_id, operation)


def refresh(engines: Engines, caller: RequestContext, copy_id: str) -> Receipt:
    """Update a copy to the current text of its source, on behalf of its sharer.

    A live or lazy copy would get that text anyway. A snapshot would not: the actor must be allowed to read the source.
    """

    def operation(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
        _require_source(ctx, copy, refused=(DETACHED, REVOKED, SOURCE_DELETED, DIVERGED))
        shared, _ = copies.require_copy(copy)
        if shared.mode == SNAPSHOT:
            _require_readable_source(ctx, copy)
        if shared.claimed:
            raise Conflict(
                f"the copy {copy.id} was imported, and its sharer is unknown here",
                fix="`adopt` binds it to its source in your name, `detach` separates the two",
            )
        propagate.refresh_chain(ctx, copy.id, readable=ctx.readable)
        return memories.find(ctx.tx, ctx.spaces, copy.id) or copy

    return _with_copy(engines, caller, copy_id, operation, lock=propagate.lock_chain)


def detach(engines: Engines, caller: RequestContext, copy_id: str) -> Receipt:
    """Stop a copy from following its source; its lineage is kept. A copy that has ended with its source stays ended."""

    def operation(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
        if copy.shared is None or copy.shared.mode == DETACHED:
            return copy
        return store_version.store_version(ctx, copy, store_version.detach(ctx, copy), ["shared"], how="detach")

    return _with_copy(engines, caller, copy_id, operation)


def adopt(engines: Engines, caller: RequestContext, copy_id: str) -> Receipt:
    """Overwrite a diverged copy with its source's text; the local text stays in the history.

    An imported copy, and one whose sharer may no longer share it, follow their source from then on,
    shared by the actor. Unless the text would have come anyway, the actor must be allowed to read the source.
    """

    def operation(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
        state = _state(ctx, copy)
        is_revoked = state == REVOKED
        source = _require_source(ctx, copy, refused=(DETACHED, SOURCE_DELETED))
        if is_revoked and source.space.id not in ctx.readable:
            raise _revoked_error(copy.id)
        if source.deleted is not None:
            # The state of a revoked copy does not tell that its source was deleted too.
            raise _source_deleted_error(copy.id)
        shared, _ = copies.require_copy(copy)
        if state == DIVERGED or shared.mode == SNAPSHOT:
            # Before the texts are compared: else the answer would tell whether an edit guessed the source's text.
            _require_readable_source(ctx, copy)
        if not is_revoked and not shared.claimed and not freshness.is_stale(copy, source):
            return copy
        given = make_copy.require_given(ctx, source)
        return propagate.overwrite_copy(ctx, copy, given, take_over=is_revoked)

    return _with_copy(engines, caller, copy_id, operation, lock=propagate.lock_chain)


def adopt_all(engines: Engines, actor: Actor) -> tuple[Receipt, ...]:
    """Tie every claimed copy again, each in a transaction of its own; return the copies that were tied.

    A copy whose tie came from its file alone is claimed: the database was lost, or an import brought it.
    """
    with engines.db.reading() as tx:
        claimed = copies.claimed(tx, permissions.writable(tx, actor, spaces.get_all(tx)))
    receipts = []
    for copy_id in claimed:
        # Removed, detached or moved meanwhile, or by a source that this actor may not read: the others go on.
        with suppress(Conflict, FileInTheWay, NotAllowed, NotFound):
            receipt = _with_copy(engines, RequestContext(actor), copy_id, _tie, lock=propagate.lock_chain)
            receipts.append(receipt)
    return tuple(receipts)


def _tie(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
    """Tie a claimed copy to its source in the name of the actor; one that was edited keeps its words.

    Conflict if it is not known which words it took over, and it does not say what its source says.
    """
    source = _require_source(ctx, copy, refused=(DETACHED, SOURCE_DELETED))
    shared, link = copies.require_copy(copy)
    is_fresh = not freshness.is_stale(copy, source)
    if not shared.claimed or (not is_fresh and content_hashes.is_foreign(ctx.engines.keys, link.target_hash or "")):
        raise _diverged_error(copy.id)
    taken = link._replace(target_hash=source.content_hash) if is_fresh else link
    tied = copy._replace(
        shared=shared._replace(by=ctx.actor.principal, at=ctx.tx.now, claimed=False, approved_by=None),
        links=tuple(taken if other == link else other for other in copy.links),
    )
    store_version.store_version(ctx, copy, tied, ["shared"], how="share", source=source.id)
    if shared.mode == LIVE:
        propagate.refresh_chain(ctx, copy.id, readable=ctx.readable)
    return memories.find(ctx.tx, ctx.spaces, copy.id) or tied


def set_refresh(engines: Engines, caller: RequestContext, copy_id: str, mode: Refresh) -> Receipt:
    """Change when a copy follows its source; one that becomes live is brought up to date at once.

    A snapshot that is to follow gets texts that it would not have got: the actor must be allowed to read the source.
    """
    make_copy.require_mode(mode)

    def operation(ctx: WriteContext, copy: StoredMemory) -> StoredMemory:
        shared, _ = copies.require_copy(copy)
        if shared.mode == DETACHED:
            raise _detached_error(copy.id)
        if shared.mode == SNAPSHOT != mode:
            _require_readable_source(ctx, copy)
        if shared.mode != mode:
            changed = copy._replace(shared=shared._replace(mode=mode, mode_set=ctx.tx.now))
            copy = store_version.store_version(ctx, copy, changed, ["shared"], how="set_refresh", refresh=mode)
        if mode == LIVE:
            propagate.refresh_chain(ctx, copy.id, readable=ctx.readable)
        return memories.find(ctx.tx, ctx.spaces, copy.id) or copy

    return _with_copy(engines, caller, copy_id, operation, lock=propagate.lock_chain)


def _lock_only_copy(_ctx: WriteContext, _copy_id: str) -> object:
    """Lock nothing beforehand: `require` locks the copy itself."""


def _with_copy(
    engines: Engines,
    caller: RequestContext,
    copy_id: str,
    operation: propagate.CopyOperation,
    *,
    lock: Callable[[WriteContext, str], object] = _lock_only_copy,
) -> Receipt:
    """Run an operation on a copy, after hand edits of its file were applied."""
    copy_id = validation.validate_memory_id(copy_id)

    def run(ctx: WriteContext, *, scanned: bool) -> Receipt:
        lock(ctx, copy_id)
        copy = hand_edits.with_file_changes(ctx, ctx.require_writable(copy_id), scanned=scanned)
        copies.require_copy(copy)
        return receipt_of(operation(ctx, copy), new=False)

    return scan.write_with_scan(engines, caller, run)


def _require_source(ctx: WriteContext, copy: StoredMemory, *, refused: Sequence[str]) -> StoredMemory:
    """Return the source of a copy, or raise the error of its state if that is among the refused ones."""
    shared, link = copies.require_copy(copy)
    state = _state(ctx, copy)
    if state in refused:
        raise _ERRORS[state](copy.id)
    # The sharer of an imported copy is unknown: the actor becomes the sharer, and needs the right to read the source.
    source = memories.find(ctx.tx, ctx.readable if shared.claimed else ctx.spaces, link.target)
    if source is None:
        raise permissions.no_memory(link.target)
    return source


def _require_readable_source(ctx: WriteContext, copy: StoredMemory) -> None:
    """Raise NotAllowed unless the actor may read the source, whose present text the copy would get by its request.

    That the sharer may read it is not enough: the sharer has given away the text of that time, and no other.
    """
    _, link = copies.require_copy(copy)
    if memories.find(ctx.tx, ctx.readable, link.target) is None:
        raise NotAllowed(
            f"{ctx.actor.principal} may not read the source of the copy {copy.id}",
            fix="ask somebody who may read it, such as the principal that shared it",
        )


def _state(ctx: WriteContext, copy: StoredMemory) -> str:
    """Return the state of a copy relative to its own source, from which it can take words."""
    return freshness.states_of(ctx.tx, ctx.spaces, [copy], readable=ctx.readable)[copy.id].tie


def _detached_error(copy_id: str) -> CommonbookError:
    return Conflict(f"the copy {copy_id} was detached from its source", fix="share the source again for a new copy")


def _revoked_error(copy_id: str) -> CommonbookError:
    return NotAllowed(
        f"the principal that shared the copy {copy_id} may no longer read its source, or write to its space",
        fix="somebody who may do both can share the source again or `adopt` the copy; or detach it",
    )


def _source_deleted_error(copy_id: str) -> CommonbookError:
    return NotFound(f"the source of the copy {copy_id} is deleted", fix="detach the copy, or unshare it")


def _diverged_error(copy_id: str) -> CommonbookError:
    return Conflict(
        f"the copy {copy_id} was edited here", fix="`adopt` takes the source's text, `detach` keeps this one"
    )


_ERRORS: Final = {
    DETACHED: _detached_error,
    REVOKED: _revoked_error,
    SOURCE_DELETED: _source_deleted_error,
    DIVERGED: _diverged_error,
}
