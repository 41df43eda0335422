"""Decides which notices are withdrawn: those about a decided invalidation, and those whose cause the files disprove.

Where the book does not know the cause, the notice stays: the database that knew it was lost, or its file arrives later.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import NamedTuple

from commonbook.model.invalidation import DELETED, ENDED, Notice
from commonbook.model.stored_memory import StoredMemory, is_missing
from commonbook.reasoning import invalidations as graph
from commonbook.tables import copies, memories, supersession
from commonbook.write.context import WriteContext


class KnownCauses(NamedTuple):
    """The knowledge of the book about the memories that some notices are about, by their ids."""

    dependents: Mapping[str, StoredMemory]
    """These memories, also deleted ones; without their texts."""
    invalidations: Mapping[str, graph.Causes]
    """The invalidations for which each live one gets notices."""
    decided: Mapping[str, Collection[tuple[str, str]]]
    """The keys of the invalidations that were decided at each live one."""
    ancestors: graph.Ancestors
    arriving: Container[str]
    """The ids of memories around which something was added: perhaps by files, which arrive one by one."""


def is_obsolete(ctx: WriteContext, notice: Notice, known: KnownCauses) -> bool:
    """Tell whether a notice must be withdrawn: its invalidation was decided, or has no cause and can get none."""
    if notice.key in known.decided.get(notice.dependent, ()):
        return True
    if notice.key in known.invalidations.get(notice.dependent, {}):
        return False
    dependent = known.dependents.get(notice.dependent)
    if _is_last_trace(ctx, notice, dependent):
        return False
    return notice.dependent not in known.arriving or not _may_be_caused_yet(ctx, notice, dependent, known.ancestors)


def _is_last_trace(ctx: WriteContext, notice: Notice, dependent: StoredMemory | None) -> bool:
    """Tell whether a notice is all that is left of its cause, since the database that knew the rest was lost.

    That is a successor that has ended, or whatever invalidated the source of a copy.
    """
    if dependent is None or dependent.deleted is not None:
        return False
    if notice.invalidating == ENDED:
        is_unknown = not memories.exists(ctx.tx, notice.invalidated)
        return is_unknown and not supersession.has_ended(dependent, ctx.tx.now)
    source = copies.chain_of(dependent, copies.sources_of(ctx.tx, ctx.spaces, [dependent]))[-1]
    return is_missing(source) and _may_stand(ctx, notice)


def _may_be_caused_yet(
    ctx: WriteContext, notice: Notice, dependent: StoredMemory | None, ancestors: graph.Ancestors
) -> bool:
    """Tell whether a memory that the book does not have may be the cause of a notice, or lead to the cause.

    Its file may arrive after that of the notice, or it was deleted before the database was lost.
    """
    if dependent is None or dependent.deleted is not None:
        return dependent is None
    return _may_stand(ctx, notice) and graph.has_unknown_ancestor(dependent, ancestors)


def _may_stand(ctx: WriteContext, notice: Notice) -> bool:
    """Tell whether a memory is deleted or superseded as a notice says, or the book does not know."""
    if notice.invalidating == DELETED:
        invalidated = memories.find(ctx.tx, ctx.spaces, notice.invalidated)
        return invalidated is None or invalidated.deleted is not None
    superseding = supersession.superseding(ctx.tx, ctx.spaces, [notice.invalidated]).get(notice.invalidated, ())
    is_known = memories.exists(ctx.tx, notice.invalidating)
    return not is_known or notice.invalidating in {successor.id for successor in superseding}
