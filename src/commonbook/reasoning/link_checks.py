"""Checks new reasoning links: no cycle of dependencies or supersessions, limited depth, no notices, no proposals.

It also checks who may remove the link of a successor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from commonbook.access import review
from commonbook.errors import BadInput, Conflict, NotAllowed
from commonbook.model.invalidation import REASONING
from commonbook.model.memory import Link, Memory
from commonbook.model.reasoning import depth_cap
from commonbook.reasoning import invalidations as graph
from commonbook.tables import copies, links, memories, supersession
from commonbook.write import proposals
from commonbook.write.context import WriteContext


def require_new_links(ctx: WriteContext, memory: Memory, new: Sequence[Link]) -> None:
    """Refuse links that a stored memory cannot get: those of `require_valid_links`, and a proposal that supersedes."""
    if any(link.relation == "supersedes" for link in new):
        proposals.require_approved(memory)
    require_valid_links(ctx, memory, new)


def require_may_reinstate(ctx: WriteContext, old: Memory, successors: Sequence[Memory]) -> None:
    """Raise NotAllowed if a review keeps the actor from changing one of the successors, whose space is not named."""
    if any(review.holds_back(ctx.actor, successor.space.name, ctx.spaces) for successor in successors):
        raise NotAllowed(
            f"memory {old.id} has a successor that {ctx.actor.principal} may not change",
            fix="let a person reinstate it",
        )


def require_valid_links(ctx: WriteContext, memory: Memory, new: Sequence[Link]) -> None:
    """Refuse links by which a memory would depend on itself, exceed the depth, or supersede one of its successors.

    Notices are temporary, so nothing depends on them or supersedes them.
    """
    if not new:
        return
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
            _require_no_supersession_cycle(ctx, memory.id, link.target)


def _may_depend(ctx: WriteContext, memory: Memory, new: Sequence[Link]) -> bool:
    """Tell whether new reasoning links can close a cycle or be too deep: not those `derived_from` of a new memory."""
    return any(link.relation == "reflects_on" for link in new) or memories.exists(ctx.tx, memory.id)


def _require_no_notice(ctx: WriteContext, memory: Memory, new: Sequence[Link]) -> None:
    targets = sorted({link.target for link in new if link.relation in {*REASONING, "supersedes"}})
    if not targets:
        return
    headers = memories.get_headers(ctx.tx, ctx.spaces, targets)
    if any(end.kind == "notice" for end in (memory, *headers.values())):
        raise BadInput(
            "a notice has no sources and supersedes nothing, and no memory can depend on it or supersede it",
            fix="link to the memory that it is about, or `triage` it",
        )


def _require_no_cycle(ctx: WriteContext, memory: Memory, link: Link, ancestors: graph.Ancestors) -> None:
    """Refuse a link to a memory that depends on this one already."""
    target = ancestors.known.get(link.target)
    if target is None:
        return
    path = graph.path_between(target, memory.id, ancestors.known)
    if path:
        raise Conflict(
            f"{memory.id} would depend on itself: {' <- '.join(_redacted(ctx, (*path, memory.id)))}",
            fix="link it to a memory that does not depend on it, or use `related_to`",
        )


def _require_depth(ctx: WriteContext, memory: Memory) -> None:
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


def _require_no_supersession_cycle(ctx: WriteContext, source: str, target: str) -> None:
    """Refuse to supersede a memory that supersedes the source, directly, through others or through its copies.

    Deleted memories count: what supersedes one of them stands in its place, and it may come back.
    """
    level: dict[str, tuple[str, ...]] = {source: (source,)}
    seen = {source}
    while level:
        # The locks keep a concurrent transaction from closing the cycle from the other side.
        ctx.lock(level)
        chains = _chains_of_copies(ctx, level)
        for id_, path in level.items():
            if id_ != source and _is_superseded_with(chains[id_], target, by=source):
                raise Conflict(
                    f"{source} cannot supersede {target}: {' <- '.join(_redacted(ctx, (*path, source)))} supersede each"
                    " other in turn",
                    fix="`reinstate` the one that is still valid, or supersede both by a third",
                )
        found = _superseding(ctx, chains)
        level = {one: (*level[superseded], one) for superseded, one in found if one not in seen}
        seen.update(level)


def _chains_of_copies(ctx: WriteContext, ids: Iterable[str]) -> dict[str, list[Memory]]:
    """Return each memory with the sources along its tie, with which it is superseded; of a new memory, nothing."""
    headers = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted(ids))
    sources = copies.sources_of(ctx.tx, ctx.spaces, headers.values())
    return {id_: copies.chain_of(headers[id_], sources) if id_ in headers else [] for id_ in ids}


def _is_superseded_with(chain: Sequence[Memory], target: str, *, by: str) -> bool:
    """Tell whether a memory would be superseded with a target: it is that, or a copy of it, and not a copy of `by`."""
    ids = [member.id for member in chain]
    return target in ids and by not in ids[: ids.index(target)]


def _superseding(ctx: WriteContext, chains: Mapping[str, Sequence[Memory]]) -> list[tuple[str, str]]:
    """Return pairs of a memory and one that supersedes it, or a source along its tie."""
    members = sorted({member.id for chain in chains.values() for member in chain})
    direct: dict[str, list[Memory]] = {}
    incoming = links.incoming_any_space(ctx.tx, members, relations=supersession.RELATIONS) if members else []
    headers = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted({link.source for link in incoming}))
    for link in incoming:
        if link.source in headers:
            direct.setdefault(link.target, []).append(headers[link.source])
    return [
        (id_, successor.id)
        for id_, chain in chains.items()
        for found in supersession.in_place_of_others(chain, [direct.get(member.id, ()) for member in chain])
        for successor in found
    ]


def _redacted(ctx: WriteContext, ids: Sequence[str]) -> list[str]:
    """Return ids for a message, with an ellipsis for each memory that the actor may not read."""
    readable = memories.get_headers(ctx.tx, ctx.readable, sorted(set(ids)))
    return [id_ if id_ in readable else "…" for id_ in ids]
