"""Checks new reasoning links: no cycle of dependencies or supersessions, limited depth, no notices, no store_version.

It also checks who may remove the link of a successor.
"""

from __future__ import annotations

from collections.abc import Sequence

from commonbook.core.access import permissions
from commonbook.core.tables import memories
from commonbook.core.write import store_version, supersession_cycles
from commonbook.core.write.context import WriteContext
from commonbook.errors import BadInput, Conflict, NotAllowed
from commonbook.subjects.reasoning import invalidations as graph
from commonbook.values.invalidation import REASONING
from commonbook.values.reasoning import depth_cap
from commonbook.values.stored_memory import StoredLink, StoredMemory


def require_new_links(ctx: WriteContext, memory: StoredMemory, new: Sequence[StoredLink]) -> None:
    """Refuse links that a stored memory cannot get: those of `require_valid_links`, and a proposal that supersedes."""
    if any(link.relation == "supersedes" for link in new):
        store_version.require_approved(memory)
    require_valid_links(ctx, memory, new)


def require_may_reinstate(ctx: WriteContext, old: StoredMemory, successors: Sequence[StoredMemory]) -> None:
    """Raise NotAllowed if a review keeps the actor from changing one of the successors, whose space is not named."""
    if any(permissions.holds_back(ctx.actor, successor.space.name, ctx.spaces) for successor in successors):
        raise NotAllowed(
            f"memory {old.id} has a successor that {ctx.actor.principal} may not change",
            fix="let a person reinstate it",
        )


def require_valid_links(ctx: WriteContext, memory: StoredMemory, new: Sequence[StoredLink]) -> None:
    """Refuse links by which a memory would depend on itself, exceed the depth, or supersede one of its successors.

    Notices are temporary, so nothing depends on them or supersedes them.
    """
    _require_no_notice(ctx, memory, new)
    added = memory._replace(links=(*(link for link in memory.links if link not in new), *new))
    reasoned = [link for link in new if link.relation in REASONING]
    if reasoned and _may_depend(ctx, memory, new):
        graph.lock_ancestors(ctx.tx, [added], ctx.lock)
        if graph.may_depend_on(ctx.tx, [link.target for link in reasoned], memory.id):
            ancestors = graph.ancestors_of(ctx.tx, ctx.spaces, [added])
            for link in reasoned:
                _require_no_cycle(ctx, added, link, ancestors)
        if any(link.relation == "reflects_on" for link in new):
            _require_depth(ctx, added)
    for link in new:
        if link.relation == "supersedes":
            supersession_cycles.require_none(ctx, memory, link.target)


def _may_depend(ctx: WriteContext, memory: StoredMemory, new: Sequence[StoredLink]) -> bool:
    """Tell whether new reasoning links can close a cycle or be too deep: not those `derived_from` of a new memory."""
    return any(link.relation == "reflects_on" for link in new) or memories.exists(ctx.tx, memory.id)


def _require_no_notice(ctx: WriteContext, memory: StoredMemory, new: Sequence[StoredLink]) -> None:
    targets = sorted({link.target for link in new if link.relation in {*REASONING, "supersedes"}})
    if not targets:
        return
    headers = memories.get_headers(ctx.tx, ctx.spaces, targets)
    if any(end.kind == "notice" for end in (memory, *headers.values())):
        raise BadInput(
            "a notice has no sources and supersedes nothing, and no memory can depend on it or supersede it",
            fix="link to the memory that it is about, or `triage` it",
        )


def _require_no_cycle(ctx: WriteContext, memory: StoredMemory, link: StoredLink, ancestors: graph.Ancestors) -> None:
    """Refuse a link to a memory that depends on this one already."""
    target = ancestors.known.get(link.target)
    if target is None:
        return
    path = graph.path_between(target, memory.id, ancestors.known)
    if path:
        raise Conflict(
            f"{memory.id} would depend on itself: {' <- '.join(supersession_cycles.redacted(ctx, (*path, memory.id)))}",
            fix="link it to a memory that does not depend on it, or use `related_to`",
        )


def _require_depth(ctx: WriteContext, memory: StoredMemory) -> None:
    cap = depth_cap(memory.space, ctx.spaces)
    if not graph.may_be_deeper(ctx.tx, memory, cap):
        return
    ancestors = graph.ancestors_of(ctx.tx, ctx.spaces, [memory])
    depth = graph.reflection_depth(memory, ancestors.known, limit=cap)
    if depth > cap:
        raise Conflict(
            f"the reflection would have depth {depth}, and the space {memory.space.name!r} allows {cap}",
            fix="reflect on the sources of those reflections, or let an admin raise it: `commonbook space depth`",
        )
