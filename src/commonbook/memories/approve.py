"""Approves and rejects proposed memories and requests to share.

A person who may write to the space decides about a proposed memory; an agent does not, and least of all the one that
proposed it. An approval moves the memory into the space. A rejection deletes it, so that it can be brought back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonbook.access import permissions, scope
from commonbook.errors import Conflict, NotAllowed
from commonbook.files import hand_edits, scan
from commonbook.memories.edit import require_version
from commonbook.memories.move import logging_refused_approval, move_to
from commonbook.memories.proposals import request_of
from commonbook.model.sharing import APPROVED, REJECTED, WITHDRAWN
from commonbook.sharing import propagate, requests
from commonbook.tables import memories, sharing_requests
from commonbook.text import space_names, validation
from commonbook.write import store_version

if TYPE_CHECKING:
    from commonbook.model.request import RequestContext
    from commonbook.model.sharing import RequestState, ShareRequest
    from commonbook.model.spaces import Actor
    from commonbook.model.stored_memory import StoredMemory
    from commonbook.ports.engines import Engines
    from commonbook.write.context import WriteContext


def approve(
    engines: Engines, caller: RequestContext, request_id: str, *, note: str, expected_version: int | None
) -> ShareRequest:
    """Approve a request to share, or accept a proposed memory into its space, if it has the expected version."""
    request_id, note = validation.validate_memory_id(request_id), requests.require_note(note)
    if not _is_proposal(engines, caller.actor, request_id):
        return requests.approve(engines, caller, request_id, note=note, expected_version=expected_version)

    def operation(ctx: WriteContext, *, scanned: bool) -> ShareRequest:
        memory = ctx.require_readable(request_id)
        note_proposal(memory)
        if ctx.actor.is_agent:
            raise _no_approval(ctx.actor, memory)
        memory = _require_waiting(hand_edits.with_file_changes(ctx, _writable(ctx, memory), scanned=scanned))
        require_version(memory, expected_version)
        space = ctx.require_writable_space(space_names.reviewed_space(memory.space.name))
        accepted = move_to(ctx, memory, space)
        propagate.propagate_to_copies(ctx)
        ctx.log(space, "proposal.approve", (), memory=memory.id, proposed_by=memory.author, note=_note_hash(ctx, note))
        return _decide(ctx, request_of(accepted, space), APPROVED, note)

    with logging_refused_approval(engines, caller.actor) as note_proposal:
        return scan.write_with_scan(engines, caller, operation)


def reject(engines: Engines, caller: RequestContext, request_id: str, *, note: str) -> ShareRequest:
    """Reject a request to share or a proposed memory; for the principal that made it, withdraw it."""
    request_id, note = validation.validate_memory_id(request_id), requests.require_note(note)
    if not _is_proposal(engines, caller.actor, request_id):
        return requests.reject(engines, caller, request_id, note=note)

    def operation(ctx: WriteContext, *, scanned: bool) -> ShareRequest:
        memory = _writable(ctx, ctx.require_readable(request_id))
        memory = _require_waiting(hand_edits.with_file_changes(ctx, memory, scanned=scanned))
        state: RequestState = WITHDRAWN if memory.author == ctx.actor.principal else REJECTED
        space = ctx.space_named(space_names.reviewed_space(memory.space.name)) or memory.space
        store_version.delete(ctx, memory, how="delete")
        action = "proposal.withdraw" if state == WITHDRAWN else "proposal.reject"
        ctx.log(memory.space, action, (), memory=memory.id, proposed_by=memory.author, note=_note_hash(ctx, note))
        return _decide(ctx, request_of(memory, space), state, note)

    return scan.write_with_scan(engines, caller, operation)


def _is_proposal(engines: Engines, actor: Actor, memory_id: str) -> bool:
    """Tell whether an id is that of a proposed memory that the actor may read."""
    with engines.db.reading() as tx:
        memory = memories.find(tx, scope.select(tx, actor), memory_id)
        return memory is not None and memory.deleted is None and memory.space.holds_proposals


def _writable(ctx: WriteContext, memory: StoredMemory) -> StoredMemory:
    permissions.require_writable(ctx.actor, memory, ctx.writable, ctx.spaces)
    return memory


def _require_waiting(memory: StoredMemory) -> StoredMemory:
    """Return a memory if it is still proposed: a person may have moved its file meanwhile."""
    if not memory.space.holds_proposals:
        raise Conflict(f"memory {memory.id} was approved meanwhile", fix="edit or delete it where it is now")
    return memory


def _no_approval(actor: Actor, memory: StoredMemory) -> NotAllowed:
    reason = "proposed this" if memory.author == actor.principal else "is an agent"
    return NotAllowed(
        f"{actor.principal} {reason} and cannot approve it", fix="let a person who may write to the space approve it"
    )


def _note_hash(ctx: WriteContext, note: str) -> str | None:
    return ctx.engines.keys.keyed_hash("note", note) if note else None


def _decide(ctx: WriteContext, request: ShareRequest, state: RequestState, note: str) -> ShareRequest:
    """Store the decision, and return the request with it, without title and text as other decided ones."""
    decided = request._replace(
        state=state,
        decided_by=ctx.actor.principal,
        decided_at=ctx.tx.now,
        note=note,
        title=None,
        text=None,
        version=None,
    )
    sharing_requests.add_decided_proposal(ctx.tx, decided)
    return decided
