"""Logs refused attempts in the spaces that they aimed at; of many in one hour, the log gets the first and a summary.

Anybody who knows the id of a memory can be refused as often as they like. The log of its space must not grow with that.
An attempt on an id that does not exist is counted and logged in the same way, in the log of the home: so the time that
a refusal takes does not tell whether there is such a memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from commonbook.access import permissions
from commonbook.errors import CommonbookError, NotAllowed, NotFound
from commonbook.model.request import RequestContext
from commonbook.model.spaces import Actor, Space
from commonbook.ports.engines import Engines
from commonbook.tables import memories, rate_counts
from commonbook.tables.rate_counts import MAX_LOGGED_REFUSALS
from commonbook.write.context import HOME_SPACE, WriteContext
from commonbook.write.foreign_writes import ForeignWrite
from commonbook.write.transaction import write


@contextmanager
def logging_refusal(engines: Engines, actor: Actor, verb: str, ids: Iterable[str]) -> Iterator[None]:
    """If the block raises NotAllowed or NotFound, log the refused attempt in the spaces of these memories.

    Also log attempts on memories named by the error; for a notice, log the attempt on its dependent. The attempt counts
    as a write of the actor, whether there are such memories or not: the write of the block itself was rolled back with
    its count.
    """
    try:
        yield
    except (NotAllowed, NotFound) as error:
        if wanted := (*ids, *(error.aimed_at if isinstance(error, NotAllowed) else ())):
            # If the home is full or busy, the caller still gets the refusal and not that error.
            with suppress(CommonbookError):
                write(engines, RequestContext(actor), partial(_note_refusals, verb=verb, ids=wanted))
        raise


def _note_refusals(ctx: WriteContext, *, verb: str, ids: Sequence[str]) -> None:
    if permissions.is_owner(ctx.actor):
        return
    writable = ctx.writable
    aimed_at = memories.get_many(ctx.tx, ctx.spaces, sorted(set(ids)))
    notices = {memory.id: memory.notice.dependent for memory in aimed_at.values() if memory.notice}
    if notices:
        ids = [notices.get(id_, id_) for id_ in ids]
        aimed_at = memories.get_many(ctx.tx, ctx.spaces, sorted(set(ids)))
    refused = [(memory.space, memory.id) for memory in aimed_at.values() if memory.space.id not in writable]
    refused += [(ctx.system_space(HOME_SPACE), id_) for id_ in sorted(set(ids) - aimed_at.keys())]
    # The counts are locked in the order of the spaces, against deadlocks.
    for space, memory_id in sorted(refused, key=lambda attempt: (attempt[0].id, attempt[1])):
        _note_refusal(ctx, space, verb=verb, memory=memory_id)


def _note_refusal(ctx: WriteContext, space: Space, *, verb: str, memory: str) -> None:
    refusals = rate_counts.count_refusal(ctx.tx, space=space.id, principal=ctx.actor.principal)
    refused = ctx.because(ForeignWrite.REFUSAL)
    former = {"not_logged": refusals.not_logged, "in_hour": refusals.former_hour} if refusals.not_logged else {}
    if refusals.number <= MAX_LOGGED_REFUSALS:
        refused.log(space, "refused", (), verb=verb, memory=memory, **former)
    elif refusals.number == MAX_LOGGED_REFUSALS + 1:
        # The number of those that follow is in the first entry of a later hour.
        refused.log(space, "refused.more", (), logged=MAX_LOGGED_REFUSALS, in_hour=refusals.hour)
