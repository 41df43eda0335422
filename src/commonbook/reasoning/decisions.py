"""Decisions: what `triage` or `reinstate` has decided about invalidations is stored in the memory that they concern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from commonbook.markdown.memory_conversion import render_memory
from commonbook.model.invalidation import Decision, Invalidation, Verdict
from commonbook.model.stored_memory import StoredMemory
from commonbook.write import store_version
from commonbook.write.context import WriteContext


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
