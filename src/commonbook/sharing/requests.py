"""Sharing that needs somebody's agreement: asked for by a rule or by a person, decided once, never by whoever asked."""

from __future__ import annotations

from typing import Final

from commonbook.access import permissions, rate_limits
from commonbook.errors import CommonbookError, Conflict, NotAllowed, NotFound, TooLarge
from commonbook.model.ids import new_id
from commonbook.model.memory import LIVE, Memory
from commonbook.model.sharing import APPROVED, REJECTED, WAITING, WITHDRAWN, ShareRequest
from commonbook.model.spaces import FILESYSTEM, LOCAL_OWNER, READER, WRITER, Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.sharing import make_copy
from commonbook.tables import memories, sharing_requests, sharing_rules, spaces
from commonbook.tables import rate_limits as rate_limit_rows
from commonbook.text import space_paths, validation
from commonbook.write import context
from commonbook.write.context import WriteContext
from commonbook.write.transaction import write

MAX_NOTE_CHARS: Final = 1000

# --- asking


def request(engines: Engines, actor: Actor, memory_id: str, to: str, *, refresh: str = LIVE) -> ShareRequest:
    """Ask those who administer a space to take a memory in; whoever asks must be able to read both.

    Asking again while it waits returns the same request.
    """
    memory_id = validation.validate_memory_id(memory_id)
    make_copy.require_mode(refresh)
    space_paths.require_space_name(to)

    def operation(ctx: WriteContext) -> ShareRequest:
        space = context.readable_space(ctx, to)
        source = ctx.require_readable(memory_id)
        rate_limits.count(ctx.tx, ctx.actor, rate_limit_rows.REQUEST)
        make_copy.require_shareable(source)
        there = make_copy.existing_copy(ctx, source, space)
        if there is not None:
            raise Conflict(f"the space {to!r} has this already, as {there.id}", fix=f"read {there.id}")
        who, now = actor.principal, ctx.tx.now
        asked = ShareRequest(new_id(), space.name, space.id, source.id, None, refresh, who, who, now)
        if sharing_requests.add(ctx.tx, asked, source.root):
            ctx.log(space, "share.ask", (), request=asked.id, memory=source.id)
        else:
            asked = sharing_requests.waiting_for(ctx.tx, {space.id: space}, source.root, who) or asked
        return asked._replace(title=source.title, text=source.text)

    return write(engines, actor, operation)


def list_requests(engines: Engines, actor: Actor, *, space: str | None, decided: bool) -> tuple[ShareRequest, ...]:
    """Return what waits for the actor's decision, or was decided too, and what it asked for itself."""
    with engines.db.reading() as tx:
        known = spaces.get_all(tx)
        administered = permissions.administered(tx, actor, known)
        if space is not None:
            place = permissions.require_admin(tx, actor, known, space_paths.require_space_name(space))
            return tuple(
                _shown(tx, known, one) for one in sharing_requests.into_spaces(tx, {place.id: place}, decided=decided)
            )
        readable = permissions.readable(tx, actor, known)
        found = [_shown(tx, known, one) for one in sharing_requests.into_spaces(tx, administered, decided=decided)]
        own = sharing_requests.requested_by(tx, readable, actor.principal, decided=decided)
        found += [_shown(tx, readable, one) for one in own if one.space_id not in administered]
        return tuple(sorted(found, key=lambda one: one.id))


def _shown(tx: Reading, known: SpaceScope, asked: ShareRequest) -> ShareRequest:
    """Return a request with what is to be shared, as far as the one in whose name it is asked for may still read it."""
    memory = memories.find(tx, permissions.readable(tx, Actor(asked.name), known), asked.memory)
    if memory is None or memory.deleted is not None or asked.state != WAITING:
        return asked
    return asked._replace(title=memory.title, text=memory.text)


# --- deciding


def approve(engines: Engines, actor: Actor, request_id: str, *, note: str = "") -> ShareRequest:
    """Agree to a request: the memory is shared now, in the name of the one who asked or made the rule."""
    request_id, note = validation.validate_memory_id(request_id), _note(note)

    def operation(ctx: WriteContext) -> ShareRequest:
        asked = _require(ctx, request_id)
        _decide(ctx, asked, APPROVED, note)
        memory = _still_there(ctx, asked)
        if _person(ctx.actor.principal) in _askers(asked, memory):
            raise NotAllowed(f"{ctx.actor.principal} asked for this and cannot approve it", fix="another admin must")
        if asked.space_id not in permissions.administered(ctx.tx, ctx.actor, ctx.spaces):
            raise permissions.refusal(ctx.actor, asked.space)
        named = ctx.acting_as(Actor(asked.name))
        copy = make_copy.make_copy(named, memory, ctx.spaces[asked.space_id], asked.refresh, request=asked.id)
        sharing_requests.note_copy(ctx.tx, asked, copy.id)
        ctx.log(ctx.spaces[asked.space_id], "share.approve", (), request=asked.id, memory=memory.id, copy=copy.id)
        return _now(ctx, asked)

    return write(engines, actor, operation)


