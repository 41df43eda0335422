"""Refuses circles of supersession: memories that supersede each other in turn, so that none of them is recalled.

Such a circle is closed by a new link `supersedes`, or by a new source of a copy that supersedes others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from commonbook.core.tables import copies, links, memories, supersession
from commonbook.errors import Conflict

if TYPE_CHECKING:
    from commonbook.core.write.context import WriteContext
    from commonbook.values.stored_memory import StoredMemory


def require_none(ctx: WriteContext, memory: StoredMemory, target: str) -> None:
    """Refuse that a memory supersedes one that supersedes it, directly, through others or through its copies.

    The memory is as it will be: a copy with the source that it gets. Deleted memories count: what supersedes one of
    them stands in its place, and it may come back.
    """
    level: dict[str, tuple[str, ...]] = {memory.id: (memory.id,)}
    seen = {memory.id}
    while level:
        # The locks keep a concurrent transaction from closing the cycle from the other side.
        ctx.lock(level)
        chains = _chains_of_copies(ctx, level, memory)
        for id_, path in level.items():
            if id_ != memory.id and _is_superseded_with(chains[id_], target, by=memory.id):
                raise Conflict(
                    f"{memory.id} cannot supersede {target}: {' <- '.join(redacted(ctx, (*path, memory.id)))} supersede"
                    " each other in turn",
                    fix="`reinstate` the one that is still valid, or supersede both by a third",
                )
        found = _superseding(ctx, chains)
        level = {one: (*level[superseded], one) for superseded, one in found if one not in seen}
        seen.update(level)


def redacted(ctx: WriteContext, ids: Sequence[str]) -> list[str]:
    """Return ids for a message, with an ellipsis for each memory that the actor may not read."""
    readable = memories.get_headers(ctx.tx, ctx.readable, sorted(set(ids)))
    return [id_ if id_ in readable else "…" for id_ in ids]


def _chains_of_copies(ctx: WriteContext, ids: Iterable[str], memory: StoredMemory) -> dict[str, list[StoredMemory]]:
    """Return each memory with the sources along its tie, with which it is superseded; of an unknown one, nothing."""
    stored = sorted(set(ids) - {memory.id})
    headers = memories.get_headers_any_space(ctx.tx, ctx.spaces, stored) if stored else {}
    known = {**headers, memory.id: memory}
    sources = copies.sources_of(ctx.tx, ctx.spaces, [known[id_] for id_ in ids if id_ in known])
    return {id_: copies.chain_of(known[id_], sources) if id_ in known else [] for id_ in ids}


def _is_superseded_with(chain: Sequence[StoredMemory], target: str, *, by: str) -> bool:
    """Tell whether a memory would be superseded with a target: it is that, or a copy of it, and not a copy of `by`."""
    ids = [member.id for member in chain]
    return target in ids and by not in ids[: ids.index(target)]


def _superseding(ctx: WriteContext, chains: Mapping[str, Sequence[StoredMemory]]) -> list[tuple[str, str]]:
    """Return pairs of a memory and one that supersedes it, or a source along its tie."""
    members = sorted({member.id for chain in chains.values() for member in chain})
    direct: dict[str, list[StoredMemory]] = {}
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
