"""Share requests: sharing into a space that needs the approval of one of its admins.

A rule or a principal makes the request. It is decided once, and never approved by the principal that made it or
that wrote the text.
"""

from __future__ import annotations

from typing import Final

from commonbook.core.access import permissions
from commonbook.core.tables import memories, rate_counts, sharing_requests, sharing_rules, spaces
from commonbook.core.text import space_names, validation
from commonbook.core.write import context
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.transaction import write
from commonbook.errors import CommonbookError, Conflict, NotAllowed, NotFound, TooLarge, VersionConflict
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.sharing import make_copy
from commonbook.values.ids import new_id
from commonbook.values.memory import LIVE, Refresh
from commonbook.values.request import RequestContext
from commonbook.values.sharing import APPROVED, REJECTED, WAITING, WITHDRAWN, ShareReceipt, ShareRequest
from commonbook.values.spaces import FILESYSTEM, LOCAL_OWNER, READER, WRITER, Actor, SpaceScope
from commonbook.values.stored_memory import StoredMemory

MAX_NOTE_CHARS: Final = 1000

# --- requesting


def create_request(
    engines: Engines, caller: RequestContext, memory_id: str, to: str, *, refresh: Refresh = LIVE
) -> ShareRequest:
    """Ask the admins of a space for a memory to be shared into it; the actor must be able to read both.

    Repeating an undecided request returns the first one.
    """
    memory_id = validation.validate_memory_id(memory_id)
    make_copy.require_mode(refresh)
    space_names.require_space_name(to)

    def operation(ctx: WriteContext) -> ShareRequest:
        space = context.readable_space(ctx, to)
        source = ctx.require_readable(memory_id)
        permissions.count_use(ctx.tx, ctx.actor, rate_counts.REQUEST)
        make_copy.require_shareable(source)
        existing = make_copy.existing_copy(ctx, source, space)
        if existing is not None:
            raise Conflict(f"the space {to!r} has this already, as {existing.id}", fix=f"read {existing.id}")
        principal = caller.actor.principal
        request = ShareRequest(
            id=new_id(),
            space=space.name,
            space_id=space.id,
            memory=source.id,
            rule=None,
            refresh=refresh,
            on_behalf_of=principal,
            requested_by=principal,
            requested_at=ctx.tx.now,
        )
        if sharing_requests.add(ctx.tx, request, source.root):
            # The action is stored in existing logs.
            ctx.because(ForeignWrite.REQUEST).log(space, "share.ask", (), request=request.id, memory=source.id)
        else:
            request = sharing_requests.waiting_for(ctx.tx, {space.id: space}, source.root, principal) or request
        return request._replace(title=source.title, text=source.text, version=source.version)

    return write(engines, caller, operation)


def list_requests(engines: Engines, actor: Actor, *, space: str | None, decided: bool) -> tuple[ShareRequest, ...]:
    """Return the requests that the actor may decide or has made, with `decided` also those already decided."""
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        administered = permissions.administered(tx, actor, all_spaces)
        if space is not None:
            targets = permissions.require_administered(tx, actor, all_spaces, space)
            into = sharing_requests.into_spaces(tx, targets, decided=decided)
            return tuple(_with_text(tx, all_spaces, request) for request in into)
        readable = permissions.readable(tx, actor, all_spaces)
        into = sharing_requests.into_spaces(tx, administered, decided=decided)
        visible = [_with_text(tx, all_spaces, request) for request in into]
        own = sharing_requests.requested_by(tx, readable, actor.principal, decided=decided)
        visible += [_with_text(tx, readable, request) for request in own if request.space_id not in administered]
        return tuple(sorted(visible, key=lambda request: request.id))


def _with_text(tx: Reading, known: SpaceScope, request: ShareRequest) -> ShareRequest:
    """Return an undecided request with title and text, if the principal that it acts for may still read the memory."""
    memory = memories.find(tx, permissions.readable(tx, Actor(request.on_behalf_of), known), request.memory)
    if memory is None or memory.deleted is not None or request.state != WAITING:
        return request
    return request._replace(title=memory.title, text=memory.text, version=memory.version)


# --- deciding


def approve(
    engines: Engines, caller: RequestContext, request_id: str, *, note: str = "", expected_version: int | None = None
) -> ShareRequest:
    """Approve a request and share the memory, on behalf of the rule's creator, or of the requester and the actor.

    A requester gives its right to read the memory, and the actor the right to write to the space.
    With `expected_version`, a memory that has another version by now is not shared.
    """
    request_id, note = validation.validate_memory_id(request_id), require_note(note)

    def operation(ctx: WriteContext) -> ShareRequest:
        request = _require(ctx, request_id)
        _decide(ctx, request, APPROVED, note)
        memory = _require_memory(ctx, request)
        if _identity(ctx.actor.principal) in _excluded_approvers(request, memory):
            raise NotAllowed(
                f"{ctx.actor.principal} asked for this, or wrote it, and cannot approve it",
                fix="let another admin approve it, or share it in your own name if you may",
            )
        if request.space_id not in permissions.administered(ctx.tx, ctx.actor, ctx.spaces):
            raise permissions.refusal(ctx.actor, request.space)
        if expected_version is not None and memory.version != expected_version:
            raise VersionConflict(memory=memory.id, expected=expected_version, found=memory.version)
        copy = _share(ctx, request, memory)
        sharing_requests.note_copy(ctx.tx, request, copy.id)
        ctx.log(ctx.spaces[request.space_id], "share.approve", (), request=request.id, memory=memory.id, copy=copy.id)
        return _reload(ctx, request)

    return write(engines, caller, operation)


