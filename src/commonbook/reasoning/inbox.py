"""The inbox: open notices about memories that an actor may read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from commonbook.access import permissions, scope
from commonbook.model.invalidation import DELETED, Invalidation, Notice
from commonbook.model.memory import Filter, Memory
from commonbook.model.reasoning import Inbox, InboxItem, MemoryReference
from commonbook.model.spaces import Actor, SpaceScope
from commonbook.ports.database import Reading
from commonbook.ports.engines import Engines
from commonbook.reasoning import graph, notices
from commonbook.tables import memories, spaces
from commonbook.text import space_paths, validation

# --- what waits


def inbox(engines: Engines, actor: Actor, *, space: str | None, expired: bool, limit: int, after: str | None) -> Inbox:
    """Return the notices about memories that the actor may read, newest first."""
    validation.require_page_limit(limit)
    cursor = memories.read_cursor(after) if after else None
    now = engines.clock.now()
    with engines.db.reading() as tx:
        allowed = permissions.readable(tx, actor, spaces.get_all(tx))
        asked = scope.readable(tx, actor, space)
        places = _places(allowed, asked)
        found = memories.page(tx, places, Filter(kinds=("notice",)), after=cursor, limit=limit + 1)
        some = [one for one in found[:limit] if expired or one.expires is None or one.expires > now]
        items = _waiting(tx, allowed, [one for one in some if notices.is_open(one)], now)
    return Inbox(tuple(items), memories.page_cursor(found[limit - 1]) if len(found) > limit else None)


def _places(allowed: SpaceScope, asked: SpaceScope) -> SpaceScope:
    """Return the spaces with the notices about memories of the asked ones."""
    names = {f"{one.name}/{space_paths.INVALIDATIONS}" for one in asked.values()} | {one.name for one in asked.values()}
    return {
        id_: one
        for id_, one in allowed.items()
        if one.name in names and one.name.rpartition("/")[2] == space_paths.INVALIDATIONS
    }


def _waiting(tx: Reading, allowed: SpaceScope, found: list[Memory], now: datetime) -> list[InboxItem]:
    told = [(notice, notice.notice) for notice in found if notice.notice is not None]
    there = memories.get_many(tx, allowed, sorted({said.dependent for _, said in told}))
    live = {id_: one for id_, one in there.items() if one.deleted is None}
    every = spaces.get_all(tx)
    above = graph.ancestors_of(tx, every, live.values())
    causes = {
        id_: {key: graph.visible_invalidation(cause, above.known, allowed) for key, cause in found.items()}
        for id_, found in ((id_, graph.invalidations_of(one, above, own=True)) for id_, one in live.items())
    }
    named = memories.get_headers(tx, every, sorted({id_ for _, said in told for id_ in said.key if id_ != DELETED}))
    return [
        _one(notice, said, live[said.dependent], causes[said.dependent].get(said.key), named, allowed, now)
        for notice, said in told
        if said.dependent in live
    ]


def _one(  # noqa: PLR0917 - one value from many
    notice: Memory,
    said: Notice,
    dependent: Memory,
    cause: Invalidation | None,
    named: Mapping[str, Memory],
    allowed: SpaceScope,
    now: datetime,
) -> InboxItem:
    superseding = named.get(said.invalidating)
    reasons = (
        [one.why for one in superseding.supersede_reasons if one.superseded == said.invalidated] if superseding else []
    )
    return InboxItem(
        id=notice.id,
        dependent=_mention(said.dependent, {dependent.id: dependent}, allowed),
        text=dependent.text,
        invalidated=_mention(said.invalidated, named, allowed),
        invalidating=None if said.invalidating == DELETED else _mention(said.invalidating, named, allowed),
        reason="".join(reasons),
        by=notice.author,
        at=said.at,
        expires=notice.expires,
        expired=notice.expires is not None and notice.expires <= now,
        depth=cause.depth if cause else 0,
        path=cause.path if cause else (),
        space=dependent.space.name,
    )


def _mention(id_: str, named: Mapping[str, Memory], allowed: SpaceScope) -> MemoryReference:
    memory = named.get(id_)
    if memory is None or memory.space.id not in allowed:
        return MemoryReference(id_)
    return MemoryReference(id_, memory.title, memory.space.name, memory.deleted)
