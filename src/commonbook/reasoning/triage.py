"""Deciding about memories that are in doubt: the inbox of notices, and what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from commonbook.errors import BadInput, Conflict
from commonbook.files import hand_edits, scan
from commonbook.model.invalidation import KEEP, REASONING, RETRACT, SUPERSEDE, VERDICTS, Invalidation
from commonbook.model.memory import Link, Memory
from commonbook.model.reasoning import TriageReport
from commonbook.model.spaces import Actor
from commonbook.ports.engines import Engines
from commonbook.reasoning import graph, notices, supersede
from commonbook.text import validation
from commonbook.write.context import WriteContext

# --- deciding


def triage(
    engines: Engines, actor: Actor, memory_id: str, verdict: str, *, note: str = "", by: str | None = None
) -> TriageReport:
    """Decide about a notice, or about all doubts of a memory at once."""
    memory_id = validation.validate_memory_id(memory_id)
    if verdict not in VERDICTS:
        raise BadInput(f"{verdict!r} is no decision", fix=f"use one of {', '.join(VERDICTS)}")
    if (by is not None) != (verdict == SUPERSEDE):
        raise BadInput("what supersedes the memory goes with `supersede`, and only with it", fix="name it by its id")
    by = validation.validate_memory_id(by) if by is not None else None
    line = validation.validate_line(note, "note")
    return scan.write_with_scan(
        engines, actor, partial(_triage, memory_id=memory_id, verdict=verdict, note=line, by=by)
    )


def _triage(
    ctx: WriteContext, *, memory_id: str, verdict: str, note: str, by: str | None, looked: bool
) -> TriageReport:
    asked = ctx.require_readable(memory_id)
    said = asked.notice if notices.is_open(asked) else None
    memory = hand_edits.with_file_changes(ctx, ctx.require(said.dependent if said else asked.id), looked=looked)
    open_ = _doubts(ctx, memory)
    settled = [one for one in open_ if said is None or one.key == said.key]
    above = graph.ancestors_of(ctx.tx, ctx.spaces, [memory])
    outdated = said is None and verdict == KEEP and graph.is_outdated(memory, above.known)
    if not settled and not outdated:
        raise Conflict(f"memory {memory.id} is not in doubt", fix="`commonbook inbox` shows what waits for a decision")
    successor = hand_edits.with_file_changes(ctx, ctx.require(by), looked=looked) if by else None
    memory = notices.record_decision(ctx, memory, settled, verdict, note, **_changed(ctx, memory, verdict, above.known))
    keys = {one.key for one in settled}
    for notice in notices.notices_about(ctx.tx, ctx.spaces, memory.id):
        if notice.notice is not None and notice.notice.key in keys:
            notices.remove_notice(ctx, notice, how="triage", verdict=verdict)
    if successor is not None:
        supersede.record_supersession(ctx, memory, successor, note)
    return TriageReport(memory.id, verdict, len(settled), memory.version, memory.space.name, memory.path)


def _doubts(ctx: WriteContext, memory: Memory) -> tuple[Invalidation, ...]:
    """Return what a memory is in doubt for, while nobody changes what it rests on."""
    above = graph.ancestors_of(ctx.tx, ctx.spaces, [memory], hold=ctx.lock)
    return graph.open_invalidations(memory, above)


def _changed(ctx: WriteContext, memory: Memory, verdict: str, known: Mapping[str, Memory]) -> dict[str, object]:
    """Return which fields of a memory change with a verdict."""
    if verdict == KEEP:
        # It was looked at as things are now.
        return {"links": tuple(_looked_at(link, known) for link in memory.links)}
    if verdict == RETRACT:
        now = ctx.tx.now
        ends = memory.valid_until if memory.valid_until and memory.valid_until < now else now
        holds = memory.valid_from is None or memory.valid_from < ends
        return {"expires": now, "valid_until": ends if holds else memory.valid_until}
    return {}


def _looked_at(link: Link, known: Mapping[str, Memory]) -> Link:
    target = known.get(link.target)
    if target is None or link.relation not in REASONING or link.revision is None:
        return link
    return link._replace(revision=target.revision)