def _share(ctx: WriteContext, request: ShareRequest, memory: StoredMemory) -> ShareReceipt:
    """Share a memory by an approved request: that of a rule by the rights of its creator alone."""
    space, requester = ctx.spaces[request.space_id], request.on_behalf_of
    if request.rule is None:
        return make_copy.make_copy(ctx, memory, space, request.refresh, requested_by=requester, request=request.id)
    as_creator = ctx.acting_as(Actor(requester), ForeignWrite.RULE_CREATOR)
    return make_copy.make_copy(as_creator, memory, space, request.refresh, request=request.id)


def reject(engines: Engines, caller: RequestContext, request_id: str, *, note: str = "") -> ShareRequest:
    """Reject a request; for the principal that made it, withdraw it."""
    request_id, note = validation.validate_memory_id(request_id), require_note(note)

    def operation(ctx: WriteContext) -> ShareRequest:
        request = _require(ctx, request_id)
        state = WITHDRAWN if _identity(ctx.actor.principal) == _identity(request.requested_by) else REJECTED
        _decide(ctx, request, state, note)
        note_hash = ctx.engines.keys.keyed_hash("note", note) if note else None
        action = "share.withdraw" if state == WITHDRAWN else "share.reject"
        logged = {"request": request.id, "memory": request.memory, "note": note_hash}
        ctx.because(ForeignWrite.REQUEST).log(ctx.spaces[request.space_id], action, (), **logged)
        return _reload(ctx, request)

    return write(engines, caller, operation)


def _require(ctx: WriteContext, request_id: str) -> ShareRequest:
    """Return a request that the actor may decide, or has made itself."""
    request = sharing_requests.find(ctx.tx, ctx.readable, request_id)
    if request is not None and request.space_id not in permissions.administered(ctx.tx, ctx.actor, ctx.spaces):
        request = request if request.rule is None and request.requested_by == ctx.actor.principal else None
    if request is None:
        raise NotFound(f"there is no request {request_id}", fix="`commonbook pending` lists the open requests")
    return request


def _decide(ctx: WriteContext, request: ShareRequest, state: str, note: str) -> None:
    """Record the decision, unless there is one already: of concurrent decisions, one wins."""
    if not sharing_requests.decide(ctx.tx, request, state, by=ctx.actor.principal, note=note):
        raise _already_decided(_reload(ctx, request))


def _already_decided(request: ShareRequest) -> CommonbookError:
    when = f" at {request.decided_at:%Y-%m-%d %H:%M:%S} UTC" if request.decided_at else ""
    return Conflict(
        f"the request {request.id} was {request.state} by {request.decided_by}{when}",
        fix="a decision is final: use `share` or `unshare` to change the outcome",
    )


def _require_memory(ctx: WriteContext, request: ShareRequest) -> StoredMemory:
    """Lock and return the requested memory; refuse if it or the rule is gone, or the sharer lost a permission."""
    ctx.lock([request.memory])
    memory = memories.find(ctx.tx, ctx.spaces, request.memory)
    if memory is None or memory.deleted is not None:
        raise Conflict(f"the memory {request.memory} was deleted meanwhile", fix="reject the request")
    if memory.space.id not in ctx.permissions_of(Actor(request.on_behalf_of)).with_role(READER, ctx.spaces):
        raise NotAllowed(
            f"{request.on_behalf_of} may no longer read the memory {request.memory}", fix="reject the request"
        )
    if request.rule is None:
        return memory
    if sharing_rules.find(ctx.tx, ctx.spaces, request.rule) is None:
        raise Conflict("the rule that asked for this was removed meanwhile", fix="reject the request")
    if request.space_id not in ctx.permissions_of(Actor(request.on_behalf_of)).with_role(WRITER, ctx.spaces):
        raise NotAllowed(
            f"{request.on_behalf_of} may no longer write to the space {request.space!r}", fix="reject the request"
        )
    return memory


def _excluded_approvers(request: ShareRequest, memory: StoredMemory) -> set[str]:
    """Return the principals that may not approve: the requester, and the memory's author and last editor."""
    return {_identity(request.requested_by), _identity(memory.author), _identity(memory.revised_by)}


def _identity(principal: str) -> str:
    """Return the principal behind another: hand edits count as the owner's."""
    return LOCAL_OWNER if principal == FILESYSTEM else principal


def _reload(ctx: WriteContext, request: ShareRequest) -> ShareRequest:
    return sharing_requests.find(ctx.tx, ctx.spaces, request.id) or request


def require_note(note: str) -> str:
    """Return the note of a decision, or refuse one that is too long."""
    note = validation.validate_text(note)
    if len(note) > MAX_NOTE_CHARS:
        raise TooLarge(f"a note has at most {MAX_NOTE_CHARS} characters", fix="shorten it")
    return note
