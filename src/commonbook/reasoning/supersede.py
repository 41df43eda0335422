"""Reflecting on memories, superseding and reinstating them, and looking what rests on what."""

from __future__ import annotations

from functools import partial

from commonbook.errors import BadInput, Conflict
from commonbook.files import hand_edits, scan
from commonbook.model.invalidation import SupersedeReason
from commonbook.model.memory import Link, Memory
from commonbook.model.reasoning import SupersedeReport
from commonbook.model.spaces import FILESYSTEM_ACTOR, Actor
from commonbook.ports.engines import Engines
from commonbook.reasoning import link_checks, notices
from commonbook.tables import links, memories
from commonbook.text import validation
from commonbook.text.validation import validate_line
from commonbook.write import revise
from commonbook.write.context import WriteContext
from commonbook.write.transaction import logging_refusal

# --- superseding


def supersede(engines: Engines, actor: Actor, old_id: str, *, by: str, reason: str = "") -> SupersedeReport:
    """Let a memory supersede another, and tell everybody who rests on that one; doing it again changes nothing."""
    old_id, by = validation.validate_memory_id(old_id), validation.validate_memory_id(by)
    why = validate_line(reason, "reason")
    with logging_refusal(engines, actor, "supersede", [old_id]):
        return scan.write_with_scan(engines, actor, partial(_supersede, old_id=old_id, by=by, why=why))


def _supersede(ctx: WriteContext, *, old_id: str, by: str, why: str, looked: bool) -> SupersedeReport:
    ctx.lock([old_id])
    old = ctx.require(old_id)
    new = hand_edits.with_file_changes(ctx, ctx.require(by), looked=looked)
    return record_supersession(ctx, old, new, why)


def record_supersession(ctx: WriteContext, old: Memory, new: Memory, why: str) -> SupersedeReport:
    """Let one memory supersede another at a desk; the actor has the right to, and nobody changes them meanwhile."""
    if new.id == old.id:
        raise BadInput("a memory cannot supersede itself", fix="name another memory, or edit this one")
    if any((one.relation, one.target) == ("supersedes", old.id) for one in new.links):
        return SupersedeReport(old.id, new.id, new=False, notified=0)
    link = Link(new.id, "supersedes", old.id, old.revision)
    link_checks.require_valid_links(ctx, new, [link])
    because = tuple(one for one in new.supersede_reasons if one.superseded != old.id)
    said = new._replace(
        links=(*new.links, link), supersede_reasons=(*because, SupersedeReason(old.id, why)) if why else because
    )
    revise.store_revision(ctx, new, said, ["links"], how="supersede", superseded=old.id)
    if old.space.id != new.space.id:
        ctx.log(old.space, "superseded", (old.id,), by=new.id)
    told = notices.update_notices(ctx)
    readable = ctx.readable
    return SupersedeReport(old.id, new.id, new=True, notified=sum(one.space.id in readable for one in told))


def reinstate(engines: Engines, actor: Actor, old_id: str, *, by: str | None = None) -> SupersedeReport:
    """Take back that a memory was superseded, by one memory or by all: its dependents are no longer in doubt for it."""
    old_id = validation.validate_memory_id(old_id)
    by = validation.validate_memory_id(by) if by is not None else None
    return scan.write_with_scan(engines, actor, partial(_reinstate, old_id=old_id, by=by))


def _reinstate(ctx: WriteContext, *, old_id: str, by: str | None, looked: bool) -> SupersedeReport:
    """The right to write to the old memory is enough: what superseded it only loses the claim to have done so."""
    ctx.lock([old_id])
    old = ctx.require(old_id)
    found = links.incoming_any_space(ctx.tx, [old.id], relations=("supersedes",))
    ids = sorted({link.source for link in found if by is None or link.source == by} - {old.id})
    ctx.lock(ids)
    there = memories.get_many(ctx.tx, ctx.spaces, ids)
    live = [there[id_] for id_ in ids if id_ in there and there[id_].deleted is None]
    if not live:
        who = f" by {by}" if by else ""
        raise Conflict(f"memory {old.id} is not superseded{who}", fix="`commonbook show` says what supersedes it")
    for outline in live:
        new = hand_edits.with_file_changes(ctx.acting_as(FILESYSTEM_ACTOR), outline, looked=looked)
        said = new._replace(
            links=tuple(one for one in new.links if (one.relation, one.target) != ("supersedes", old.id)),
            supersede_reasons=tuple(one for one in new.supersede_reasons if one.superseded != old.id),
        )
        revise.store_revision(ctx, new, said, ["links"], how="reinstate", superseded=old.id)
    readable = ctx.readable
    shown = [one.id for one in live if one.space.id in readable]
    return SupersedeReport(old.id, shown[0] if shown else "", new=False, notified=0)
