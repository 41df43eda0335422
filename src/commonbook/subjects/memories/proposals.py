"""Lists, approves and rejects proposed memories, beside the requests to share and the notices.

Proposed memories are shown to the people who may decide, and to the agent that proposed them. A person who may write to
the space decides; an agent does not, and least of all the one that proposed the memory. An approval moves the memory
into the space. A rejection deletes it, so that it can be brought back.
"""

from __future__ import annotations

from commonbook.core.access import permissions
from commonbook.core.files import hand_edits, scan
from commonbook.core.tables import memories, sharing_requests, spaces
from commonbook.core.text import space_names, validation
from commonbook.core.write import store_version
from commonbook.core.write.context import WriteContext
from commonbook.errors import Conflict, NotAllowed
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.subjects.memories.edit import require_version
from commonbook.subjects.memories.move import logging_refused_approval, move_to
from commonbook.subjects.reasoning import notices
from commonbook.subjects.sharing import propagate, requests
from commonbook.values.memory import LIVE, Filter
from commonbook.values.reasoning import Inbox
from commonbook.values.request import RequestContext
from commonbook.values.sharing import APPROVED, REJECTED, WITHDRAWN, RequestState, ShareRequest
from commonbook.values.spaces import Actor, Space, SpaceScope
from commonbook.values.stored_memory import StoredMemory


def pending(engines: Engines, actor: Actor, *, space: str | None, decided: bool) -> tuple[ShareRequest, ...]:
    """Return the requests and proposals that the actor may decide or has made; with `decided`, also decided ones."""
    with engines.db.reading() as tx:
        all_spaces = spaces.get_all(tx)
        decides, proposals = _visible_proposals(tx, actor, all_spaces, space)
        if decided:
            into = sharing_requests.into_spaces(tx, decides, decided=True)
            proposals = [*(request for request in into if request.purpose == "proposal"), *proposals]
        administers = bool(decides.keys() & permissions.administered(tx, actor, all_spaces).keys())
    shares: tuple[ShareRequest, ...] = ()
    # A writer decides about proposals alone.
    if space is None or administers or not (decides or proposals):
        shares = requests.list_requests(engines, actor, space=space, decided=decided)
    # A memory that is proposed again waits, also if it was decided before.
    by_id = {request.id: request for request in (*shares, *proposals)}
    return tuple(by_id[id_] for id_ in sorted(by_id))


def inbox(engines: Engines, actor: Actor, *, space: str | None, expired: bool, limit: int, after: str | None) -> Inbox:
    """Return a page of the notices about memories that the actor may read; the first one with the newest proposals."""
    page = notices.inbox(engines, actor, space=space, expired=expired, limit=limit, after=after)
    if after is not None:
        return page
    with engines.db.reading() as tx:
        _, proposals = _visible_proposals(tx, actor, spaces.get_all(tx), space)
    return page._replace(proposals=tuple(reversed(proposals))[:limit])


def _visible_proposals(
    tx: Reading, actor: Actor, all_spaces: SpaceScope, name: str | None
) -> tuple[SpaceScope, list[ShareRequest]]:
    """Return the spaces among those that a name selects whose proposals the actor decides, and the visible proposals.

    These are the proposals to those spaces, and those that the actor has made itself.
    """
    selected = permissions.select(tx, actor, name)
    to_space = {space_names.proposals_of(space.name): space for space in selected.values()}
    readable = permissions.readable(tx, actor, all_spaces)
    proposals = {id_: space for id_, space in readable.items() if space.name in to_space}
    writable = permissions.writable(tx, actor, all_spaces)
    decides = {to_space[space.name].id: to_space[space.name] for space in proposals.values()}
    decides = {id_: space for id_, space in decides.items() if id_ in writable}
    found = [
        request_of(memory, to_space[memory.space.name])
        for memory in _waiting(tx, proposals)
        if memory.author == actor.principal or to_space[memory.space.name].id in decides
    ]
    return decides, found


def _waiting(tx: Reading, proposals: SpaceScope) -> list[StoredMemory]:
    """Return the memories that wait in these spaces, the oldest first."""
    if not proposals:
        return []
    found: list[StoredMemory] = []
    cursor = None
    while batch := memories.page(tx, proposals, Filter(), after=cursor, limit=validation.MAX_PAGE):
        found += batch
        cursor = memories.cursor_position(batch[-1])
    return found[::-1]


def request_of(memory: StoredMemory, space: Space) -> ShareRequest:
    """Return a proposed memory as a request to accept it into a space."""
    return ShareRequest(
        id=memory.id,
        space=space.name,
        space_id=space.id,
        memory=memory.id,
        rule=None,
        refresh=LIVE,
        on_behalf_of=memory.author,
        requested_by=memory.author,
        requested_at=memory.created,
        title=memory.title,
        text=memory.text,
        purpose="proposal",
        version=memory.version,
    )


# --- decisions


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
    """Return whether an id names a proposed memory that the actor may read."""
    with engines.db.reading() as tx:
        memory = memories.find(tx, permissions.select(tx, actor), memory_id)
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
