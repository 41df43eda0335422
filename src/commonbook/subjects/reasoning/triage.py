"""Triage: records a decision about a suspect memory, for one notice or for all open invalidations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from commonbook.core.files import hand_edits, scan
from commonbook.core.tables import copies, memories, supersession
from commonbook.core.text import masking, validation
from commonbook.core.write.context import WriteContext
from commonbook.core.write.transaction import logging_refusal
from commonbook.errors import BadInput, Conflict
from commonbook.ports.engines import Engines
from commonbook.subjects.reasoning import invalidations as graph
from commonbook.subjects.reasoning import notices, supersede
from commonbook.subjects.reasoning.supersede import record_decision
from commonbook.values.invalidation import KEEP, REASONING, RETRACT, SUPERSEDE, VERDICTS, Invalidation, Verdict
from commonbook.values.reasoning import TriageReport
from commonbook.values.request import RequestContext
from commonbook.values.stored_memory import StoredLink, StoredMemory


def triage(
    engines: Engines, caller: RequestContext, memory_id: str, verdict: Verdict, *, note: str = "", by: str | None = None
) -> TriageReport:
    """Decide about a notice, or about all open invalidations of a memory at once."""
    memory_id = validation.validate_memory_id(memory_id)
    if verdict not in VERDICTS:
        raise BadInput(f"{verdict!r} is not a decision", fix=f"use one of {', '.join(VERDICTS)}")
    if (by is not None) != (verdict == SUPERSEDE):
        raise BadInput("`supersede`, and no other decision, needs a successor", fix="name the successor by its id")
    by = validation.validate_memory_id(by) if by is not None else None
    line = masking.mask(validation.validate_line(note, "note")).text
    with logging_refusal(engines, caller.actor, "supersede", [memory_id] if by else []):
        return scan.write_with_scan(
            engines, caller, partial(_triage, memory_id=memory_id, verdict=verdict, note=line, by=by)
        )


def _triage(
    ctx: WriteContext, *, memory_id: str, verdict: Verdict, note: str, by: str | None, scanned: bool
) -> TriageReport:
    subject = ctx.require_readable(memory_id)
    notice = subject.notice if graph.is_open(subject) else None
    memory = ctx.require_writable(notice.dependent if notice else subject.id)
    memory = hand_edits.with_file_changes(ctx, memory, scanned=scanned)
    graph.lock_ancestors(ctx.tx, [memory], ctx.lock)
    grounds = _readable_grounds(ctx, memory)
    # A notice that is open can always be decided, even if its cause is no longer known.
    causes = {notice.key} if notice else _open_causes(ctx, memory)
    settled = [Invalidation(*key) for key in sorted(causes)]
    outdated = notice is None and verdict == KEEP and graph.is_outdated(memory, grounds)
    if not settled and not outdated:
        raise Conflict(f"memory {memory.id} is not suspect", fix="`commonbook inbox` shows what waits for a decision")
    successor = hand_edits.with_file_changes(ctx, ctx.require_writable(by), scanned=scanned) if by else None
    fields = _changed_fields(ctx, memory, verdict, grounds)
    memory = record_decision(ctx, memory, settled, verdict, note, also=fields)
    keys = {invalidation.key for invalidation in settled}
    for about in graph.about(ctx.tx, ctx.spaces, [memory.id]).get(memory.id, ()):
        if about.notice.key in keys:
            notices.remove_decided(ctx, about.memory, verdict)
    if successor is not None:
        supersede.record_supersession(ctx, memory, successor, note)
    return TriageReport(memory.id, verdict, len(settled), memory.version, memory.space.name, memory.path)


def _readable_grounds(ctx: WriteContext, memory: StoredMemory) -> dict[str, StoredMemory]:
    """Return the direct sources of a memory that the actor may read.

    It cannot confirm the words of another one, and the hash of these would tell whether a guess at them is right.
    """
    grounds = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted(set(memory.grounds)))
    return {id_: ground for id_, ground in grounds.items() if ground.space.id in ctx.readable}


def _open_causes(ctx: WriteContext, memory: StoredMemory) -> set[tuple[str, str]]:
    """Return the causes that wait for a decision about a memory, by its notices and those of its sources."""
    sources = copies.sources_of(ctx.tx, ctx.spaces, [memory])
    chain = copies.chain_of(memory, sources)
    ids = [member.id for member in chain]
    successors = supersession.successors_of(ctx.tx, ctx.spaces, ids)
    endings = graph.ended_successors(chain, successors, ctx.tx.now)
    return graph.open_causes(memory, sources, graph.keys_about(ctx.tx, ids), endings)


def _changed_fields(
    ctx: WriteContext, memory: StoredMemory, verdict: Verdict, grounds: Mapping[str, StoredMemory]
) -> dict[str, object]:
    """Return the fields of a memory that a verdict changes, with their new values."""
    if verdict == KEEP:
        # The memory was confirmed against what those of its sources say now that the actor may read.
        return {"links": tuple(_confirmed(link, grounds) for link in memory.links)}
    if verdict == RETRACT:
        now = ctx.tx.now
        ends = memory.valid_until if memory.valid_until and memory.valid_until < now else now
        has_begun = memory.valid_from is None or memory.valid_from < ends
        return {"expires": now, "valid_until": ends if has_begun else memory.valid_until}
    return {}


def _confirmed(link: StoredLink, grounds: Mapping[str, StoredMemory]) -> StoredLink:
    target = grounds.get(link.target)
    if target is None or link.relation not in REASONING or link.target_hash is None:
        # If the book does not have the target any more, the link keeps what it took over.
        return link
    return link._replace(target_hash=target.content_hash)
