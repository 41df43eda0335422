"""What may rest on what: reflections only so deep, and nothing on itself."""

from __future__ import annotations

from collections.abc import Sequence

from commonbook.errors import BadInput, Conflict
from commonbook.model.invalidation import REASONING
from commonbook.model.memory import Link, Memory
from commonbook.model.reasoning import depth_cap
from commonbook.reasoning import graph
from commonbook.tables import links, memories
from commonbook.write.context import WriteContext


def require_valid_links(ctx: WriteContext, memory: Memory, new: Sequence[Link]) -> None:
    """Refuse links of a memory that would let it rest on itself, or stand too deep, or supersede what follows it.

    Notices come and go with what they tell of, so nothing rests on them or takes their place.
    """
    _require_no_notice(ctx, memory, new)
    added = memory._replace(links=(*(one for one in memory.links if one not in new), *new))
    if any(link.relation in REASONING for link in new):
        above = graph.ancestors_of(ctx.tx, ctx.spaces, [added], hold=ctx.lock)
        for link in new:
            if link.relation in REASONING:
                _require_no_circle(ctx, added, link, above)
        if any(link.relation == "reflects_on" for link in new):
            _require_depth(ctx, added, above)
    for link in new:
        if link.relation == "supersedes":
            _require_order(ctx, memory.id, link.target)


def _require_no_notice(ctx: WriteContext, memory: Memory, new: Sequence[Link]) -> None:
    targets = sorted({link.target for link in new if link.relation in {*REASONING, "supersedes"}})
    if not targets:
        return
    there = memories.get_headers(ctx.tx, ctx.spaces, targets)
    if any(one.kind == "notice" for one in (memory, *there.values())):
        raise BadInput(
            "a notice rests on nothing and supersedes nothing, and nothing does so with it",
            fix="name the memory that it is about, or `triage` it",
        )


def _require_no_circle(ctx: WriteContext, memory: Memory, link: Link, above: graph.Ancestors) -> None:
    """Refuse a link to what rests on the memory itself already."""
    target = above.known.get(link.target)
    if target is None:
        return
    way = graph.path_between(target, memory.id, above.known)
    if way:
        raise Conflict(
            f"{memory.id} would rest on itself: {' <- '.join(_shown(ctx, (*way, memory.id)))}",
            fix="link it to something that does not rest on it, or use `related_to`",
        )


def _require_depth(ctx: WriteContext, memory: Memory, above: graph.Ancestors) -> None:
    cap = depth_cap(memory.space, ctx.spaces)
    depth = graph.reflection_depth(memory, above.known, most=cap)
    if depth > cap:
        raise Conflict(
            f"the reflection would stand {depth} deep, and the space {memory.space.name!r} allows {cap}",
            fix="reflect on what the reflections rest on, or let an admin raise it: `commonbook space depth`",
        )


def _require_order(ctx: WriteContext, source: str, target: str) -> None:
    """Refuse to supersede what itself supersedes the source, by itself or through others."""
    level: dict[str, tuple[str, ...]] = {source: (source,)}
    seen = {source}
    while level:
        # Nobody may make a circle from the other side meanwhile.
        ctx.lock(level)
        found = links.incoming_any_space(ctx.tx, sorted(level), relations=("supersedes",))
        there = memories.get_headers_any_space(ctx.tx, ctx.spaces, sorted({link.source for link in found} - seen))
        onward: dict[str, tuple[str, ...]] = {}
        for link in found:
            if link.source in there and there[link.source].deleted is None:
                onward[link.source] = (*level[link.target], link.source)
        if target in onward:
            path = (*onward[target], source)
            raise Conflict(
                f"{source} cannot supersede {target}: {' <- '.join(_shown(ctx, path))} supersede each other in turn",
                fix="`reinstate` the one that still holds, or supersede both by a third",
            )
        seen.update(onward)
        level = onward


def _shown(ctx: WriteContext, ids: Sequence[str]) -> list[str]:
    """Return ids for a message; those that the actor may not read are not told."""
    there = memories.get_headers(ctx.tx, ctx.readable, sorted(set(ids)))
    return [id_ if id_ in there else "…" for id_ in ids]
