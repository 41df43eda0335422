"""Refreshes one copy and the chain of sources behind it: on request, or for lazy copies by a job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from commonbook.model.memory import LAZY, LIVE, Memory
from commonbook.model.spaces import OWNER_ACTOR
from commonbook.ports.database import Transaction
from commonbook.ports.engines import Engines
from commonbook.sharing import freshness, propagate
from commonbook.tables import copies, jobs, memories, spaces
from commonbook.write.context import WriteContext
from commonbook.write.transaction import write


def refresh_lazy(engines: Engines, copy_id: str) -> None:
    """Refresh a copy from its source, in the name of the principal that shared it."""
    write(engines, OWNER_ACTOR, partial(refresh_chain, copy_id=copy_id))


def enqueue_refresh(engines: Engines, stale: Sequence[Memory]) -> None:
    """Request a refresh job for each of these copies; nothing is written if all of them are queued already."""
    with engines.db.reading() as tx:
        queued = jobs.already_queued(tx, propagate.REFRESH_JOB, [copy.id for copy in stale])
        stale = freshness.needing_refresh(tx, spaces.get_all(tx), [copy for copy in stale if copy.id not in queued])
    # Always in the order of ids, so that two concurrent requests cannot deadlock.
    missing = sorted((copy.id, copy.space.id) for copy in stale)

    def enqueue(tx: Transaction) -> None:
        for copy_id, space in missing:
            jobs.enqueue(tx, space=space, kind=propagate.REFRESH_JOB, subject=copy_id, due=tx.now)

    if missing:
        engines.db.write(enqueue, durable=False)


def refresh_chain(ctx: WriteContext, copy_id: str) -> None:
    """Refresh the copies along the chain from the furthest source to this copy, in that order."""
    for source_id, id_ in pairwise(lock_chain(ctx, copy_id)):
        source, copy = (memories.find(ctx.tx, ctx.spaces, memory_id) for memory_id in (source_id, id_))
        if source is not None and copy is not None:
            propagate.refresh_copy(ctx, copy, source)


def lock_chain(ctx: WriteContext, copy_id: str) -> list[str]:
    """Lock a copy and the sources that its text comes from; return their ids, the furthest source first.

    Lock order: a change of that source locks its copies in the same order.
    """
    ids = [copy_id]
    while len(ids) <= freshness.MAX_CHAIN_LENGTH:
        memory = memories.find(ctx.tx, ctx.spaces, ids[-1])
        link = memory.source if memory else None
        if memory is None or link is None or not copies.is_bound(memory) or link.target in ids:
            break
        if memory.id != copy_id and memory.shared is not None and memory.shared.mode not in (LIVE, LAZY):
            break
        ids.append(link.target)
    ids.reverse()
    for id_ in ids:
        ctx.lock([id_])
    return ids
