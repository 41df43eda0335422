"""Supersedes memories and reinstates them; dependents get or lose notices in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from commonbook.core.files import hand_edits, scan
from commonbook.core.markdown.memory_conversion import render_memory
from commonbook.core.tables import links, memories, supersession
from commonbook.core.text import masking, validation
from commonbook.core.text.validation import validate_line
from commonbook.core.write import store_version
from commonbook.core.write.context import ForeignWrite, WriteContext
from commonbook.core.write.transaction import logging_refusal
from commonbook.errors import BadInput, Conflict
from commonbook.ports.engines import Engines
from commonbook.subjects.reasoning import link_checks, notices
from commonbook.values.invalidation import REINSTATE, RETRACT, Decision, Invalidation, SupersedeReason, Verdict
from commonbook.values.reasoning import SupersedeReport
from commonbook.values.request import RequestContext
from commonbook.values.stored_memory import StoredLink, StoredMemory


def supersede(engines: Engines, caller: RequestContext, old_id: str, *, by: str, reason: str = "") -> SupersedeReport:
    """Let a memory supersede another, and notify the dependents of the old one; repeating it changes nothing."""
    old_id, by = validation.validate_memory_id(old_id), validation.validate_memory_id(by)
    why = masking.mask(validate_line(reason, "reason")).text
    with logging_refusal(engines, caller.actor, "supersede", [old_id]):
        return scan.write_with_scan(engines, caller, partial(_supersede, old_id=old_id, by=by, why=why))


def _supersede(ctx: WriteContext, *, old_id: str, by: str, why: str, scanned: bool) -> SupersedeReport:
    ctx.lock([old_id])
    old = ctx.require_writable(old_id)
    new = hand_edits.with_file_changes(ctx, ctx.require_writable(by), scanned=scanned)
    return record_supersession(ctx, old, new, why)


def record_supersession(ctx: WriteContext, old: StoredMemory, new: StoredMemory, why: str) -> SupersedeReport:
    """Store that one memory supersedes another; the caller has checked permissions and locked both."""
    if new.id == old.id:
        raise BadInput("a memory cannot supersede itself", fix="name another memory, or edit this one")
    if any((link.relation, link.target) == ("supersedes", old.id) for link in new.links):
        return SupersedeReport(old.id, new.id, new=False, notified=0)
    link = StoredLink(new.id, "supersedes", old.id, old.content_hash)
    link_checks.require_new_links(ctx, new, [link])
    reasons = tuple(reason for reason in new.supersede_reasons if reason.superseded != old.id)
    superseding = new._replace(
        links=(*new.links, link), supersede_reasons=(*reasons, SupersedeReason(old.id, why)) if why else reasons
    )
    store_version.store_version(ctx, new, superseding, ["links"], how="supersede", superseded=old.id)
    added = notices.update_notices(ctx)
    readable = ctx.readable
    return SupersedeReport(old.id, new.id, new=True, notified=sum(notice.space.id in readable for notice in added))


def reinstate(engines: Engines, caller: RequestContext, old_id: str, *, by: str | None = None) -> SupersedeReport:
    """Undo the supersession of a memory, by one memory or by all, and its retraction unless `by` is given.

    `by` may also stand in the place of a successor that has ended: the link of that one is removed.
    """
    old_id = validation.validate_memory_id(old_id)
    by = validation.validate_memory_id(by) if by is not None else None
    with logging_refusal(engines, caller.actor, "reinstate", [old_id]):
        return scan.write_with_scan(engines, caller, partial(_reinstate, old_id=old_id, by=by))


def _reinstate(ctx: WriteContext, *, old_id: str, by: str | None, scanned: bool) -> SupersedeReport:
    """Remove the links `supersedes`, and take a retraction back.

    The right to write to the old memory is enough: its successors lose nothing but that link. Only an agent that may
    change nothing in the space of a successor is refused.
    """
    ctx.lock([old_id])
    old = ctx.require_writable(old_id)
    successors = _successors(ctx, old, by)
    link_checks.require_may_reinstate(ctx, old, successors)
    is_retracted = by is None and any(decision.verdict == RETRACT for decision in old.decisions)
    if not successors and not is_retracted:
        by_whom = f" by {by}" if by else " or retracted"
        raise Conflict(f"memory {old.id} is not superseded{by_whom}", fix="`commonbook show` names its successor")
    for superseding in successors:
        new = superseding
        if superseding.deleted is None:
            new = hand_edits.with_file_changes(ctx.as_filesystem(), superseding, scanned=scanned)
        without = new._replace(
            links=tuple(link for link in new.links if (link.relation, link.target) != ("supersedes", old.id)),
            supersede_reasons=tuple(reason for reason in new.supersede_reasons if reason.superseded != old.id),
        )
        reinstating = ctx.because(ForeignWrite.REINSTATE)
        store_version.store_version(reinstating, new, without, ["links"], how="reinstate", superseded=old.id)
    if is_retracted:
        _take_retraction_back(ctx, hand_edits.with_file_changes(ctx, old, scanned=scanned))
    readable = ctx.readable
    visible = [memory.id for memory in successors if memory.space.id in readable]
    return SupersedeReport(old.id, visible[0] if visible else "", new=False, notified=0)


def _successors(ctx: WriteContext, old: StoredMemory, by: str | None) -> list[StoredMemory]:
    """Lock and return the direct successors of a memory: all, or those that are or lead to `by`.

    Deleted ones are among them: else an undelete would supersede the memory again, against the decision.
    """
    incoming = links.incoming_any_space(ctx.tx, [old.id], relations=("supersedes",))
    ctx.lock({link.source for link in incoming} - {old.id})
    successors = supersession.successors_of(ctx.tx, ctx.spaces, [old.id])
    wanted = successors.direct.get(old.id, ()) if by is None else successors.leading_to(old.id, by, ctx.tx.now)
    ids = sorted(successor.id for successor in wanted)
    by_id = memories.get_many(ctx.tx, ctx.spaces, ids)
    return [by_id[id_] for id_ in ids if id_ in by_id]


def _take_retraction_back(ctx: WriteContext, memory: StoredMemory) -> None:
    """Let a memory hold again: its decisions to retract become lines that settle nothing, and their times are removed.

    If an invalidation still stands, the memory is suspect again, and gets a notice.
    """
    retractions = [decision for decision in memory.decisions if decision.verdict == RETRACT]
    times = {decision.at for decision in retractions}
    settled = [Invalidation(*decision.key) for decision in retractions]
    ends = {name: None for name in ("expires", "valid_until") if getattr(memory, name) in times}
    record_decision(ctx, memory, settled, REINSTATE, "", also=ends, how="reinstate")
    ctx.note_reasoning_change(memory, memory)


def record_decision(
    ctx: WriteContext,
    memory: StoredMemory,
    settled: Sequence[Invalidation],
    verdict: Verdict | Literal["reinstate"],
    note: str,
    *,
    also: Mapping[str, object],
    how: str = "triage",
) -> StoredMemory:
    """Store a decision about invalidations in the memory; `also` has other fields that change with it."""
    by, at = ctx.actor.principal, ctx.tx.now
    settled_keys = {invalidation.key for invalidation in settled}
    kept = [decision for decision in memory.decisions if decision.key not in settled_keys]
    added = [Decision(verdict, cause.invalidated, cause.invalidating, by, at, note) for cause in settled]
    decided = memory._replace(decisions=(*kept, *added), **also)  # type: ignore[arg-type]
    changed = ["decisions", *also]
    # A front matter without room for the decision is refused before anything is changed.
    render_memory(decided, ctx.engines)
    return store_version.store_version(ctx, memory, decided, changed, how=how)