def reject(engines: Engines, actor: Actor, request_id: str, *, note: str = "") -> ShareRequest:
    """Refuse a request; whoever asked takes it back by this."""
    request_id, note = validation.validate_memory_id(request_id), _note(note)

    def operation(ctx: WriteContext) -> ShareRequest:
        asked = _require(ctx, request_id)
        state = WITHDRAWN if _person(ctx.actor.principal) == _person(asked.asked_by) else REJECTED
        _decide(ctx, asked, state, note)
        said = ctx.engines.keys.keyed_hash("note", note) if note else None
        action = "share.withdraw" if state == WITHDRAWN else "share.reject"
        ctx.log(ctx.spaces[asked.space_id], action, (), request=asked.id, memory=asked.memory, note=said)
        return _now(ctx, asked)

    return write(engines, actor, operation)


def _require(ctx: WriteContext, request_id: str) -> ShareRequest:
    """Return a request that the actor may decide about, or has made itself."""
    asked = sharing_requests.find(ctx.tx, ctx.readable, request_id)
    if asked is not None and asked.space_id not in permissions.administered(ctx.tx, ctx.actor, ctx.spaces):
        asked = asked if asked.rule is None and asked.asked_by == ctx.actor.principal else None
    if asked is None:
        raise NotFound(f"there is no request {request_id}", fix="`commonbook pending` shows what waits")
    return asked


def _decide(ctx: WriteContext, asked: ShareRequest, state: str, note: str) -> None:
    """Let this be the decision, unless there is one: of several at once, one wins."""
    if not sharing_requests.decide(ctx.tx, asked, state, by=ctx.actor.principal, note=note):
        raise _decided(_now(ctx, asked))


def _decided(asked: ShareRequest) -> CommonbookError:
    when = f" at {asked.decided_at:%Y-%m-%d %H:%M:%S} UTC" if asked.decided_at else ""
    return Conflict(
        f"the request {asked.id} was {asked.state} by {asked.decided_by}{when}",
        fix="a decision stands: `share` or `unshare` what should be otherwise",
    )


def _still_there(ctx: WriteContext, asked: ShareRequest) -> Memory:
    """Return the memory that was asked for, or refuse: it is gone, or may no longer be shared by who would."""
    ctx.lock([asked.memory])
    memory = memories.find(ctx.tx, ctx.spaces, asked.memory)
    if memory is None or memory.deleted is not None:
        raise Conflict(f"the memory {asked.memory} was deleted meanwhile", fix="reject the request")
    if memory.space.id not in ctx.permissions_of(Actor(asked.name)).with_role(READER, ctx.spaces):
        raise NotAllowed(f"{asked.name} may no longer read the memory {asked.memory}", fix="reject the request")
    if asked.rule is None:
        return memory
    if sharing_rules.find(ctx.tx, ctx.spaces, asked.rule) is None:
        raise Conflict("the rule that asked for this was removed meanwhile", fix="reject the request")
    if asked.space_id not in ctx.permissions_of(Actor(asked.name)).with_role(WRITER, ctx.spaces):
        raise NotAllowed(f"{asked.name} may no longer write to the space {asked.space!r}", fix="reject the request")
    return memory


def _askers(asked: ShareRequest, memory: Memory) -> set[str]:
    """Return who may not approve: whoever asked, and if a rule did, whoever wrote what it is about to take in."""
    if asked.rule is None:
        return {_person(asked.asked_by)}
    return {_person(asked.asked_by), _person(memory.author), _person(memory.revised_by)}


def _person(principal: str) -> str:
    """Return who somebody is: hand edits are the owner's."""
    return LOCAL_OWNER if principal == FILESYSTEM else principal


def _now(ctx: WriteContext, asked: ShareRequest) -> ShareRequest:
    return sharing_requests.find(ctx.tx, ctx.spaces, asked.id) or asked


def _note(note: str) -> str:
    note = validation.validate_text(note)
    if len(note) > MAX_NOTE_CHARS:
        raise TooLarge(f"a note has at most {MAX_NOTE_CHARS} characters", fix="shorten it")
    return note
